"""Busy time of each device, with every busy instant counted for one event."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.traces.intervals import assign_to_first
from profiler_kit.traces.table import Ids, Ints, Mask


class BusyPieces(NamedTuple):
    """Intervals of device time, each counted for one event. Intervals of one device are in order and do not overlap.

    `position`: the event in `Attribution.device`.
    """

    position: Ids
    start: Ints
    end: Ints


def event_devices(attribution: Attribution) -> tuple[Ids, tuple[str, ...]]:
    """Return the device of each device event, as an index into the returned names."""
    names: dict[str, int] = {}
    of_stream = [names.setdefault(stream.device, len(names)) for stream in attribution.table.streams]
    positions = np.array(of_stream or [0], dtype=np.int32)
    return positions[np.maximum(attribution.table.stream[attribution.device.rows], 0)], tuple(names)


def busy_pieces(attribution: Attribution, mask: Mask) -> BusyPieces:
    """Return the busy intervals of the events in `mask`.

    Counts: each instant of a device once, for the event that started first.
    """
    device, (device_of, names) = attribution.device, event_devices(attribution)
    parts = []
    for number in range(max(len(names), 1)):
        position = np.flatnonzero(mask & (device_of == number)).astype(np.int32)
        start, end = device.start_ns[position], device.end_ns[position]
        piece = assign_to_first(start, end).piece
        nonempty = piece > 0
        parts.append(BusyPieces(position[nonempty], (end - piece)[nonempty], end[nonempty]))
    position, start, end = (np.concatenate([part[i] for part in parts]) for i in range(3))
    return BusyPieces(position, start, end)
