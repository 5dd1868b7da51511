"""Trace reports: find the files, read and attribute each, explain. Their result also gives access to the events of the files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from profiler_kit.errors import TraceError, UsageError
from profiler_kit.pipeline.repairs import with_repair
from profiler_kit.pipeline.reports import TOOL, now, with_verdict
from profiler_kit.pipeline.trace_files import trace_files
from profiler_kit.pipeline.trace_reading import read_all
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.records.views import Plot, Views
from profiler_kit.traces.chunks import without_garbage_collection
from profiler_kit.units import plural

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection(Views):
    """The result of `inspect`: the report, the files of its traces in the same order, and the errors of unreadable files.

    `interrupted`: Ctrl-C stopped the reading before the last file. `timelines`: one step over time of some traces, by index.
    """

    report: TraceReport
    files: tuple[Path, ...]
    errors: tuple[TraceError, ...] = ()
    interrupted: bool = False
    timelines: Mapping[int, StepTimeline] = field(default_factory=dict)

    @property
    def traces(self) -> tuple[TraceSummary, ...]:
        """The summary of each trace."""
        return self.report.traces

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The findings, the most severe first."""
        return self.report.findings

    def events(self, file: str | Path | int | None = None) -> pandas.DataFrame:
        """Read one trace again and return its events, with step, phase and module, as a data frame (docs/events.md).

        `file` selects one of `files` by path, name or index; it may be None if there is only one file.

        Raises:
            UsageError: `file` does not select one of `files`.
            TraceError: the trace cannot be read.
            KitError: pandas is not installed.
        """
        from profiler_kit.pipeline.annotation import events_frame

        return events_frame(self._file(file))

    def plot(self, kind: str, *, run: str | None = None, by: str | None = None, trace: str | int | None = None) -> Plot:
        """One chart, as of any record. ``timeline`` reads the trace again, unless `timelines` has its step.

        Raises: TraceError: the trace cannot be read any more.
        """
        index = self.report.index(trace)
        inspection = self
        if kind == "timeline" and self.files and index not in self.timelines:
            from profiler_kit.pipeline.trace_reading import extract_trace

            timeline = extract_trace(self.files[index], timeline=True, of_job=False).rank.timeline
            inspection = replace(self, timelines={index: timeline} if timeline is not None else {})
        return Views.plot(inspection, kind, run=run, by=by, trace=trace)

    def __repr__(self) -> str:
        unreadable = f", {plural(len(self.errors), 'unreadable file')}" if self.errors else ""
        return repr(self.report).replace("TraceReport", "Inspection", 1).removesuffix(">") + f"{unreadable}>"

    def _record(self) -> TraceReport:
        return self.report

    def _timelines(self) -> Mapping[int, StepTimeline]:
        return self.timelines

    def _file(self, selector: str | Path | int | None) -> Path:
        if selector is None and len(self.files) == 1:
            return self.files[0]
        if isinstance(selector, int) and -len(self.files) <= selector < len(self.files):
            return self.files[selector]
        matches = [
            file
            for file in self.files
            if isinstance(selector, (str, Path)) and Path(selector) in (file, Path(file.name))
        ]
        if len(matches) == 1:
            return matches[0]
        message = "several traces, and no file selected" if selector is None else f"no trace {str(selector)!r}"
        raise UsageError(message, hint=f"pass one of: {', '.join(map(str, self.files))}")


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
    findings = diagnose_traces(report, tuple(read.models.values()))
    return Inspection(
        report=with_verdict(replace(report, findings=findings)),
        files=read.files,
        errors=read.errors,
        interrupted=read.interrupted,
        timelines={i: with_repair(line, findings, read.models.get(i)) for i, line in read.timelines.items()},
    )
