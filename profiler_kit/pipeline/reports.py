"""A new report, and a report with its floors and findings: what every verb on a target ends with."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import replace

from profiler_kit._version import VERSION
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Report, Tool
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo

TOOL = Tool(name="profiler_kit", version=VERSION)


def new_report(
    info: TargetInfo, static: StaticCount | None, runs: Sequence[ConfigRun] = (), notes: Sequence[str] = ()
) -> Report:
    """A report of what was counted and measured, before anything is concluded from it."""
    return Report(
        tool=TOOL,
        created=now(),
        target=info,
        static=static,
        runs=tuple(runs),
        notes=tuple(notes),
    )


def explained(report: Report, by_kit: StaticCount | None, bounded: Callable[[Report], Report]) -> Report:
    """`report` with floors and findings, which rest on the kit's own count whatever convention is shown."""
    from profiler_kit.diagnosis import diagnose

    found = bounded(replace(report, static=by_kit))
    return replace(found, static=report.static, findings=diagnose(found))


def now() -> str:
    """The time of a report: UTC, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
