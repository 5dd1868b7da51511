"""Device by device: every busy instant charged to one event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.intervals import charge
from profiler_kit.traces.table import Ids, Ints, Mask


class ChargedWork(NamedTuple):
    """The stretches that are charged to events of the device, of each device in order: none of a device overlap.

    `position`: in `Attribution.device`.
    """

    position: Ids
    start: Ints
    end: Ints


def devices(attribution: Attribution) -> tuple[Ids, tuple[str, ...]]:
    """The device of each event of the device, as a position in the names."""
    names: dict[str, int] = {}
    of_stream = [names.setdefault(stream.device, len(names)) for stream in attribution.table.streams]
    positions = np.array(of_stream or [0], dtype=np.int32)
    return positions[np.maximum(attribution.table.stream[attribution.device.rows], 0)], tuple(names)


def charge_work(attribution: Attribution, chosen: Mask) -> ChargedWork:
    """The busy time of the events in `chosen`: on each device every instant once, for the event that started first."""
    device, (number_of, names) = attribution.device, devices(attribution)
    parts = []
    for number in range(max(len(names), 1)):
        position = np.flatnonzero(chosen & (number_of == number)).astype(np.int32)
        start, end = device.start_ns[position], device.end_ns[position]
        piece = charge(start, end).piece
        some = piece > 0
        parts.append(ChargedWork(position[some], (end - piece)[some], end[some]))
    position, start, end = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return ChargedWork(position, start, end)
