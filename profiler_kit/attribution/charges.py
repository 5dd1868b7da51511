"""Device by device: every busy instant charged to one event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.spans import charge
from profiler_kit.attribution.times import times
from profiler_kit.traces.table import Ids, Ints, Mask


class Charged(NamedTuple):
    """The stretches that are charged to events of the device, of each device in order: none of a device overlap.

    `position`: in `Owned.device`.
    """

    position: Ids
    start: Ints
    end: Ints


def devices(owned: Owned) -> tuple[Ids, tuple[str, ...]]:
    """The device of each event of the device, as a position in the names."""
    names: dict[str, int] = {}
    of_stream = [names.setdefault(stream.device, len(names)) for stream in owned.table.streams]
    positions = np.array(of_stream or [0], dtype=np.int32)
    return positions[np.maximum(owned.table.stream[owned.device.rows], 0)], tuple(names)


def charged(owned: Owned, chosen: Mask) -> Charged:
    """The busy time of the events in `chosen`: on each device every instant once, for the event that started first."""
    device, names = devices(owned)
    parts = []
    for number in range(max(len(names), 1)):
        position = np.flatnonzero(chosen & (device == number)).astype(np.int32)
        start, end = times(owned.table, owned.device.rows[position])
        piece = charge(start, end).piece
        some = piece > 0
        parts.append(Charged(position[some], (end - piece)[some], end[some]))
    position, start, end = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return Charged(position, start, end)
