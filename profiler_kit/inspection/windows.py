"""Where forward passes are in traces without modules: from the ops whose nodes backward runs to the first of these nodes."""

from __future__ import annotations

import numpy as np

from profiler_kit.inspection.context import Context
from profiler_kit.inspection.links import Nodes
from profiler_kit.inspection.nesting import Nesting, outermost
from profiler_kit.inspection.roles import Role
from profiler_kit.inspection.step_marks import Steps
from profiler_kit.traces.table import NONE, Bytes, Mask


def forward_windows(nesting: Nesting, context: Context, role: Bytes, nodes: Nodes, steps: Steps) -> Mask:
    """Which positions lie in a forward pass.

    A pass goes on from one op that backward uses to the next while nothing else comes between them on its thread: no node that
    this thread's ops made, no border of a step, no optimizer, DataLoader or call of backward. It ends with the first node.
    """
    inside = np.zeros(len(nesting.rows), dtype=bool)
    used = np.unique(nodes.forward[nodes.exact])
    used = used[(context.node[used] == NONE) & (context.mark[used] == NONE)]
    if not len(used):
        return inside
    maker = np.where(nodes.forward != NONE, nesting.thread[nodes.forward], NONE)
    other = np.flatnonzero(np.isin(role, (Role.OPTIMIZER, Role.DATA, Role.BACKWARD)))
    bounds = np.searchsorted(nesting.thread, np.arange(int(nesting.thread.max()) + 2))
    for thread in np.unique(nesting.thread[used]).tolist():
        ops = used[nesting.thread[used] == thread]
        marks = other[nesting.thread[other] == thread]
        ran = nodes.positions[maker == thread]
        breaks = np.sort(np.concatenate((nesting.start_ns[ran], nesting.start_ns[marks], steps.start_ns, steps.end_ns)))
        begins = nesting.start_ns[outermost(ops, nesting.parent, context.operator)]
        ends = nesting.end_ns[ops]
        section = np.searchsorted(breaks, nesting.start_ns[ops], side="right")
        first = np.flatnonzero(np.concatenate(([True], section[1:] != section[:-1])))
        since = begins[first]
        until = np.maximum.reduceat(ends, first)
        # On to the node, if that is what comes next: the loss's value is read there, and the gradient's seed made.
        following = np.append(breaks, until.max())[section[first]]
        until = np.where(np.isin(following, nesting.start_ns[ran]), np.maximum(following, until), until)
        low, high = bounds[thread], bounds[thread + 1]
        times = nesting.start_ns[low:high]
        change = np.zeros(len(times) + 1, dtype=np.int32)
        np.add.at(change, np.searchsorted(times, since), 1)
        np.add.at(change, np.searchsorted(times, until), -1)
        inside[low:high] = np.cumsum(change[:-1]) > 0
    return inside
