"""Traces for other programs: with additional lanes and counters, complete or cut to a size that viewers open; as a table of
events with their step, phase and module; and in the dialect of torch-tb-profiler.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from profiler_kit.records.inspect_options import EventFormat
from profiler_kit.records.lanes import Annotation
from profiler_kit.records.traces import TraceSummary

if TYPE_CHECKING:
    import pandas

    from profiler_kit.attribution.cutting import StepPeriod
    from profiler_kit.traces.columns import Events

_GZIP_LEVEL: Final = 5

# Renders the events of an annotation as JSON lines. The second argument holds the process ids that the trace uses.
Lines = Callable[[Annotation, Container[str]], Iterable[bytes]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotated:
    """A written trace: the size of its JSON before compression, and `notes` about omitted events."""

    size_bytes: int
    notes: tuple[str, ...]


def annotate_trace(
    trace: Path, out: BinaryIO, lines: Lines, *, steps: tuple[int, int] | None = None, limit_bytes: int | None = None
) -> Annotated:
    """Write the events of `trace` to `out`, unchanged, after our additional lanes and counters.

    `steps` are the numbers of the first and the last step to keep. `limit_bytes` limits the size of the JSON. Flow arrows
    that lack a start or an end are always omitted, because viewers report an error for each.

    Raises:
        TraceError: the trace cannot be read.
        UsageError: the trace has no such steps, or the limit is too small for one step.
    """
    from profiler_kit.attribution.cutting import Period, clip_annotation, cut
    from profiler_kit.traces.entries import scan_entries
    from profiler_kit.traces.splitting import rewrite_trace

    annotation, periods, steady = _analyze_trace(trace)
    entries = scan_entries(trace)

    def annotation_bytes(period: Period | None) -> int:
        return sum(len(line) + 2 for line in lines(clip_annotation(annotation, period), entries.pids))

    selection = cut(
        entries, periods, step_range=steps, steady=steady, limit_bytes=limit_bytes, annotation_bytes=annotation_bytes
    )
    size = rewrite_trace(trace, out, lines(clip_annotation(annotation, selection.period), entries.pids), selection.keep)
    return Annotated(size_bytes=size, notes=selection.notes)


def add_annotation(trace: Path, out: BinaryIO, annotation: Annotation, lines: Lines) -> None:
    """Write `annotation` and the events of `trace` to `out`, without incomplete flow arrows. Raises: TraceError."""
    from profiler_kit.attribution.cutting import cut
    from profiler_kit.traces.entries import scan_entries
    from profiler_kit.traces.splitting import rewrite_trace

    entries = scan_entries(trace)
    rewrite_trace(trace, out, lines(annotation, entries.pids), cut(entries, ()).keep)


def check_steps(trace: TraceSummary, steps: tuple[int, int]) -> None:
    """Raise UsageError if `trace` has no step in `steps` (first and last number)."""
    from profiler_kit.attribution.cutting import check_step_range

    check_step_range([marked.number for marked in trace.steps], steps, where=trace.file)


def _analyze_trace(trace: Path) -> tuple[Annotation, tuple[StepPeriod, ...], tuple[int, ...]]:
    """The annotation of `trace`, its marked steps, and the numbers of the steady steps; frees the trace's columns."""
    from profiler_kit.attribution.annotation_lanes import build_annotation
    from profiler_kit.attribution.cutting import step_periods
    from profiler_kit.attribution.device_time import device_time
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.summary import step_times
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    time = device_time(attribution)
    steps = step_times(attribution, attribution.device.step, time.timeline.event_busy_ns, time)
    steady = tuple(step.number for step in steps if step.steady)
    return build_annotation(attribution), step_periods(attribution), steady


def export_events(trace: Path, destination: Path | TextIO, event_format: EventFormat) -> int:
    """Write the events of `trace` to a new file, or as CSV to a stream, and return their number.

    Raises:
        TraceError: the trace cannot be read.
        KitError: Parquet needs pyarrow, which is not installed.
    """
    from profiler_kit.traces import exports

    exports.require_format(event_format)
    events = _events(trace)
    exports.write(events, destination, event_format)
    return events.length


def events_frame(trace: Path) -> pandas.DataFrame:
    """The events of `trace` as a data frame. Raises TraceError, or KitError if pandas is not installed."""
    from profiler_kit.traces.columns import data_frame

    return data_frame(_events(trace))


def _events(trace: Path) -> Events:
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.result import attribution_columns
    from profiler_kit.traces.columns import events
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    return events(attribution.table, attribution_columns(attribution))


def write_plugin_trace(trace: Path, out: BinaryIO, lines: Lines) -> None:
    """Write `trace` in the plugin's dialect, gzipped, with our lanes and counters. `lines`: as in `annotate_trace`.

    Raises TraceError if the trace cannot be read.
    """
    from profiler_kit.attribution.annotation_lanes import build_annotation
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.plugin_trace import plugin_trace
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    annotation = build_annotation(attribution)

    def lanes(base_ns: int) -> Iterator[str]:
        for line in lines(_shifted(annotation, base_ns), ()):
            yield line.decode("ascii")

    # no time stamp and no name: the same trace gives the same bytes
    with gzip.GzipFile("", "wb", compresslevel=_GZIP_LEVEL, fileobj=out, mtime=0) as zipped:
        for part in plugin_trace(attribution, lanes):
            zipped.write(part.encode())


def _shifted(annotation: Annotation, base_ns: int) -> Annotation:
    """`annotation` with times from `base_ns`."""
    return replace(
        annotation,
        spans=tuple(
            replace(span, start_ns=span.start_ns - base_ns, end_ns=span.end_ns - base_ns) for span in annotation.spans
        ),
        counters=tuple(
            replace(counter, points=tuple((at_ns - base_ns, value) for at_ns, value in counter.points))
            for counter in annotation.counters
        ),
    )
