"""Device work whose launch came before the trace did: the same kernels in the same order of another step say whose it is."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.traces.table import NONE, Ids, Ints, Mask

# What must fit at the least, what looks ahead, and how far two steps may differ in one place.
SHORTEST: Final = 3
FOLLOWING: Final = 8
_APART: Final = 24
_AGAIN: Final = 4
_ATTEMPTS: Final = 4096


def align(name: Ids, stream: Ids, known: Mask) -> Ids:
    """For each event that is not `known` the known one that is the same work of another step, or NONE.

    Events are in order of start. A stretch of unknown events on a stream ends where a step's known work begins, mostly: it is
    laid on the known work of the stream so that what follows fits, then compared backwards. Where names differ, as steps do
    in places, the nearest place is sought at which they agree again.
    """
    found = np.full(len(name), NONE, dtype=np.int32)
    lost_streams = np.unique(stream[~known])
    order = np.argsort(stream, kind="stable")
    bounds = np.searchsorted(stream[order], lost_streams), np.searchsorted(stream[order], lost_streams, side="right")
    for low, high in zip(*(bound.tolist() for bound in bounds), strict=True):
        events = order[low:high].astype(np.int32)
        here = known[events]
        reference = events[here]
        if len(reference) < SHORTEST:
            continue
        edges = np.flatnonzero(np.diff(np.concatenate(([True], here, [True])).astype(np.int8)))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            lost = events[first:last]
            after = events[last : last + FOLLOWING]
            found[lost] = _lay(name[lost], name[after[known[after]]], name[reference], reference)
    return found


def _lay(lost: Ids, following: Ids, names: Ids, events: Ids) -> Ids:
    """For each name in `lost` an entry of `events` (whose names are `names`) or NONE."""
    found = np.full(len(lost), NONE, dtype=np.int32)
    left = len(lost)
    for _ in range(_ATTEMPTS):
        if not left:
            break
        end = _best_end(lost[:left], following, names)
        if end == NONE:
            left -= 1  # this one is nowhere: the one before it may be
            following = lost[left : left + FOLLOWING]
            continue
        before = left
        left = _match_back(lost, left, names, end, events, found)
        following = lost[left : left + FOLLOWING] if left < before else following
    return found


def _best_end(lost: Ids, following: Ids, names: Ids) -> int:
    """Where in `names` the last of `lost` fits best (the end of it, exclusive), by what is before and what follows; or NONE."""
    at = np.flatnonzero(names == lost[-1])
    if not len(at):
        return NONE
    ahead = _run(names, at + 1, following, 1)
    behind = np.zeros(len(at), dtype=np.int64)
    behind = 1 + _run(names, at - 1, lost[-2 : -2 - 64 : -1], -1)
    score = np.minimum(behind, 64) + 4 * ahead
    best = int(np.argmax(score))
    if behind[best] + ahead[best] < min(SHORTEST, len(lost)):
        return NONE
    return int(at[best]) + 1


def _run(names: Ids, at: Ints, wanted: Ids, direction: int) -> Ints:
    """For each place how many of `wanted` stand there, one after the other in `direction`."""
    length = np.zeros(len(at), dtype=np.int64)
    going = np.arange(len(at))
    for step, name in enumerate(wanted.tolist()):
        place = at[going] + direction * step
        inside = (place >= 0) & (place < len(names))
        going, place = going[inside], place[inside]
        going = going[names[place] == name]
        if not len(going):
            break
        length[going] += 1
    return length


def _match_back(lost: Ids, left: int, names: Ids, end: int, events: Ids, found: Ids) -> int:
    """Matches `lost[:left]` with `names[:end]` from the back, and returns how many of `lost` are left to match."""
    while left and end:
        count = min(left, end)
        same = lost[left - count : left] == names[end - count : end]
        differ = np.flatnonzero(~same)
        equal = count - (int(differ[-1]) + 1 if len(differ) else 0)
        found[left - equal : left] = events[end - equal : end]
        left, end = left - equal, end - equal
        if not left or not end:
            break
        skip = _agree_again(lost, left, names, end)
        if skip is None:
            break
        left, end = left - skip[0], end - skip[1]
    return left


def _agree_again(lost: Ids, left: int, names: Ids, end: int) -> tuple[int, int] | None:
    """How many to pass over in both until `_AGAIN` names agree, the fewest in all; None if they do not soon."""
    for apart in range(1, _APART):
        for in_lost in range(max(0, apart - end), min(apart, left) + 1):
            in_names = apart - in_lost
            rest = min(_AGAIN, left - in_lost, end - in_names)
            if rest <= 0 or rest < min(_AGAIN, left - in_lost):
                continue
            a, b = left - in_lost, end - in_names
            if np.array_equal(lost[a - rest : a], names[b - rest : b]):
                return in_lost, in_names
    return None
