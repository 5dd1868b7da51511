"""Span algebra over columns: half-open stretches of integer ns, without a loop over them, for a million events.

`traces.intervals` does the same over Python's numbers, for the few marked steps of `attribute`, which has no arrays; a test holds
one to the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.traces.table import Bytes, Ids, Ints


class Spans(NamedTuple):
    """Disjoint stretches in order, none empty."""

    start: Ints
    end: Ints


class Charges(NamedTuple):
    """Of intervals in order of their start, each instant given to the first of those that cover it.

    `covered`: when everything before had ended (its own start for the first). `piece`: what it is given, the last `piece` ns
    before its end. `gap`: what nothing covers before it. `before`: which one's end is `covered`.
    """

    covered: Ints
    piece: Ints
    gap: Ints
    before: Ints


def none() -> Spans:
    """No stretch at all."""
    return Spans(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints, *, ordered: bool = False) -> Spans:
    """The instants in any of the intervals; touching ones are joined. `ordered`: they ascend by start already."""
    full = end > start
    if not full.all():
        start, end = start[full], end[full]
    if not len(start):
        return none()
    if not ordered:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return Spans(start[first], reach[np.append(first[1:] - 1, len(reach) - 1)])


def length(spans: Spans) -> int:
    """The number of ns in `spans`."""
    return int((spans.end - spans.start).sum())


def before(spans: Spans, at: Ints) -> Ints:
    """How many ns of `spans` lie before each instant of `at`."""
    if not len(spans.start):
        return np.zeros(len(at), np.int64)
    lengths = spans.end - spans.start
    index = np.searchsorted(spans.start, at, side="right") - 1
    inside = np.minimum(at, spans.end[index]) - spans.start[index]
    return np.where(index < 0, 0, (np.cumsum(lengths) - lengths)[index] + inside)


def overlap(spans: Spans, start: Ints, end: Ints) -> Ints:
    """How many ns of `spans` lie in each interval; none in one that ends before it starts."""
    result: Ints = np.maximum(before(spans, end) - before(spans, start), 0)
    return result


def subtract(spans: Spans, holes: Spans) -> Spans:
    """The instants in `spans` and in no hole."""
    if not len(spans.start) or not len(holes.start):
        return spans
    at = np.concatenate((spans.start, spans.end, holes.start, holes.end))
    # one step up or down in whole units for a span, in halves of two for a hole: inside a span alone the height is 2
    sides = (len(spans.start), len(spans.start), len(holes.start), len(holes.start))
    height = np.repeat(np.array((2, -2, -1, 1), np.int8), sides)
    order = np.argsort(at, kind="stable")
    at, height = at[order], np.cumsum(height[order], dtype=np.int64)
    alone = np.flatnonzero(height[:-1] == 2)
    return union(at[alone], at[alone + 1], ordered=True)


def join(one: Spans, other: Spans) -> Spans:
    """The instants in either."""
    if not len(other.start):
        return one
    return union(np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end)))


def charge(start: Ints, end: Ints) -> Charges:
    """Every instant once, to the interval that started first; `start` ascends. Pieces and gaps sum to the whole span."""
    if not len(start):
        empty = np.zeros(0, np.int64)
        return Charges(empty, empty, empty, empty)
    reach = np.maximum.accumulate(end)
    covered = np.concatenate((start[:1], reach[:-1]))
    later = np.concatenate(([True], end[1:] > reach[:-1]))
    farthest = np.maximum.accumulate(np.where(later, np.arange(len(start)), 0))
    return Charges(
        covered,
        np.maximum(end - np.maximum(start, covered), 0),
        np.maximum(start - covered, 0),
        np.concatenate(([0], farthest[:-1])),
    )


_LOW = 26


def sum_by(key: Ids | Ints, values: Ints, size: int) -> Ints:
    """Sums of `values` (none negative) by `key` (0 up to `size`), exact: a sum of floats loses ns after 104 days."""
    low = np.bincount(key, weights=values & ((1 << _LOW) - 1), minlength=size)
    high = np.bincount(key, weights=values >> _LOW, minlength=size)
    return (high.astype(np.int64) << _LOW) + low.astype(np.int64)


def count_by(key: Ids | Ints | Bytes, size: int) -> Ints:
    """How often each of 0 up to `size` stands in `key`."""
    return np.bincount(key, minlength=size).astype(np.int64)
