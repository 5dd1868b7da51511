"""Trace reports: find the files, read and attribute each, explain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from profiler_kit.pipeline.inspection import Inspection
from profiler_kit.pipeline.reports import TOOL, now
from profiler_kit.pipeline.trace_files import trace_files
from profiler_kit.pipeline.trace_reading import read_all
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.report import TraceReport


def inspect(traces: str | Path | Iterable[str | Path], *, say: OnProgress | None = None) -> Inspection:
    """Where the time of `traces` went: one file, several, or folders of them, one file per rank or not.

    A file that can't be read stands in `Inspection.errors` where another one can. Ctrl-C gives what was read before.

    Raises UsageError where there is no such file, TraceError where none of them can be read.
    """
    from profiler_kit.diagnosis import diagnose_traces

    meant = trace_files([traces] if isinstance(traces, (str, Path)) else traces)
    read = read_all(meant.files, say or silent)
    report = TraceReport(
        tool=TOOL,
        created=now(),
        traces=read.traces,
        ranks=read.ranks,
        notes=(*(f"left out: {error.where}: {error.message}" for error in read.errors), *meant.notes, *read.notes),
    )
    return Inspection(
        report=replace(report, findings=diagnose_traces(report)),
        files=read.files,
        errors=read.errors,
        interrupted=read.interrupted,
    )
