"""Comparisons: two targets or saved reports, each counted or measured where it is not saved; and two traces."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from profiler_kit.comparison.compare import compare
from profiler_kit.errors import ReportError, TargetError, UsageError
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.serde import is_saved_report, read_report, read_saved
from profiler_kit.records.target import TargetSpec
from profiler_kit.records.trace_comparison import TraceComparison

CONFIGS: Final = ("default", "no-tf32")  # measured where the user names none
HEAD_BYTES: Final = 4096  # of a file: enough to tell a report of ours by its first names
ONE_EACH: Final = "give two traces, or two targets or reports"
ONE_OF_THEM: Final = "give one of them: profiler-kit compare A.json.gz B.json.gz"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The reports of two sides. `failure` is the error of a side that was run for the comparison and failed everywhere."""

    a: Report
    b: Report
    failure: TargetError | None

    def compare(self) -> Comparison:
        """What differs between the two. Raises NotComparableError."""
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
    say: OnProgress,
) -> Sides:
    """The reports of `a` and `b`: a text is the path of a saved one, a spec is counted (`static`) or measured now.

    `configs` None: the default and the same without TF32. Both sides share `budget_s`.

    Raises TargetError, UsageError, ReportError; KeyboardInterrupt where one side was interrupted.
    """
    from profiler_kit.pipeline.analyze import all_failed, analyze_spec
    from profiler_kit.pipeline.count import count_spec

    def report_of(side: str | TargetSpec) -> Report:
        if isinstance(side, str):
            return read_report(side)
        if static:
            say(f"{side.spec}: counting")
            return count_spec(side, convention=convention)
        analysis = analyze_spec(
            side,
            device=device,
            configs=configs or CONFIGS,
            budget_s=budget_s / 2,
            steps=steps,
            timeout_s=timeout_s,
            say=lambda line: say(f"{side.spec}: {line}"),
            convention=convention,
        )
        if analysis.interrupted:
            raise KeyboardInterrupt  # half a comparison is none, and nothing of it is kept
        return analysis.report

    reports = report_of(a), report_of(b)
    failures = []
    for side, report in zip((a, b), reports, strict=True):
        failed = all_failed(report)
        if failed is not None and isinstance(side, TargetSpec):  # what can be compared is, but the user asked for more
            hint = f"see its log with profiler-kit analyze {side.spec}"
            failures.append(TargetError(failed.message, where=side.spec, hint=hint))
    return Sides(a=reports[0], b=reports[1], failure=next(iter(failures), None))


def is_saved(text: str) -> bool:
    """Whether `text` means a saved report: a .json file, or a folder that holds one."""
    return is_saved_report(Path(text))


def are_traces(a: str, b: str) -> bool:
    """Whether both texts mean traces, or what `inspect` saved of some. Raises UsageError where only one does."""
    traces = _is_trace(a), _is_trace(b)
    if traces[0] != traces[1]:
        trace, other = (a, b) if traces[0] else (b, a)
        raise UsageError(f"{trace} is a trace and {other} is not", hint=ONE_EACH)
    return traces[0]


def compare_traces(a: str, b: str, *, say: OnProgress) -> TraceComparison:
    """What differs between two traces, or between the traces of two jobs' ranks.

    Raises UsageError where a side holds several traces that are not ranks, TraceError, NotComparableError; KeyboardInterrupt
    where reading was interrupted.
    """
    from profiler_kit.comparison.trace_ranks import compare_ranks, traces_by_rank
    from profiler_kit.comparison.traces import compare_traces as compare_two

    reports = _trace_report(a, say), _trace_report(b, say)
    counts = [len(report.traces) for report in reports]
    if counts == [1, 1]:
        return compare_two(reports[0].traces[0], reports[1].traces[0])
    for text, report, count in zip((a, b), reports, counts, strict=True):
        if count > 1 and not traces_by_rank(report):
            raise UsageError(f"{text} holds {count} traces, which are not the ranks of one job", hint=ONE_OF_THEM)
    if 1 in counts:
        several, count = (a, counts[0]) if counts[0] > 1 else (b, counts[1])
        raise UsageError(
            f"{several} holds {count} traces and the other side one",
            hint=f"{ONE_OF_THEM}; or give the ranks of both jobs, as folders",
        )
    return compare_ranks(traces_by_rank(reports[0]), traces_by_rank(reports[1]), names=(a, b))


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
    return _saved_traces(path) is not None


def _saved_traces(path: Path) -> TraceReport | None:
    """The report on traces that is saved at `path`; None for any other file, whose reader says what is wrong with it."""
    try:
        saved = read_saved(path)
    except ReportError:
        return None
    return saved if isinstance(saved, TraceReport) else None


def _trace_report(text: str, say: OnProgress) -> TraceReport:
    from profiler_kit.pipeline.inspect import inspect

    path = Path(text)
    saved = _saved_traces(path) if path.suffix == ".json" and path.is_file() else None
    if saved is not None:
        return saved
    inspection = inspect(path, say=lambda line: say(f"{text}: {line}"))
    if inspection.interrupted:
        raise KeyboardInterrupt  # half a comparison is none
    return inspection.report
