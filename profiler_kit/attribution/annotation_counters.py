"""Counters of a trace over time: memory, queued launches, running events."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.lanes import CounterTrack
from profiler_kit.traces.table import (
    ALLOCATED,
    DEVICE_ID,
    DEVICE_TYPE,
    HOST_TYPE,
    NONE,
    RESERVED,
    Ints,
    Mask,
)

_MEMORY: Final = ((ALLOCATED, "memory allocated (MiB)"), (RESERVED, "memory reserved (MiB)"))


def queue_depth(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """Return the number of launched device events of `mask` that have not begun, over time.

    None if no event has a launch in the trace.
    """
    table, device = attribution.table, attribution.device
    linked = mask & (device.launch != NONE)
    work_start = table.start_ns[device.rows[linked]]
    launch_end = np.minimum(table.end_ns[attribution.host.rows[device.launch[linked]]], work_start)
    is_queued = work_start > launch_end
    return _count_track("queue depth (launches)", launch_end[is_queued], work_start[is_queued])


def running_events(attribution: Attribution, mask: Mask) -> CounterTrack | None:
    """Return the number of device events of `mask` that run, over time."""
    rows = attribution.device.rows[mask]
    return _count_track("busy (events running)", attribution.table.start_ns[rows], attribution.table.end_ns[rows])


def memory_tracks(attribution: Attribution) -> tuple[CounterTrack, ...]:
    """Return the memory of each device and of the host over time, from the profiler's allocation events."""
    table = attribution.table
    tracks = []
    for key, title in _MEMORY:
        sparse = table.more.get(key)
        if sparse is None:
            continue
        kind, number = table.numbers_at(DEVICE_TYPE, sparse.rows), table.numbers_at(DEVICE_ID, sparse.rows)
        devices = np.unique(np.stack((kind, number), axis=1), axis=0)
        on_devices = int((devices[:, 0] != HOST_TYPE).sum())
        for of_kind, of_number in devices.tolist():
            prefix = "host " if of_kind == HOST_TYPE else f"device {of_number} " if on_devices > 1 else ""
            on_device = (kind == of_kind) & (number == of_number)
            at, value = _changes(table.start_ns[sparse.rows[on_device]], sparse.values[on_device].astype(np.int64))
            if value.any():
                tracks.append(CounterTrack(name=prefix + title, points=_points(at, (value / (1 << 20)).round(3))))
    return tuple(tracks)


def _changes(at: Ints, value: Ints) -> tuple[Ints, Ints]:
    """Return the last value at each time, in order of time, without repeated values except at the end."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    is_shown = np.diff(value, prepend=value[0] - 1) != 0
    is_shown[-1] = True  # viewers draw nothing after the last point
    return at[is_shown], value[is_shown]


def _count_track(name: str, start: Ints, end: Ints) -> CounterTrack | None:
    if not len(start):
        return None
    change = np.repeat(np.array((1, -1), dtype=np.int64), len(start))
    return CounterTrack(name=name, points=_points(*_cumulate(np.concatenate((start, end)), change)))


def _cumulate(at: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Return the times in order, each once, and the sum of all changes up to each. Times without a change are left out."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], np.cumsum(change[order])
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    is_change = np.diff(value, prepend=0) != 0
    return at[is_change], value[is_change]


def _points(
    at: Ints, values: Ints | np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[tuple[int, int | float], ...]:
    return tuple(zip(at.tolist(), values.tolist(), strict=True))
