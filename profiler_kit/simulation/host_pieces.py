"""The host work of a graph in pieces: which event ran in which part of each stretch."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.host_time import innermost
from profiler_kit.attribution.result import Attribution
from profiler_kit.simulation.from_trace import TraceGraph
from profiler_kit.simulation.graph import Ids, Ints
from profiler_kit.simulation.host_lanes import PAUSE_NS
from profiler_kit.traces.intervals import Intervals, pieces, subtract, union
from profiler_kit.traces.names import STEP_PREFIX
from profiler_kit.traces.table import NONE

_STEP: Final = re.compile(rf"\A{re.escape(STEP_PREFIX)}")


class HostPieces(NamedTuple):
    """Parts of the stretches of host work: the number of the node, the innermost event meanwhile, and the time.

    `event`: a position in `Attribution.host`. Time without an event belongs to the next event of its lane, as Python between two
    operators does. Of a longer pause, nothing is known (NONE).
    """

    node: Ints
    event: Ids
    ns: Ints


def host_pieces(attribution: Attribution, trace: TraceGraph) -> HostPieces:
    """Return the pieces of all host nodes, by lane and time.

    The thread of a node counts first. Where it ran nothing, the main thread counts, which called it.
    """
    host_nodes = np.flatnonzero(~trace.graph.is_device)
    parts = [
        _of_thread(attribution, trace, host_nodes[trace.thread[host_nodes] == thread], thread)
        for thread in np.unique(trace.thread[host_nodes]).tolist()
    ]
    node, event, start, end = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((start, trace.graph.lane[node]))
    node, event, ns = node[order], event[order], (end - start)[order]
    return HostPieces(node, _with_next(event, ns, trace.graph.lane[node]), ns)


def _of_thread(attribution: Attribution, trace: TraceGraph, nodes: Ints, thread: int) -> tuple[Ints, Ids, Ints, Ints]:
    """Return node, event, start and end of the pieces of `nodes`, which are those of one thread."""
    begin, end = trace.begin_ns[nodes] + trace.origin_ns, trace.end_ns[nodes] + trace.origin_ns
    work = Intervals(begin, end)
    left, rows = union(begin, end), []
    for number in dict.fromkeys((thread, attribution.main_thread)):
        event, start, stop = _innermost(attribution, number, left)
        rows.append((event, start, stop))
        left = subtract(left, union(start, stop))
    rows.append((np.full(len(left.start), NONE, np.int32), left.start, left.end))
    event, start, stop = (np.concatenate(column) for column in zip(*rows, strict=True))
    index, start, stop = pieces(work, start, stop)
    node = nodes[np.searchsorted(begin, start, side="right") - 1]
    return node, event[index], start - trace.origin_ns, stop - trace.origin_ns


def _innermost(attribution: Attribution, thread: int, within: Intervals) -> tuple[Ids, Ints, Ints]:
    """Return the innermost events of a thread in `within`, without marks of steps."""
    host = attribution.host
    low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
    start, end = host.start_ns[low:high], host.end_ns[low:high]
    overlaps = (end > within.start.min(initial=np.iinfo(np.int64).max)) & (start < within.end.max(initial=0))
    at = (np.flatnonzero(overlaps) + low).astype(np.int32)
    stretches = innermost(host.start_ns[at], host.end_ns[at], at, host.parent[at])
    is_mark = attribution.table.named(host.rows[stretches.event], _STEP)
    index, start, end = pieces(within, stretches.start[~is_mark], stretches.end[~is_mark])
    return stretches.event[~is_mark][index], start, end


def _with_next(event: Ids, ns: Ints, lane: Ids) -> Ids:
    """Return `event` where short pieces without one have that of the next piece of the same lane."""
    index = np.where(event != NONE, np.arange(len(event)), len(event))
    following = np.minimum.accumulate(index[::-1])[::-1]
    is_filled = (event == NONE) & (ns < PAUSE_NS) & (following < len(event))
    following = np.minimum(following, max(len(event) - 1, 0))
    is_filled &= lane[following] == lane
    return np.where(is_filled, event[following], event).astype(np.int32)
