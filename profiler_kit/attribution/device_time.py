"""The device's time: its timeline, idle time by cause, and the waits of the host by the work that they were for.

A gap belongs to the work that ended it. If that work was launched after the gap began, the host is the cause: up to the launch,
what the launching thread did, and where that thread did nothing, what the main thread did. From the launch on it is launch
latency. If the work was launched before, or begins long after its launch, it waited for the device: for the work of another
stream, where that has just ended. A wait longer than a handover is not explained by that: all streams stood still, so what the
work waited for is not in the trace, even where its stream was made to wait for an event.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.host_time import Launches, Waits, host_waits, launch_queue
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device, climb, phase_name
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES, IdleCause, IdleTime, SyncWait, WaitedFor
from profiler_kit.traces.intervals import Intervals, charge, empty, join, overlap, subtract, sum_by, union
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

CAUSE_NUMBERS: Final = {cause: number for number, cause in enumerate(IDLE_CAUSES)}

# Between kernels that wait in the same stream's queue the device needs 1 to 2 us; 99 % of such gaps on a V100, H100, H200 and
# MI300 are below 5 us. From one stream to another it is an event more: 9 to 18 us on an MI300, 1 to 3 us on the others.
BACK_TO_BACK_NS: Final = 5_000
HANDOVER_NS: Final = 20_000
# An idle device begins at most 8 us after the launch returned (V100, H100, H200, MI210, MI250); later than this, it waited.
LATENCY_NS: Final = 20_000

_STREAM_WAIT: Final = re.compile(r"StreamWaitEvent|Stream Wait Event")
_ATEN: Final = re.compile(r"\Aaten::")
FULL_QUEUE: Final = "(launch queue full)"  # who made a launch wait that found no place


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """Every instant between the first and the last event of `device` is busy, for one event, or idle, before one.

    An instant that several events cover is the first-started one's. A collective spins on its own stream until all ranks have
    come, beside the work that it waits behind: it has only the instants that nothing else covers.

    `piece`: the ns of each event that are its own. `gap`: the idle ns that each one ended, from `covered` to its start;
    `before` is the position of the event whose end began the gap. Devices share one timeline where a trace holds several.
    `first`: the last ns of each event in which it is the first-started one of its sort, collectives or all else; `covering`:
    when anything but collectives runs, empty in a trace without collectives.
    """

    device: Device
    piece: Ints
    gap: Ints
    covered: Ints
    before: Ints
    first: Ints
    covering: Intervals

    @property
    def span_ns(self) -> int:
        """From the first event's start to the last one's end."""
        return int(self.device.end_ns.max() - self.device.start_ns[0]) if len(self.piece) else 0

    @property
    def busy_ns(self) -> int:
        """The instants with work, each once."""
        return int(self.piece.sum())

    def charged(self, mask: Mask) -> Intervals:
        """The intervals that belong to the events of `mask`."""
        end = self.device.end_ns
        start = end - self.first
        shared, alone = mask & self.device.collective, mask & ~self.device.collective
        intervals = union(start[alone], end[alone], ordered=True)
        if not shared.any():
            return intervals
        return join(subtract(union(start[shared], end[shared], ordered=True), self.covering), intervals)


def device_timeline(device: Device) -> Timeline:
    """The timeline of the device's work."""
    start, end = device.start_ns, device.end_ns
    charges = charge(start, end)
    collective = device.collective
    piece = first = charges.piece
    covering = empty()
    if collective.any():
        first = np.empty_like(piece)
        for sort in (collective, ~collective):
            first[sort] = charge(start[sort], end[sort]).piece
        covering = union(start[~collective], end[~collective], ordered=True)
        piece = first.copy()
        piece[collective] -= overlap(covering, (end - first)[collective], end[collective])
    return Timeline(
        device=device,
        piece=piece,
        gap=charges.gap,
        covered=charges.covered,
        before=charges.before,
        first=first,
        covering=covering,
    )


# ---- idle time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Idle stretches in order. `ended_by`: positions in `Attribution.device`, without device work in `Attribution.host`.

    `ns[cause, gap]` sums over the causes to the gap's length.
    """

    start: Ints
    end: Ints
    ended_by: Ids
    ns: NDArray[np.int64]


class DeviceTime(NamedTuple):
    """When the device was busy and when it was idle, when the host waited for it, and how many launches waited to run."""

    timeline: Timeline
    waits: Waits
    launches: Launches
    gaps: Gaps


def device_time(attribution: Attribution) -> DeviceTime:
    """The device's time, with every idle stretch split by cause."""
    timeline, waits = device_timeline(attribution.device), host_waits(attribution)
    return DeviceTime(timeline, waits, launch_queue(attribution), idle_gaps(attribution, timeline, waits))


def idle_times(gaps: Gaps, phase: Bytes) -> tuple[IdleTime, ...]:
    """Idle time by cause and phase (of what ended each gap), longest first."""
    entries = []
    for number, cause in enumerate(IDLE_CAUSES):
        for value in np.unique(phase[gaps.ns[number] > 0]).tolist():
            ns = gaps.ns[number][phase == value]
            entries.append(IdleTime(cause=cause, phase=phase_name(value), ns=int(ns.sum()), gaps=int((ns > 0).sum())))
    return tuple(sorted(entries, key=lambda entry: -entry.ns))


def idle_gaps(attribution: Attribution, timeline: Timeline, waits: Waits) -> Gaps:
    """The idle stretches of `timeline`, split by cause."""
    host, device = attribution.host, attribution.device
    ended = np.flatnonzero(timeline.gap > 0).astype(np.int32)
    start, end = timeline.covered[ended], device.start_ns[ended]
    ns = np.zeros((len(IDLE_CAUSES), len(ended)), np.int64)
    launch = device.launch[ended]
    linked = launch != NONE
    # a gap in three parts: the host comes to the launch, launches, and then the work waits on the device
    begun, returned, thread = start.copy(), start.copy(), np.full(len(ended), NONE, np.int32)
    begun[linked], returned[linked] = host.start_ns[launch[linked]], host.end_ns[launch[linked]]
    thread[linked] = host.thread[launch[linked]]
    late = returned > start
    begun, returned = np.clip(begun, start, end), np.clip(returned, start, end)
    blocks = late & np.isin(launch, waits.position)  # copies that the host waits for, from the call on
    begins = np.where(blocks | (late & (end - returned <= LATENCY_NS)), end, returned)
    begins[~late] = start[~late]
    ns[CAUSE_NUMBERS["synchronisation"], blocks] = (end - begun)[blocks]
    ns[CAUSE_NUMBERS["launch latency"], late & ~blocks] = (begins - begun)[late & ~blocks]
    waiting = np.flatnonzero(end > begins)
    length = (end - begins)[waiting]
    ns[_device_causes(attribution, timeline, ended[waiting], length), waiting] += length
    _add_host_causes(attribution, waits, ns, start, begun, np.where(late, thread, NONE))
    return Gaps(start=start, end=end, ended_by=ended, ns=ns)


def _device_causes(attribution: Attribution, timeline: Timeline, work: Ids, length: Ints) -> NDArray[np.int64]:
    """The cause of each wait of launched work while nothing ran: what it can have waited for.

    Work without a launch was launched before the trace began, where it runs before all work that has one.
    """
    launch, stream = attribution.device.launch, attribution.table.stream[attribution.device.rows]
    linked = np.flatnonzero(launch != NONE)
    launched = (launch[work] != NONE) | ((work < linked[0]) if len(linked) else False)
    last = timeline.before[work]
    elsewhere = stream[last] != stream[work]
    waits_for_event = _wait_for_event(attribution, stream, work)
    cause = np.full(len(work), CAUSE_NUMBERS["unknown"], np.int64)
    cause[launched & ~elsewhere & (length <= BACK_TO_BACK_NS)] = CAUSE_NUMBERS["launch latency"]
    behind = launched & (length <= HANDOVER_NS) & (elsewhere | (waits_for_event & (length > BACK_TO_BACK_NS)))
    cause[behind] = CAUSE_NUMBERS["another stream"]
    cause[behind & elsewhere & attribution.device.collective[last]] = CAUSE_NUMBERS["communication"]
    return cause


def _wait_for_event(attribution: Attribution, stream: Ids, work: Ids) -> Mask:
    """Whether a stream was made to wait for an event between the launch of the work before in the same stream and this one's."""
    table, device, host = attribution.table, attribution.device, attribution.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME)
    calls = calls[table.named(host.rows[calls], _STREAM_WAIT)]
    waits = np.zeros(len(work), np.bool_)
    if not len(calls):
        return waits
    order = np.argsort(stream, kind="stable")  # by stream, then by start
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    linked = np.flatnonzero(device.launch[work] != NONE)
    work = work[linked]
    previous = order[np.maximum(place[work] - 1, 0)]
    first = (place[work] == 0) | (stream[previous] != stream[work]) | (device.launch[previous] == NONE)
    launch = device.launch[work]
    since = np.where(first, np.iinfo(np.int64).min, host.start_ns[device.launch[previous]])
    for thread in np.unique(host.thread[calls]).tolist():
        at = np.sort(host.start_ns[calls[host.thread[calls] == thread]])
        between = np.searchsorted(at, host.start_ns[launch]) > np.searchsorted(at, since)
        waits[linked] |= (host.thread[launch] == thread) & between
    return waits


# ---- what the host did, thread by thread


def _add_host_causes(
    attribution: Attribution, waits: Waits, ns: NDArray[np.int64], start: Ints, until: Ints, thread: Ids
) -> None:
    """Adds to `ns` what the launching threads did from `start` to `until`, and where they did nothing, the main thread."""
    some = until > start
    if not some.any():
        return
    host = attribution.host
    # Where a thread did nothing that was recorded it ran Python, if anything of the program was recorded.
    recorded = bool(host.is_operator.any()) or bool((attribution.table.kind[host.rows] == Kind.PYTHON).any())
    otherwise: IdleCause = "python" if recorded else "unknown"
    for number in np.unique(thread[some]).tolist():
        here = np.flatnonzero(some & (thread == number))
        left = until[here] - start[here]
        taken = empty()  # of two stretches that overlap, what explains more counts
        for each in dict.fromkeys((number, attribution.main_thread)):
            for cause, intervals in _thread_causes(attribution, waits, each):
                part = overlap(subtract(intervals, taken), start[here], until[here])
                taken = join(taken, intervals)
                ns[CAUSE_NUMBERS[cause], here] += part
                left -= part
        ns[CAUSE_NUMBERS[otherwise], here] += left


def _thread_causes(attribution: Attribution, waits: Waits, thread: int) -> tuple[tuple[IdleCause, Intervals], ...]:
    host = attribution.host
    low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
    waited = waits.thread == thread
    data = np.flatnonzero(host.phase[low:high] == PHASE_NUMBERS["data"]) + low
    operators = np.flatnonzero(host.operator[low:high] == np.arange(low, high)) + low
    return (
        ("synchronisation", union(waits.start[waited], waits.end[waited], ordered=True)),
        ("waiting for data", union(host.start_ns[data], host.end_ns[data], ordered=True)),
        ("op dispatch", union(host.start_ns[operators], host.end_ns[operators], ordered=True)),
    )


# ---- who waited, and for whose work: a wait is seldom for the work of the phase it stands in


class _HostWaits(NamedTuple):
    """Waiting calls, and behind them launches that the full queue held up."""

    position: Ids
    start: Ints
    end: Ints


def _all_waits(waits: Waits, launches: Launches) -> _HostWaits:
    """All that the host waited for the device in."""
    stuck = np.flatnonzero((launches.blocked > 0) & ~np.isin(launches.position, waits.position))
    end = launches.end[stuck]
    return _HostWaits(
        np.concatenate((waits.position, launches.position[stuck])),
        np.concatenate((waits.start, end - launches.blocked[stuck])),
        np.concatenate((waits.end, end)),
    )


def phase_wait_ns(attribution: Attribution, waits: Waits, launches: Launches) -> Ints:
    """How long the host waited for the device in each phase, and last outside of phases."""
    position, start, end = _all_waits(waits, launches)
    last = len(TRACE_PHASES)
    return sum_by(attribution.host.phase[position] % (last + 1), end - start, last + 1)


def sync_waits(attribution: Attribution, timeline: Timeline, waits: Waits, launches: Launches) -> tuple[SyncWait, ...]:
    """The host's waits by who made them, longest first."""
    position, start, end = _all_waits(waits, launches)
    if not len(position):
        return ()
    maker = np.full(len(position), NONE, np.int32)
    maker[: len(waits.position)] = _makers(attribution, waits.position)
    # every ns between start and end falls to the phase whose kernels ran then, to none where the device was idle
    names, host, phases = attribution.table.names, attribution.host, attribution.device.phase
    split = np.zeros((len(TRACE_PHASES) + 1, len(position)), np.int64)
    for number in np.unique(phases[phases != NONE]).tolist():
        charged = timeline.charged(phases == number)
        split[number] = overlap(charged, start, end)
    split[-1] = end - start - split.sum(axis=0)
    call = attribution.table.name[host.rows[position]]
    groups, group = np.unique(np.stack((maker, call, host.phase[position])), axis=1, return_inverse=True)
    group = group.reshape(-1)
    parts = np.stack([sum_by(group, row, groups.shape[1]) for row in split])
    calls = np.bincount(group, minlength=groups.shape[1])
    entries = [
        SyncWait(
            name=names[by] if by != NONE else FULL_QUEUE,
            call=names[call_name],
            phase=phase_name(phase),
            calls=int(calls[i]),
            wait_ns=int(parts[:, i].sum()),
            waited_for=tuple(
                WaitedFor(phase=phase_name(number if number < len(TRACE_PHASES) else NONE), ns=int(parts[number, i]))
                for number in np.argsort(-parts[:, i], kind="stable").tolist()
                if parts[number, i]
            ),
        )
        for i, (by, call_name, phase) in enumerate(groups.T.tolist())
    ]
    return tuple(sorted(entries, key=lambda wait: -wait.wait_ns))


def _makers(attribution: Attribution, position: Ids) -> Ids:
    """Names (of the table) of what made each call wait: the outermost operator below any autograd node, or else the Python call,
    or else the call itself: `aten::item` rather than the `aten::_local_scalar_dense` within.
    """
    table, host = attribution.table, attribution.host

    def enclosing_operator(operator: Ids) -> Ids:
        above = host.enclosing(host.operator, operator)
        return np.where((above != NONE) & table.named(host.rows[above], _ATEN), above, NONE).astype(np.int32)

    operator = host.operator[position]
    operator[operator != NONE] = climb(operator[operator != NONE], enclosing_operator)
    maker = np.where(operator != NONE, operator, host.python[position])
    return table.name[host.rows[np.where(maker != NONE, maker, position)]]
