"""Target reports: creating one, and adding rooflines and findings."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from profiler_kit._version import VERSION
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.notes import Note
from profiler_kit.records.report import Report, Tool, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import StepModel

AnyReport = TypeVar("AnyReport", Report, TraceReport)

TOOL = Tool(name="profiler_kit", version=VERSION)


def new_report(
    info: TargetInfo, static: StaticCount | None, runs: Sequence[ConfigRun] = (), notes: Iterable[Note] = ()
) -> Report:
    """A report of counts and runs, without rooflines and findings."""
    return Report(
        tool=TOOL,
        created=now(),
        target=info,
        static=static,
        runs=tuple(runs),
        notes=tuple(notes),
    )


def with_findings(
    report: Report,
    by_kit: StaticCount | None,
    add_roofline: Callable[[Report], Report],
    models: Mapping[str, StepModel] = MappingProxyType({}),
) -> Report:
    """Add rooflines and findings to `report`. Both use the count in the kit's convention, whichever convention is shown.

    `models`: of the steps of runs, by configuration.
    """
    from profiler_kit.diagnosis import diagnose

    bounded = add_roofline(replace(report, static=by_kit))
    return replace(with_verdict(replace(bounded, findings=diagnose(bounded, models))), static=report.static)


def with_verdict(report: AnyReport) -> AnyReport:
    """Add the verdict to `report`, unless it has one: reports of earlier versions have none."""
    from profiler_kit.diagnosis import verdict

    return report if report.verdict is not None else replace(report, verdict=verdict(report))


def now() -> str:
    """The current time in UTC, to the second, as ISO 8601."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
