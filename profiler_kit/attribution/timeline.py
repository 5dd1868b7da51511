"""The device's timeline: every instant between its first and its last event is busy, for one event, or idle, before one.

A collective spins on its own stream until all ranks have come, beside the work that it waits behind: that work takes the instants
that both run, and the collective what only collectives fill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.spans import Spans, charge, join, none, overlap, subtract, union
from profiler_kit.attribution.times import times
from profiler_kit.traces.table import Ids, Ints, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The device's events in the order of `Owned.device`. An instant that several cover is the first-started one's, and a
    collective's only where nothing else runs.

    `piece`: the ns of each event that are its own. `gap`: the idle ns that each one ended, from `covered` to its start;
    `before` is the position of the event whose end began the gap. Devices share one timeline where a trace holds several.
    `collective`: which events are collectives; `first`: the last ns of each event in which it is the first-started one of its
    sort; `covering`: when anything but collectives runs, empty in a trace without collectives.
    """

    start: Ints
    end: Ints
    name: Ids
    stream: Ids
    piece: Ints
    gap: Ints
    covered: Ints
    before: Ints
    collective: Mask
    first: Ints
    covering: Spans

    @property
    def span_ns(self) -> int:
        """From the first event's start to the last one's end."""
        return int(self.end.max() - self.start[0]) if len(self.start) else 0

    @property
    def busy_ns(self) -> int:
        """The instants with work, each once."""
        return int(self.piece.sum())

    def charged(self, mask: Mask) -> Spans:
        """The stretches that belong to the events of `mask`."""
        shared = mask & self.collective
        if not shared.any():
            return self._first(mask)
        bare = subtract(self._first(shared), self.covering)
        return join(bare, self._first(mask & ~self.collective))

    def _first(self, mask: Mask) -> Spans:
        own = mask & (self.first > 0)
        return union((self.end - self.first)[own], self.end[own], ordered=True)


def timeline(owned: Owned) -> Timeline:
    """The timeline of the device's work in `owned`."""
    table, rows = owned.table, owned.device.rows
    start, end = times(table, rows)
    charges = charge(start, end)
    collective = owned.device.phase == PHASE_NUMBERS["communication"]
    piece = first = charges.piece
    covering = none()
    if collective.any():
        first = np.empty_like(piece)
        for sort in (collective, ~collective):
            first[sort] = charge(start[sort], end[sort]).piece
        covering = union(start[~collective], end[~collective], ordered=True)
        piece = first.copy()
        piece[collective] -= overlap(covering, (end - first)[collective], end[collective])
    return Timeline(
        start=start,
        end=end,
        name=table.name[rows],
        stream=table.stream[rows],
        piece=piece,
        gap=charges.gap,
        covered=charges.covered,
        before=charges.before,
        collective=collective,
        first=first,
        covering=covering,
    )
