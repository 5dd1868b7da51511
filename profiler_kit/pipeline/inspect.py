"""Trace reports: find the files, read and attribute each, explain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from profiler_kit.pipeline.inspection import Inspection
from profiler_kit.pipeline.reports import TOOL, now, with_verdict
from profiler_kit.pipeline.trace_files import trace_files
from profiler_kit.pipeline.trace_reading import read_all
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.report import TraceReport
from profiler_kit.traces.garbage import without_garbage_collection


@without_garbage_collection()
def inspect(
    traces: str | Path | Iterable[str | Path],
    *,
    names: Mapping[Path, str] | None = None,
    on_progress: OnProgress = ignore_progress,
    timelines: bool = False,
) -> Inspection:
    """Read `traces` and report where their time goes.

    `traces` is a file, a folder of traces, or several of both; several traces may be the ranks of one job. Files that
    cannot be read are listed in `Inspection.errors`. `names`: names for files whose path says
    nothing. `timelines`: fill `Inspection.timelines`, for pages. Ctrl-C returns the traces that were read.

    Raises:
        UsageError: a file or folder does not exist, or contains no trace.
        TraceError: none of the files can be read.
    """
    from profiler_kit.diagnosis import diagnose_traces

    inputs = trace_files([traces] if isinstance(traces, (str, Path)) else traces)
    read = read_all(inputs.files, on_progress, names, timelines=timelines)
    report = TraceReport(
        tool=TOOL,
        created=now(),
        traces=read.traces,
        ranks=read.ranks,
        notes=(*(f"skipped: {error.where}: {error.message}" for error in read.errors), *inputs.notes, *read.notes),
    )
    return Inspection(
        report=with_verdict(replace(report, findings=diagnose_traces(report, read.models))),
        files=read.files,
        errors=read.errors,
        interrupted=read.interrupted,
        timelines=read.timelines,
    )
