"""The host work of a trace, as stretches by lane that end at launches, at waits, and where a step ends."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.host_time import host_waits
from profiler_kit.attribution.result import Attribution, Step
from profiler_kit.simulation.graph import NEVER_NS, Ids, Ints, Item, Mask
from profiler_kit.traces.intervals import Intervals, empty, join, length, overlap, subtract, union
from profiler_kit.traces.table import NONE, Kind

# Threads that run at the same time for a larger part of their time are lanes of their own.
_CONCURRENT_SHARE: Final = 0.05
# A pause of a thread that is longer waits for another thread. Python between two operators takes less.
_PAUSE_NS: Final = 100_000
_KIND_OF_ITEM: Final = {
    Item.OPERATOR: Kind.OPERATOR,
    Item.FRAME: Kind.PYTHON,
    Item.RANGE: Kind.ANNOTATION,
    Item.CALL: Kind.RUNTIME,
}


class HostWork(NamedTuple):
    """Stretches of host work in the order of their ends, which is the order of their numbers.

    `begin_ns`, `end_ns`: from `origin_ns`. `event`: the launch or the wait that ends the stretch, or NONE. `own_ns`: the part in
    the operator that makes the launch. `wakes`: pairs of stretches; the second one begins when the first has ended, on
    another lane. `ready_ns`: 0 for the first stretch of the main lane, otherwise NEVER_NS.
    """

    lane: Ids
    thread: Ids
    begin_ns: Ints
    end_ns: Ints
    ready_ns: Ints
    event: Ids
    is_launch: Mask
    is_wait: Mask
    own_ns: Ints
    step: Ids
    items: Ints
    wakes: tuple[Ids, Ids]
    origin_ns: int
    lanes: int


class _Lane(NamedTuple):
    """Threads of one lane, and the time in which they run operators or calls."""

    threads: tuple[int, ...]
    active: Intervals


class _Cuts(NamedTuple):
    """Where a lane is cut: at the ends of launches, around waits, and at times without an event."""

    start: Ints
    end: Ints
    event: Ids
    is_wait: Mask


def host_work(attribution: Attribution) -> HostWork:
    """Return the host work of the longest run of steps without a pause; without steps, of the whole trace."""
    steps = longest_run(_working_steps(attribution))
    start, end = _bounds(attribution, steps)
    lanes = _lanes(attribution, start, end)
    # between the marks of two steps, the profiler hands over a step
    borders = np.unique([time for step in steps for time in (step.start_ns, step.end_ns) if time > start] or [end])
    waits = host_waits(attribution)
    wait_start = np.full(len(attribution.host.rows), NONE, np.int64)
    wait_start[waits.position] = waits.start
    parts = [
        _stretches(attribution, lane, number, lanes, borders, wait_start, start) for number, lane in enumerate(lanes)
    ]
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)] if parts else _no_stretches()
    order = np.lexsort((columns[0], columns[3]))
    lane, thread, begin, finish, event, is_wait, own = (column[order] for column in columns[:7])
    items = np.stack([columns[7 + item][order] for item in Item])
    step = _steps_at(steps, begin)
    ready = np.full(len(begin), NEVER_NS)
    first = np.unique(lane, return_index=True)[1]
    ready[first] = np.where(lane[first] == 0, 0, begin[first] - start)
    work = HostWork(
        lane=lane.astype(np.int32),
        thread=thread.astype(np.int32),
        begin_ns=begin - start,
        end_ns=finish - start,
        ready_ns=ready,
        event=event.astype(np.int32),
        is_launch=(event != NONE) & ~is_wait.astype(np.bool_),
        is_wait=is_wait.astype(np.bool_),
        own_ns=own,
        step=step,
        items=items,
        wakes=(np.zeros(0, np.int32), np.zeros(0, np.int32)),
        origin_ns=start,
        lanes=max(len(lanes), 1),
    )
    return work._replace(wakes=_wakes(work, [_shift(lane.active, start) for lane in lanes]))


def longest_run(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the most steps in a row that the recording does not pause between."""
    runs: list[list[Step]] = []
    for step in steps:
        if runs and step.number == runs[-1][-1].number + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    longest: list[Step] = max(runs, key=lambda run: len(run), default=[])
    return tuple(longest)


def _steps_at(steps: tuple[Step, ...], begin: Ints) -> Ids:
    """Return the number of the step at each time, NONE between steps; 0 without steps."""
    if not steps:
        return np.zeros(len(begin), np.int32)
    starts, ends = (np.array([getattr(step, name) for step in steps], np.int64) for name in ("start_ns", "end_ns"))
    number = np.searchsorted(starts, begin, side="right") - 1
    return np.where(begin < ends[number], number, NONE).astype(np.int32)


def _working_steps(attribution: Attribution) -> tuple[Step, ...]:
    """Return the steps in which operators run. The last call of ``profiler.step()`` begins an empty one."""
    host = attribution.host
    used = np.unique(host.step[host.is_operator])
    return tuple(step for i, step in enumerate(attribution.steps) if i in used) or attribution.steps


def _bounds(attribution: Attribution, steps: tuple[Step, ...]) -> tuple[int, int]:
    host, device = attribution.host, attribution.device
    if steps:
        return steps[0].start_ns, steps[-1].end_ns
    for times in (host, device):
        if len(times.start_ns):
            return int(times.start_ns.min()), int(times.end_ns.max())
    return 0, 0


def _lanes(attribution: Attribution, start: int, end: int) -> list[_Lane]:
    """Return the lanes: the main thread and the threads that run while it does not, then the others.

    Threads that neither run operators nor launch or await work, as those that watch collectives, are left out.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    is_operator, runtime = host.is_operator, table.kind[host.rows] == Kind.RUNTIME
    matters = is_operator.copy()
    matters[device.launch[device.launch != NONE]] = True
    matters[host_waits(attribution).position] = True
    inside = (host.end_ns > start) & (host.start_ns < end)
    threads = np.unique(host.thread[matters & inside]).tolist()
    active = {
        thread: union(
            *(
                column[(host.thread == thread) & (is_operator | runtime) & inside]
                for column in (host.start_ns, host.end_ns)
            )
        )
        for thread in threads
    }
    lanes: list[_Lane] = [] if threads or not len(host.rows) else [_Lane((attribution.main_thread,), empty())]
    for thread in sorted(threads, key=lambda thread: (thread != attribution.main_thread, -length(active[thread]))):
        own = active[thread]
        for i, lane in enumerate(lanes):
            shared = int(overlap(lane.active, own.start, own.end).sum())
            if shared <= _CONCURRENT_SHARE * length(own):
                lanes[i] = _Lane((*lane.threads, thread), join(lane.active, own))
                break
        else:
            lanes.append(_Lane((thread,), own))
    return lanes


def _shift(intervals: Intervals, by: int) -> Intervals:
    return Intervals(intervals.start - by, intervals.end - by)


# ---- stretches of one lane


def _stretches(
    attribution: Attribution, lane: _Lane, number: int, lanes: list[_Lane], borders: Ints, wait_start: Ints, origin: int
) -> tuple[Ints | Ids | Mask, ...]:
    """Return the columns of the stretches of `lane`: lane, thread, begin, end, event, is_wait, own time, counts of items."""
    cuts = _cuts(attribution, lane, number, lanes, borders, wait_start, origin)
    # a wait is a stretch of its own, after the work before it
    count = 1 + cuts.is_wait.astype(np.int64)
    index = np.repeat(np.arange(len(count)), count)
    is_second = np.diff(index, prepend=-1) == 0
    is_wait = cuts.is_wait[index] & is_second
    end = np.where(cuts.is_wait[index] & ~is_second, cuts.start[index], cuts.end[index])
    end = np.maximum.accumulate(np.maximum(end, origin))
    begin = np.concatenate((np.array([origin], np.int64), end[:-1]))[: len(end)]
    before_wait = cuts.is_wait[index] & ~is_second
    # the work before a blocking copy is what launches it
    event = cuts.event[index]
    launches = np.zeros(len(attribution.host.rows) + 1, np.bool_)
    launches[attribution.device.launch] = True
    launches[-1] = False
    event = np.where(before_wait & ~launches[event], NONE, event).astype(np.int32)
    own = np.where(is_wait | (event == NONE), 0, _own_ns(attribution, event, begin, end))
    thread = np.where(event == NONE, lane.threads[0], attribution.host.thread[event])
    items = _items(attribution, lane, begin, end)
    return np.full(len(end), number), thread, begin, end, event, is_wait, own, *items


def _cuts(
    attribution: Attribution, lane: _Lane, number: int, lanes: list[_Lane], borders: Ints, wait_start: Ints, origin: int
) -> _Cuts:
    host, device = attribution.host, attribution.device
    is_cut = wait_start != NONE
    is_cut[device.launch[device.launch != NONE]] = True
    is_cut &= np.isin(host.thread, np.array(lane.threads)) & (host.start_ns >= origin) & (host.start_ns < borders[-1])
    event = np.flatnonzero(is_cut)
    is_wait = wait_start[event] != NONE
    start = np.where(is_wait, wait_start[event], host.start_ns[event])
    pauses = _pauses(lanes, number, origin, int(borders[-1]))
    times = np.concatenate((borders if number == 0 else borders[:0], pauses))
    none = np.full(len(times), NONE)
    columns = (
        np.concatenate((start, times)),
        np.concatenate((np.minimum(host.end_ns[event], borders[-1]), times)),
        np.concatenate((event, none)),
        np.concatenate((is_wait, np.zeros(len(times), np.bool_))),
    )
    order = np.lexsort((columns[1], columns[0]))
    return _Cuts(*(column[order] for column in columns))


def _pauses(lanes: list[_Lane], number: int, start: int, end: int) -> Ints:
    """Return the borders of the pauses of a lane, in which it may wait for another lane."""
    if len(lanes) == 1:
        return np.zeros(0, np.int64)
    active = lanes[number].active
    gaps = subtract(Intervals(np.array([start]), np.array([end])), active)
    long = gaps.end - gaps.start >= _PAUSE_NS
    times = np.concatenate((gaps.start[long], gaps.end[long]))
    return np.unique(times[(times > start) & (times < end)])


def _own_ns(attribution: Attribution, event: Ids, begin: Ints, end: Ints) -> Ints:
    """Return the part of each stretch from the start of the outermost operator around its launch, or of the launch."""
    host = attribution.host
    outer = outermost_enclosing(host.parent, host.operator)[event]
    # an autograd node encloses the operators of several launches, and is one
    start = np.where(outer == NONE, host.start_ns[event], host.start_ns[outer])
    return np.maximum(end - np.maximum(start, begin), 0)


def _items(attribution: Attribution, lane: _Lane, begin: Ints, end: Ints) -> list[Ints]:
    """Return how many events of each kind begin in each stretch."""
    table, host = attribution.table, attribution.host
    on_lane = np.isin(host.thread, np.array(lane.threads))
    counts = []
    for kind in (_KIND_OF_ITEM[item] for item in Item):
        at = np.sort(host.start_ns[on_lane & (table.kind[host.rows] == kind)])
        counts.append(np.searchsorted(at, end, side="left") - np.searchsorted(at, begin, side="left"))
    return counts


def _no_stretches() -> list[Ints]:
    return [np.zeros(0, np.int64) for _ in range(7 + len(Item))]


# ---- threads that wait for another thread


def _wakes(work: HostWork, active: list[Intervals]) -> tuple[Ids, Ids]:
    """Return the pairs of stretches of which the second, after a pause of its lane, waits for the first of another lane.

    Only lanes that run at the same time wait in this way; threads that take turns are one lane already.
    """
    sources: list[int] = []
    targets: list[int] = []
    if len(active) < 2:
        return np.zeros(0, np.int32), np.zeros(0, np.int32)
    for lane, intervals in enumerate(active):
        members = np.flatnonzero(work.lane == lane)
        # stretches without any activity are pauses
        busy = overlap(intervals, work.begin_ns[members], work.end_ns[members])
        pauses = members[(busy == 0) & (work.end_ns[members] - work.begin_ns[members] >= _PAUSE_NS)]
        for pause in pauses.tolist():
            source = _waker(work, active, pause)
            if source != NONE:
                sources.append(source)
                targets.append(pause)
    return np.array(sources, np.int32), np.array(targets, np.int32)


def _waker(work: HostWork, active: list[Intervals], pause: int) -> int:
    """Return the stretch of another lane that ends last in the pause, if that lane ran for most of it; else NONE."""
    begin, end = work.begin_ns[pause : pause + 1], work.end_ns[pause : pause + 1]
    for lane, intervals in enumerate(active):
        if lane != work.lane[pause] and 2 * int(overlap(intervals, begin, end)[0]) >= int((end - begin)[0]):
            inside = np.flatnonzero((work.lane[:pause] == lane) & (work.end_ns[:pause] > begin[0]))
            if len(inside):
                return int(inside[-1])
    return NONE
