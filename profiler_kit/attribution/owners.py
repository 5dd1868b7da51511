"""The module of each host event: what is called around it, or whose backward a node around it is."""

from __future__ import annotations

import numpy as np

from profiler_kit.attribution.context import Context
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.modules import Calls, OurPaths, of_nodes
from profiler_kit.attribution.nesting import Nesting
from profiler_kit.attribution.ownership import Module
from profiler_kit.attribution.phases import BACKWARD, RECOMPUTE, Phases
from profiler_kit.attribution.roles import Role
from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.table import NONE, Bytes, Ids

_PSEUDO = {"data": DATA_PATH, "transfer": TRANSFER_PATH, "loss": LOSS_PATH, "optimizer": OPTIMIZER_PATH}


def host_modules(
    nesting: Nesting, context: Context, role: Bytes, nodes: Nodes, called: Calls, phases: Phases, step: Ids
) -> tuple[Ids, Ids]:
    """For each position an index of `called.modules`, or NONE; and for each of `nodes` the module that recomputes in it.

    In a trace of ours work outside of modules has an owner too: the root in forward, and what stands for the loss, the
    optimizer and the like.
    """
    marked = bool((role == Role.PHASE).any())
    base: Ids = called.module
    ours: OurPaths | None = None
    if marked:
        ours = _our_paths(called)
        outside = context.node == NONE
        pseudo = np.append(ours.by_phase, np.int32(NONE))[phases.phase]
        base = np.where(outside & (pseudo != NONE), pseudo, base).astype(np.int32)
        rest = (base == NONE) & (phases.phase != NONE) & outside
        base[rest] = ours.root
    module = base.copy()
    if not len(nodes.positions):
        return module, np.zeros(0, np.int32)
    of = of_nodes(nesting, context, nodes, called, base, ours)
    inside = np.flatnonzero((context.node > context.module) & (context.node != NONE))
    node = np.searchsorted(nodes.positions, context.node[inside])
    again = phases.phase[inside] == RECOMPUTE
    module[inside] = np.where(again, of.redone[node], of.own[node])
    if ours is not None:
        here = np.flatnonzero((phases.phase == BACKWARD) & (context.node == NONE)).astype(np.int32)
        module[here] = _before(nesting, nodes, of.own, step, here, ours.loss)
    return module, of.redone


def _our_paths(called: Calls) -> OurPaths:
    """The modules that a trace of ours has beside those called; they are added to `called`."""
    known = {module.path: number for number, module in enumerate(called.modules)}

    def number(path: str) -> int:
        if path not in known:
            known[path] = len(called.modules)
            called.modules.append(Module(path, ""))
        return known[path]

    by_phase = [number(_PSEUDO[phase]) if phase in _PSEUDO else NONE for phase in TRACE_PHASES]
    return OurPaths(number(""), number(LOSS_PATH), np.array(by_phase, dtype=np.int32))


def _before(nesting: Nesting, nodes: Nodes, own: Ids, step: Ids, here: Ids, loss: int) -> Ids:
    """The module of the last node on the same thread that began before each of `here` in the same step, or else the loss."""
    at = np.searchsorted(nodes.positions, here) - 1
    held = nodes.positions[np.maximum(at, 0)]
    good = (at >= 0) & (nesting.thread[held] == nesting.thread[here]) & (step[held] == step[here])
    return np.where(good, own[np.maximum(at, 0)], loss).astype(np.int32)
