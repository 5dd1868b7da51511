"""The host work of a trace, as stretches by lane that end at launches, at waits, and where a step ends."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.host_time import host_waits
from profiler_kit.attribution.result import Attribution
from profiler_kit.simulation.graph import NEVER_NS, Bytes, Ids, Ints, Item, Mask
from profiler_kit.simulation.host_lanes import Lane, Window, host_lanes, pauses, window_of
from profiler_kit.traces.intervals import overlap
from profiler_kit.traces.table import NONE, Kind

_KIND_OF_ITEM: Final = {
    Item.OPERATOR: Kind.OPERATOR,
    Item.FRAME: Kind.PYTHON,
    Item.RANGE: Kind.ANNOTATION,
    Item.CALL: Kind.RUNTIME,
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Stretches:
    """Stretches of host work. Times are those of the trace until `host_work` moves them."""

    lane: Ids
    thread: Ids
    begin_ns: Ints
    end_ns: Ints
    event: Ids
    is_wait: Mask
    is_pause: Mask
    own_ns: Ints
    items: Ints


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class HostWork(_Stretches):
    """Stretches of host work in the order of their ends, which is the order of their numbers.

    `begin_ns`, `end_ns`: from `origin_ns`. `event`: the launch or the wait that ends the stretch, or NONE. `is_pause`: the lane
    runs nothing. `own_ns`: the part in the operator that makes the launch. `items[item, stretch]`: the events that begin in
    it. `ready_ns`: 0 for the first stretch of the main lane, otherwise NEVER_NS. `waker`: for a pause, the stretch of another
    lane that ends it, or NONE.
    """

    ready_ns: Ints
    step: Ids
    waker: Ids
    origin_ns: int
    lanes: int

    @property
    def is_launch(self) -> Mask:
        """Which stretches end with a launch."""
        result: Mask = (self.event != NONE) & ~self.is_wait
        return result


def host_work(attribution: Attribution) -> HostWork:
    """Return the host work of the longest run of steps without a pause; without steps, of the whole trace."""
    window = window_of(attribution)
    lanes = host_lanes(attribution, window)
    cutter = _Cutter(attribution, window)
    parts = [cutter.stretches(number, lane, has_others=len(lanes) > 1) for number, lane in enumerate(lanes)]
    columns = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts or [_none()]], axis=-1)
        for field in fields(_Stretches)
    }
    order = np.lexsort((columns["lane"], columns["end_ns"]))
    work = _Stretches(**{name: column[..., order] for name, column in columns.items()})
    ready = np.full(len(order), NEVER_NS)
    first = np.unique(work.lane, return_index=True)[1]
    ready[first] = np.where(work.lane[first] == 0, 0, work.begin_ns[first] - window.start_ns)
    return HostWork(
        lane=work.lane,
        thread=work.thread,
        begin_ns=work.begin_ns - window.start_ns,
        end_ns=work.end_ns - window.start_ns,
        event=work.event,
        is_wait=work.is_wait,
        is_pause=work.is_pause,
        own_ns=work.own_ns,
        items=work.items,
        ready_ns=ready,
        step=window.steps_at(work.begin_ns),
        waker=_wakers(work, lanes),
        origin_ns=window.start_ns,
        lanes=max(len(lanes), 1),
    )


def _none() -> _Stretches:
    ids, ints, mask = np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.bool_)
    return _Stretches(
        lane=ids,
        thread=ids,
        begin_ns=ints,
        end_ns=ints,
        event=ids,
        is_wait=mask,
        is_pause=mask,
        own_ns=ints,
        items=np.zeros((len(Item), 0), np.int64),
    )


_CALL, _WAIT, _TIME, _RESUME = range(4)  # kinds of cuts: at a launch, a wait, a time, the end of a pause


class _Cutter:
    """Cuts lanes at launches, at waits, where a step ends or begins, and at pauses."""

    def __init__(self, attribution: Attribution, window: Window) -> None:
        self._attribution, self._window = attribution, window
        host, device, waits = attribution.host, attribution.device, host_waits(attribution)
        self._launches = np.zeros(len(host.rows), np.bool_)
        self._launches[device.launch[device.launch != NONE]] = True
        self._wait_start = np.full(len(host.rows), NONE, np.int64)
        self._wait_start[waits.position] = waits.start
        self._outermost = outermost_enclosing(host.parent, host.operator)

    def stretches(self, number: int, lane: Lane, *, has_others: bool) -> _Stretches:
        """Return the stretches of `lane`. A wait is a stretch of its own, after the work before it."""
        start, end, event, kind = self._cuts(number, lane, has_others=has_others)
        count = 1 + (kind == _WAIT).astype(np.int64)
        index = np.repeat(np.arange(len(count)), count)
        is_wait = np.diff(index, prepend=-1) == 0
        before_wait = (kind[index] == _WAIT) & ~is_wait
        finish = np.where(before_wait, start[index], end[index])
        finish = np.maximum.accumulate(np.maximum(finish, self._window.start_ns))
        begin = np.concatenate((np.array([self._window.start_ns], np.int64), finish[:-1]))[: len(finish)]
        # the work before a blocking copy is what launches the copy
        event = np.where(before_wait & ~self._launches[event[index]], NONE, event[index])
        host = self._attribution.host
        return _Stretches(
            lane=np.full(len(index), number, np.int32),
            thread=np.where(event == NONE, lane.threads[0], host.thread[event]).astype(np.int32),
            begin_ns=begin,
            end_ns=finish,
            event=event.astype(np.int32),
            is_wait=is_wait,
            is_pause=kind[index] == _RESUME,
            own_ns=np.where(is_wait | (event == NONE), 0, self._own_ns(event, begin, finish)),
            items=self._items(lane, begin, finish),
        )

    def _cuts(self, number: int, lane: Lane, *, has_others: bool) -> tuple[Ints, Ints, Ids, Bytes]:
        """Return the cuts of a lane in order: start, end, event (NONE for a time) and kind."""
        host, window = self._attribution.host, self._window
        is_cut = self._launches | (self._wait_start != NONE)
        is_cut &= np.isin(host.thread, np.array(lane.threads))
        is_cut &= (host.start_ns >= window.start_ns) & (host.start_ns < window.end_ns)
        event = np.flatnonzero(is_cut)
        is_wait = self._wait_start[event] != NONE
        paused = pauses(lane, window)
        times = [window.borders if number == 0 else window.borders[:0]]
        times += [paused.start, paused.end] if has_others else []
        at = np.concatenate(times)
        kinds = np.repeat(np.array((_TIME, _TIME, _RESUME)[: len(times)], np.int8), [len(part) for part in times])
        start = np.concatenate((np.where(is_wait, self._wait_start[event], host.start_ns[event]), at))
        end = np.concatenate((np.minimum(host.end_ns[event], window.end_ns), at))
        events = np.concatenate((event, np.full(len(at), NONE))).astype(np.int32)
        kind = np.concatenate((np.where(is_wait, _WAIT, _CALL), kinds)).astype(np.int8)
        order = np.lexsort((kind, end, start))
        return start[order], end[order], events[order], kind[order]

    def _own_ns(self, event: Ids | Ints, begin: Ints, end: Ints) -> Ints:
        """Return the part of each stretch from the start of the outermost operator around its launch, or of the launch."""
        host = self._attribution.host
        outer = self._outermost[event]
        start = np.where(outer == NONE, host.start_ns[event], host.start_ns[outer])
        return np.maximum(end - np.maximum(start, begin), 0)

    def _items(self, lane: Lane, begin: Ints, end: Ints) -> Ints:
        """Return how many events of each kind begin in each stretch."""
        table, host = self._attribution.table, self._attribution.host
        on_lane = np.isin(host.thread, np.array(lane.threads))
        counts = []
        for kind in (_KIND_OF_ITEM[item] for item in Item):
            at = np.sort(host.start_ns[on_lane & (table.kind[host.rows] == kind)])
            counts.append(np.searchsorted(at, end, side="left") - np.searchsorted(at, begin, side="left"))
        return np.stack(counts)


def _wakers(work: _Stretches, lanes: list[Lane]) -> Ids:
    """Return, for each pause, the last stretch of another lane that ends in it, if that lane runs for most of the pause.

    Only lanes that run at the same time wait in this way; threads that take turns are one lane already.
    """
    result = np.full(len(work.end_ns), NONE, np.int32)
    paused = np.flatnonzero(work.is_pause)
    begin, end = work.begin_ns[paused], work.end_ns[paused]
    for number, lane in enumerate(lanes if len(paused) else ()):
        members = np.flatnonzero(work.lane == number)
        last = members[np.maximum(np.searchsorted(work.end_ns[members], end, side="right") - 1, 0)]
        runs = 2 * overlap(lane.active, begin, end) >= end - begin
        wakes = runs & (work.lane[paused] != number) & (last < paused) & (work.end_ns[last] > begin)
        result[paused[wakes]] = last[wakes]
    return result
