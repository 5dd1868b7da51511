"""Span algebra on half-open intervals of integer ns, one by one; `attribution.spans` has it over columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Piece(NamedTuple):
    """A stretch of a timeline charged to the interval numbered `owner`."""

    start_ns: int
    end_ns: int
    owner: int


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The instants that lie in any interval, as disjoint intervals in order; touching ones are joined, empty ones dropped."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted(intervals):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            if end > merged[-1][1]:
                merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def length(intervals: Iterable[tuple[int, int]]) -> int:
    """The number of ns in the union of `intervals`."""
    return sum(end - start for start, end in union(intervals))


def subtract(intervals: Iterable[tuple[int, int]], holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The instants that lie in an interval and in no hole, as disjoint intervals in order."""
    left: list[tuple[int, int]] = []
    cut = union(holes)
    first = 0
    for start, end in union(intervals):
        while first < len(cut) and cut[first][1] <= start:
            first += 1
        at, hole = start, first
        while hole < len(cut) and cut[hole][0] < end:
            if cut[hole][0] > at:
                left.append((at, cut[hole][0]))
            at = max(at, cut[hole][1])
            hole += 1
        if at < end:
            left.append((at, end))
    return left


def charge_once(intervals: Sequence[tuple[int, int]]) -> list[Piece]:
    """Every instant of the union, charged to the interval that started first among those that cover it.

    Of two that start together, the one given first is charged. The pieces are disjoint and in order, so their lengths sum
    to the length of the union; an interval that others hide completely gets none.
    """
    order = sorted(range(len(intervals)), key=lambda i: intervals[i][0])
    pieces: list[Piece] = []
    covered = 0
    for index in order:
        start, end = intervals[index]
        begin = max(start, covered) if pieces else start
        if end > begin:
            pieces.append(Piece(begin, end, index))
            covered = end
    return pieces
