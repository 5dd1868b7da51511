"""`compare` over two traces: which arguments are traces, and what comes of them."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from profiler_kit.cli import output
from profiler_kit.cli.progress import Progress
from profiler_kit.errors import ReportError, UsageError
from profiler_kit.records.report import TraceReport
from profiler_kit.records.serde import read_saved
from profiler_kit.records.trace_comparison import TraceComparison

HEAD_BYTES: Final = 4096  # of a file: enough to tell a report of ours by its first names
ONE_EACH: Final = "give two traces, or two targets or reports"
ONE_OF_THEM: Final = "give one of them: profiler-kit compare A.json.gz B.json.gz"


def compares_traces(a: str, b: str) -> bool:
    """Whether both arguments are traces (or what `inspect` saved of some). Raises UsageError where only one is."""
    traces = _is_trace(a), _is_trace(b)
    if traces[0] != traces[1]:
        trace, other = (a, b) if traces[0] else (b, a)
        raise UsageError(f"{trace} is a trace and {other} is not", hint=ONE_EACH)
    return traces[0]


def compare_traces(given: argparse.Namespace) -> None:
    """Reads two traces, or those of two jobs' ranks, and emits what differs."""
    from profiler_kit.report.trace_comparison import trace_comparison_document

    with Progress(quiet=given.quiet) as progress:
        a, b = (_read(text, progress) for text in (given.a, given.b))
    output.emit(trace_comparison_document(_compared(a, b, given)), given)


def _compared(a: TraceReport, b: TraceReport, given: argparse.Namespace) -> TraceComparison:
    """One trace against one, or ranks against ranks. Raises UsageError where it is neither."""
    from profiler_kit.comparison.trace_ranks import compare_ranks, traces_by_rank
    from profiler_kit.comparison.traces import compare_traces as compared

    if len(a.traces) == len(b.traces) == 1:
        return compared(a.traces[0], b.traces[0])
    sides = ((given.a, a), (given.b, b))
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
    return compare_ranks(traces_by_rank(a), traces_by_rank(b), names=(given.a, given.b))


def _is_trace(text: str) -> bool:
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
    try:
        return read_saved(path)
    except ReportError:
        return None  # whoever asked for a report says what is wrong with it


def _read(text: str, progress: Progress) -> TraceReport:
    """The report on the traces that `text` means."""
    from profiler_kit.pipeline.inspect import inspect

    path = Path(text)
    saved = _saved(path) if path.suffix == ".json" and path.is_file() else None
    if isinstance(saved, TraceReport):
        return saved
    inspection = inspect(path, say=lambda line: progress.say(f"{text}: {line}"))
    if inspection.interrupted:
        raise KeyboardInterrupt  # half a comparison is none
    return inspection.report
