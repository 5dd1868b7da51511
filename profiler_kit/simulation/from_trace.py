"""From the attribution of a trace to the graph of its steps.

Host threads that never run at the same time, as the main thread and autograd's, are one lane in the order of time. A lane
is cut at launches, at waits and at the borders of steps. The delays of edges are those of the trace, so that the
replay gives it back: what an edge usually takes stays on each edge, and the rest is on the edge that decided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.attribution.device_time import LATENCY_NS
from profiler_kit.attribution.host_time import launch_queue
from profiler_kit.attribution.result import Attribution
from profiler_kit.simulation.device_work import DeviceWork, device_work
from profiler_kit.simulation.graph import NEVER_NS, Bytes, Graph, Ids, Ints, Item, Link
from profiler_kit.simulation.host_work import HostWork, host_work
from profiler_kit.simulation.waits import awaited_by_host, awaited_by_streams
from profiler_kit.traces.table import NONE

# The launch queue of CUDA holds about 1,024 launches (1,022 on a V100, 1,028 on an H200).
QUEUE_DEPTH: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TraceGraph:
    """The graph of a trace, and where its nodes come from.

    `begin_ns`, `end_ns`: the times of each node in the trace, from the start of the first step. `thread`: the host thread of a
    host node, NONE for a stream. `event`: the position of the launch or the wait in `Attribution.host`, or of the work in
    `Attribution.device`; NONE for other host work. `origin_ns`: the start of the first step in the trace.
    """

    graph: Graph
    begin_ns: Ints
    end_ns: Ints
    thread: Ids
    event: Ids
    origin_ns: int


def trace_graph(attribution: Attribution) -> TraceGraph:
    """Return the graph of the longest run of steps without a pause; without steps, of the whole trace."""
    host = host_work(attribution)
    edges = _Edges(attribution, host, device_work(attribution, host))
    edges.add_host_order()
    edges.add_waits()
    edges.add_queue()
    edges.add_device_order()
    return edges.graph()


class _Edges:
    """The edges between the host work and the device work of a trace, as they are found.

    Host work is numbered in the order of time, and device work after the launch that it and earlier work of its stream need.
    """

    def __init__(self, attribution: Attribution, host: HostWork, work: DeviceWork) -> None:
        self._attribution, self._host, self._work = attribution, host, work
        count = len(host.end_ns)
        keys = np.concatenate((np.arange(count), work.key))
        self._order = np.argsort(keys, kind="stable")  # host work comes before device work of the same key
        number = np.empty(len(keys), np.int64)
        number[self._order] = np.arange(len(keys))
        self._host_node, self._device_node = number[:count], number[count:]
        self._duration_ns = host.end_ns - host.begin_ns
        self._parts: list[tuple[Ints, Ints, Ints, Bytes]] = []

    def _add(self, source: Ints, target: Ints, delay_ns: Ints | int, link: Link) -> None:
        columns = np.broadcast_to(delay_ns, len(source)), np.full(len(source), int(link), np.int8)
        self._parts.append((source, target, *columns))

    def add_host_order(self) -> None:
        """Add the order of each lane, and the pauses of lanes that wait for another one."""
        host = self._host
        for lane in range(host.lanes):
            nodes = self._host_node[host.lane == lane]
            self._add(nodes[:-1], nodes[1:], 0, Link.SEQUENCE)
        pause = np.flatnonzero(host.waker != NONE)
        source = host.waker[pause]
        self._add(self._host_node[source], self._host_node[pause], 0, Link.THREAD)
        self._duration_ns[pause] = host.end_ns[pause] - host.end_ns[source]

    def add_waits(self) -> None:
        """Add the waits of the host for the device. A wait lasts as long as it takes to return after the awaited work."""
        host, (node, awaited) = self._host, awaited_by_host(self._attribution, self._host, self._work)
        until = self._work.end_ns[awaited]
        delay = np.minimum(host.end_ns[node] - until, 0)
        self._add(self._device_node[awaited], self._host_node[node], delay, Link.WAIT)
        latest = host.begin_ns.copy()
        np.maximum.at(latest, node, until)
        self._duration_ns[node] = np.maximum(host.end_ns - latest, 0)[node]

    def add_queue(self) -> None:
        """Add the places of the launch queue: a launch waits until at most `QUEUE_DEPTH` launches have not started.

        A launch that blocked in the trace returned when the latest work before its end had started, so its time is the
        device's. Work starts when the work before it on its stream has ended.
        """
        host, work, launches = self._host, self._work, launch_queue(self._attribution)
        node_of = np.full(len(self._attribution.host.rows), NONE, np.int64)
        node_of[host.event[host.is_launch]] = np.flatnonzero(host.is_launch)
        node = node_of[launches.position]
        inside = node != NONE
        node, depth, blocked_ns = node[inside], launches.depth[inside], launches.blocked[inside]
        first = np.flatnonzero(work.launch != NONE)[::-1]
        first_work = np.full(len(host.end_ns), NONE)
        first_work[work.launch[first]] = first
        first_work = first_work[node]
        started = np.sort(first_work)  # work is ordered by its start
        latest = np.searchsorted(work.start_ns[started], host.end_ns[node], side="right") - 1
        blocked = (blocked_ns > 0) & (latest >= 0)
        self._duration_ns[node[blocked]] -= np.minimum(blocked_ns, self._duration_ns[node])[blocked]
        # no launch of the trace waits for a place at a depth that the trace shows
        capacity = max(int(depth.max(initial=0)), 0 if blocked.any() else QUEUE_DEPTH)
        freeing = np.concatenate((np.full(capacity, NONE), started))[: len(node)]
        freeing = np.where(blocked, started[latest], freeing)
        before = np.where(freeing == NONE, NONE, work.previous[freeing])
        waiting = before != NONE
        node, before, blocked = node[waiting], before[waiting], blocked[waiting]
        delay = np.where(blocked, host.end_ns[node] - work.end_ns[before], 0) - self._duration_ns[node]
        self._add(self._device_node[before], self._host_node[node], delay, Link.QUEUE)

    def add_device_order(self) -> None:
        """Add what device work waits for: its launch, its stream, and events of other streams.

        The usual delay of each kind is the median where only that edge can have decided. The rest of the delay in the
        trace is added to the edge that came last.
        """
        host, work = self._host, self._work
        start, none_before = work.start_ns, NEVER_NS
        event = awaited_by_streams(self._attribution, host, work)
        event[self._device_node[event] >= self._device_node] = NONE  # launched later: a coincidence
        sources = (work.launch, work.previous, event)
        ready = np.full((len(sources), len(start)), none_before)
        for row, source, end_ns in zip(ready, sources, (host.end_ns, work.end_ns, work.end_ns), strict=True):
            row[source != NONE] = end_ns[source[source != NONE]]
        delay = np.minimum(start - ready, _usual_delays(start, ready)[:, None])
        deciding = np.argmax(np.where(ready == none_before, none_before, ready + delay), axis=0)
        index = np.arange(len(start))
        delay[deciding, index] = (start - ready)[deciding, index]
        links = (Link.LAUNCH, Link.STREAM, Link.EVENT)
        numbers = (self._host_node, self._device_node, self._device_node)
        for source, number, delays, link in zip(sources, numbers, delay, links, strict=True):
            at = np.flatnonzero(source != NONE)
            self._add(number[source[at]], self._device_node[at], delays[at], link)

    def graph(self) -> TraceGraph:
        """Return the graph. Edges against the order of the nodes contradict the trace and are left out."""
        host, work, order = self._host, self._work, self._order
        count, device_count = len(host.end_ns), len(work.position)
        source, target, delay_ns, link = (np.concatenate(column) for column in zip(*self._parts, strict=True))
        by_target = np.argsort(target, kind="stable")
        by_target = by_target[source[by_target] < target[by_target]]
        is_device = order >= count
        none_host, none_device = np.full(count, NONE), np.full(device_count, NONE)

        def column(of_host: Ints | Ids, of_device: Ints | Ids) -> Ints:
            return np.concatenate((of_host, of_device)).astype(np.int64)[order]

        launch = np.append(self._host_node, NONE)[work.launch]
        graph = Graph(
            lane=column(host.lane, host.lanes + work.stream).astype(np.int32),
            is_device=is_device,
            duration_ns=column(np.maximum(self._duration_ns, 0), work.end_ns - work.start_ns),
            ready_ns=column(host.ready_ns, np.where(work.is_anchored, work.start_ns, NEVER_NS)),
            launch=column(none_host, launch).astype(np.int32),
            own_ns=column(host.own_ns, np.zeros(device_count, np.int64)),
            step=column(host.step, work.step).astype(np.int32),
            items=np.concatenate((host.items, np.zeros((len(Item), device_count), np.int64)), axis=1)[:, order],
            waiting_ns=column(np.zeros(count, np.int64), work.waiting_ns),
            source=source[by_target].astype(np.int32),
            target=target[by_target].astype(np.int32),
            delay_ns=delay_ns[by_target].astype(np.int64),
            link=link[by_target],
        )
        return TraceGraph(
            graph=graph,
            begin_ns=column(host.begin_ns, work.start_ns),
            end_ns=column(host.end_ns, work.end_ns),
            thread=column(host.thread, none_device).astype(np.int32),
            event=column(host.event, work.position).astype(np.int32),
            origin_ns=host.origin_ns,
        )


def _usual_delays(start: Ints, ready: Ints) -> Ints:
    """Return the median delay after the last of the things that each work needs, by which of them was last."""
    last, latest = np.argmax(ready, axis=0), ready.max(axis=0, initial=NEVER_NS)
    usual = np.zeros(len(ready), np.int64)
    for i in range(len(ready)):
        delays = (start - latest)[(last == i) & (start - latest < LATENCY_NS) & (latest != NEVER_NS)]
        usual[i] = int(np.median(delays)) if len(delays) else 0
    return usual
