"""The host's waits for the device: calls that wait, and launches that find the queue full; who made each, and for whose work."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution, climb, phase_name
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.records.traces import TRACE_PHASES, Queue, SyncWait, WaitedFor
from profiler_kit.traces.intervals import charge, overlap, sum_by
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

_WAITS: Final = re.compile(
    r"[sS]ynchronize(_v2|_ptsz)?\Z|\A(cuda|hip)Free\Z|"  # freeing memory waits for everything before it
    r"\A(cuda|hip)Memcpy(2D|3D)?\Z|\AhipMemcpyWithStream\Z|\AcuMemcpy(DtoH|HtoD|DtoD)(_v2)?\Z|"
    r"\Aur(EventWait|QueueFinish)\Z|\AzeEventHostSynchronize\Z"
)
_DEVICE: Final = re.compile(r"DeviceSynchronize\Z")
_COPIES: Final = re.compile(r"\A(cuda|hip|cu)Memcpy\w*Async")
_TO_HOST: Final = re.compile(r"DtoH|[pP]ageable|-> (Host|Pinned)")
_ATEN: Final = re.compile(r"\Aaten::")
FULL_QUEUE: Final = "(launch queue full)"  # who made a launch wait that found no place

# How many launches a queue holds differs: 1,022 on a V100, 1,028 on an H200, more than 1,848 on an MI300. So none is taken for
# granted: a queue is full where launches get slow with it at its deepest, again and again, and it never gets deeper.
BRIM: Final = 0.98  # of the deepest: those that waited found 1,012 to 1,022 on the V100, 1,027 and 1,028 on the H200
HINDERED: Final = 10  # times an unhindered launch: the V100's launches take 5 us, those that waited 47 to 2,010
AGAIN: Final = 3  # slow launches at the brim: one or two may have loaded a kernel's code there
LEAST: Final = 64  # places: with fewer launches ahead of it a slow one has another reason (memory, code that is loaded)


# ---- calls that wait


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Waiting calls: their positions in `Attribution.host`, by thread and start. A call inside another one counts for the outer."""

    position: Ids
    thread: Ids
    start: Ints
    end: Ints


def host_waits(attribution: Attribution) -> Waits:
    """Synchronizing calls, copies that block, and asynchronous copies that returned only after their copy was done.

    The last are copies from and to pageable memory: CUDA stages them, so that `Async` waits for the stream all the same. The
    profiler's own wait for the device, as it stops, is no part of the program and left out.
    """
    table, host = attribution.table, attribution.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME).astype(np.int32)
    rows = host.rows[calls]
    done = _copies_done(attribution)[calls]
    copies = (done != NONE) & (host.end_ns[calls] >= done) & table.named(rows, _COPIES)
    position = calls[table.named(rows, _WAITS) | copies]
    thread, start, end = host.thread[position], host.start_ns[position], host.end_ns[position]
    left = np.zeros(len(position), np.int64)
    for number in np.unique(thread):  # host events stand by thread, then start
        here = thread == number
        left[here] = charge(start[here], end[here]).piece
    counted = (left > 0) & ~_of_the_profiler(attribution, position)
    return Waits(position=position[counted], thread=thread[counted], start=(end - left)[counted], end=end[counted])


def _copies_done(attribution: Attribution) -> Ints:
    """For each host event, when the copy that it launched was done, where that copy may block; NONE elsewhere."""
    table, device = attribution.table, attribution.device
    done = np.full(len(attribution.host.rows), NONE, np.int64)
    copies = np.flatnonzero((device.launch != NONE) & (table.kind[device.rows] == Kind.MEMCPY))
    copies = copies[table.named(device.rows[copies], _TO_HOST)]
    done[device.launch[copies]] = device.end_ns[copies]
    return done


def _of_the_profiler(attribution: Attribution, position: Ids) -> Mask:
    """Which calls synchronize the device after all launches, outside of steps and of any operator or Python call."""
    host, launch = attribution.host, attribution.device.launch
    last = int(host.start_ns[launch[launch != NONE]].max(initial=0))
    outside = (host.operator[position] == NONE) & (host.python[position] == NONE) & (host.step[position] == NONE)
    late: Mask = outside & (host.start_ns[position] >= last)
    return late & attribution.table.named(host.rows[position], _DEVICE)


# ---- the launch queue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """Launches with work in the trace, in order of time: positions in `Attribution.host`. A graph's launch is one.

    `start`, `end`: of the call. `begun`: when its first work began. `depth`: launches that had not begun to run when it was
    made, itself included. `blocked`: what the call took beyond an unhindered one's time because the queue was full.
    """

    position: Ids
    start: Ints
    end: Ints
    begun: Ints
    depth: Ints
    step: Ids
    blocked: Ints

    def step_depths(self) -> Ints:
        """The depth that each step with launches found; without steps, the least depth in each quarter of the launches."""
        marked = np.flatnonzero(self.step != NONE)
        steps, first = np.unique(self.step[marked], return_index=True)
        if len(steps) > 1:
            return self.depth[marked[first]]
        return np.array([part.min() for part in np.array_split(self.depth, 4) if len(part)], np.int64)

    def growing_steps(self) -> Ids:
        """The steps after which the queue was deeper than before."""
        launched = np.unique(self.step[self.step != NONE])
        return launched[:-1][_grew(self.step_depths())] if len(launched) > 1 else launched[:0]


def launch_queue(attribution: Attribution) -> Launches:
    """The launches of a trace with the queue that each found."""
    host, device = attribution.host, attribution.device
    linked = np.flatnonzero(device.launch != NONE)
    position, first = np.unique(device.launch[linked], return_index=True)  # the first is the earliest: they ascend
    order = np.argsort(host.start_ns[position], kind="stable")
    position, first = position[order], linked[first[order]]
    start, end, begun = host.start_ns[position], host.end_ns[position], device.start_ns[first]
    depth = np.arange(1, len(start) + 1) - np.searchsorted(np.sort(begun), start, side="right")
    depth = np.maximum(depth, 0)  # clocks of host and device may differ: work that begins before its launch
    return Launches(
        position=position.astype(np.int32),
        start=start,
        end=end,
        begun=begun,
        depth=depth,
        step=device.step[first],
        blocked=_blocked(end - start, depth),
    )


def _blocked(duration: Ints, depth: Ints) -> Ints:
    """What each launch took beyond an unhindered one's time because the queue was full."""
    nothing = np.zeros(len(duration), np.int64)
    most = int(depth.max(initial=0))
    brim = depth >= BRIM * most
    if most < LEAST or brim.all():
        return nothing
    usual = int(np.median(duration[~brim]))
    slow = brim & (duration > HINDERED * usual)
    return np.where(slow, duration - usual, nothing) if int(slow.sum()) >= AGAIN else nothing


def _grew(depth: Ints) -> Mask:
    """Between which of successive depths the queue grew, by more than a tenth and more than a step's launches vary by."""
    margin = 16
    return depth[1:] > depth[:-1] * 1.1 + margin


def queue_summary(launches: Launches) -> Queue | None:
    """The launch queue as a whole; None without launches."""
    if not len(launches.start):
        return None
    blocked = int(launches.blocked.sum())
    return Queue(
        max_depth=int(launches.depth.max()),
        median_depth=float(np.median(launches.depth)),
        delay_ns=int(np.median(np.maximum(launches.begun - launches.end, 0))),
        full=blocked > 0,
        growing=blocked == 0 and bool(_grew(launches.step_depths())[-1:].any()),
        blocked_ns=blocked,
    )


# ---- who waited, and for whose work: a wait is seldom for the work of the phase it stands in


class _AllWaits(NamedTuple):
    """Waiting calls, and behind them launches that the full queue held up."""

    position: Ids
    start: Ints
    end: Ints


def _all_waits(waits: Waits, launches: Launches) -> _AllWaits:
    stuck = np.flatnonzero((launches.blocked > 0) & ~np.isin(launches.position, waits.position))
    end = launches.end[stuck]
    return _AllWaits(
        np.concatenate((waits.position, launches.position[stuck])),
        np.concatenate((waits.start, end - launches.blocked[stuck])),
        np.concatenate((waits.end, end)),
    )


def sync_waits(attribution: Attribution, timeline: Timeline, waits: Waits, launches: Launches) -> tuple[SyncWait, ...]:
    """The host's waits by who made them, longest first."""
    position, start, end = _all_waits(waits, launches)
    if not len(position):
        return ()
    # every ns between start and end falls to the phase whose kernels ran then, to none where the device was idle
    names, host, phases = attribution.table.names, attribution.host, attribution.device.phase
    split = np.zeros((len(TRACE_PHASES) + 1, len(position)), np.int64)
    for number in np.unique(phases[phases != NONE]).tolist():
        split[number] = overlap(timeline.charged(phases == number), start, end)
    split[-1] = end - start - split.sum(axis=0)
    maker = np.full(len(position), NONE, np.int32)
    maker[: len(waits.position)] = _makers(attribution, waits.position)
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


def wait_by_phase(attribution: Attribution, waits: Waits, launches: Launches) -> Ints:
    """Waiting ns of the host in each of TRACE_PHASES: synchronization and launches that found the queue full."""
    position, start, end = _all_waits(waits, launches)
    phase = attribution.host.phase[position]
    return sum_by(phase[phase != NONE].astype(np.int64), (end - start)[phase != NONE], len(TRACE_PHASES))


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
