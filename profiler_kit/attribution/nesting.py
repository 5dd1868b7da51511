"""The nesting of host events on each thread, over columns, at any depth."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.traces.table import HOST_KINDS, NONE, Ids, Ints, Kind, Mask, Table

# Overlaps without nesting are repaired one layer at a time. Real traces have one or two layers.
MAX_REPAIR_ROUNDS: Final = 24
MAX_OVERLAP_LAYERS: Final = 256
_PACKED_BITS: Final = 62
_MAX_RADIX_DEPTH: Final = 1 << 15  # NumPy sorts 16-bit integers by radix


class Nesting(NamedTuple):
    """The host events by thread, then start, enclosing before enclosed.

    `rows`: rows of the table. `start_ns`, `end_ns`: with ends moved so that all events nest. `recorded_end_ns`: the
    ends as recorded. `parent`: positions.
    """

    rows: Ids
    start_ns: Ints
    end_ns: Ints
    recorded_end_ns: Ints
    thread: Ids
    parent: Ids


def nest(table: Table) -> Nesting:
    """Return the host events of `table`, each with the innermost event that is open when it begins.

    Two kinds of events enclose nothing: runtime calls, which have timestamps of another clock, and events without
    duration. If two events overlap and neither encloses the other, the later one ends with the earlier one if most of
    it lies inside. Otherwise the earlier one ends where the later one begins. A named range always yields to the
    Python call that ends it.
    """
    rows = np.flatnonzero(table.of(*HOST_KINDS)).astype(np.int32)
    start, end = table.times(rows)
    order = time_order(start, end, table.thread[rows])
    rows, start, end = rows[order].astype(np.int32), start[order], end[order]
    thread, recorded_end = table.thread[rows], end.copy()
    encloses = (table.kind[rows] != Kind.RUNTIME) & (end > start)
    ranges = table.kind[rows] == Kind.ANNOTATION
    parent = _parents(_concatenate_threads(thread, start, end), encloses)
    for _ in range(MAX_REPAIR_ROUNDS):
        crossing = _overlapping_parent(parent, end, encloses)
        if not len(crossing):
            break
        affected = np.flatnonzero(np.isin(thread, np.unique(thread[crossing])))
        timeline = _concatenate_threads(thread[affected], start[affected], end[affected])
        open_at = _innermost_open(timeline, encloses[affected], np.searchsorted(affected, crossing))
        parent[crossing] = np.where(open_at >= 0, affected[open_at], NONE)
        _repair_overlaps(_overlapping_parent(parent, end, encloses), parent, start, end, ranges)
        encloses[affected] &= end[affected] > start[affected]
        local_parent = _parents(
            _concatenate_threads(thread[affected], start[affected], end[affected]), encloses[affected]
        )
        parent[affected] = np.where(local_parent >= 0, affected[local_parent], NONE)
    else:
        _nest_one_by_one(parent, start, end, thread, encloses)
    return Nesting(rows, start, end, recorded_end, thread, parent)


def time_order(start: Ints, end: Ints, group: Ids | None = None) -> Ints:
    """Return the order by group, then start, then descending duration, then position."""
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
    order = np.argsort(key, kind="stable")  # a stable sort merges the sorted runs of a trace
    key = key[order]
    tied = key[1:] == key[:-1]
    if tied.any():
        at = np.flatnonzero(np.concatenate((tied, [False])) | np.concatenate(([False], tied)))
        tied_events = order[at]
        order[at] = tied_events[np.lexsort((tied_events, -end[tied_events], key[at]))]
    return order


class _Timeline(NamedTuple):
    """Starts and ends of all threads on one axis, one thread after the other."""

    start: Ints
    end: Ints


def _concatenate_threads(thread: Ids, start: Ints, end: Ints) -> _Timeline:
    if not len(start):
        return _Timeline(start, end)
    span = int(end.max()) - int(start.min()) + 1
    if (int(thread.max()) + 1).bit_length() + span.bit_length() <= _PACKED_BITS:
        offset = thread.astype(np.int64) * span - int(start.min())
        return _Timeline(start + offset, end + offset)
    # The times are too large to shift. Their ranks have the same order.
    times, rank = np.unique(np.concatenate((start, end)), return_inverse=True)
    offset = thread.astype(np.int64) * (len(times) + 1)
    return _Timeline(rank[: len(start)] + offset, rank[len(start) :] + offset)


def _parents(timeline: _Timeline, encloses: Mask) -> Ids:
    """Return the positions of the innermost enclosing events if all events nest.

    Otherwise at least one event outlasts its parent.

    The depth of an event is the number of events that began before it, less the number of those that have ended. Its
    parent is the last event before it with a depth of one less. This holds up to and including the first event that
    overlaps another without nesting.
    """
    count = len(timeline.start)
    if not count:
        return np.zeros(0, dtype=np.int32)
    depth = np.cumsum(encloses, dtype=np.int64)
    depth -= encloses.astype(np.int8)
    depth -= np.searchsorted(np.sort(timeline.end[encloses], kind="stable"), timeline.start, side="right")
    # an event that is deeper than the one before it lies inside that one
    parent = np.arange(-1, count - 1, dtype=np.int32)
    change = np.diff(depth, prepend=-1)
    # Where an event ended in between, the parent is the last event of the next lower depth.
    shallower = np.flatnonzero(change < 0)
    levels = depth[encloses].astype(np.int16) if depth.max() < _MAX_RADIX_DEPTH else depth[encloses]
    by_depth = np.flatnonzero(encloses)[np.argsort(levels, kind="stable")]
    keys = depth[by_depth] * count + by_depth
    index = np.searchsorted(keys, (depth[shallower] - 1) * count + shallower) - 1
    parent[shallower] = np.where(depth[shallower] > 0, by_depth[index] if len(by_depth) else NONE, NONE)
    # An event as deep as the one before it has the same parent.
    first_of_level = np.arange(count)
    first_of_level[change == 0] = 0
    return parent[np.maximum.accumulate(first_of_level)]


def _innermost_open(timeline: _Timeline, encloses: Mask, positions: Ints) -> Ints:
    """Return, for each of `positions`, the last enclosing event before it that is still open at its start, or NONE.

    The event need not nest.

    Blocks of doubling size store their latest end. The search goes up until a block contains an open event, then down
    to it.
    """
    latest = [np.where(encloses, timeline.end, np.int64(-1))]
    while len(latest[-1]) > 1:
        blocks = latest[-1] if len(latest[-1]) % 2 == 0 else np.append(latest[-1], np.int64(-1))
        latest.append(np.maximum(blocks[::2], blocks[1::2]))
    start = timeline.start[positions]
    block = positions.astype(np.int64)  # blocks before this one remain to be searched
    match = np.full(len(positions), NONE, dtype=np.int64)
    size = np.zeros(len(positions), dtype=np.int64)
    for level, ends in enumerate(latest):
        candidates = np.flatnonzero((match == NONE) & (block % 2 == 1))
        matching = candidates[ends[block[candidates] - 1] > start[candidates]]
        match[matching], size[matching] = block[matching] - 1, level
        block //= 2
    for level in range(len(latest) - 2, -1, -1):
        pending = np.flatnonzero((match != NONE) & (size > level))
        right = 2 * match[pending] + 1
        right = np.where(right < len(latest[level]), right, right - 1)
        match[pending] = np.where(latest[level][right] > start[pending], right, 2 * match[pending])
    return match


def _overlapping_parent(parent: Ids, end: Ints, encloses: Mask) -> Ints:
    """Return the positions of events that end after their parent."""
    inner = np.flatnonzero(encloses & (parent != NONE))
    return inner[end[inner] > end[parent[inner]]]


def _repair_overlaps(inner: Ints, parent: Ids, start: Ints, end: Ints, ranges: Mask) -> None:
    """Move ends so that each of `inner` lies inside its parent or after it."""
    outer = parent[inner]
    inside = 2 * (end[outer] - start[inner]) >= end[inner] - start[inner]
    inside = (inside & ~ranges[outer] & ~ranges[inner]) | (start[inner] <= start[outer])
    within = inner[inside]
    end[within] = np.maximum(np.minimum(end[within], end[outer[inside]]), start[within])
    inner, outer = inner[~inside], outer[~inside]
    reach = end[inner]
    # a range begins inside the innermost of the Python calls that open it, and may outlast several
    for _ in range(MAX_OVERLAP_LAYERS):
        np.minimum.at(end, outer, np.maximum(start[inner], start[outer]))
        outer = parent[outer]
        still_open = (outer != NONE) & (end[outer] < reach)
        inner, outer, reach = inner[still_open], outer[still_open], reach[still_open]


def _nest_one_by_one(parent: Ids, start: Ints, end: Ints, thread: Ids, encloses: Mask) -> None:
    """Nest events one after the other, on threads where almost nothing nests.

    Each event ends with its parent at the latest.
    """
    is_affected = np.isin(thread, thread[_overlapping_parent(parent, end, encloses)])
    stack: list[tuple[int, int, int]] = []  # end, position, thread
    for i in np.flatnonzero(is_affected).tolist():
        event_start, event_end, event_thread = int(start[i]), int(end[i]), int(thread[i])
        while stack and (stack[-1][2] != event_thread or stack[-1][0] <= event_start):
            stack.pop()
        parent[i] = stack[-1][1] if stack else NONE
        if encloses[i]:
            event_end = min(event_end, stack[-1][0]) if stack else event_end
            end[i] = event_end
            stack.append((event_end, i, event_thread))
