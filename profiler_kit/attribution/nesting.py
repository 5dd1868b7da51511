"""Which host event encloses which, per thread: over columns, at any depth."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.traces.table import HOST_KINDS, NONE, Ids, Ints, Kind, Mask, Table

# Overlaps that are no nesting are set right a layer at a time; real traces have one or two layers of them.
ROUNDS: Final = 24
LAYERS: Final = 256
_PACKED_BITS: Final = 62
_DEEP: Final = 1 << 15  # up to here numbers are sorted in no time


class Nesting(NamedTuple):
    """The host's events by thread, then start, enclosing before enclosed.

    `rows`: of the table. `start_ns`, `end_ns`: with the ends moved so that all events nest; `recorded_end_ns`: not moved.
    `parent`: positions.
    """

    rows: Ids
    start_ns: Ints
    end_ns: Ints
    recorded_end_ns: Ints
    thread: Ids
    parent: Ids


def nest(table: Table) -> Nesting:
    """The host's events of `table`, each with the innermost one that is still open when it begins.

    Runtime calls enclose nothing, as they are stamped by another clock, nor does what takes no time. Where two events
    overlap and neither encloses the other, the later one ends with the earlier if most of it lies inside; else the earlier
    one ends where the later begins. A named range always gives way to the Python call that ends it.
    """
    rows = np.flatnonzero(table.of(*HOST_KINDS)).astype(np.int32)
    start, end = table.times(rows)
    order = in_time(start, end, table.thread[rows])
    rows, start, end = rows[order].astype(np.int32), start[order], end[order]
    thread, recorded_end = table.thread[rows], end.copy()
    encloses = (table.kind[rows] != Kind.RUNTIME) & (end > start)
    ranges = table.kind[rows] == Kind.ANNOTATION
    parent = _parents(_on_one_line(thread, start, end), encloses)
    for _ in range(ROUNDS):
        wrong = _crossing(parent, end, encloses)
        if not len(wrong):
            break
        here = np.flatnonzero(np.isin(thread, np.unique(thread[wrong])))
        line = _on_one_line(thread[here], start[here], end[here])
        open_at = _innermost_open(line, encloses[here], np.searchsorted(here, wrong))
        parent[wrong] = np.where(open_at >= 0, here[open_at], NONE)
        _settle(_crossing(parent, end, encloses), parent, start, end, ranges)
        encloses[here] &= end[here] > start[here]
        local = _parents(_on_one_line(thread[here], start[here], end[here]), encloses[here])
        parent[here] = np.where(local >= 0, here[local], NONE)
    else:
        _sweep(parent, start, end, thread, encloses)
    return Nesting(rows, start, end, recorded_end, thread, parent)


def in_time(start: Ints, end: Ints, group: Ids | None = None) -> Ints:
    """The order by group, then start, the longer first, then as they stand."""
    if not len(start):
        return np.zeros(0, dtype=np.int64)
    first = int(start.min())
    span = int(start.max()) - first
    groups = int(group.max()) + 1 if group is not None else 1
    if groups.bit_length() + span.bit_length() > _PACKED_BITS:
        keys = (-end, start) if group is None else (-end, start, group)
        return np.lexsort(keys)
    key = start - first
    if group is not None:
        key += group.astype(np.int64) << span.bit_length()
    order = np.argsort(key, kind="stable")  # by merging the runs that a trace is written in
    key = key[order]
    tied = key[1:] == key[:-1]
    if tied.any():
        at = np.flatnonzero(np.concatenate((tied, [False])) | np.concatenate(([False], tied)))
        some = order[at]
        order[at] = some[np.lexsort((some, -end[some], key[at]))]
    return order


class _Line(NamedTuple):
    """Starts and ends of all threads on one line, one thread after the other."""

    start: Ints
    end: Ints


def _on_one_line(thread: Ids, start: Ints, end: Ints) -> _Line:
    if not len(start):
        return _Line(start, end)
    span = int(end.max()) - int(start.min()) + 1
    if (int(thread.max()) + 1).bit_length() + span.bit_length() <= _PACKED_BITS:
        offset = thread.astype(np.int64) * span - int(start.min())
        return _Line(start + offset, end + offset)
    # Absurd times: their ranks do as well.
    times, rank = np.unique(np.concatenate((start, end)), return_inverse=True)
    offset = thread.astype(np.int64) * (len(times) + 1)
    return _Line(rank[: len(start)] + offset, rank[len(start) :] + offset)


def _parents(line: _Line, encloses: Mask) -> Ids:
    """Positions of the innermost enclosing events, if all nest; where they do not, at least one outlasts what it is given.

    An event's depth is how many began before it less how many of these have ended. Its parent is the last one before it that
    is one less deep. That holds up to the first event that crosses another, and of that one too.
    """
    count = len(line.start)
    if not count:
        return np.zeros(0, dtype=np.int32)
    depth = np.cumsum(encloses, dtype=np.int64)
    depth -= encloses.astype(np.int8)
    depth -= np.searchsorted(np.sort(line.end[encloses], kind="stable"), line.start, side="right")
    parent = np.arange(-1, count - 1, dtype=np.int32)  # what is deeper than the event before it lies in that one
    change = np.diff(depth, prepend=-1)
    # Where something ended in between: the last one less deep, among all of that depth.
    ended = np.flatnonzero(change < 0)
    levels = depth[encloses].astype(np.int16) if depth.max() < _DEEP else depth[encloses]
    by_depth = np.flatnonzero(encloses)[np.argsort(levels, kind="stable")]
    keys = depth[by_depth] * count + by_depth
    at = np.searchsorted(keys, (depth[ended] - 1) * count + ended) - 1
    parent[ended] = np.where(depth[ended] > 0, by_depth[at] if len(by_depth) else NONE, NONE)
    # What is as deep as the event before it lies where that one does.
    other = np.arange(count)
    other[change == 0] = 0
    return parent[np.maximum.accumulate(other)]


def _innermost_open(line: _Line, encloses: Mask, of: Ints) -> Ints:
    """For each position in `of` the last one before it that encloses and has not ended when it begins, nesting or not; or NONE.

    Blocks of twice the size each know their latest end: up until a block holds one, then down to it.
    """
    latest = [np.where(encloses, line.end, np.int64(-1))]
    while len(latest[-1]) > 1:
        below = latest[-1] if len(latest[-1]) % 2 == 0 else np.append(latest[-1], np.int64(-1))
        latest.append(np.maximum(below[::2], below[1::2]))
    begins = line.start[of]
    block = of.astype(np.int64)  # all blocks of this size before it are to be searched
    block_found = np.full(len(of), NONE, dtype=np.int64)
    size = np.zeros(len(of), dtype=np.int64)
    for level, ends in enumerate(latest):
        look = np.flatnonzero((block_found == NONE) & (block % 2 == 1))
        hit = look[ends[block[look] - 1] > begins[look]]
        block_found[hit], size[hit] = block[hit] - 1, level
        block //= 2
    for level in range(len(latest) - 2, -1, -1):
        down = np.flatnonzero((block_found != NONE) & (size > level))
        right = 2 * block_found[down] + 1
        right = np.where(right < len(latest[level]), right, right - 1)
        block_found[down] = np.where(latest[level][right] > begins[down], right, 2 * block_found[down])
    return block_found


def _crossing(parent: Ids, end: Ints, encloses: Mask) -> Ints:
    """Positions of events that outlast their parent."""
    inner = np.flatnonzero(encloses & (parent != NONE))
    return inner[end[inner] > end[parent[inner]]]


def _settle(inner: Ints, parent: Ids, start: Ints, end: Ints, ranges: Mask) -> None:
    """Moves ends so that each of `inner` lies in its parent or behind it."""
    outer = parent[inner]
    inside = 2 * (end[outer] - start[inner]) >= end[inner] - start[inner]
    inside = (inside & ~ranges[outer] & ~ranges[inner]) | (start[inner] <= start[outer])
    within = inner[inside]
    end[within] = np.maximum(np.minimum(end[within], end[outer[inside]]), start[within])
    inner, outer = inner[~inside], outer[~inside]
    until = end[inner]
    for _ in range(LAYERS):  # all that it outlasts: a range begins in the innermost of the Python calls that open it
        np.minimum.at(end, outer, np.maximum(start[inner], start[outer]))
        outer = parent[outer]
        further = (outer != NONE) & (end[outer] < until)
        inner, outer, until = inner[further], outer[further], until[further]


def _sweep(parent: Ids, start: Ints, end: Ints, thread: Ids, encloses: Mask) -> None:
    """As `_parents`, one event after the other, for threads in which hardly anything nests: each ends with its parent."""
    odd = np.isin(thread, thread[_crossing(parent, end, encloses)])
    stack: list[tuple[int, int, int]] = []  # end, position, thread
    for i in np.flatnonzero(odd).tolist():
        begins, ends, where = int(start[i]), int(end[i]), int(thread[i])
        while stack and (stack[-1][2] != where or stack[-1][0] <= begins):
            stack.pop()
        parent[i] = stack[-1][1] if stack else NONE
        if encloses[i]:
            ends = min(ends, stack[-1][0]) if stack else ends
            end[i] = ends
            stack.append((ends, i, where))
