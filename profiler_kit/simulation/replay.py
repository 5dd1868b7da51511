"""The replay of a graph: when each node starts and ends, and how long a step takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from profiler_kit.simulation.graph import NEVER_NS, NONE, Graph, Ints, Mask


@dataclass(frozen=True, kw_only=True, eq=False)
class Replay:
    """The times of a graph's nodes from the start of the first host work, and what follows from them."""

    graph: Graph
    start_ns: Ints
    end_ns: Ints

    @property
    def step_ns(self) -> int:
        """The time of a step, as `step_ns_of` defines it."""
        return step_ns_of(self.graph, self.start_ns, self.end_ns)

    @property
    def total_ns(self) -> int:
        """The time from the first work to the end of the last step but one, and of all work with fewer than three steps.

        The end of a recording lengthens its last step. Less work never makes this time longer, unlike a median of steps.
        """
        inside = self._counted
        return int(self.end_ns[inside].max()) - self.first_ns if inside.any() else 0

    @property
    def first_ns(self) -> int:
        """The start of the first work that `total_ns` counts."""
        return int(self.start_ns[self._counted].min(initial=NEVER_NS // -2))

    @property
    def _counted(self) -> Mask:
        inside: Mask = (self.graph.step != NONE) & (self.graph.step < max(self.graph.steps - 1, 2))
        return inside & (self.end_ns > NEVER_NS // 2)


def simulate(graph: Graph) -> Replay:
    """Return the times of all nodes: each starts when the last of its edges allows it.

    Edges lead to higher numbers, so one pass in the order of the numbers sees each node after all that it depends on.
    """
    edges = zip(graph.source.tolist(), graph.delay_ns.tolist(), strict=True)
    counts = np.bincount(graph.target, minlength=len(graph)).tolist()
    end: list[int] = []
    for begin, length, count in zip(graph.ready_ns.tolist(), graph.duration_ns.tolist(), counts, strict=True):
        for source, delay in islice(edges, count):
            if (at := end[source] + delay) > begin:
                begin = at
        end.append(begin + length)
    end_ns = np.array(end, np.int64)
    return Replay(graph=graph, start_ns=end_ns - graph.duration_ns, end_ns=end_ns)


def simulate_all(graphs: Sequence[Graph]) -> list[Replay]:
    """Return the replay of each of `graphs`, which are changes of one graph: their nodes and edges are the same.

    One pass over the edges serves all, with a column for each graph. It takes as long as three passes of `simulate`.
    """
    if len(graphs) < 3:
        return [simulate(graph) for graph in graphs]
    duration = np.stack([graph.duration_ns for graph in graphs], axis=1)
    start = np.stack([graph.ready_ns for graph in graphs], axis=1)
    after = duration[graphs[0].source] + np.stack([graph.delay_ns for graph in graphs], axis=1)
    rows = list(start)
    for source, target, wait in zip(graphs[0].source.tolist(), graphs[0].target.tolist(), after, strict=True):
        np.maximum(rows[target], rows[source] + wait, out=rows[target])
    columns = zip(graphs, start.T, (start + duration).T, strict=True)
    return [Replay(graph=graph, start_ns=start_ns, end_ns=end_ns) for graph, start_ns, end_ns in columns]


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
