"""Match device work without a launch to the same work of another step.

The launches of the first kernels in a trace often happened before the recording began. A training loop runs the same
kernels in the same order in each step, so the position in that order tells which phase and module such a kernel
belongs to.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.traces.table import NONE, Ids, Ints, Mask

MIN_MATCHING_RUN: Final = 3  # shorter runs match by chance
LOOKAHEAD_EVENTS: Final = 8  # events after a stretch that are compared
LOOKBACK_EVENTS: Final = 64  # events before a candidate position that are compared
MAX_SKIPPED_EVENTS: Final = 24  # in both sequences together, where two steps differ
RESYNC_EVENTS: Final = 4  # names that must match after skipped events
# Bounds on the time for traces in which almost nothing has a launch or almost nothing matches.
MAX_REFERENCE_EVENTS: Final = 1 << 16
MAX_CANDIDATES: Final = 1 << 12
MAX_SEARCHES: Final = 1024


class _LinkedEvents(NamedTuple):
    """Linked events of one stream: their names, their positions, and which are the last of their step."""

    names: Ids
    events: Ids
    last_of_step: Mask


def match_unlinked(name: Ids, stream: Ids, step: Ids, linked: Mask) -> Ids:
    """Return, for each event without a launch, the position of the same work in another step, or NONE.

    Events are in order of start. On each stream, a stretch of unlinked events usually ends where the linked work of a
    step begins. The stretch is aligned with linked events of the stream so that the events after it also match. Then
    the names are compared backwards from there. Where they differ, the search continues at the nearest position where
    they match again.

    `linked`: events with a launch. `step`: the step of each linked event.
    """
    matches = np.full(len(name), NONE, dtype=np.int32)
    if linked.all():
        return matches
    budget = _SearchBudget()
    order = np.argsort(stream, kind="stable").astype(np.int32)
    streams = np.unique(stream[~linked])
    bounds = np.searchsorted(stream[order], streams), np.searchsorted(stream[order], streams, side="right")
    for low, high in zip(*(bound.tolist() for bound in bounds), strict=True):
        events = order[low:high]
        is_linked = linked[events]
        stream_events = events[is_linked]
        if len(stream_events) < MIN_MATCHING_RUN:
            continue
        last_of_step = np.append(step[stream_events[1:]] != step[stream_events[:-1]], True)
        linked_before = np.cumsum(is_linked)  # number of linked events up to and including each event
        edges = np.flatnonzero(np.diff(np.concatenate(([True], is_linked, [True])).astype(np.int8)))
        for first, end in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            if not budget.remaining:
                break
            unlinked, following = events[first:end], events[end : end + LOOKAHEAD_EVENTS]
            following = following[linked[following]]
            place = int(linked_before[first])
            window = slice(max(0, min(place, len(stream_events) - MAX_REFERENCE_EVENTS)), place + MAX_REFERENCE_EVENTS)
            reference = _LinkedEvents(name[stream_events[window]], stream_events[window], last_of_step[window])
            ends_step = len(following) == 0 or place == 0 or bool(last_of_step[place - 1])
            matches[unlinked] = _match_stretch(name[unlinked], name[following], ends_step, reference, budget)
    return matches


class _SearchBudget:
    """The number of searches that are left. It bounds the time spent on a trace in which almost nothing matches."""

    def __init__(self) -> None:
        self.remaining = MAX_SEARCHES

    def spend(self) -> bool:
        """Spend one search. Returns False if none was left."""
        self.remaining -= self.remaining > 0
        return self.remaining > 0


def _match_stretch(unlinked: Ids, following: Ids, ends_step: bool, linked: _LinkedEvents, budget: _SearchBudget) -> Ids:
    """Return the match of each name in `unlinked`, or NONE. `ends_step`: the last of `unlinked` ends a step."""
    matches = np.full(len(unlinked), NONE, dtype=np.int32)
    remaining = len(unlinked)
    while remaining and budget.spend():
        end = _best_end(unlinked[:remaining], following, ends_step and remaining == len(unlinked), linked)
        # Skip an event without a match: the event before it may have one.
        remaining = (
            remaining - 1 if end == NONE else _match_backwards(unlinked, remaining, end, linked, matches, budget)
        )
        following = unlinked[remaining : remaining + LOOKAHEAD_EVENTS]
    return matches


def _best_end(unlinked: Ids, following: Ids, ends_step: bool, linked: _LinkedEvents) -> int:
    """Return the end of the linked events that best match the end of `unlinked`, or NONE."""
    candidates = np.flatnonzero(linked.names == unlinked[-1])[:MAX_CANDIDATES]
    if not len(candidates):
        return NONE
    matching_after = _matching_run(linked.names, candidates + 1, following, 1)
    matching_before = 1 + _matching_run(linked.names, candidates - 1, unlinked[-2 : -2 - LOOKBACK_EVENTS : -1], -1)
    # The end of a step breaks the tie where all names are equal, as those of collectives are.
    score = 2 * matching_before + 8 * matching_after + (linked.last_of_step[candidates] & ends_step)
    fits = matching_before + matching_after >= min(MIN_MATCHING_RUN, len(unlinked))
    if not fits.any():
        return NONE
    return int(candidates[np.argmax(np.where(fits, score, NONE))]) + 1


def _matching_run(names: Ids, starts: Ints, expected: Ids, direction: int) -> Ints:
    """Return, for each of `starts`, the number of `expected` names found there one after the other in `direction`."""
    length = np.zeros(len(starts), dtype=np.int64)
    running = np.arange(len(starts))
    for offset, name in enumerate(expected.tolist()):
        place = starts[running] + direction * offset
        inside = (place >= 0) & (place < len(names))
        running, place = running[inside], place[inside]
        running = running[names[place] == name]
        if not len(running):
            break
        length[running] += 1
    return length


def _match_backwards(
    unlinked: Ids, remaining: int, end: int, linked: _LinkedEvents, matches: Ids, budget: _SearchBudget
) -> int:
    """Match `unlinked[:remaining]` backwards from the linked event before `end`.

    Returns the number of events left unmatched.
    """
    names = linked.names
    while remaining and end:
        count = min(remaining, end)
        differ = np.flatnonzero(unlinked[remaining - count : remaining] != names[end - count : end])
        equal = count - (int(differ[-1]) + 1 if len(differ) else 0)
        matches[remaining - equal : remaining] = linked.events[end - equal : end]
        remaining, end = remaining - equal, end - equal
        if not remaining or not end or not budget.spend():
            break
        skip = _resynchronize(unlinked, remaining, names, end)
        if skip is None:
            break
        remaining, end = remaining - skip[0], end - skip[1]
    return remaining


def _resynchronize(unlinked: Ids, remaining: int, names: Ids, end: int) -> tuple[int, int] | None:
    """Return the number of events to skip in both sequences until the names match again, or None. The total is minimal."""
    for skipped in range(1, MAX_SKIPPED_EVENTS):
        for skipped_unlinked in range(max(0, skipped - end), min(skipped, remaining) + 1):
            unlinked_end, linked_end = remaining - skipped_unlinked, end - (skipped - skipped_unlinked)
            count = min(RESYNC_EVENTS, unlinked_end)
            if (
                count
                and linked_end >= count
                and np.array_equal(
                    unlinked[unlinked_end - count : unlinked_end], names[linked_end - count : linked_end]
                )
            ):
                return skipped_unlinked, skipped - skipped_unlinked
    return None
