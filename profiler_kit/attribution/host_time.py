"""The host's time: calls that wait for the device, the launch queue, and the wall time by phase."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import Queue
from profiler_kit.traces.intervals import Intervals, assign_to_first, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

_FREE: Final = re.compile(r"\A(cuda|hip)Free\Z|\AcuMemFree(_v2)?\Z")  # waits for all earlier work
_WAITING_CALL: Final = re.compile(
    rf"{_FREE.pattern}|"
    r"[sS]ynchronize(_v2|_ptsz)?\Z|"
    r"\A(cuda|hip)Memcpy(2D|3D)?\Z|\AhipMemcpyWithStream\Z|\AcuMemcpy(DtoH|HtoD|DtoD)(_v2)?\Z|"
    r"\Aur(EventWait|QueueFinish)\Z|\AzeEventHostSynchronize\Z"
)
_DEVICE_SYNCHRONIZE: Final = re.compile(r"DeviceSynchronize\Z")
# Source: torch/autograd/profiler.py, profile.__exit__ synchronizes before it collects the trace.
_PROFILER_FUNCTION: Final = re.compile(r"torch/(autograd/profiler|profiler/profiler)\.py\(")
_ASYNC_COPY: Final = re.compile(r"\A(cuda|hip|cu)Memcpy\w*Async")
_BLOCKING_DIRECTION: Final = re.compile(r"DtoH|[pP]ageable|-> (Host|Pinned)")

# The capacity of a launch queue differs: 1,022 on a V100, 1,028 on an H200, more than 1,848 on an MI300. So no capacity
# is assumed. A queue is full where launches are repeatedly slow at its greatest depth.
# of the maximum depth. Blocked launches: at depth 1,012 to 1,022 on the V100, 1,027 and 1,028 on the H200.
FULL_DEPTH_SHARE: Final = 0.98
# times the usual launch time. On the V100 a launch takes 5 us, a blocked one 47 to 2,010.
BLOCKED_LAUNCH_FACTOR: Final = 10
MIN_BLOCKED_LAUNCHES: Final = 3  # slow launches at full depth: one or two may have loaded a kernel's code
MIN_QUEUE_DEPTH: Final = 64  # with fewer queued launches, a slow one has another reason (memory, loading of code)


# ---- calls that wait


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Calls that wait for the device: their positions in `Attribution.host`, by thread and start.

    Of nested calls, the outer one counts.
    """

    position: Ids
    thread: Ids
    start: Ints
    end: Ints


def host_waits(attribution: Attribution) -> Waits:
    """Return synchronizing calls, blocking copies, and asynchronous copies that returned only after the copy was done.

    The last are copies from and to pageable memory: CUDA stages them, so that even the `Async` call waits for the
    stream. The profiler's own wait when it stops is not part of the program and is left out.
    """
    table, host = attribution.table, attribution.host
    calls = np.flatnonzero(table.kind[host.rows] == Kind.RUNTIME).astype(np.int32)
    rows = host.rows[calls]
    copy_end = _blocking_copy_ends(attribution)[calls]
    copies = (copy_end != NONE) & (host.end_ns[calls] >= copy_end) & table.named(rows, _ASYNC_COPY)
    position = calls[table.named(rows, _WAITING_CALL) | copies]
    thread, start, end = host.thread[position], host.start_ns[position], host.end_ns[position]
    counted_ns = np.zeros(len(position), np.int64)
    for number in np.unique(thread):  # host events are ordered by thread, then start
        on_thread = thread == number
        counted_ns[on_thread] = assign_to_first(start[on_thread], end[on_thread]).piece
    is_wait = (counted_ns > 0) & ~_made_by_profiler(attribution, position) & _may_wait(attribution, position)
    return Waits(
        position=position[is_wait], thread=thread[is_wait], start=(end - counted_ns)[is_wait], end=end[is_wait]
    )


def _may_wait(attribution: Attribution, position: Ids) -> Mask:
    """Return which calls can have waited for work in the trace.

    A call that ends before the first device work starts the library: the first one creates the context. A call that frees
    memory waits only for work that was launched before it and had not ended.
    """
    device, host = attribution.device, attribution.host
    if not len(device.start_ns):
        return np.zeros(len(position), np.bool_)
    start, end = host.start_ns[position], host.end_ns[position]
    launched = np.flatnonzero(device.launch != NONE)
    launch_ns = device.start_ns.copy()
    launch_ns[launched] = np.minimum(launch_ns[launched], host.start_ns[device.launch[launched]])
    order = np.argsort(launch_ns, kind="stable")
    last_end = np.maximum.accumulate(device.end_ns[order])
    earlier = np.searchsorted(launch_ns[order], start, side="left")
    is_pending = (earlier > 0) & (last_end[np.maximum(earlier, 1) - 1] > start)
    frees = attribution.table.named(host.rows[position], _FREE)
    result: Mask = (end > device.start_ns[0]) & (is_pending | ~frees)
    return result


def _blocking_copy_ends(attribution: Attribution) -> Ints:
    """Return, for each host event, the end of the copy that it launched if that copy may block; else NONE."""
    table, device = attribution.table, attribution.device
    end_ns = np.full(len(attribution.host.rows), NONE, np.int64)
    copies = np.flatnonzero((device.launch != NONE) & (table.kind[device.rows] == Kind.MEMCPY))
    copies = copies[table.named(device.rows[copies], _BLOCKING_DIRECTION)]
    end_ns[device.launch[copies]] = device.end_ns[copies]
    return end_ns


def _made_by_profiler(attribution: Attribution, position: Ids) -> Mask:
    """Return which calls synchronize the device for the profiler.

    With stacks, these are the calls inside the profiler's own functions. Without, they come after all launches, outside
    steps, operators and Python calls.
    """
    table, host, launch = attribution.table, attribution.host, attribution.device.launch
    functions = np.zeros(len(host.rows), np.bool_)
    functions[host.python[host.python != NONE]] = True
    python = np.flatnonzero(functions)  # of a million calls; numpy.unique takes 30 times as long
    functions[:] = False
    functions[python[table.named(host.rows[python], _PROFILER_FUNCTION)]] = True
    if functions.any():
        inside: Mask = innermost_enclosing(host.parent, functions)[position] != NONE
        return inside
    last = int(host.start_ns[launch[launch != NONE]].max(initial=0))
    outside = (host.operator[position] == NONE) & (host.python[position] == NONE) & (host.step[position] == NONE)
    late: Mask = outside & (host.start_ns[position] >= last)
    return late & table.named(host.rows[position], _DEVICE_SYNCHRONIZE)


# ---- the launch queue


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """Launches with work in the trace, in order of time: positions in `Attribution.host`. A graph launch counts as one.

    `start`, `end`: of the call. `first_work_ns`: the start of its first work. `depth`: the number of launches whose
    work had not begun at the time of the call, itself included. `blocked`: the ns that a full queue added to the
    call.
    """

    position: Ids
    start: Ints
    end: Ints
    first_work_ns: Ints
    depth: Ints
    step: Ids
    blocked: Ints

    def step_depths(self) -> Ints:
        """Return the queue depth at the start of each step with launches.

        Without steps: the least depth in each quarter of the launches.
        """
        marked = np.flatnonzero(self.step != NONE)
        steps, first = np.unique(self.step[marked], return_index=True)
        if len(steps) > 1:
            return self.depth[marked[first]]
        return np.array([part.min() for part in np.array_split(self.depth, 4) if len(part)], np.int64)

    def growing_steps(self) -> Ids:
        """The steps after which the queue was deeper than before."""
        launched = np.unique(self.step[self.step != NONE])
        return launched[:-1][_queue_grew(self.step_depths())] if len(launched) > 1 else launched[:0]


def launch_queue(attribution: Attribution) -> Launches:
    """The launches of a trace with the queue that each found."""
    host, device = attribution.host, attribution.device
    linked = np.flatnonzero(device.launch != NONE)
    position, first_work = np.unique(device.launch[linked], return_index=True)  # the first is the earliest: they ascend
    order = np.argsort(host.start_ns[position], kind="stable")
    position, first_work = position[order], linked[first_work[order]]
    start, end, first_work_ns = host.start_ns[position], host.end_ns[position], device.start_ns[first_work]
    depth = np.arange(1, len(start) + 1) - np.searchsorted(np.sort(first_work_ns), start, side="right")
    depth = np.maximum(depth, 0)  # clocks of host and device may differ: work that begins before its launch
    return Launches(
        position=position.astype(np.int32),
        start=start,
        end=end,
        first_work_ns=first_work_ns,
        depth=depth,
        step=device.step[first_work],
        blocked=_blocked(end - start, depth),
    )


def _blocked(duration: Ints, depth: Ints) -> Ints:
    """Return the ns beyond the usual launch time that each launch took because the queue was full."""
    none_blocked = np.zeros(len(duration), np.int64)
    max_depth = int(depth.max(initial=0))
    at_full_depth = depth >= FULL_DEPTH_SHARE * max_depth
    if max_depth < MIN_QUEUE_DEPTH or at_full_depth.all():
        return none_blocked
    usual_ns = int(np.median(duration[~at_full_depth]))
    is_slow = at_full_depth & (duration > BLOCKED_LAUNCH_FACTOR * usual_ns)
    return (
        np.where(is_slow, duration - usual_ns, none_blocked)
        if int(is_slow.sum()) >= MIN_BLOCKED_LAUNCHES
        else none_blocked
    )


def _queue_grew(depth: Ints) -> Mask:
    """Return where the queue grew between successive depths.

    Growth exceeds a tenth, and the usual variation of a step's launches.
    """
    margin = 16
    return depth[1:] > depth[:-1] * 1.1 + margin


def queue_summary(launches: Launches) -> Queue | None:
    """Return the figures of the launch queue; None without launches."""
    if not len(launches.start):
        return None
    blocked = int(launches.blocked.sum())
    return Queue(
        max_depth=int(launches.depth.max()),
        median_depth=float(np.median(launches.depth)),
        delay_ns=int(np.median(np.maximum(launches.first_work_ns - launches.end, 0))),
        full=blocked > 0,
        growing=blocked == 0 and bool(_queue_grew(launches.step_depths())[-1:].any()),
        blocked_ns=blocked,
    )


# ---- wall time by phase


class Stretches(NamedTuple):
    """Time intervals of one thread in order, each with the innermost event (or phase) that covers it.

    Uncovered time is left out.
    """

    start: Ints
    end: Ints
    event: Ids


def innermost(start: Ints, end: Ints, event_inside: Ids, event_after: Ids) -> Stretches:
    """Return nested intervals of one thread, the enclosing ones first, as stretches that do not overlap.

    `event_inside` applies from an interval's start, `event_after` from its end.
    """
    nonempty = np.flatnonzero(end > start)
    start, end, event_inside, event_after = (
        start[nonempty],
        end[nonempty],
        event_inside[nonempty],
        event_after[nonempty],
    )
    # at one instant, ends come before starts; inner ends before outer ends, outer starts before inner starts
    last = len(end) - 1 - np.argsort(end[::-1], kind="stable")
    times = np.concatenate((end[last], start))
    event = np.concatenate((event_after[last], event_inside))
    order = np.argsort(times, kind="stable")
    times, event = times[order], event[order]
    assigned = np.flatnonzero((event[:-1] != NONE) & (times[1:] > times[:-1]))
    return Stretches(times[assigned], times[assigned + 1], event[assigned])


def phase_intervals(attribution: Attribution, waits: Ids | None = None) -> dict[int, Intervals]:
    """Return the intervals on the host of each phase (an index of TRACE_PHASES).

    `waits`: positions of runtime calls that count also outside operators, as a call of synchronize does.

    **Counts**: on the threads of `stopwatch_threads`, each instant counts for the innermost event
    with a phase. A gap between two stretches of one phase and step, with no other phase between them on any of these
    threads, is Python between the calls and counts too. An instant in which several threads are in one phase counts
    once.
    """
    host = attribution.host
    parent_phase = np.where(host.parent != NONE, host.phase[host.parent], NONE)
    excluded = attribution.table.kind[host.rows] == Kind.RUNTIME
    if waits is not None:
        excluded[waits] = False
    changes = np.flatnonzero((host.phase != parent_phase) & (host.phase != NONE) & ~excluded)
    parts: list[Stretches] = []
    for thread in stopwatch_threads(attribution):
        positions = changes[host.thread[changes] == thread]
        phase, phase_around = host.phase[positions].astype(np.int32), parent_phase[positions].astype(np.int32)
        parts.append(innermost(host.start_ns[positions], host.end_ns[positions], phase, phase_around))
    step_starts = np.sort(np.array([step.start_ns for step in attribution.steps], np.int64))
    start, end, phase_of = _merge_stretches(parts, step_starts)
    return {phase: union(start[phase_of == phase], end[phase_of == phase]) for phase in np.unique(phase_of).tolist()}


def stopwatch_threads(attribution: Attribution) -> tuple[int, ...]:
    """Return the threads whose time is that of phases: the main thread, and the threads that run autograd nodes."""
    host = attribution.host
    autograd = np.flatnonzero(np.bincount(host.thread[host.node != NONE])).tolist()
    return tuple(dict.fromkeys((attribution.main_thread, *autograd)))


def _merge_stretches(parts: list[Stretches], step_starts: Ints) -> Stretches:
    """Merge successive stretches of one event between two of `step_starts`, across threads."""
    start, end, event = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(start, kind="stable")
    start, end, event = start[order], end[order], event[order]
    if not len(start):
        return Stretches(start, end, event)
    step = np.searchsorted(step_starts, start, side="right")
    first = np.flatnonzero(np.concatenate(([True], (event[1:] != event[:-1]) | (step[1:] != step[:-1]))))
    return Stretches(start[first], np.maximum.reduceat(end, first), event[first])
