"""Interval algebra over columns: half-open intervals of integer ns, without a loop over them, for a million events."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.traces.table import Bytes, Ids, Ints


class Intervals(NamedTuple):
    """Disjoint intervals in order, none empty."""

    start: Ints
    end: Ints


class Assignment(NamedTuple):
    """Of intervals in order of their start, each instant given to the first of those that cover it.

    `covered`: when everything before had ended (its own start for the first). `piece`: what it is given, the last `piece` ns
    before its end. `gap`: what nothing covers before it. `before`: which one's end is `covered`.
    """

    covered: Ints
    piece: Ints
    gap: Ints
    before: Ints


def empty() -> Intervals:
    """No intervals."""
    return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints, *, ordered: bool = False) -> Intervals:
    """The instants in any of the intervals; touching ones are joined. `ordered`: they ascend by start already."""
    full = end > start
    if not full.all():
        start, end = start[full], end[full]
    if not len(start):
        return empty()
    if not ordered:
        order = np.argsort(start, kind="stable")
        start, end = start[order], end[order]
    reach = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate(([True], start[1:] > reach[:-1])))
    return Intervals(start[first], reach[np.append(first[1:] - 1, len(reach) - 1)])


def length(intervals: Intervals) -> int:
    """The number of ns in `intervals`."""
    return int((intervals.end - intervals.start).sum())


def before(intervals: Intervals, at: Ints) -> Ints:
    """How many ns of `intervals` lie before each instant of `at`."""
    if not len(intervals.start):
        return np.zeros(len(at), np.int64)
    lengths = intervals.end - intervals.start
    index = np.searchsorted(intervals.start, at, side="right") - 1
    inside = np.minimum(at, intervals.end[index]) - intervals.start[index]
    return np.where(index < 0, 0, (np.cumsum(lengths) - lengths)[index] + inside)


def overlap(intervals: Intervals, start: Ints, end: Ints) -> Ints:
    """How many ns of `intervals` lie in each interval; none in one that ends before it starts."""
    result: Ints = np.maximum(before(intervals, end) - before(intervals, start), 0)
    return result


def subtract(intervals: Intervals, holes: Intervals) -> Intervals:
    """The instants in `intervals` and in none of `holes`."""
    if not len(intervals.start) or not len(holes.start):
        return intervals
    at = np.concatenate((intervals.start, intervals.end, holes.start, holes.end))
    # one step up or down in whole units for a span, in halves of two for a hole: inside a span alone the height is 2
    sides = (len(intervals.start), len(intervals.start), len(holes.start), len(holes.start))
    height = np.repeat(np.array((2, -2, -1, 1), np.int8), sides)
    order = np.argsort(at, kind="stable")
    at, height = at[order], np.cumsum(height[order], dtype=np.int64)
    alone = np.flatnonzero(height[:-1] == 2)
    return union(at[alone], at[alone + 1], ordered=True)


def join(one: Intervals, other: Intervals) -> Intervals:
    """The instants in either."""
    if not len(other.start):
        return one
    return union(np.concatenate((one.start, other.start)), np.concatenate((one.end, other.end)))


def assign_to_first(start: Ints, end: Ints) -> Assignment:
    """Every instant once, to the interval that started first; `start` ascends. Pieces and gaps sum to the whole span."""
    if not len(start):
        return Assignment(*(np.zeros(0, np.int64) for _ in range(4)))
    reach = np.maximum.accumulate(end)
    covered = np.concatenate((start[:1], reach[:-1]))
    later = np.concatenate(([True], end[1:] > reach[:-1]))
    farthest = np.maximum.accumulate(np.where(later, np.arange(len(start)), 0))
    return Assignment(
        covered,
        np.maximum(end - np.maximum(start, covered), 0),
        np.maximum(start - covered, 0),
        np.concatenate(([0], farthest[:-1])),
    )


# ---- sums by key


_LOW_BITS = 26


def sum_by(key: Ids | Ints | Bytes, values: Ints, size: int) -> Ints:
    """Sums of `values` (none negative) by `key` (0 up to `size`), exact: a sum of floats loses ns after 104 days."""
    low = np.bincount(key, weights=values & ((1 << _LOW_BITS) - 1), minlength=size)
    high = np.bincount(key, weights=values >> _LOW_BITS, minlength=size)
    return (high.astype(np.int64) << _LOW_BITS) + low.astype(np.int64)


def count_by(key: Ids | Ints | Bytes, size: int) -> Ints:
    """How often each of 0 up to `size` stands in `key`."""
    return np.bincount(key, minlength=size).astype(np.int64)
