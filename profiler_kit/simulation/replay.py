"""The replay of a graph: when each node starts and ends, how long a step takes, and what an idle device waits for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from profiler_kit.simulation.graph import NEVER_NS, NONE, Graph, Ids, Ints, Link


class Idle(NamedTuple):
    """Intervals in which no stream runs work, in order. `ended_by`: the node that ends each."""

    start_ns: Ints
    end_ns: Ints
    ended_by: Ids


class Waited(NamedTuple):
    """What idle intervals waited for, as pieces that sum to the intervals.

    `interval`: the number of the interval. `node`: the host work that the device waited for, or the source of the edge
    that delayed it. `link`: NONE for the node's own time, otherwise the `Link` of the edge.
    """

    interval: Ids
    node: Ids
    link: Ids
    start_ns: Ints
    end_ns: Ints

    @property
    def ns(self) -> Ints:
        """The length of each piece."""
        return self.end_ns - self.start_ns


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The times of a graph's nodes from the start of the first host work, and what follows from them.

    `binding`: the edge that decided each node's start; NONE if it started when ready.
    """

    graph: Graph
    start_ns: Ints
    end_ns: Ints
    binding: Ids

    @property
    def step_ns(self) -> int:
        """The time of a step, as `step_ns_of` defines it."""
        return step_ns_of(self.graph, self.start_ns, self.end_ns)

    @cached_property
    def idle(self) -> Idle:
        """The idle intervals between the first and the last device work."""
        work = np.flatnonzero(self.graph.is_device & (self.end_ns > self.start_ns))
        order = work[np.argsort(self.start_ns[work], kind="stable")]
        covered = np.maximum.accumulate(self.end_ns[order])[:-1]
        starts = self.start_ns[order[1:]]
        gaps = np.flatnonzero(starts > covered)
        return Idle(covered[gaps], starts[gaps], order[1:][gaps].astype(np.int32))

    @property
    def device_span_ns(self) -> int:
        """The time from the first device work to the last."""
        work = self.graph.is_device & (self.end_ns > self.start_ns)
        return int(self.end_ns[work].max() - self.start_ns[work].min()) if work.any() else 0

    @property
    def device_busy_ns(self) -> int:
        """The time in which a stream runs work."""
        return self.device_span_ns - int((self.idle.end_ns - self.idle.start_ns).sum())

    def waited(self) -> Waited:
        """Return the causes of each idle interval, along the edges that decided the starts."""
        graph, rows = self.graph, []
        start, end, binding = self.start_ns.tolist(), self.end_ns.tolist(), self.binding.tolist()
        source, link = graph.source.tolist(), graph.link.tolist()
        for number, (low, high, node) in enumerate(zip(*(column.tolist() for column in self.idle), strict=True)):
            until, reason = high, int(Link.STREAM)  # of the delay before `until`
            while until > low and (edge := binding[node]) != NONE:
                node, reason = source[edge], link[edge]
                if end[node] < until:  # the delay of the edge
                    rows.append((number, node, reason, max(low, end[node]), until))
                    until = max(low, end[node])
                if start[node] < until and low < until:
                    rows.append((number, node, NONE, max(low, start[node]), until))
                    until = max(low, start[node])
            if until > low:
                rows.append((number, node, reason, low, until))
        interval, at, reasons, begin, finish = np.array(rows, np.int64).reshape(len(rows), 5).T
        return Waited(interval.astype(np.int32), at.astype(np.int32), reasons.astype(np.int32), begin, finish)


def simulate(graph: Graph) -> Replay:
    """Return the times of all nodes: each starts when the last of its edges allows it.

    Edges lead to higher numbers, so one pass in the order of the numbers sees each node after all that it depends on.
    """
    start, duration = graph.ready_ns.tolist(), graph.duration_ns.tolist()
    binding = [NONE] * len(graph)
    source, delay = graph.source.tolist(), graph.delay_ns.tolist()
    end: list[int] = []
    bounds = np.searchsorted(graph.target, np.arange(len(graph) + 1)).tolist()
    for node, length in enumerate(duration):
        begin = start[node]
        for edge in range(bounds[node], bounds[node + 1]):
            at = end[source[edge]] + delay[edge]
            if at > begin:
                begin, binding[node] = at, edge
        start[node] = begin
        end.append(begin + length)
    return Replay(
        graph=graph,
        start_ns=np.array(start, np.int64),
        end_ns=np.array(end, np.int64),
        binding=np.array(binding, np.int32),
    )


def step_ns_of(graph: Graph, start_ns: Ints, end_ns: Ints) -> int:
    """Return the time of a step if the nodes of `graph` run from `start_ns` to `end_ns`.

    This is the median time from the end of all work of a step, on the host and on the device, to that of the next one. The first
    step counts from the start of the host. So a host that runs ahead of the device does not make a step shorter.
    Of a single step, the host's work and the device's count from their first to their last, and the longer one is the step.
    """
    inside = (graph.step != NONE) & (end_ns > NEVER_NS // 2)  # removed work that waits for nothing has no time
    if not inside.any():
        return 0
    if graph.steps == 1:
        parts = [mask for mask in (inside & ~graph.is_device, inside & graph.is_device) if mask.any()]
        return max(int(end_ns[mask].max() - start_ns[mask].min()) for mask in parts)
    ends = np.full(graph.steps + 1, np.iinfo(np.int64).min)
    np.maximum.at(ends, graph.step[inside] + 1, end_ns[inside])
    ends[0] = start_ns[inside & ~graph.is_device].min(initial=np.iinfo(np.int64).max)
    return int(np.median(np.diff(np.maximum.accumulate(ends))))
