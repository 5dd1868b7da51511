"""Results that all rules share, computed once per report."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import TypeVar

from profiler_kit.records.report import Report, TraceReport

Result = TypeVar("Result")


class _Identity:
    """Makes a report a key of a cache by its identity: a hash of its contents would visit every kernel."""

    __slots__ = ("report",)

    def __init__(self, report: Report | TraceReport) -> None:
        self.report = report

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.report is other.report

    def __hash__(self) -> int:
        return id(self.report)


def once_per_report(compute: Callable[[Report | TraceReport], Result]) -> Callable[[Report | TraceReport], Result]:
    """Return `compute` with its result for the latest report stored."""

    @lru_cache(maxsize=1)
    def stored(key: _Identity) -> Result:
        return compute(key.report)

    @wraps(compute)
    def look_up(report: Report | TraceReport) -> Result:
        return stored(_Identity(report))

    return look_up
