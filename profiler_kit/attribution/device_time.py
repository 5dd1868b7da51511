"""The device's time: its timeline, idle time by cause, and the host's waits by the work that they were for.

A gap is attributed to the work that ended it. If that work was launched after the gap began, the host is the cause.
Up to the launch, the activity of the launching thread counts; where that thread did nothing, the activity of the main
thread. From the launch on it is launch latency.

If the work was launched before the gap, or begins long after its launch, it waited for the device: for the work of
another stream, if that has just ended. A wait longer than a handover has no such explanation. All streams were idle,
so the trace does not hold what the work waited for, even if its stream was made to wait for an event.

Work that was launched and is not in the trace may have run in the gap, from its launch on. That part is of unknown cause.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.host_activity import SLOW_CALL_NS, host_calls
from profiler_kit.attribution.host_time import Launches, Waits, host_waits, launch_queue
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, Device, phase_name
from profiler_kit.records.traces import IDLE_CAUSES, IdleCause, IdleTime
from profiler_kit.traces.intervals import (
    Intervals,
    assign_to_first,
    empty,
    join,
    length,
    overlap,
    pieces,
    subtract,
    union,
)
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind, Mask

CAUSE_NUMBERS: Final = {cause: number for number, cause in enumerate(IDLE_CAUSES)}

# Between queued kernels of one stream, the device needs 1 to 2 us. 99 % of such gaps on a V100, H100, H200 and MI300
# are below 5 us. Between streams an event is added: 9 to 18 us on an MI300, 1 to 3 us on the others.
BACK_TO_BACK_NS: Final = 5_000
HANDOVER_NS: Final = 20_000
# An idle device begins at most 8 us after the launch returned (V100, H100, H200, MI210, MI250). Later work waited for
# the device.
LATENCY_NS: Final = 20_000

_STREAM_WAIT: Final = re.compile(r"StreamWaitEvent|Stream Wait Event")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Timeline:
    """The time between the first and the last event of `device`.

    Each instant is busy, for one event, or idle, before one.

    An instant that several events cover counts for the one that started first. A collective spins on its own stream
    until all ranks have arrived, while earlier work still runs, so it counts only where no other work runs. Several
    devices of one trace share one timeline.

    `event_busy_ns`: the busy ns counted for each event. `gap`: the idle ns that each event ended, from `covered` to its
    start. `before`: the position of the event whose end began the gap. `first`: the last ns of each event in which it
    is the first-started one of its kind (collectives or other work). `covering`: intervals in which any work but
    collectives runs; empty in a trace without collectives. `windows`: the intervals that count; None for all time from the
    first event to the last.
    """

    device: Device
    event_busy_ns: Ints
    gap: Ints
    covered: Ints
    before: Ints
    first: Ints
    covering: Intervals
    windows: Intervals | None = None

    @property
    def span_ns(self) -> int:
        """The time from the first event's start to the last event's end, or that of the windows."""
        if self.windows is not None:
            return length(self.windows)
        return int(self.device.end_ns.max() - self.device.start_ns[0]) if len(self.event_busy_ns) else 0

    @property
    def busy_ns(self) -> int:
        """The busy time, with each instant counted once."""
        return int(self.event_busy_ns.sum())

    def intervals_of(self, mask: Mask) -> Intervals:
        """Return the intervals that count for the events of `mask`."""
        end = self.device.end_ns
        start = end - self.first
        collectives, others = mask & self.device.collective, mask & ~self.device.collective
        intervals = union(start[others], end[others], ordered=True)
        if not collectives.any():
            return intervals
        return join(subtract(union(start[collectives], end[collectives], ordered=True), self.covering), intervals)


def device_timeline(device: Device) -> Timeline:
    """Return the timeline of the device work."""
    start, end = device.start_ns, device.end_ns
    assigned = assign_to_first(start, end)
    collective = device.collective
    piece = first = assigned.piece
    covering = empty()
    if collective.any():
        first = np.empty_like(piece)
        for kind_mask in (collective, ~collective):
            first[kind_mask] = assign_to_first(start[kind_mask], end[kind_mask]).piece
        covering = union(start[~collective], end[~collective], ordered=True)
        piece = first.copy()
        piece[collective] -= overlap(covering, (end - first)[collective], end[collective])
    return Timeline(
        device=device,
        event_busy_ns=piece,
        gap=assigned.gap,
        covered=assigned.covered,
        before=assigned.before,
        first=first,
        covering=covering,
    )


# ---- idle time


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gaps:
    """Idle intervals in order. `ns[cause, gap]` sums over the causes to the length of the gap.

    `ended_by`: the position in `Attribution.device` of the event that ended the gap; in a trace without device work,
    in `Attribution.host`.
    """

    start: Ints
    end: Ints
    ended_by: Ids
    ns: NDArray[np.int64]


class DeviceTime(NamedTuple):
    """The device's timeline, the host's waits for the device, the launch queue, and the idle gaps by cause."""

    timeline: Timeline
    waits: Waits
    launches: Launches
    gaps: Gaps


def device_time(attribution: Attribution) -> DeviceTime:
    """Return the device's time, with all idle gaps split by cause."""
    timeline, waits = device_timeline(attribution.device), host_waits(attribution)
    return DeviceTime(timeline, waits, launch_queue(attribution), idle_gaps(attribution, timeline, waits))


def idle_times(gaps: Gaps, phase: Bytes) -> tuple[IdleTime, ...]:
    """Return the idle time by cause and phase, longest first. The phase is that of the work that ended each gap."""
    entries = []
    for number, cause in enumerate(IDLE_CAUSES):
        for phase_number in np.unique(phase[gaps.ns[number] > 0]).tolist():
            ns = gaps.ns[number][phase == phase_number]
            count, name = int((ns > 0).sum()), phase_name(phase_number)
            entries.append(IdleTime(cause=cause, phase=name, ns=int(ns.sum()), gaps=count, longest_ns=int(ns.max())))
    return tuple(sorted(entries, key=lambda entry: -entry.ns))


def host_caused_ns(gaps: Gaps) -> Ints:
    """Return the part of each gap that the host caused: not another stream, other ranks, or an unknown reason."""
    others: tuple[IdleCause, ...] = ("another stream", "communication", "unknown")
    result: Ints = gaps.end - gaps.start - gaps.ns[[CAUSE_NUMBERS[cause] for cause in others]].sum(axis=0)
    return result


def idle_gaps(attribution: Attribution, timeline: Timeline, waits: Waits) -> Gaps:
    """Return the idle gaps of `timeline`, split by cause."""
    ending = np.flatnonzero(timeline.gap > 0).astype(np.int32)
    start, end = timeline.covered[ending], attribution.device.start_ns[ending]
    return gaps_by_cause(attribution, waits, start, end, ending, timeline.before[ending])


def gaps_within(attribution: Attribution, windows: Intervals, positions: Ids, waits: Waits) -> Gaps:
    """Return the time in `windows` in which no device event at `positions` runs, split by cause.

    No event ends a gap at the end of a window.
    """
    device = attribution.device
    start, end = device.start_ns[positions], device.end_ns[positions]
    assigned = assign_to_first(start, end)
    inner = np.flatnonzero(assigned.gap > 0)
    gap_start = np.concatenate((windows.start[:1], assigned.covered[inner], end.max(keepdims=True)))
    gap_end = np.concatenate((start[:1], start[inner], windows.end[-1:]))
    ending = np.concatenate((positions[:1], positions[inner], [NONE]))
    previous = np.concatenate((positions[:1], positions[assigned.before[inner]], positions[-1:]))
    gap, start, end = pieces(windows, gap_start, gap_end)
    ended_by = np.where(end == gap_end[gap], ending[gap], NONE).astype(np.int32)
    return gaps_by_cause(attribution, waits, start, end, ended_by, previous[gap])


def gaps_by_cause(
    attribution: Attribution, waits: Waits, start: Ints, end: Ints, ending: Ids, previous: Ids | Ints
) -> Gaps:
    """Return the idle intervals from `start` to `end`, split by cause.

    `ending`, `previous`: the positions of the device events that end each interval and that ran before it. No event ends
    the time after the last work of a device (NONE): the activity of the host then is its cause.
    """
    host, device = attribution.host, attribution.device
    ns = np.zeros((len(IDLE_CAUSES), len(ending)), np.int64)
    launch = np.append(device.launch, np.int32(NONE))[ending]
    linked, open_end = launch != NONE, ending == NONE
    # A gap has three parts: the host before the launch call, the call, and the wait on the device.
    launch_start, launch_end, thread = start.copy(), start.copy(), np.full(len(ending), NONE, np.int32)
    launch_start[linked], launch_end[linked] = host.start_ns[launch[linked]], host.end_ns[launch[linked]]
    thread[linked] = host.thread[launch[linked]]
    launch_start[open_end] = launch_end[open_end] = end[open_end]
    launched_in_gap = launch_end > start
    launch_start, launch_end = np.clip(launch_start, start, end), np.clip(launch_end, start, end)
    missing_start = np.clip(_missing_launch(attribution, launch, previous, start, end), start, end)
    # the host waits for these copies from the call on
    is_blocking_copy = launched_in_gap & np.isin(launch, waits.position)
    latency_end = np.where(is_blocking_copy | (launched_in_gap & (end - launch_end <= LATENCY_NS)), end, launch_end)
    latency_end[~launched_in_gap] = start[~launched_in_gap]
    ns[CAUSE_NUMBERS["synchronization"], is_blocking_copy] = (end - launch_start)[is_blocking_copy]
    # On an idle device, a launch that takes a millisecond loads the kernel's code or starts a library.
    is_kernel = attribution.table.kind[device.rows[ending]] == Kind.KERNEL
    is_slow = launched_in_gap & ~is_blocking_copy & is_kernel & (launch_end - launch_start >= SLOW_CALL_NS)
    is_usual = launched_in_gap & ~is_blocking_copy & ~is_slow
    ns[CAUSE_NUMBERS["cold start"], is_slow] = (latency_end - launch_start)[is_slow]
    ns[CAUSE_NUMBERS["launch latency"], is_usual] = (latency_end - launch_start)[is_usual]
    is_missing = missing_start < end
    for cause in ("synchronization", "cold start", "launch latency"):
        ns[CAUSE_NUMBERS[cause], is_missing] = 0
    ns[CAUSE_NUMBERS["unknown"], is_missing] = (end - missing_start)[is_missing]
    delayed = np.flatnonzero((end > latency_end) & ~is_missing)
    delay_ns = (end - latency_end)[delayed]
    ns[_device_causes(attribution, previous[delayed], ending[delayed], delay_ns), delayed] += delay_ns
    host_end = np.where(is_missing, missing_start, launch_start)
    _add_host_causes(attribution, waits, ns, start, host_end, np.where(launched_in_gap, thread, NONE))
    return Gaps(start=start, end=end, ended_by=ending, ns=ns)


def _missing_launch(attribution: Attribution, launch: Ids, previous: Ids | Ints, start: Ints, end: Ints) -> Ints:
    """Return when the first launch that has no work in the trace begins, of those between the work before and after each gap.

    `launch`: that of the work after the gap. The launch of the work before is known by its position `previous`. Where one of them
    is unknown, `start` or `end` of the gap is in its place. Without such a launch, the result is the end of the gap.
    """
    host = attribution.host
    missing = np.sort(host.start_ns[attribution.unrecorded_launches])
    if not len(missing):
        return end
    before = attribution.device.launch[previous]
    after_ns = np.where(before == NONE, start, host.start_ns[before])
    until_ns = np.where(launch == NONE, end, host.start_ns[launch])
    first = np.append(missing, np.iinfo(np.int64).max)[np.searchsorted(missing, after_ns)]
    result: Ints = np.where(first < until_ns, first, end)
    return result


def _device_causes(attribution: Attribution, previous: Ids | Ints, work: Ids, delay_ns: Ints) -> NDArray[np.int64]:
    """Return the cause of each wait of launched work on an idle device. `previous`: the work that ran before.

    Work without a launch that runs before all linked work was launched before the trace began.
    """
    launch, stream = attribution.device.launch, attribution.table.stream[attribution.device.rows]
    linked = np.flatnonzero(launch != NONE)
    is_launched = (launch[work] != NONE) | ((work < linked[0]) if len(linked) else False)
    other_stream = stream[previous] != stream[work]
    has_event_wait = _has_event_wait(attribution, stream, work)
    cause = np.full(len(work), CAUSE_NUMBERS["unknown"], np.int64)
    cause[is_launched & ~other_stream & (delay_ns <= BACK_TO_BACK_NS)] = CAUSE_NUMBERS["launch latency"]
    after_other_stream = (
        is_launched & (delay_ns <= HANDOVER_NS) & (other_stream | (has_event_wait & (delay_ns > BACK_TO_BACK_NS)))
    )
    cause[after_other_stream] = CAUSE_NUMBERS["another stream"]
    cause[after_other_stream & other_stream & attribution.device.collective[previous]] = CAUSE_NUMBERS["communication"]
    return cause


def _has_event_wait(attribution: Attribution, stream: Ids, work: Ids) -> Mask:
    """Return whether a stream waited for an event between its previous work and `work`.

    Only calls on the launching thread count.
    """
    table, device, host = attribution.table, attribution.device, attribution.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME)
    calls = calls[table.named(host.rows[calls], _STREAM_WAIT)]
    result = np.zeros(len(work), np.bool_)
    if not len(calls):
        return result
    order = np.argsort(stream, kind="stable")  # by stream, then start
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    linked = np.flatnonzero(device.launch[work] != NONE)
    work = work[linked]
    previous = order[np.maximum(rank[work] - 1, 0)]
    first = (rank[work] == 0) | (stream[previous] != stream[work]) | (device.launch[previous] == NONE)
    launch = device.launch[work]
    previous_launch = np.where(first, np.iinfo(np.int64).min, host.start_ns[device.launch[previous]])
    for thread in np.unique(host.thread[calls]).tolist():
        call_starts = np.sort(host.start_ns[calls[host.thread[calls] == thread]])
        has_call_between = np.searchsorted(call_starts, host.start_ns[launch]) > np.searchsorted(
            call_starts, previous_launch
        )
        result[linked] |= (host.thread[launch] == thread) & has_call_between
    return result


# ---- activity of the host, by thread


def _add_host_causes(
    attribution: Attribution, waits: Waits, ns: NDArray[np.int64], start: Ints, end: Ints, thread: Ids
) -> None:
    """Add the activity of the host from `start` to `end` to `ns`.

    The launching thread counts first. Where it did nothing, the main thread counts.
    """
    nonempty = end > start
    if not nonempty.any():
        return
    host = attribution.host
    # Time without a recorded event is Python, if the trace recorded any activity of the program.
    recorded = bool(host.is_operator.any()) or bool((attribution.table.kind[host.rows] == Kind.PYTHON).any())
    default_cause: IdleCause = "python" if recorded else "unknown"
    for number in np.unique(thread[nonempty]).tolist():
        gaps = np.flatnonzero(nonempty & (thread == number))
        remaining = end[gaps] - start[gaps]
        explained = empty()  # where causes overlap, the first one counts
        for host_thread in dict.fromkeys((number, attribution.main_thread)):
            for cause, intervals in _thread_causes(attribution, waits, host_thread):
                part = overlap(subtract(intervals, explained), start[gaps], end[gaps])
                explained = join(explained, intervals)
                ns[CAUSE_NUMBERS[cause], gaps] += part
                remaining -= part
        ns[CAUSE_NUMBERS[default_cause], gaps] += remaining


def _thread_causes(attribution: Attribution, waits: Waits, thread: int) -> tuple[tuple[IdleCause, Intervals], ...]:
    host = attribution.host
    low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
    on_thread = waits.thread == thread
    data = np.flatnonzero(host.phase[low:high] == PHASE_NUMBERS["data"]) + low
    operators = np.flatnonzero(host.operator[low:high] == np.arange(low, high)) + low
    calls = host_calls(attribution, low, high, waits.position)
    return (
        ("compilation", calls.compilation),
        ("cold start", calls.slow),
        ("memory allocation", calls.allocation),
        ("synchronization", union(waits.start[on_thread], waits.end[on_thread], ordered=True)),
        ("waiting for data", union(host.start_ns[data], host.end_ns[data], ordered=True)),
        ("op dispatch", union(host.start_ns[operators], host.end_ns[operators], ordered=True)),
    )
