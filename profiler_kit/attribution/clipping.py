"""An annotation of a part of its trace."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from operator import itemgetter

from profiler_kit.attribution.cutting import Period
from profiler_kit.records.lanes import Annotation, CounterTrack


def clipped(annotation: Annotation, period: Period | None) -> Annotation:
    """`annotation` with what lies in `period`; stretches that reach beyond it end with it, and so do counters."""
    if period is None:
        return annotation
    start, end = period.start_ns, period.end_ns
    return replace(
        annotation,
        spans=tuple(
            replace(span, start_ns=max(span.start_ns, start), end_ns=min(span.end_ns, end))
            for span in annotation.spans
            if span.start_ns < end and span.end_ns > start
        ),
        counters=tuple(_counter(counter, start, end) for counter in annotation.counters),
    )


def _counter(counter: CounterTrack, start: int, end: int) -> CounterTrack:
    """The points within, begun by the value that holds at the start."""
    points = counter.points
    first = bisect_right(points, start, key=itemgetter(0))
    last = bisect_left(points, end, key=itemgetter(0))
    before = ((start, points[first - 1][1]),) if first else ()
    return CounterTrack(name=counter.name, points=(*before, *points[first:last]))
