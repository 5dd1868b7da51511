"""Changes of a graph. Each returns a new graph with the same nodes, so that the figures of both can be compared node by node.

A removed node stays in the graph, with a duration of 0, and passes on what its stream or thread waits for. A removed edge stays
as well, with a delay that never decides: all changes of a graph have the same edges, and one pass replays them (`simulate_all`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from profiler_kit.simulation.graph import NEVER_NS, Graph, Ids, Ints, Link, Mask


def shorten(graph: Graph, nodes: Ids | Ints, duration_ns: Ints | int) -> Graph:
    """Return `graph` where each of `nodes` lasts `duration_ns`."""
    durations = graph.duration_ns.copy()
    durations[nodes] = duration_ns
    return replace(graph, duration_ns=durations)


def remove(graph: Graph, nodes: Ids | Ints) -> Graph:
    """Return `graph` without the device work `nodes`, and without the host work of launches that have no other work.

    The host work of a launch is the operator that makes it (`Graph.own_ns`).
    """
    gone = _mask(graph, nodes)
    launches = graph.launch[graph.is_device & ~gone]
    launches = np.setdiff1d(graph.launch[gone & graph.is_device], launches)
    launches = launches[launches >= 0]
    durations = graph.duration_ns.copy()
    durations[launches] = np.maximum(durations[launches] - graph.own_ns[launches], 0)
    return remove_work(replace(graph, duration_ns=durations), nodes)


def remove_work(graph: Graph, nodes: Ids | Ints) -> Graph:
    """Return `graph` without the device work `nodes`. The host still does all that it did."""
    gone = _mask(graph, nodes)
    durations = np.where(gone, 0, graph.duration_ns)
    delay_ns = np.where(gone[graph.target], np.minimum(graph.delay_ns, 0), graph.delay_ns)
    changed = replace(graph, duration_ns=durations, delay_ns=delay_ns)
    return _without_edges(changed, gone[graph.target] & (graph.link == Link.LAUNCH))


def drop_waits(graph: Graph, nodes: Ids | Ints) -> Graph:
    """Return `graph` where the host does not wait for the device in `nodes`."""
    waits = _mask(graph, nodes)
    dropped = waits[graph.target] & (graph.link == Link.WAIT)
    waits &= np.bincount(graph.target[dropped], minlength=len(graph)) > 0
    return _without_edges(shorten(graph, np.flatnonzero(waits), 0), dropped)


def _mask(graph: Graph, nodes: Ids | Ints) -> Mask:
    mask = np.zeros(len(graph), np.bool_)
    mask[nodes] = True
    return mask


def _without_edges(graph: Graph, dropped: Mask) -> Graph:
    return replace(graph, delay_ns=np.where(dropped, NEVER_NS, graph.delay_ns))
