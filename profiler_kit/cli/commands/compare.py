"""The verb `compare`: two targets, reports or traces. What differs, and why."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from profiler_kit import errors
from profiler_kit.cli import output
from profiler_kit.cli.commands import Command
from profiler_kit.cli.options import (
    add_convention_options,
    add_measure_options,
    add_output_options,
    add_target_options,
    target_spec,
)
from profiler_kit.cli.progress import Progress
from profiler_kit.errors import ReportError, UsageError

if TYPE_CHECKING:
    from profiler_kit.records.report import Report
    from profiler_kit.records.trace_comparison import TraceComparison
    from profiler_kit.records.traces import TraceReport

HEAD_BYTES: Final = 4096  # of a file: enough to tell a report of ours by its first names
CONFIGS: Final = ("default", "no-tf32")
ONE_EACH: Final = "give two traces, or two targets or reports"
ONE_OF_THEM: Final = "give one of them: profiler-kit compare A.json.gz B.json.gz"


def add_options(sub: argparse.ArgumentParser) -> None:
    """Adds both sides, how targets are counted and measured, and where results go."""
    sub.add_argument("a", metavar="A", help="a target, a report.json or its folder, or a trace (then B is one too)")
    sub.add_argument("b", metavar="B", help="the same")
    add_target_options(sub)
    add_measure_options(sub)
    sub.add_argument("--static", action="store_true", help="count only, measure nothing")
    add_convention_options(sub)
    add_output_options(sub)


def run(options: argparse.Namespace) -> int:
    """Compares the two sides. Raises TargetError where one of them was measured and every run failed."""
    if _both_are_traces(options.a, options.b):
        output.check(options)
        _compare_traces(options)
        return errors.OK
    from profiler_kit.comparison.compare import compare
    from profiler_kit.pipeline.analyze import all_failed
    from profiler_kit.report.comparison import comparison_document

    output.check(options)
    with output.foreign_output_on_stderr(), Progress(quiet=options.quiet) as progress:
        a = _report_of(options.a, ("compare", "", options.b), options, progress)
        b = _report_of(options.b, ("compare", options.a, ""), options, progress)
    output.warn(a, b)
    output.emit(comparison_document(compare(a, b)), options)
    for text, report in ((options.a, a), (options.b, b)):
        failure = all_failed(report)
        if failure is not None and not _is_saved(text):  # what could be compared was, but the user asked for more
            hint = f"see its log with profiler-kit analyze {text}"
            raise errors.TargetError(failure.message, where=text, hint=hint)
    return errors.OK


def _report_of(text: str, command: tuple[str, ...], options: argparse.Namespace, progress: Progress) -> Report:
    from profiler_kit.records.serde import read_report

    if _is_saved(text):
        return read_report(text)
    from profiler_kit.pipeline.analyze import analyze_spec
    from profiler_kit.pipeline.count import count_spec

    spec = target_spec(options, text, command=(*command, "--static") if options.static else command)
    if options.static:
        progress.say(f"{text}: counting")
        return count_spec(spec, convention=options.convention)
    analysis = analyze_spec(
        spec,
        device=options.device,
        configs=options.configs or CONFIGS,
        budget_s=options.budget_s / 2,
        steps=options.steps,
        timeout_s=options.timeout,
        say=lambda line: progress.say(f"{text}: {line}"),
        convention=options.convention,
    )
    if analysis.interrupted:
        raise KeyboardInterrupt  # half a comparison is none, and nothing of it is kept
    return analysis.report


def _is_saved(text: str) -> bool:
    path = Path(text)
    return path.suffix == ".json" or (path.is_dir() and (path / "report.json").exists())


def _both_are_traces(a: str, b: str) -> bool:
    """Whether both sides are traces (or what `inspect` saved of some). Raises UsageError where only one is."""
    traces = _is_trace(a), _is_trace(b)
    if traces[0] != traces[1]:
        trace, other = (a, b) if traces[0] else (b, a)
        raise UsageError(f"{trace} is a trace and {other} is not", hint=ONE_EACH)
    return traces[0]


def _is_trace(text: str) -> bool:
    from profiler_kit.records.traces import TraceReport

    path = Path(text)
    if path.is_dir():
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
    return isinstance(_saved(path), TraceReport)


def _saved(path: Path) -> object:
    from profiler_kit.records.serde import read_saved

    try:
        return read_saved(path)
    except ReportError:
        return None  # the reader of reports raises it again, with its reason


def _compare_traces(options: argparse.Namespace) -> None:
    from profiler_kit.report.trace_comparison import trace_comparison_document

    with Progress(quiet=options.quiet) as progress:
        a, b = (_trace_report(text, progress) for text in (options.a, options.b))
    output.emit(trace_comparison_document(_trace_comparison(a, b, (options.a, options.b))), options)


def _trace_report(text: str, progress: Progress) -> TraceReport:
    from profiler_kit.pipeline.inspect import inspect
    from profiler_kit.records.traces import TraceReport

    path = Path(text)
    saved = _saved(path) if path.suffix == ".json" and path.is_file() else None
    if isinstance(saved, TraceReport):
        return saved
    inspection = inspect(path, say=lambda line: progress.say(f"{text}: {line}"))
    if inspection.interrupted:
        raise KeyboardInterrupt  # half a comparison is none
    return inspection.report


def _trace_comparison(a: TraceReport, b: TraceReport, names: tuple[str, str]) -> TraceComparison:
    """One trace against one, or ranks against ranks. Raises UsageError where it is neither."""
    from profiler_kit.comparison.trace_ranks import compare_ranks, traces_by_rank
    from profiler_kit.comparison.traces import compare_traces

    if len(a.traces) == len(b.traces) == 1:
        return compare_traces(a.traces[0], b.traces[0])
    sides = tuple(zip(names, (a, b), strict=True))
    for text, report in sides:
        if len(report.traces) > 1 and not traces_by_rank(report):
            raise UsageError(
                f"{text} holds {len(report.traces)} traces, which are not the ranks of one job", hint=ONE_OF_THEM
            )
    if len(a.traces) == 1 or len(b.traces) == 1:
        several, count = next((text, len(report.traces)) for text, report in sides if len(report.traces) > 1)
        raise UsageError(
            f"{several} holds {count} traces and the other side one",
            hint=f"{ONE_OF_THEM}; or give the ranks of both jobs, as folders",
        )
    return compare_ranks(traces_by_rank(a), traces_by_rank(b), names=names)


COMMAND = Command(
    name="compare",
    summary="two targets, reports or traces: what differs in time, work and memory, and why",
    examples=("compare models/convnet_v0.py models/convnet_v1.py",),
    add_options=add_options,
    run=run,
)
