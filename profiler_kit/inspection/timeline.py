"""The device's timeline: every instant between its first and its last event is busy, for one event, or idle, before one."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.inspection.ownership import Owned
from profiler_kit.inspection.spans import Charges, Spans, charge, union
from profiler_kit.inspection.times import times
from profiler_kit.traces.table import Ids, Ints, Mask


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The device's events in the order of `Owned.device`. An instant that several cover is the first-started one's.

    `piece`: the ns of each event that are its own. `gap`: the idle ns that each one ended, from `covered` to its start;
    `before` is the position of the event whose end began the gap. Devices share one timeline where a trace holds several.
    """

    start: Ints
    end: Ints
    name: Ids
    stream: Ids
    piece: Ints
    gap: Ints
    covered: Ints
    before: Ints

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
        own = mask & (self.piece > 0)
        return union((self.end - self.piece)[own], self.end[own], ordered=True)


def timeline(owned: Owned) -> Timeline:
    """The timeline of the device's work in `owned`."""
    table, rows = owned.table, owned.device.rows
    start, end = times(table, rows)
    charges: Charges = charge(start, end)
    return Timeline(
        start=start,
        end=end,
        name=table.name[rows],
        stream=table.stream[rows],
        piece=charges.piece,
        gap=charges.gap,
        covered=charges.covered,
        before=charges.before,
    )
