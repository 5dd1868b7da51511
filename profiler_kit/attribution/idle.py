"""Idle time of the device, split by what it waited for.

A gap belongs to the work that ended it. Was that work's launch still to come when the gap began, the host decides: up to the
launch, what the launching thread did, and where that thread did nothing, what the main thread did, is the cause. From the
launch on it is launch latency. Was the work launched already, or begins long after, it waited for the device: for the work of
another stream, where that has just ended. Longer than a handover takes that explains nothing: all streams stood still, so that
whatever the work waited for is not in the trace, even where its stream was told to wait for an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.host_states import host_states
from profiler_kit.attribution.named import named
from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.phase_names import phase_name
from profiler_kit.attribution.spans import overlap
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.attribution.times import times
from profiler_kit.attribution.waits import Waits
from profiler_kit.records.traces import IDLE_CAUSES, IdleTime
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

CAUSE_NUMBERS: Final = {cause: number for number, cause in enumerate(IDLE_CAUSES)}

# Between kernels that wait in the same stream's queue the device needs 1 to 2 us; 99 % of such gaps on a V100, H100, H200 and
# MI300 are below 5 us. From one stream to another it is an event more: 9 to 18 us on an MI300, 1 to 3 us on the others.
BACK_TO_BACK_NS: Final = 5_000
HANDOVER_NS: Final = 20_000
# An idle device begins at most 8 us after the launch returned (V100, H100, H200, MI210, MI250); later than this, it waited.
LATENCY_NS: Final = 20_000

_STREAM_WAIT: Final = re.compile(r"StreamWaitEvent|Stream Wait Event")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Idle stretches in order. `ended_by`: positions in `Owned.device`, in `Owned.host` where there is no device work.

    `ns[cause, gap]` sums over the causes to the gap's length.
    """

    start: Ints
    end: Ints
    ended_by: Ids
    ns: NDArray[np.int64]


def gaps(owned: Owned, line: Timeline, waits: Waits) -> Gaps:
    """Every idle stretch of the device, split by cause."""
    ended = np.flatnonzero(line.gap > 0).astype(np.int32)
    start, end = line.covered[ended], line.start[ended]
    ns = np.zeros((len(IDLE_CAUSES), len(ended)), np.int64)
    launch = owned.device.launch[ended]
    linked = launch != NONE
    rows = owned.host.rows[launch[linked]]
    # a gap in three parts: the host comes to the launch, launches, and then the work waits on the device
    begun, returned = start.copy(), start.copy()
    begun[linked], returned[linked] = times(owned.table, rows)
    late = returned > start
    begun, returned = np.clip(begun, start, end), np.clip(returned, start, end)
    blocks = late & np.isin(launch, waits.position)  # copies that the host waits for, from the call on
    begins = np.where(blocks | (late & (end - returned <= LATENCY_NS)), end, returned)
    begins[~late] = start[~late]
    ns[CAUSE_NUMBERS["synchronisation"], blocks] = (end - begun)[blocks]
    ns[CAUSE_NUMBERS["launch latency"], late & ~blocks] = (begins - begun)[late & ~blocks]
    thread = np.full(len(ended), NONE, np.int32)
    thread[linked] = owned.table.thread[rows]
    _on_the_host(owned, waits, ns, start, begun, np.where(late, thread, NONE))
    waiting = np.flatnonzero(end > begins)
    ns[_on_the_device(owned, line, ended[waiting], (end - begins)[waiting]), waiting] += (end - begins)[waiting]
    return Gaps(start=start, end=end, ended_by=ended, ns=ns)


def idle_times(found: Gaps, phase: Bytes) -> tuple[IdleTime, ...]:
    """Idle time by cause and phase (of what ended each gap), longest first."""
    entries = []
    for number, cause in enumerate(IDLE_CAUSES):
        for value in np.unique(phase[found.ns[number] > 0]).tolist():
            ns = found.ns[number][phase == value]
            entries.append(IdleTime(cause=cause, phase=phase_name(value), ns=int(ns.sum()), gaps=int((ns > 0).sum())))
    return tuple(sorted(entries, key=lambda entry: -entry.ns))


def _on_the_host(owned: Owned, waits: Waits, ns: NDArray[np.int64], start: Ints, until: Ints, thread: Ids) -> None:
    """Adds to `ns` what the launching threads did from `start` to `until`."""
    some = until > start
    if not some.any():
        return
    host = host_states(owned, waits)
    for number in np.unique(thread[some]).tolist():
        here = np.flatnonzero(some & (thread == number))
        left = until[here] - start[here]
        for cause, spans in host.on_the_way(number):
            part = overlap(spans, start[here], until[here])
            ns[CAUSE_NUMBERS[cause], here] += part
            left -= part
        ns[CAUSE_NUMBERS[host.otherwise], here] += left


def _on_the_device(owned: Owned, line: Timeline, work: Ids, length: Ints) -> NDArray[np.int64]:
    """The cause of each wait of launched work while nothing ran: what it can have waited for.

    Work without a launch was launched before the trace began, where it runs before all work that has one.
    """
    launch = owned.device.launch
    linked = np.flatnonzero(launch != NONE)
    known = (launch[work] != NONE) | ((work < linked[0]) if len(linked) else False)
    last = line.before[work]
    elsewhere = line.stream[last] != line.stream[work]
    told = _told_to_wait(owned, line, work)
    cause = np.full(len(work), CAUSE_NUMBERS["unknown"], np.int64)
    cause[known & ~elsewhere & (length <= BACK_TO_BACK_NS)] = CAUSE_NUMBERS["launch latency"]
    behind = known & (length <= HANDOVER_NS) & (elsewhere | (told & (length > BACK_TO_BACK_NS)))
    collective = owned.device.phase[last] == PHASE_NUMBERS["communication"]
    cause[behind] = CAUSE_NUMBERS["another stream"]
    cause[behind & elsewhere & collective] = CAUSE_NUMBERS["communication"]
    return cause


def _told_to_wait(owned: Owned, line: Timeline, work: Ids) -> Mask:
    """Whether a stream was told to wait for an event between the launch of the work before in the same stream and this one's."""
    table, device, host = owned.table, owned.device, owned.host
    calls = host.rows[table.kind[host.rows] == Kind.RUNTIME]
    told = calls[named(table.names, table.name[calls], _STREAM_WAIT)]
    found = np.zeros(len(work), np.bool_)
    if not len(told):
        return found
    order = np.argsort(line.stream, kind="stable")  # by stream, then by start
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    linked = np.flatnonzero(device.launch[work] != NONE)
    work = work[linked]
    previous = order[np.maximum(place[work] - 1, 0)]
    first = (place[work] == 0) | (line.stream[previous] != line.stream[work]) | (device.launch[previous] == NONE)
    rows = host.rows[device.launch[work]]
    since = np.where(first, np.iinfo(np.int64).min, table.start_ns[host.rows[device.launch[previous]]])
    for number in np.unique(table.thread[told]).tolist():
        at = np.sort(table.start_ns[told[table.thread[told] == number]])
        between = np.searchsorted(at, table.start_ns[rows]) > np.searchsorted(at, since)
        found[linked] |= (table.thread[rows] == number) & between
    return found
