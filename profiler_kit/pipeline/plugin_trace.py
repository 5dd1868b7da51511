"""A trace for torch-tb-profiler, the PyTorch profiler tab of TensorBoard."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from profiler_kit.pipeline.annotation import Lines
from profiler_kit.records.lanes import Annotation

GZIP_LEVEL = 5


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
    with gzip.GzipFile("", "wb", compresslevel=GZIP_LEVEL, fileobj=out, mtime=0) as zipped:
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
