"""What an idle device waited for: for each idle interval, the host work and the delays on the edges that decided its end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from profiler_kit.attribution.host_activity import user_call
from profiler_kit.attribution.host_time import Stretches, innermost
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.simulation.from_trace import TraceGraph
from profiler_kit.simulation.graph import Ids, Ints, Link, Mask
from profiler_kit.simulation.replay import Replay
from profiler_kit.traces.intervals import sum_by
from profiler_kit.traces.table import NONE, Thread


class Culprits(NamedTuple):
    """The pieces of idle intervals, which sum to them. Rows are pieces.

    `interval`: the number of the interval in `Replay.idle`. `event`: the position in `Attribution.host` of the innermost event
    that ran on the host, NONE for time without a recorded event. `thread`: its thread. `link`: NONE for work of the host,
    otherwise the `Link` whose delay the device waited for; `event` and `thread` are then NONE.
    """

    interval: Ids
    event: Ids
    thread: Ids
    link: Ids
    ns: Ints


class Culprit(NamedTuple):
    """Idle time for one reason: a delay (`link`), or work of the host in calls of one name, module and phase.

    `name`: of the innermost operator, call or range; "" for none. `source`: the user's own code around the longest piece.
    `thread`: the name of the host thread, or its number. `intervals`: the number of idle intervals.
    """

    link: Link | None
    name: str
    module: str
    phase: str
    source: str
    thread: str
    ns: int
    intervals: int


def idle_culprits(attribution: Attribution, traced: TraceGraph, replay: Replay) -> Culprits:
    """Return the causes of each idle interval of `replay`, which is of `traced` or of a change of it."""
    waited = replay.waited()
    on_host = (waited.link == NONE) & ~replay.graph.is_device[waited.node]
    delays = np.flatnonzero(~on_host)
    none = np.full(len(delays), NONE, np.int32)
    parts = [Culprits(waited.interval[delays], none, none, waited.link[delays], waited.ns[delays])]
    pieces = np.flatnonzero(on_host)
    node = waited.node[pieces]
    # a shortened stretch lost its first part: its times in the trace count from its end
    shift = traced.end_ns[node] - replay.end_ns[node] + traced.origin_ns
    begin, end = waited.start_ns[pieces] + shift, waited.end_ns[pieces] + shift
    left = _Pieces(waited.interval[pieces], traced.thread[node], begin, end)
    for number in np.unique(left.thread).tolist():
        for thread in dict.fromkeys((number, attribution.main_thread)):
            mine = left.thread == number
            covered, rest = _covered(attribution, thread, left.selected(mine))
            parts.append(covered)
            left = left.selected(~mine).joined(rest)
    none = np.full(len(left.begin), NONE, np.int32)
    parts.append(Culprits(left.interval, none, left.thread, none, left.end - left.begin))
    columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    return Culprits(*(column[order] for column in columns))


class _Pieces(NamedTuple):
    interval: Ids
    thread: Ids
    begin: Ints
    end: Ints

    def selected(self, mask: Mask) -> _Pieces:
        return _Pieces(self.interval[mask], self.thread[mask], self.begin[mask], self.end[mask])

    def joined(self, other: _Pieces) -> _Pieces:
        columns: list[tuple[Any, Any]] = list(zip(self, other, strict=True))
        return _Pieces(*(np.concatenate(pair) for pair in columns))


def _covered(attribution: Attribution, thread: int, pieces: _Pieces) -> tuple[Culprits, _Pieces]:
    """Return the parts of `pieces` in which `thread` has an event, by the innermost one, and the other parts."""
    host = attribution.host
    low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
    positions = np.arange(low, high, dtype=np.int32)
    columns = innermost(host.start_ns[low:high], host.end_ns[low:high], positions, host.parent[low:high])
    stretches = _with_gaps(columns)
    first = np.searchsorted(stretches.end, pieces.begin, side="right")
    count = np.maximum(np.searchsorted(stretches.start, pieces.end, side="left") - first, 0)
    piece = np.repeat(np.arange(len(count)), count)
    at = first[piece] + np.arange(len(piece)) - np.repeat(np.cumsum(count) - count, count)
    begin = np.maximum(stretches.start[at], pieces.begin[piece])
    end = np.minimum(stretches.end[at], pieces.end[piece])
    event, interval = stretches.event[at], pieces.interval[piece]
    has_event = event != NONE
    rest = _Pieces(interval[~has_event], pieces.thread[piece][~has_event], begin[~has_event], end[~has_event])
    none = np.full(int(has_event.sum()), NONE, np.int32)
    threads = np.full(len(none), thread, np.int32)
    return Culprits(interval[has_event], event[has_event], threads, none, (end - begin)[has_event]), rest


def _with_gaps(stretches: Stretches) -> Stretches:
    """Return `stretches` with the gaps before, between and after them, whose event is NONE."""
    far = np.array([1 << 62], np.int64)
    start = np.concatenate((-far, np.stack((stretches.start, stretches.end), axis=1).reshape(-1)))
    event = np.full(len(start), NONE, np.int32)
    event[1::2] = stretches.event
    end = np.append(start[1:], far)
    full = end > start
    return Stretches(start[full], end[full], event[full])


def summed(attribution: Attribution, culprits: Culprits) -> tuple[Culprit, ...]:
    """Return the sums of `culprits` by name, module, phase, thread and link, longest first."""
    table, host = attribution.table, attribution.host
    has_event = culprits.event != NONE
    event = culprits.event[has_event]
    keys = np.full((5, len(culprits.ns)), NONE, np.int64)
    keys[0], keys[1] = culprits.link, culprits.thread
    keys[2:, has_event] = table.name[host.rows[event]], host.module[event], host.phase[event]
    groups, group = np.unique(keys, axis=1, return_inverse=True)
    group = group.reshape(-1)
    total = sum_by(group, culprits.ns, groups.shape[1])
    entries = []
    for number in np.argsort(-total, kind="stable").tolist():
        link, thread, name, module, phase = groups[:, number].tolist()
        members = np.flatnonzero(group == number)
        longest = members[np.argmax(culprits.ns[members])]
        entries.append(
            Culprit(
                link=Link(link) if link != NONE else None,
                name=table.names[name] if name != NONE else "",
                module=attribution.modules[module].path if module != NONE else "",
                phase=phase_name(phase),
                source=user_call(attribution, int(culprits.event[longest])),
                thread=_label(table.threads[thread]) if thread != NONE else "",
                ns=int(total[number]),
                intervals=len(np.unique(culprits.interval[members])),
            )
        )
    return tuple(entries)


def _label(thread: Thread) -> str:
    return thread.name or thread.thread
