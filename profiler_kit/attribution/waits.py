"""Calls in which the host stood still until the device had done something."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.attribution.named import named
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.spans import charge
from profiler_kit.attribution.times import times
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

_WAITS: Final = re.compile(
    r"[sS]ynchronize(_v2|_ptsz)?\Z|\A(cuda|hip)Free\Z|"  # freeing memory waits for everything before it
    r"\A(cuda|hip)Memcpy(2D|3D)?\Z|\AhipMemcpyWithStream\Z|\AcuMemcpy(DtoH|HtoD|DtoD)(_v2)?\Z|"
    r"\Aur(EventWait|QueueFinish)\Z|\AzeEventHostSynchronize\Z"
)
_DEVICE: Final = re.compile(r"DeviceSynchronize\Z")
_COPIES: Final = re.compile(r"\A(cuda|hip|cu)Memcpy\w*Async")
_TO_HOST: Final = re.compile(r"DtoH|[pP]ageable|-> (Host|Pinned)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Waiting calls: their positions in `Owned.host`, by thread and start. A call inside another one counts for the outer."""

    position: Ids
    thread: Ids
    start: Ints
    end: Ints


def waits(owned: Owned) -> Waits:
    """Synchronising calls, copies that block, and asynchronous copies that returned only after their copy was done.

    The last are copies from and to pageable memory: CUDA stages them, so that `Async` waits for the stream all the same. The
    profiler's own wait for the device, as it stops, is no part of the program and left out.
    """
    table, host = owned.table, owned.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME).astype(np.int32)
    rows = host.rows[calls]
    waiting = named(table.names, table.name[rows], _WAITS)
    done = _copied(owned)[calls]
    copies = (done != NONE) & (times(table, rows)[1] >= done) & named(table.names, table.name[rows], _COPIES)
    position = calls[waiting | copies]
    rows = host.rows[position]
    thread = table.thread[rows]
    start, end = times(table, rows)
    left = np.zeros(len(rows), np.int64)
    for number in np.unique(thread):  # host events stand by thread, then start
        here = thread == number
        left[here] = charge(start[here], end[here]).piece
    keep = (left > 0) & ~_of_the_profiler(owned, position, start)
    return Waits(position=position[keep], thread=thread[keep], start=(end - left)[keep], end=end[keep])


def _copied(owned: Owned) -> Ints:
    """For each host event, when the copy that it launched was done, where that copy may block; NONE elsewhere."""
    table, device = owned.table, owned.device
    done = np.full(len(owned.host.rows), NONE, np.int64)
    copies = np.flatnonzero((device.launch != NONE) & (table.kind[device.rows] == Kind.MEMCPY))
    rows = device.rows[copies]
    blocking = named(table.names, table.name[rows], _TO_HOST)
    done[device.launch[copies[blocking]]] = times(table, rows)[1][blocking]
    return done


def _of_the_profiler(owned: Owned, position: Ids, start: Ints) -> Mask:
    """Which calls synchronise the device after all launches, outside of steps and of any operator or Python call."""
    table, host, device = owned.table, owned.host, owned.device
    launched = host.rows[device.launch[device.launch != NONE]]
    last = int(times(table, launched)[0].max()) if len(launched) else 0
    outside = (host.operator[position] == NONE) & (host.python[position] == NONE) & (host.step[position] == NONE)
    late: Mask = outside & (start >= last)
    return late & named(table.names, table.name[host.rows[position]], _DEVICE)
