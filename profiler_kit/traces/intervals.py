"""Interval algebra over columns: half-open intervals of integer ns, vectorized for a million events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces.table import Bytes, Ids, Ints


class Intervals(NamedTuple):
    """Disjoint, non-empty intervals in ascending order."""

    start: Ints
    end: Ints


class Assignment(NamedTuple):
    """Intervals in order of start, with each instant assigned to the first interval that covers it.

    `covered`: the time by which all earlier intervals had ended (for the first interval, its own start). `piece`: the
    assigned ns, which are the last `piece` ns of the interval. `gap`: the uncovered ns before the interval. `before`:
    the index of the interval that ends at `covered`.
    """

    covered: Ints
    piece: Ints
    gap: Ints
    before: Ints


def empty() -> Intervals:
    """Return an empty list of intervals."""
    return Intervals(np.zeros(0, np.int64), np.zeros(0, np.int64))


def union(start: Ints, end: Ints, *, ordered: bool = False) -> Intervals:
    """Return the instants in any of the intervals.

    Touching intervals are joined. `ordered`: they already ascend by start.
    """
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
    """Return the total length of `intervals` in ns."""
    return int((intervals.end - intervals.start).sum())


def time_before(intervals: Intervals, at: Ints) -> Ints:
    """Return the ns of `intervals` before each time in `at`."""
    if not len(intervals.start):
        return np.zeros(len(at), np.int64)
    lengths = intervals.end - intervals.start
    index = np.searchsorted(intervals.start, at, side="right") - 1
    inside = np.minimum(at, intervals.end[index]) - intervals.start[index]
    return np.where(index < 0, 0, (np.cumsum(lengths) - lengths)[index] + inside)


def overlap(intervals: Intervals, start: Ints, end: Ints) -> Ints:
    """Return the ns of `intervals` inside each interval from `start` to `end`; 0 for one that ends before it starts."""
    result: Ints = np.maximum(time_before(intervals, end) - time_before(intervals, start), 0)
    return result


def pieces(intervals: Intervals, start: Ints, end: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the parts of each interval from `start` to `end` in `intervals`: its index, and the start and end of the part."""
    first = np.searchsorted(intervals.end, start, side="right")
    counts = np.where(end > start, np.maximum(np.searchsorted(intervals.start, end, side="left") - first, 0), 0)
    index = np.repeat(np.arange(len(start)), counts)
    within = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts) + first[index]
    return index, np.maximum(start[index], intervals.start[within]), np.minimum(end[index], intervals.end[within])


def subtract(intervals: Intervals, holes: Intervals) -> Intervals:
    """Return the instants in `intervals` and in none of `holes`."""
    if not len(intervals.start) or not len(holes.start):
        return intervals
    at = np.concatenate((intervals.start, intervals.end, holes.start, holes.end))
    # The height changes by 2 at the borders of an interval and by 1 at those of a hole. It is 2 inside an interval
    # only.
    sides = (len(intervals.start), len(intervals.start), len(holes.start), len(holes.start))
    height = np.repeat(np.array((2, -2, -1, 1), np.int8), sides)
    order = np.argsort(at, kind="stable")
    at, height = at[order], np.cumsum(height[order], dtype=np.int64)
    inside_only = np.flatnonzero(height[:-1] == 2)
    return union(at[inside_only], at[inside_only + 1], ordered=True)


def join(first: Intervals, second: Intervals) -> Intervals:
    """Return the instants in either of the two."""
    if not len(second.start):
        return first
    return union(np.concatenate((first.start, second.start)), np.concatenate((first.end, second.end)))


def assign_to_first(start: Ints, end: Ints) -> Assignment:
    """Assign each instant to the interval that started first. `start` ascends. Pieces and gaps sum to the whole span."""
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


def distinct_rows(columns: Sequence[NDArray[np.integer[Any]]]) -> tuple[Ints, Ints]:
    """Return the distinct rows of `columns` in ascending order, and the number of each row among them.

    As `np.unique` of an axis, which compares rows as bytes and takes ten times as long.
    """
    number = np.zeros(len(columns[0]), np.int64)
    first = number[:1]
    for column in columns:
        values = column.astype(np.int64) - column.min(initial=0)
        _, first, number = np.unique(
            number * (values.max(initial=0) + 1) + values, return_index=True, return_inverse=True
        )
    return np.stack([column[first] for column in columns], axis=1).astype(np.int64), number


_LOW_BITS = 26


def sum_by(key: Ids | Ints | Bytes, values: Ints, size: int) -> Ints:
    """Return the exact sums of non-negative `values` by `key` (0 up to `size`).

    A sum of floats would lose ns after 104 days.
    """
    low = np.bincount(key, weights=values & ((1 << _LOW_BITS) - 1), minlength=size)
    high = np.bincount(key, weights=values >> _LOW_BITS, minlength=size)
    return (high.astype(np.int64) << _LOW_BITS) + low.astype(np.int64)


def count_by(key: Ids | Ints | Bytes, size: int) -> Ints:
    """Return the number of occurrences in `key` of each integer from 0 up to `size`."""
    return np.bincount(key, minlength=size).astype(np.int64)
