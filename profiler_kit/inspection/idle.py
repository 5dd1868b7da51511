"""Idle time of the device, split by what it waited for.

A gap belongs to the work that ended it. Was that work's launch still to come when the gap began, the host decides: up to the
launch, what the launching thread did, and where that thread did nothing, what the main thread did, is the cause. From the
launch on it is launch latency. Was the work launched already, it waited for other work on the device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.inspection.host_states import main_thread, states
from profiler_kit.inspection.ownership import PHASE_NUMBERS, Owned
from profiler_kit.inspection.phase_names import phase_name
from profiler_kit.inspection.spans import overlap
from profiler_kit.inspection.timeline import Timeline
from profiler_kit.inspection.waits import Waits, named
from profiler_kit.records.traces import IDLE_CAUSES, IdleTime
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

CAUSE_NUMBERS: Final = {cause: number for number, cause in enumerate(IDLE_CAUSES)}

# Between kernels that wait in the same stream's queue the device needs 1 to 2 us; 99 % of such gaps on a V100, H100, H200 and
# MI300 are below 5 us. From one stream to another it is an event more: 9 to 18 us on an MI300, 1 to 3 us on the others.
BACK_TO_BACK_NS: Final = 5_000
HANDOVER_NS: Final = 20_000

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
    ns[CAUSE_NUMBERS["unknown"], ~linked] = (end - start)[~linked]
    rows = owned.host.rows[launch[linked]]
    begun = np.zeros(len(ended), np.int64)
    returned = np.zeros(len(ended), np.int64)
    begun[linked] = owned.table.start_ns[rows]
    returned[linked] = begun[linked] + np.maximum(owned.table.duration_ns[rows], 0)
    late = linked & (returned > start)
    upto = np.clip(begun, start, end)  # until then the host was on its way to the launch
    blocks = np.isin(launch, waits.position)  # a copy that the host waits for, from its call on
    ns[CAUSE_NUMBERS["synchronisation"], late & blocks] = (end - upto)[late & blocks]
    ns[CAUSE_NUMBERS["launch latency"], late & ~blocks] = (end - upto)[late & ~blocks]
    thread = np.full(len(ended), NONE, np.int32)
    thread[linked] = owned.table.thread[rows]
    main = main_thread(owned)
    for number in np.unique(thread[late & (upto > start)]).tolist():
        here = np.flatnonzero(late & (thread == number) & (upto > start))
        left = upto[here] - start[here]
        for cause, spans in states(owned, waits, number, main):
            part = overlap(spans, start[here], upto[here])
            ns[CAUSE_NUMBERS[cause], here] += part
            left -= part
        ns[CAUSE_NUMBERS["python"], here] += left
    queued = np.flatnonzero(linked & ~late)
    ns[_behind(owned, line, ended[queued]), queued] = (end - start)[queued]
    return Gaps(start=start, end=end, ended_by=ended, ns=ns)


def idle_times(found: Gaps, phase: Bytes) -> tuple[IdleTime, ...]:
    """Idle time by cause and phase (of what ended each gap), longest first."""
    entries = []
    for number, cause in enumerate(IDLE_CAUSES):
        for value in np.unique(phase[found.ns[number] > 0]).tolist():
            ns = found.ns[number][phase == value]
            entries.append(IdleTime(cause=cause, phase=phase_name(value), ns=int(ns.sum()), gaps=int((ns > 0).sum())))
    return tuple(sorted(entries, key=lambda entry: -entry.ns))


def _behind(owned: Owned, line: Timeline, queued: Ids) -> NDArray[np.int64]:
    """The cause of each gap whose work waited on the device: what it can have waited for there."""
    device = owned.device
    last = line.before[queued]
    gap = line.gap[queued]
    elsewhere = line.stream[last] != line.stream[queued]
    asked = _asked_to_wait(owned, line, queued)
    cause = np.full(len(queued), CAUSE_NUMBERS["unknown"], np.int64)
    cause[~elsewhere & (gap <= BACK_TO_BACK_NS)] = CAUSE_NUMBERS["launch latency"]
    behind = (elsewhere & (gap <= HANDOVER_NS)) | (asked & (elsewhere | (gap > BACK_TO_BACK_NS)))
    collective = device.phase[last] == PHASE_NUMBERS["communication"]
    cause[behind] = CAUSE_NUMBERS["another stream"]
    cause[behind & elsewhere & collective] = CAUSE_NUMBERS["communication"]
    return cause


def _asked_to_wait(owned: Owned, line: Timeline, queued: Ids) -> Mask:
    """Whether a stream was told to wait for an event between the launch of each work and that of the one before in its stream."""
    table, device, host = owned.table, owned.device, owned.host
    calls = host.rows[table.kind[host.rows] == Kind.RUNTIME]
    told = calls[named(table.names, table.name[calls], _STREAM_WAIT)]
    if not len(told) or not len(queued):
        return np.zeros(len(queued), np.bool_)
    order = np.argsort(line.stream, kind="stable")  # by stream, then by start
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    previous = order[np.maximum(place[queued] - 1, 0)]
    same = (place[queued] > 0) & (line.stream[previous] == line.stream[queued]) & (device.launch[previous] != NONE)
    to = table.start_ns[host.rows[device.launch[queued]]]
    since = np.where(same, table.start_ns[host.rows[np.where(same, device.launch[previous], 0)]], to)
    found = np.zeros(len(queued), np.bool_)
    thread = table.thread[host.rows[device.launch[queued]]]
    for number in np.unique(table.thread[told]).tolist():
        at = np.sort(table.start_ns[told[table.thread[told] == number]])
        between = np.searchsorted(at, to, side="right") > np.searchsorted(at, since, side="left")
        found |= (thread == number) & between
    return found
