"""The phase of each host event, and by which evidence: see `ownership.How` for their order."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.context import Context
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.nesting import Nesting, below, outermost
from profiler_kit.attribution.ownership import PHASE_NUMBERS, How
from profiler_kit.attribution.roles import Role, marked_phases
from profiler_kit.attribution.step_marks import Steps
from profiler_kit.attribution.windows import forward_windows
from profiler_kit.traces.table import NONE, Bytes, Ids, Kind, Mask, Table

FORWARD, BACKWARD, RECOMPUTE = PHASE_NUMBERS["forward"], PHASE_NUMBERS["backward"], PHASE_NUMBERS["recompute"]
LOSS, OPTIMIZER, DATA = PHASE_NUMBERS["loss"], PHASE_NUMBERS["optimizer"], PHASE_NUMBERS["data"]
TRANSFER, OTHER = PHASE_NUMBERS["transfer"], PHASE_NUMBERS["other"]


_MOVES: Final = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


class Phases(NamedTuple):
    """For each position a phase's number or NONE, and the evidence."""

    phase: Bytes
    how: Bytes

    def put(self, where: Mask | Ids, phase: int, how: How) -> None:
        """`phase` at all of `where`."""
        self.phase[where] = phase
        self.how[where] = how


def host_phases(
    table: Table, nesting: Nesting, context: Context, role: Bytes, nodes: Nodes, steps: Steps, copies: Ids
) -> Phases:
    """The phases of the host's events. `copies`: positions of the launches of copies from the host to the device."""
    count = len(role)
    found = Phases(np.full(count, NONE, dtype=np.int8), np.zeros(count, dtype=np.int8))
    node, mark = context.node, context.mark
    called = np.maximum(context.module, context.wrapper)
    found.put(called != NONE, FORWARD, How.MODULE)
    marked = role[mark]
    marked[mark == NONE] = Role.PLAIN
    ours = bool((role == Role.PHASE).any())
    if not ours:
        found.put((marked == Role.OPTIMIZER) & (mark > called), OPTIMIZER, How.MARK)
        found.put((marked == Role.BACKWARD) & (mark > called), BACKWARD, How.MARK)
        found.put(context.loss > np.maximum(node, mark), LOSS, How.MARK)
        found.put(marked == Role.DATA, DATA, How.MARK)
    inside = node > mark if not ours else node != NONE
    found.put(inside, BACKWARD, How.NODE)
    found.put(inside & (context.redo > node), RECOMPUTE, How.NODE)
    if not ours:
        found.put(_derivatives(nesting, context, nodes, found), BACKWARD, How.NODE)
    else:
        of_name = marked_phases(table)
        here = np.flatnonzero((marked == Role.PHASE) & (node == NONE))
        found.phase[here] = of_name[table.name[nesting.rows[mark[here]]]]
        found.how[here] = How.MARK
    alone = np.isin(nesting.thread, autograd_threads(nesting, context, role, nodes))
    found.put(alone & (found.phase == NONE), BACKWARD, How.NODE)
    _transfers(table, nesting, context, found, copies)
    if not ours:
        windows = forward_windows(table, nesting, context, role, nodes, steps)
        for where, phase in ((windows.backward, BACKWARD), (windows.loss, LOSS), (windows.forward, FORWARD)):
            found.put(where & (found.phase == NONE), phase, How.WINDOW)
    _the_rest(table, nesting, role, found, steps)
    return found


def _derivatives(nesting: Nesting, context: Context, nodes: Nodes, found: Phases) -> Ids:
    """Positions that seem to be done again, but are a backward pass that makes a graph itself (`create_graph=True`).

    What a checkpoint does again is used up inside of the same node, or not at all; a derivative's graph is run after it.
    """
    used = np.flatnonzero(nodes.exact & (context.node[nodes.forward] != NONE))
    made_in = outermost(context.node[nodes.forward[used]], nesting.parent, context.node)
    run_in = outermost(nodes.positions[used], nesting.parent, context.node)
    outlived = np.unique(made_in[made_in != run_in])
    again = np.flatnonzero((found.phase == RECOMPUTE) & (context.module < context.node)).astype(np.int32)
    return again[np.isin(outermost(context.node[again], nesting.parent, context.node), outlived)]


def autograd_threads(nesting: Nesting, context: Context, role: Bytes, nodes: Nodes) -> Ids:
    """Threads that run nodes and nothing else of a step: what is launched there between nodes is backward's too."""
    threads = np.unique(nesting.thread[nodes.positions])
    used = nodes.forward[nodes.forward != NONE]
    outside = used[context.node[used] == NONE]
    marked = np.flatnonzero(np.isin(role, (Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.FORWARD, Role.STEP)))
    marked = marked[context.node[marked] == NONE]
    return np.setdiff1d(threads, np.concatenate((nesting.thread[outside], nesting.thread[marked]))).astype(np.int32)


def _transfers(table: Table, nesting: Nesting, context: Context, found: Phases, copies: Ids) -> None:
    """Gives phase "transfer" to all that an operator does that moves data, of those whose launches `copies` go to the device."""
    copies = copies[found.phase[copies] == NONE]
    if not len(copies):
        return
    found.put(copies, TRANSFER, How.COPY)
    operators = context.operator[copies]
    outer = np.unique(outermost(operators[operators != NONE], nesting.parent, context.operator))
    moves = np.array([name in _MOVES for name in table.names], dtype=bool)
    outer = outer[moves[table.name[nesting.rows[outer]]] & (found.phase[outer] == NONE)]
    found.put(below(nesting, outer) & (found.phase == NONE), TRANSFER, How.COPY)


def _the_rest(table: Table, nesting: Nesting, role: Bytes, found: Phases, steps: Steps) -> None:
    """Gives what is left a phase: forward in a step of a trace that trains nothing, else "other". Calls of Python keep none."""
    kind = table.kind[nesting.rows]
    work = ((kind == Kind.OPERATOR) | (kind == Kind.RUNTIME)) & ~np.isin(role, (Role.STEP, Role.PHASE))
    work &= found.phase == NONE
    if not np.isin(role, (Role.NODE, Role.OPTIMIZER, Role.BACKWARD, Role.PHASE)).any():
        found.put(work & (steps.at(nesting.start_ns) != NONE), FORWARD, How.WINDOW)
    found.put(work & (found.phase == NONE), OTHER, How.NONE)
