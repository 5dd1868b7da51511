"""A trace with lanes and counters of ours in it, whole or cut to what a viewer can open."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from profiler_kit.records.lanes import Annotation
from profiler_kit.records.traces import TraceSummary

if TYPE_CHECKING:
    from profiler_kit.attribution.cutting import StepPeriod

# Events' JSON, one by one, of an annotation beside a trace that has these process ids: what `render` does.
Lines = Callable[[Annotation, Container[str]], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """What was written: bytes of JSON before any zipping, and `notes` on what is left out and what could not be shown."""

    size_bytes: int
    notes: tuple[str, ...]


def annotate_trace(
    trace: Path, out: BinaryIO, lines: Lines, *, steps: tuple[int, int] | None = None, limit_bytes: int | None = None
) -> Annotated:
    """Writes the trace in `trace` to `out` with lanes and counters of ours before its own events, which stay as they are.

    `steps`: the first and the last to keep, by their marks' numbers. `limit_bytes`: of JSON. Arrows without a beginning or an
    end are left out in any case: viewers complain of each.

    Raises: TraceError, UsageError for steps that are not there or a limit too small for anything.
    """
    from profiler_kit.attribution.cutting import Period, clipped, cut
    from profiler_kit.traces.entries import scan
    from profiler_kit.traces.splitting import rewrite

    annotation, periods, steady = _understood(trace)
    entries = scan(trace)

    def beside(period: Period | None) -> int:
        return sum(len(line) + 2 for line in lines(clipped(annotation, period), entries.pids))

    kept = cut(entries, periods, wanted=steps, steady=steady, limit_bytes=limit_bytes, beside=beside)
    size = rewrite(trace, out, lines(clipped(annotation, kept.period), entries.pids), kept.keep)
    return Annotated(size_bytes=size, notes=(*kept.notes, *annotation.notes))


def check_steps(trace: TraceSummary, wanted: tuple[int, int]) -> None:
    """Raises UsageError where `trace` has none of the steps from the first to the last `wanted`."""
    from profiler_kit.attribution.cutting import check_wanted

    check_wanted([step.number for step in trace.steps], wanted, where=trace.file)


def _understood(trace: Path) -> tuple[Annotation, tuple[StepPeriod, ...], tuple[int, ...]]:
    """What is to be shown, the marked steps, and the numbers of the steady ones. The columns behind it are given back."""
    from profiler_kit.attribution.cutting import step_periods
    from profiler_kit.attribution.device_time import device_time
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.lanes import annotation
    from profiler_kit.attribution.summary import marked_steps
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    time = device_time(attribution)
    steps = marked_steps(attribution, attribution.device.step, time.timeline.piece, time)
    steady = tuple(step.number for step in steps if step.steady)
    return annotation(attribution), step_periods(attribution), steady
