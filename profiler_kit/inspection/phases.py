"""The phase of each host event, and by which evidence: see `ownership.How` for their order."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler_kit.inspection.context import Context
from profiler_kit.inspection.links import Nodes
from profiler_kit.inspection.nesting import Nesting, below, outermost
from profiler_kit.inspection.ownership import PHASE_NUMBERS, How
from profiler_kit.inspection.roles import Role, marked_phases
from profiler_kit.inspection.step_marks import Steps
from profiler_kit.inspection.windows import forward_windows
from profiler_kit.traces.table import NONE, Bytes, Ids, Kind, Mask, Table

FORWARD, BACKWARD, RECOMPUTE = PHASE_NUMBERS["forward"], PHASE_NUMBERS["backward"], PHASE_NUMBERS["recompute"]
LOSS, OPTIMIZER, DATA = PHASE_NUMBERS["loss"], PHASE_NUMBERS["optimizer"], PHASE_NUMBERS["data"]
TRANSFER, OTHER = PHASE_NUMBERS["transfer"], PHASE_NUMBERS["other"]


class Phases(NamedTuple):
    """For each position a phase's number or NONE, and the evidence."""

    phase: Bytes
    how: Bytes

    def put(self, where: Mask | Ids, phase: int, how: How) -> None:
        """`phase` at all of `where`."""
        self.phase[where] = phase
        self.how[where] = how


def host_phases(table: Table, nesting: Nesting, context: Context, role: Bytes, nodes: Nodes, steps: Steps) -> Phases:
    """The phases of the host's events, as far as the host alone tells them."""
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
    if ours:
        of_name = marked_phases(table)
        here = np.flatnonzero((marked == Role.PHASE) & (node == NONE))
        found.phase[here] = of_name[table.name[nesting.rows[mark[here]]]]
        found.how[here] = How.MARK
    alone = np.isin(nesting.thread, autograd_threads(nesting, context, role, nodes))
    found.put(alone & (found.phase == NONE), BACKWARD, How.NODE)
    if not ours:
        window = forward_windows(nesting, context, role, nodes, steps)
        found.put(window & (found.phase == NONE), FORWARD, How.WINDOW)
    return found


def autograd_threads(nesting: Nesting, context: Context, role: Bytes, nodes: Nodes) -> Ids:
    """Threads that run nodes and nothing else of a step: what is launched there between nodes is backward's too."""
    threads = np.unique(nesting.thread[nodes.positions])
    used = nodes.forward[nodes.forward != NONE]
    outside = used[context.node[used] == NONE]
    marked = np.flatnonzero(np.isin(role, (Role.PHASE, Role.OPTIMIZER, Role.DATA, Role.FORWARD, Role.STEP)))
    marked = marked[context.node[marked] == NONE]
    return np.setdiff1d(threads, np.concatenate((nesting.thread[outside], nesting.thread[marked]))).astype(np.int32)


_COPY_OPS = ("aten::to", "aten::_to_copy", "aten::copy_", "aten::cuda")


def transfers(table: Table, nesting: Nesting, context: Context, phases: Phases, copies: Ids) -> None:
    """Gives phase "transfer" to all that an operator does that moves data, of those whose launches `copies` go to the device.

    `copies`: positions of the launches of copies from the host.
    """
    copies = copies[phases.phase[copies] == NONE]
    if not len(copies):
        return
    phases.put(copies, TRANSFER, How.COPY)
    operators = context.operator[copies]
    outer = np.unique(outermost(operators[operators != NONE], nesting.parent, context.operator))
    moves = np.array([name in _COPY_OPS for name in table.names], dtype=bool)
    outer = outer[moves[table.name[nesting.rows[outer]]] & (phases.phase[outer] == NONE)]
    phases.put(below(nesting, outer) & (phases.phase == NONE), TRANSFER, How.COPY)


def without_training(table: Table, nesting: Nesting, role: Bytes, phases: Phases, step: Ids) -> None:
    """Gives what is left a phase: forward in a step of a trace that trains nothing, else "other". Calls of Python keep none."""
    kind = table.kind[nesting.rows]
    work = ((kind == Kind.OPERATOR) | (kind == Kind.RUNTIME)) & (phases.phase == NONE)
    if not np.isin(role, (Role.NODE, Role.OPTIMIZER, Role.BACKWARD, Role.PHASE)).any():
        phases.put(work & (step != NONE), FORWARD, How.WINDOW)
    phases.put(work & (phases.phase == NONE), OTHER, How.NONE)
