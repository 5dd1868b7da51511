"""Comparisons of two targets or saved reports, which are counted or measured if necessary, and of two traces.

Sides at git revisions are ordinary targets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit.command_lines import kit_command
from profiler_kit.comparison.compare import compare
from profiler_kit.errors import ReportError, TargetError, UsageError
from profiler_kit.gate.revisions import RevisionTarget, is_range, revision_targets, split_range
from profiler_kit.measurement.session import Session, measure_sides
from profiler_kit.measurement.worker_process import worker_forks
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.progress import OnProcess
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import is_saved_report, read_report, read_saved
from profiler_kit.records.target import TargetSpec
from profiler_kit.records.trace_comparison import TraceComparison

CONFIGS: Final = ("default", "no-tf32")  # measured by default
PASSES: Final = 3  # further processes of each configuration and side, interleaved
FURTHER_SHARE: Final = 0.5  # of the budget, which processes after these may take while a verdict is open
HEAD_BYTES: Final = 4096  # enough of a file to recognize our reports by their first keys
SAME_KIND_HINT: Final = "give two traces, or two targets or reports"
SINGLE_TRACE_HINT: Final = "give one trace per side"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The reports of two sides. `failure` is set if a side was measured for the comparison and all its runs failed.

    `interrupted`: Ctrl-C stopped the repetitions; the sides have fewer processes.
    """

    a: Report
    b: Report
    failure: TargetError | None
    interrupted: bool = False

    def compare(self) -> Comparison:
        """The comparison of the two reports. Raises NotComparableError."""
        return compare(self.a, self.b)


def report_sides(
    a: str | TargetSpec,
    b: str | TargetSpec,
    *,
    static: bool,
    convention: str,
    device: str,
    configs: tuple[str, ...] | None,
    budget_s: float,
    steps: int | None,
    timeout_s: float | None,
    on_progress: OnProgress,
    on_process: OnProcess,
) -> Sides:
    """The reports of `a` and `b`: a text is the path of a saved report; a spec is counted (`static`) or measured.

    `configs` None measures the default configuration and the same without TF32. Both sides share `budget_s`.

    Raises:
        TargetError, UsageError, ReportError
        KeyboardInterrupt: Ctrl-C interrupted one side.
    """
    from profiler_kit.pipeline.analyze import all_failed, analyze_spec
    from profiler_kit.pipeline.count import count_spec

    for side in (a, b):  # before the other side is measured
        _require_readable(side)
    measured_specs: list[TargetSpec] = []

    def report_of(side: str | TargetSpec) -> Report:
        if isinstance(side, str):
            return read_report(side)
        if static:
            on_progress(f"{side.spec}: counting")
            return count_spec(side, convention=convention, timeout_s=timeout_s)
        analysis = analyze_spec(
            side,
            device=device,
            configs=configs or CONFIGS,
            budget_s=budget_s / 2,
            steps=steps,
            timeout_s=timeout_s,
            on_progress=partial(_named_progress, on_progress, side),
            on_process=_named(on_process, side),
            convention=convention,
        )
        if analysis.interrupted:
            raise KeyboardInterrupt  # one side alone cannot be compared
        measured_specs.append(analysis.spec)
        return analysis.report

    measured = () if static else tuple(side for side in (a, b) if isinstance(side, TargetSpec))
    with worker_forks(*measured) if measured else contextlib.nullcontext():
        reports = report_of(a), report_of(b)
        interrupted = False
        if len(measured_specs) == len(reports):
            reports, interrupted = _measured_again(
                reports,
                (measured_specs[0], measured_specs[1]),
                device=device,
                budget_s=budget_s,
                steps=steps,
                timeout_s=timeout_s,
                on_progress=on_progress,
                on_process=on_process,
            )
    failures = []
    for side, report in zip((a, b), reports, strict=True):
        failed = all_failed(report)
        if failed is not None and isinstance(
            side, TargetSpec
        ):  # the static parts are compared, but the requested times are missing
            hint = f"see the log: {kit_command('analyze', side.spec)}"
            failures.append(TargetError(failed.message, where=side.spec, hint=hint))
    return Sides(a=reports[0], b=reports[1], failure=next(iter(failures), None), interrupted=interrupted)


def _require_readable(side: str | TargetSpec) -> None:
    """Raise ReportError or TargetError for a path of no report or of no Python file."""
    if isinstance(side, str):
        read_report(side)
    else:
        require_torch()
        from profiler_kit.loading.scripts.source import require_file

        require_file(side)


def with_labels(sides: Sides, revisions: Mapping[str, RevisionTarget], texts: tuple[str, str]) -> Sides:
    """`sides` with what the user wrote in place of paths into temporary checkouts."""
    reports = []
    for text, report in zip(texts, (sides.a, sides.b), strict=True):
        at_revision = revisions.get(text)
        if at_revision is not None:
            report = replace(report, target=replace(report.target, spec=at_revision.label))
        reports.append(report)
    return replace(sides, a=reports[0], b=reports[1])


def _named_progress(on_progress: OnProgress, spec: TargetSpec, line: str) -> None:
    """Call `on_progress` with the target in front of `line`."""
    on_progress(f"{spec.spec}: {line}")


def _named(on_process: OnProcess, spec: TargetSpec) -> OnProcess:
    """`on_process` with the target in front of the configuration's name."""
    return lambda start: on_process(start and replace(start, name=f"{spec.spec}: {start.name}"))


def _measured_again(
    reports: tuple[Report, Report],
    specs: tuple[TargetSpec, TargetSpec],
    *,
    device: str,
    budget_s: float,
    steps: int | None,
    timeout_s: float | None,
    on_progress: OnProgress,
    on_process: OnProcess,
) -> tuple[tuple[Report, Report], bool]:
    """The reports with further processes of every shared configuration, interleaved, and whether Ctrl-C stopped them.

    The sides were measured one after the other, so load that comes and goes would look like a difference between them.
    """
    from profiler_kit.worker.environment import pick_device

    def unread(run: ConfigRun, trace: Path) -> ConfigRun:
        return run  # further processes write no trace

    sessions = [
        Session(
            spec=spec,
            device=pick_device(device),
            budget_s=budget_s / 2,
            on_progress=partial(_named_progress, on_progress, spec),
            on_process=_named(on_process, spec),
            read_trace=unread,
            read_parts_trace=unread,
            steps=steps,
            timeout_s=timeout_s,
            runs=list(report.runs),
        )
        for report, spec in zip(reports, specs, strict=True)
    ]
    names = [{run.config.name for run in report.runs if run.failure is None} for report in reports]
    shared = [
        run.config for run in reports[0].runs if run.config.repeat_of is None and run.config.name in names[0] & names[1]
    ]
    measure_sides((sessions[0], sessions[1]), shared, PASSES, further_s=FURTHER_SHARE * budget_s)
    repeated = [replace(report, runs=tuple(side.runs)) for report, side in zip(reports, sessions, strict=True)]
    return (repeated[0], repeated[1]), any(side.interrupted for side in sessions)


def is_saved(text: str) -> bool:
    """Whether `text` is the path of a saved report: a .json file, or a folder that contains one."""
    return is_saved_report(Path(text))


def are_traces(a: str, b: str) -> bool:
    """Whether both texts are paths of traces or of saved trace reports. Raises UsageError if only one is."""
    traces = _is_trace(a), _is_trace(b)
    if traces[0] != traces[1]:
        trace, not_trace = (a, b) if traces[0] else (b, a)
        raise UsageError(f"{trace} is a trace, but {not_trace} is not", hint=SAME_KIND_HINT)
    return traces[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedTraces:
    """A comparison of traces, and a step of each side over time, where requested.

    There are no `timelines` for the ranks of jobs and for saved reports.
    """

    comparison: TraceComparison
    timelines: tuple[StepTimeline, ...] = ()


def compare_traces(a: str, b: str, *, on_progress: OnProgress, timelines: bool = False) -> ComparedTraces:
    """The comparison of two traces, or of the ranks of two distributed jobs.

    Raises:
        UsageError: a side contains several traces that are not ranks of one job.
        TraceError, NotComparableError
        KeyboardInterrupt: Ctrl-C interrupted the reading.
    """
    from profiler_kit.comparison.trace_ranks import compare_ranks, traces_by_rank
    from profiler_kit.comparison.traces import compare_traces as compare_two

    sides = _trace_side(a, on_progress, timelines), _trace_side(b, on_progress, timelines)
    reports = [report for report, _ in sides]
    counts = [len(report.traces) for report in reports]
    if counts == [1, 1]:
        drawn = tuple(timeline for _, timeline in sides if timeline is not None)
        compared = compare_two(reports[0].traces[0], reports[1].traces[0])
        return ComparedTraces(comparison=compared, timelines=drawn if len(drawn) == len(sides) else ())
    for text, report, count in zip((a, b), reports, counts, strict=True):
        if count > 1 and not traces_by_rank(report):
            raise UsageError(f"{text} contains {count} traces that are not ranks of one job", hint=SINGLE_TRACE_HINT)
    if 1 in counts:
        several, count = (a, counts[0]) if counts[0] > 1 else (b, counts[1])
        raise UsageError(
            f"{several} contains {count} traces, but the other side contains one",
            hint=f"{SINGLE_TRACE_HINT}; or give one folder of ranks per job",
        )
    ranks = compare_ranks(traces_by_rank(reports[0]), traces_by_rank(reports[1]), names=(a, b))
    return ComparedTraces(comparison=ranks)


def _is_trace(text: str) -> bool:
    path = Path(text)
    try:
        is_folder = path.is_dir()
    except OSError as error:  # a name that is too long for a path
        raise UsageError(
            f"not a path of a file: {error.strerror}", where=f"{text[:100]}...", hint=SAME_KIND_HINT
        ) from error
    if is_folder:
        return not (path / "report.json").exists() and any(path.glob("*.json*"))
    if not path.is_file():
        return text.endswith(".json.gz")
    if path.name.endswith(".gz"):
        return True
    if path.suffix != ".json":
        return False
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if b'"schema"' not in head:
        return b'"traceEvents"' in head or b'"schemaVersion"' in head or head.lstrip()[:1] == b"["
    return _saved_traces(path) is not None


def _saved_traces(path: Path) -> TraceReport | None:
    """The trace report saved at `path`; None for any other file, whose own reader reports errors."""
    try:
        saved = read_saved(path)
    except ReportError:
        return None
    return saved if isinstance(saved, TraceReport) else None


def _trace_side(text: str, on_progress: OnProgress, timelines: bool) -> tuple[TraceReport, StepTimeline | None]:
    """The report of one side, and the timeline of its trace, where requested; none for a saved report."""
    from profiler_kit.pipeline.inspect import inspect

    path = Path(text)
    saved = _saved_traces(path) if path.suffix == ".json" and path.is_file() else None
    if saved is not None:
        return saved, None
    inspection = inspect(path, on_progress=lambda line: on_progress(f"{text}: {line}"), timelines=timelines)
    if inspection.interrupted:
        raise KeyboardInterrupt  # one side alone cannot be compared
    return inspection.report, inspection.timelines.get(0)


__all__ = ["RevisionTarget", "revision_targets", "sides_of"]


def sides_of(a: str, b: str, folder: Path) -> tuple[str, str]:
    """The two sides of a command line: those of ``REV..REV TARGET`` in any order, or `a` and `b`. Raises UsageError."""
    if is_range(a, folder):
        return split_range(a, b, folder)
    return split_range(b, a, folder) if is_range(b, folder) else (a, b)
