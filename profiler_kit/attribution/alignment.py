"""Device work whose launch came before the trace did: the same kernels in the same order of another step say whose it is."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.traces.table import NONE, Ids, Ints, Mask

SHORTEST: Final = 3  # names in a row must be the same at the least
FOLLOWING: Final = 8  # how far what comes after is compared
BEHIND: Final = 64  # how far what came before is compared to choose a place
APART: Final = 24  # names that may be left out, in both together, where two steps differ
AGAIN: Final = 4  # names that must agree after that
# Bounds for traces in which nearly nothing has a launch or nearly nothing is the same.
REFERENCE: Final = 1 << 16
PLACES: Final = 1 << 12
TRIALS: Final = 1024


class _Known(NamedTuple):
    """Events of one stream whose launch is known: their names, themselves, and whether each is the last of its step there."""

    names: Ids
    events: Ids
    last: Mask


def align(name: Ids, stream: Ids, step: Ids, known: Mask) -> Ids:
    """For each event that is not `known` the known one that is the same work of another step, or NONE.

    Events are in order of start. A stretch of unknown events on a stream ends where a step's known work begins, mostly: it is
    laid on the known work of the stream so that what follows fits, then compared backwards. Where names differ, as steps do
    in places, the nearest place is sought at which they agree again.
    """
    found = np.full(len(name), NONE, dtype=np.int32)
    if known.all():
        return found
    trials = _Trials()
    order = np.argsort(stream, kind="stable").astype(np.int32)
    lost_streams = np.unique(stream[~known])
    bounds = np.searchsorted(stream[order], lost_streams), np.searchsorted(stream[order], lost_streams, side="right")
    for low, high in zip(*(bound.tolist() for bound in bounds), strict=True):
        events = order[low:high]
        here = known[events]
        of_stream = events[here]
        if len(of_stream) < SHORTEST:
            continue
        last = np.append(step[of_stream[1:]] != step[of_stream[:-1]], True)
        before = np.cumsum(here)  # of each event, how many known ones there are up to it
        edges = np.flatnonzero(np.diff(np.concatenate(([True], here, [True])).astype(np.int8)))
        for begin, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if not trials.left:
                break
            lost, after = events[begin:end], events[end : end + FOLLOWING]
            after = after[known[after]]
            at = int(before[begin])
            near = slice(max(0, min(at, len(of_stream) - REFERENCE)), at + REFERENCE)
            reference = _Known(name[of_stream[near]], of_stream[near], last[near])
            border = len(after) == 0 or at == 0 or bool(last[at - 1])
            found[lost] = _lay(name[lost], name[after], border, reference, trials)
    return found


class _Trials:
    """How often a place may still be sought."""

    def __init__(self) -> None:
        self.left = TRIALS

    def take(self) -> bool:
        """Whether there is one left; it is taken."""
        self.left -= self.left > 0
        return self.left > 0


def _lay(lost: Ids, following: Ids, border: bool, known: _Known, trials: _Trials) -> Ids:
    """For each name in `lost` one of the `known` events or NONE. `border`: a step ends with the last of `lost`."""
    found = np.full(len(lost), NONE, dtype=np.int32)
    left = len(lost)
    while left and trials.take():
        end = _best_end(lost[:left], following, border and left == len(lost), known)
        # One that fits nowhere is passed over: the one before it may fit.
        left = left - 1 if end == NONE else _match_back(lost, left, end, known, found, trials)
        following = lost[left : left + FOLLOWING]
    return found


def _best_end(lost: Ids, following: Ids, border: bool, known: _Known) -> int:
    """Behind which of the known events the last of `lost` fits best, by what comes before and what follows; or NONE."""
    at = np.flatnonzero(known.names == lost[-1])[:PLACES]
    if not len(at):
        return NONE
    ahead = _run(known.names, at + 1, following, 1)
    behind = 1 + _run(known.names, at - 1, lost[-2 : -2 - BEHIND : -1], -1)
    # A step's end decides where all names are the same, as collectives' are.
    score = 2 * behind + 8 * ahead + (known.last[at] & border)
    fits = behind + ahead >= min(SHORTEST, len(lost))
    if not fits.any():
        return NONE
    return int(at[np.argmax(np.where(fits, score, NONE))]) + 1


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


def _match_back(lost: Ids, left: int, end: int, known: _Known, found: Ids, trials: _Trials) -> int:
    """Matches `lost[:left]` with the known up to `end` from the back, and returns how many of `lost` are left to match."""
    names = known.names
    while left and end:
        count = min(left, end)
        differ = np.flatnonzero(lost[left - count : left] != names[end - count : end])
        equal = count - (int(differ[-1]) + 1 if len(differ) else 0)
        found[left - equal : left] = known.events[end - equal : end]
        left, end = left - equal, end - equal
        if not left or not end or not trials.take():
            break
        skip = _agree_again(lost, left, names, end)
        if skip is None:
            break
        left, end = left - skip[0], end - skip[1]
    return left


def _agree_again(lost: Ids, left: int, names: Ids, end: int) -> tuple[int, int] | None:
    """How many to pass over in both until the names agree again, the fewest in all; None if they do not soon."""
    for apart in range(1, APART):
        for in_lost in range(max(0, apart - end), min(apart, left) + 1):
            a, b = left - in_lost, end - (apart - in_lost)
            rest = min(AGAIN, a)
            if rest and b >= rest and np.array_equal(lost[a - rest : a], names[b - rest : b]):
                return in_lost, apart - in_lost
    return None
