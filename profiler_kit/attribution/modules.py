"""Module paths: of the calls on the host, and of autograd's nodes through the forward ops that made them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role, innermost_enclosing
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.phases import BACKWARD, RECOMPUTE, Phases
from profiler_kit.attribution.result import Module
from profiler_kit.records import marks
from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, TRANSFER_PATH
from profiler_kit.records.paths import enclosing, parent
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.names import GRAPH_PREFIX, MODULE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Table

# Calls nested deeper than any network's belong to the module at this depth: paths grow with it.
DEEPEST: Final = 100
COMPILED_CLASS: Final = "torch.compile"
# What torch.compile calls inside of a region, with other names forward and backward: the region says enough.
_OF_REGION: Final = ("CompiledFunction", "GraphModule_", GRAPH_PREFIX)
_NUMBER: Final = re.compile(r"_\d+\Z")
_PSEUDO: Final = {"data": DATA_PATH, "transfer": TRANSFER_PATH, "loss": LOSS_PATH, "optimizer": OPTIMIZER_PATH}


class Modules(NamedTuple):
    """`module`: for each position a number of `modules`, or NONE. `node_redone`: as in `Attribution`."""

    module: Ids
    node_redone: Ids
    modules: tuple[Module, ...]


class _OurPaths(NamedTuple):
    """Modules that a trace of ours always has: the root, and the paths of work outside of modules, by phase (or NONE)."""

    root: int
    loss: int
    by_phase: Ids


def host_modules(table: Table, events: HostEvents, nodes: Nodes, phases: Phases, step: Ids) -> Modules:
    """The module of each host event: what is called around it, or whose backward a node around it is.

    In a trace of ours work outside of modules has a path too: the root in forward, and those of the loss, the optimizer and
    the like.
    """
    paths = _Paths(table)
    module = _called(table, events, paths)
    calls = module.copy()
    ours: _OurPaths | None = None
    outside = events.node == NONE
    if events.has(Role.PHASE):
        by_phase = [paths.number(_PSEUDO[phase]) if phase in _PSEUDO else NONE for phase in TRACE_PHASES]
        ours = _OurPaths(paths.number(""), paths.number(LOSS_PATH), np.array(by_phase, dtype=np.int32))
        pseudo = np.append(ours.by_phase, np.int32(NONE))[phases.phase]
        module = np.where(outside & (pseudo != NONE), pseudo, module).astype(np.int32)
        module[(module == NONE) & (phases.phase != NONE) & outside] = ours.root
    redone = np.zeros(0, np.int32)
    if len(nodes.positions):
        of = _node_modules(events, nodes, paths, calls, module, ours)
        redone = of.redone
        inside = np.flatnonzero((events.node > events.module) & ~outside)
        node = np.searchsorted(nodes.positions, events.node[inside])
        module[inside] = np.where(phases.phase[inside] == RECOMPUTE, of.redone[node], of.module[node])
        if ours is not None:
            here = np.flatnonzero((phases.phase == BACKWARD) & outside).astype(np.int32)
            module[here] = _module_before(events, nodes, of.module, step, here, ours.loss)
    return Modules(module, redone, tuple(paths.modules))


# ---- calls


def _called(table: Table, events: HostEvents, paths: _Paths) -> Ids:
    """The module whose call each event is or lies in, under the calls around it: `ResNet_0.Sequential_2.Conv2d_17`.

    Marks of ours give the path itself. A call inside an autograd node (forward work done again) has the path that the same
    module has where it is called outside of nodes.
    """
    at = events.calls
    module = np.full(len(events.rows) + 1, NONE, dtype=np.int32)
    names = table.name[events.rows[at]]
    if events.has(Role.OUR_MODULE):
        different, which = np.unique(names, return_inverse=True)
        module[at] = np.array([paths.marked(name) for name in different.tolist()], dtype=np.int32)[which]
        return module[events.module]
    holder = _above(events, events.module, at)
    again = events.node[at] > holder  # a node lies between
    outer = np.where(again | (holder == NONE), NONE, np.searchsorted(at, holder)).astype(np.int32)
    number = np.full(len(at) + 1, NONE, dtype=np.int32)
    for first, elsewhere in ((~again & (outer == NONE), False), (again, True)):
        # The calls outside of nodes come first, as they know the whole path.
        level = np.flatnonzero(first)
        for depth in range(DEEPEST):
            if not len(level):
                break
            pair = number[outer[level]].astype(np.int64) * len(table.names) + names[level]
            pairs, which = np.unique(pair, return_inverse=True)
            anywhere = elsewhere and depth == 0
            numbers = [
                paths.called(both // len(table.names), both % len(table.names), anywhere) for both in pairs.tolist()
            ]
            number[level] = np.array(numbers, dtype=np.int32)[which]
            level = np.flatnonzero((number[:-1] == NONE) & (number[outer] != NONE))
    module[at] = number[innermost_enclosing(outer, number[:-1] != NONE)]
    return module[events.module]


class _Paths:
    """Modules by what they are called and where, each once."""

    def __init__(self, table: Table) -> None:
        self.modules: list[Module] = []
        self._names = table.names
        self._numbers: dict[tuple[int, int], int] = {}
        self._first: dict[int, int] = {}

    def marked(self, name: int) -> int:
        """The module at the dotted path in a mark of ours."""
        return self._add((NONE, name), Module(self._names[name].removeprefix(marks.MODULE), ""))

    def called(self, under: int, name: int, again: bool) -> int:
        """The module called `name` in a call of `under`; `again`: wherever it was called first."""
        if again and name in self._first:
            return self._first[name]
        call = self._names[name].removeprefix(MODULE_PREFIX)
        if call.startswith(_OF_REGION) and under != NONE and self.modules[under].class_name == COMPILED_CLASS:
            return under
        if call.startswith(GRAPH_PREFIX):
            call = "CompiledFxGraph " + call.removeprefix(GRAPH_PREFIX)[:8]
        path = f"{self.modules[under].path}.{call}" if under != NONE else call
        is_module = self._names[name].startswith(MODULE_PREFIX)
        number = self._add((under, name), Module(path, _NUMBER.sub("", call) if is_module else COMPILED_CLASS))
        self._first.setdefault(name, number)
        return number

    def number(self, path: str) -> int:
        """The first module at `path`, which is added where there is none."""
        for number, module in enumerate(self.modules):
            if module.path == path:
                return number
        self.modules.append(Module(path, ""))
        return len(self.modules) - 1

    def _add(self, key: tuple[int, int], module: Module) -> int:
        if key not in self._numbers:
            self._numbers[key] = len(self.modules)
            self.modules.append(module)
        return self._numbers[key]


def _above(events: HostEvents, column: Ids, positions: Ids | Ints) -> Ids:
    """The value of `column` at the event that encloses each of `positions`; NONE where none does."""
    values: Ids = np.append(column, np.int32(NONE))[events.parent[positions]]
    return values


# ---- nodes


class _NodeModules(NamedTuple):
    """Of each node: its module, and that of forward work done again in it outside of the modules called there."""

    module: Ids
    redone: Ids


def _node_modules(
    events: HostEvents, nodes: Nodes, paths: _Paths, calls: Ids, base: Ids, ours: _OurPaths | None
) -> _NodeModules:
    """The modules of `nodes`. `calls`: each position's module by the call that it lies in; `base`: by what is around it.

    A node's module is that of the op that made it. One that adds a gradient to a leaf follows the node before it; one whose op
    is not in the trace is of the node around it. In a trace of ours there is always one: the root at last, or the loss.
    """
    count = len(nodes.positions)
    place = np.full(len(events.node) + 1, NONE, dtype=np.int32)  # a node's number by its position
    place[nodes.positions] = np.arange(count, dtype=np.int32)
    outer = place[_above(events, events.node, nodes.positions)]
    has_op = nodes.forward != NONE
    again = has_op & (events.node[nodes.forward] > events.module[nodes.forward])
    before = _node_before(events, nodes)
    follows = np.where(has_op, NONE, np.where(nodes.unnumbered & (before != NONE), before, outer)).astype(np.int32)
    module = np.full(count + 1, NONE, dtype=np.int32)
    module[:-1][has_op & ~again] = base[nodes.forward[has_op & ~again]]
    if ours is not None:
        last = ~has_op & (follows == NONE)
        module[:-1][last] = np.where(nodes.unnumbered[last], ours.loss, ours.root)
    source = innermost_enclosing(follows, follows == NONE)
    asking = place[events.node[nodes.forward[again]]]
    inner = _called_in(events, place, calls, len(paths.modules) + 1)
    recomputing = _Recomputing(paths.modules, ours)
    redone = module
    for _ in range(DEEPEST):  # checkpoints in checkpoints
        redone = module[source]
        for node, modules in inner.items():
            redone[node] = recomputing.module(int(redone[node]), modules)
        if np.array_equal(module[:-1][again], redone[asking]):
            break
        module[:-1][again] = redone[asking]
    return _NodeModules(module[source], redone)


def _node_before(events: HostEvents, nodes: Nodes) -> Ids:
    """For each node the last one before it under the same parent that belongs to a forward op, or NONE."""
    parent, thread = events.parent[nodes.positions], events.thread[nodes.positions]
    order = np.lexsort((nodes.positions, parent, thread))
    before = np.full(len(order), NONE, dtype=np.int32)
    if len(order):
        last = np.maximum.accumulate(np.where(nodes.unnumbered[order], NONE, np.arange(len(order))))
        candidate = order[np.maximum(last, 0)]
        same = (last != NONE) & (parent[candidate] == parent[order]) & (thread[candidate] == thread[order])
        before[order] = np.where(same, candidate, NONE)
    return before


def _called_in(events: HostEvents, place: Ids, calls: Ids, scale: int) -> dict[int, frozenset[int]]:
    """The modules called in each node, outside of other modules there, of the nodes that call any."""
    at = np.flatnonzero(events.module == np.arange(len(events.module)))
    at = at[events.node[at] != NONE]
    top = at[_above(events, events.module, at) < events.node[at]]
    modules: dict[int, set[int]] = {}
    for pair in np.unique(place[events.node[top]].astype(np.int64) * scale + calls[top]).tolist():
        modules.setdefault(pair // scale, set()).add(pair % scale)
    return {node: frozenset(called) for node, called in modules.items()}


class _Recomputing:
    """Who asked for work that is done again: the innermost module called that encloses a node's module and all called in it."""

    def __init__(self, modules: list[Module], ours: _OurPaths | None) -> None:
        self._modules = modules
        self._ours = ours
        self._pseudo = {NONE} if ours is None else {NONE, ours.loss, *ours.by_phase.tolist()}
        self._numbers = {module.path: number for number, module in reversed(list(enumerate(modules)))}
        self._answers: dict[tuple[int, frozenset[int]], int] = {}

    def module(self, of_node: int, inner: frozenset[int]) -> int:
        """The module that asked, for a node of module `of_node` that calls `inner`; `of_node` where there is none."""
        key = of_node, inner
        if key not in self._answers:
            paths = [parent(self._modules[module].path) for module in sorted(inner)]
            if of_node not in self._pseudo:
                paths.append(self._modules[of_node].path)
            otherwise = of_node if self._ours is None else self._ours.root
            self._answers[key] = self._numbers.get(enclosing(paths, self._numbers), otherwise)
        return self._answers[key]


def _module_before(events: HostEvents, nodes: Nodes, module: Ids, step: Ids, here: Ids, loss: int) -> Ids:
    """The module of the last node on the same thread that began before each of `here` in the same step, or else the loss."""
    at = np.searchsorted(nodes.positions, here) - 1
    node = nodes.positions[np.maximum(at, 0)]
    good = (at >= 0) & (events.thread[node] == events.thread[here]) & (step[node] == step[here])
    return np.where(good, module[np.maximum(at, 0)], loss).astype(np.int32)
