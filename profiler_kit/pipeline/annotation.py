"""Traces for other programs: with additional lanes and counters; as a table of events with their step, phase and module; and
in the dialect of torch-tb-profiler.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, TextIO

from profiler_kit.records.inspect_options import EventFormat
from profiler_kit.records.lanes import Annotation

if TYPE_CHECKING:
    import pandas

_GZIP_LEVEL: Final = 5

# Renders the events of an annotation as JSON lines. The second argument holds the process ids that the trace uses.
Lines = Callable[[Annotation, Container[str]], Iterable[bytes]]


def annotate_trace(trace: Path, out: BinaryIO, lines: Lines) -> int:
    """Write the events of `trace` to `out`, unchanged, after our additional lanes and counters. Returns the bytes written.

    Raises: TraceError if the trace cannot be read.
    """
    from profiler_kit.traces.rewriting import rewrite_trace

    annotation, pids = _annotate(trace)
    return rewrite_trace(trace, out, lines(annotation, pids))


def add_annotation(trace: Path, out: BinaryIO, annotation: Annotation, lines: Lines) -> None:
    """Write `annotation` and the events of `trace`, which has no lanes of ours, to `out`. Raises: TraceError."""
    from profiler_kit.traces.rewriting import rewrite_trace

    rewrite_trace(trace, out, lines(annotation, ()))


def _annotate(trace: Path) -> tuple[Annotation, frozenset[str]]:
    """The annotation of `trace`, and the process ids in it; frees the trace's columns."""
    from profiler_kit.attribution.annotation_lanes import build_annotation
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.traces.reader import read

    table = read(trace)
    return build_annotation(attribute(table)), frozenset(thread.process for thread in table.threads)


def export_events(trace: Path, destination: Path | TextIO, event_format: EventFormat) -> int:
    """Write the events of `trace` to a new file, or as CSV to a stream, and return their number.

    Raises:
        TraceError: the trace cannot be read.
        KitError: pandas is not installed, or pyarrow for Parquet.
    """
    from profiler_kit.traces import exports

    exports.require_format(event_format)
    frame = events_frame(trace)
    exports.write(frame, destination, event_format)
    return len(frame)


def events_frame(trace: Path) -> pandas.DataFrame:
    """The events of `trace` as a data frame. Raises TraceError, or KitError if pandas is not installed."""
    from profiler_kit.attribution.engine import attribute
    from profiler_kit.attribution.result import attribution_columns
    from profiler_kit.traces.columns import data_frame, events
    from profiler_kit.traces.reader import read

    attribution = attribute(read(trace))
    return data_frame(events(attribution.table, attribution_columns(attribution)))


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
