"""Quantities of a trace over time: FLOP/s, memory, how many launches wait, how much runs at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.flops import is_counted, operator_flops
from profiler_kit.attribution.ownership import Owned
from profiler_kit.records.lanes import CounterTrack
from profiler_kit.traces.sparse import ALLOCATED, DEVICE_ID, DEVICE_TYPE, HOST_TYPE, RESERVED, numbers_at
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

# Of the time of kernels that compute: with less of it known, a rate would tell more of the trace than of the work.
LEAST_KNOWN: Final = 0.5

_MEMORY: Final = ((ALLOCATED, "memory allocated (MiB)"), (RESERVED, "memory reserved (MiB)"))


def waiting(owned: Owned, mask: Mask) -> CounterTrack | None:
    """How many of the device events in `mask` are launched and have not begun; None where none has its launch in the trace."""
    table, device = owned.table, owned.device
    linked = mask & (device.launch != NONE)
    begun = table.start_ns[device.rows[linked]]
    launched = np.minimum(table.end_ns[owned.host.rows[device.launch[linked]]], begun)
    waited = begun > launched
    return _counted("queue depth (launches)", launched[waited], begun[waited])


def running(owned: Owned, mask: Mask) -> CounterTrack | None:
    """How many of the device events in `mask` run."""
    rows = owned.device.rows[mask]
    return _counted("busy (events running)", owned.table.start_ns[rows], owned.table.end_ns[rows])


def memory(owned: Owned) -> tuple[CounterTrack, ...]:
    """Memory of each device, and of the host, as the profiler's allocation events tell it."""
    table = owned.table
    found = []
    for key, title in _MEMORY:
        sparse = table.more.get(key)
        if sparse is None:
            continue
        kind, number = numbers_at(table, DEVICE_TYPE, sparse.rows), numbers_at(table, DEVICE_ID, sparse.rows)
        devices = np.unique(np.stack((kind, number), axis=1), axis=0)
        on_devices = int((devices[:, 0] != HOST_TYPE).sum())
        for of_kind, of_number in devices.tolist():
            place = "host " if of_kind == HOST_TYPE else f"device {of_number} " if on_devices > 1 else ""
            mine = (kind == of_kind) & (number == of_number)
            at, value = _last_at(table.start_ns[sparse.rows[mine]], sparse.values[mine].astype(np.int64))
            if value.any():
                found.append(CounterTrack(name=place + title, points=_points(at, (value / (1 << 20)).round(3))))
    return tuple(found)


def _last_at(at: Ints, value: Ints) -> tuple[Ints, Ints]:
    """In order of time the last value of each instant, where it is another than before."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], value[order]
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    new = np.diff(value, prepend=value[0] - 1) != 0
    return at[new], value[new]


def rate(owned: Owned, mask: Mask) -> tuple[CounterTrack | None, str | None]:
    """FLOP/s while kernels of counted operators run, and what to know of it.

    An operator's FLOPs go by while its kernels run: its rate is its FLOPs over the sum of their durations. Kernels that run
    beside each other add up.
    """
    table, host, device = owned.table, owned.host, owned.device
    if not (table.shapes != NONE).any():
        return None, "no FLOP/s: the trace has no shapes (record it with record_shapes=True)"
    counted = _counted_operator(owned)
    owner = np.where(device.operator != NONE, counted[device.operator], NONE) if len(counted) else device.operator
    owner = np.where(mask & (table.kind[device.rows] == Kind.KERNEL), owner, NONE)
    operators, index = np.unique(owner[owner != NONE], return_inverse=True)
    rows = device.rows[owner != NONE]
    duration = table.duration_ns[rows]
    flops = _flops(owned, host.rows[operators])
    known = flops >= 0
    missing = int((~known).sum())
    total = np.bincount(index, weights=duration, minlength=len(operators))
    note = None
    if missing:
        lacking = f"{missing} of {len(operators)} products, convolutions and attentions lack shapes or arguments"
        if total[known].sum() < LEAST_KNOWN * total.sum():
            return None, f"no FLOP/s: {lacking}"
        note = f"FLOP/s: {lacking}"
    with np.errstate(divide="ignore", invalid="ignore"):
        teraflops = np.where(known & (total > 0), flops / total / 1e3, 0.0)
    step = teraflops[index]
    used = (step > 0) & (duration > 0)
    if not used.any():
        return None, note or "no FLOP/s: no matrix product, convolution or attention with shapes ran on the device"
    start, end = table.start_ns[rows][used], table.end_ns[rows][used]
    at = np.concatenate((start, end))
    # Whole kiloflops, so that what adds up comes back to zero.
    change = np.concatenate((step[used], -step[used]))
    at, value = _steps(at, (change * 1e9).round().astype(np.int64))
    return CounterTrack(name="TFLOP/s", points=_points(at, (value / 1e9).round(6))), note


def _counted_operator(owned: Owned) -> Ids:
    """For each host position the outermost counted operator around it, itself included; NONE where there is none."""
    table, host = owned.table, owned.host
    names = np.array([is_counted(name) for name in table.names] or [False], dtype=np.bool_)
    counted = (
        names[table.name[host.rows]] & (table.kind[host.rows] == Kind.OPERATOR)
        if len(host.rows)
        else np.zeros(0, np.bool_)
    )
    found = np.where(counted, np.arange(len(host.rows), dtype=np.int32), NONE).astype(np.int32)
    # Each round looks twice as far up: the depth of nesting costs its logarithm.
    above = host.parent.astype(np.int32)
    while (above != NONE).any():
        there = above != NONE
        outer = np.where(there, found[above], NONE)
        found = np.where(outer != NONE, outer, found)
        above = np.where(there, above[above], NONE)
    return found


def _flops(owned: Owned, rows: Ids) -> Ints:
    """FLOPs of the operators in `rows`, each kind of call worked out once; -1 where they are not known."""
    table = owned.table
    calls = np.stack((table.name[rows], table.shapes[rows], table.inputs[rows]), axis=1)
    kinds, index = np.unique(calls, axis=0, return_inverse=True)
    flops = []
    for name, shapes, inputs in kinds.tolist():
        text = table.texts[inputs] if inputs != NONE else None
        known = operator_flops(table.names[name], table.texts[shapes], text) if shapes != NONE else None
        flops.append(-1 if known is None or known >= 1 << 62 else known)
    return np.array(flops, dtype=np.int64)[index.reshape(-1)] if flops else np.zeros(0, dtype=np.int64)


def _counted(name: str, start: Ints, end: Ints) -> CounterTrack | None:
    if not len(start):
        return None
    change = np.repeat(np.array((1, -1), dtype=np.int64), len(start))
    return CounterTrack(name=name, points=_points(*_steps(np.concatenate((start, end)), change)))


def _steps(at: Ints, change: Ints) -> tuple[Ints, Ints]:
    """Instants in order, each once, and the sum of all changes up to and with each; those that change nothing are left out."""
    order = np.argsort(at, kind="stable")
    at, value = at[order], np.cumsum(change[order])
    last = np.flatnonzero(np.diff(at, append=at[-1] + 1))
    at, value = at[last], value[last]
    new = np.diff(value, prepend=0) != 0
    return at[new], value[new]


def _points(
    at: Ints, values: Ints | np.ndarray[tuple[int], np.dtype[np.float64]]
) -> tuple[tuple[int, int | float], ...]:
    return tuple(zip(at.tolist(), values.tolist(), strict=True))
