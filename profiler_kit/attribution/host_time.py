"""The host's time: calls that wait for the device, the launch queue, and the wall time by phase."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import Queue
from profiler_kit.traces.intervals import charge, length, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

_WAITS: Final = re.compile(
    r"[sS]ynchronize(_v2|_ptsz)?\Z|\A(cuda|hip)Free\Z|"  # freeing memory waits for everything before it
    r"\A(cuda|hip)Memcpy(2D|3D)?\Z|\AhipMemcpyWithStream\Z|\AcuMemcpy(DtoH|HtoD|DtoD)(_v2)?\Z|"
    r"\Aur(EventWait|QueueFinish)\Z|\AzeEventHostSynchronize\Z"
)
_DEVICE: Final = re.compile(r"DeviceSynchronize\Z")
_COPIES: Final = re.compile(r"\A(cuda|hip|cu)Memcpy\w*Async")
_TO_HOST: Final = re.compile(r"DtoH|[pP]ageable|-> (Host|Pinned)")

# How many launches a queue holds differs: 1,022 on a V100, 1,028 on an H200, more than 1,848 on an MI300. So none is taken for
# granted: a queue is full where launches get slow with it at its deepest, again and again, and it never gets deeper.
BRIM: Final = 0.98  # of the deepest: those that waited found 1,012 to 1,022 on the V100, 1,027 and 1,028 on the H200
HINDERED: Final = 10  # times an unhindered launch: the V100's launches take 5 us, those that waited 47 to 2,010
AGAIN: Final = 3  # slow launches at the brim: one or two may have loaded a kernel's code there
LEAST: Final = 64  # places: with fewer launches ahead of it a slow one has another reason (memory, code that is loaded)


# ---- calls that wait


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Waits:
    """Waiting calls: their positions in `Attribution.host`, by thread and start. Of nested calls the outer counts."""

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


# ---- wall time by phase


class Stretches(NamedTuple):
    """Stretches of one thread in order, each with its owner; those of nobody are left out."""

    start: Ints
    end: Ints
    owner: Ids


def innermost(start: Ints, end: Ints, inside: Ids, after: Ids) -> Stretches:
    """Nested intervals of one thread, the enclosing ones first, as stretches.

    `inside` owns what follows an interval's start, `after` what follows its end.
    """
    full = np.flatnonzero(end > start)
    start, end, inside, after = start[full], end[full], inside[full], after[full]
    # at one instant: what ends, the inner first, and only then what starts, the outer first
    last = len(end) - 1 - np.argsort(end[::-1], kind="stable")
    at = np.concatenate((end[last], start))
    owner = np.concatenate((after[last], inside))
    order = np.argsort(at, kind="stable")
    at, owner = at[order], owner[order]
    owned = np.flatnonzero((owner[:-1] != NONE) & (at[1:] > at[:-1]))
    return Stretches(at[owned], at[owned + 1], owner[owned])


def phase_host_ns(attribution: Attribution) -> dict[int, int]:
    """The wall time of each phase (an index of TRACE_PHASES) on the host: what a stopwatch around it would show.

    On the main thread, and on those that run autograd's nodes, an instant belongs to the innermost event with a phase. What lies
    between two stretches of one phase in one step, with no other phase between them on any of these threads, is Python between
    the calls of that phase and belongs to it too. Where threads are in one phase at the same time, the instant counts once.
    """
    host = attribution.host
    outer = np.where(host.parent != NONE, host.phase[host.parent], NONE)
    runtime = attribution.table.kind[host.rows] == Kind.RUNTIME
    changes = np.flatnonzero((host.phase != outer) & (host.phase != NONE) & ~runtime)
    autograd = np.flatnonzero(np.bincount(host.thread[host.node != NONE])).tolist()
    parts: list[Stretches] = []
    for thread in dict.fromkeys((attribution.main_thread, *autograd)):
        at = changes[host.thread[changes] == thread]
        phase, around = host.phase[at].astype(np.int32), outer[at].astype(np.int32)
        parts.append(innermost(host.start_ns[at], host.end_ns[at], phase, around))
    marks = np.sort(np.array([step.start_ns for step in attribution.steps], np.int64))
    start, end, owner = _joined(parts, marks)
    return {phase: length(union(start[owner == phase], end[owner == phase])) for phase in np.unique(owner).tolist()}


def _joined(parts: list[Stretches], marks: Ints) -> Stretches:
    """Successive stretches of one owner between two of `marks`, whichever thread's, as one."""
    start, end, owner = (np.concatenate([part[i] for part in parts]) for i in range(3))
    order = np.argsort(start, kind="stable")
    start, end, owner = start[order], end[order], owner[order]
    if not len(start):
        return Stretches(start, end, owner)
    step = np.searchsorted(marks, start, side="right")
    first = np.flatnonzero(np.concatenate(([True], (owner[1:] != owner[:-1]) | (step[1:] != step[:-1]))))
    return Stretches(start[first], np.maximum.reduceat(end, first), owner[first])
