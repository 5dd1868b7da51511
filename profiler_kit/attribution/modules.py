"""Module paths: of the calls on the host, and of autograd's nodes through the forward ops that made them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.context import Context
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.nesting import Nesting, nearest
from profiler_kit.attribution.ownership import Module
from profiler_kit.attribution.roles import Role
from profiler_kit.records import marks
from profiler_kit.records.paths import enclosing, parent
from profiler_kit.traces.names import GRAPH_PREFIX, MODULE_PREFIX
from profiler_kit.traces.table import NONE, Bytes, Ids, Table

# Calls nested deeper than any network's belong to the module at this depth: paths grow with it.
DEEPEST: Final = 100
COMPILED_CLASS: Final = "torch.compile"
# What torch.compile calls inside of a region, with other names forward and backward: the region says enough.
_OF_REGION: Final = ("CompiledFunction", "GraphModule_", GRAPH_PREFIX)
_NUMBER: Final = re.compile(r"_\d+\Z")


class Calls(NamedTuple):
    """`module`: for each position the module whose call it is or lies in, NONE outside of all; `modules`: what they are."""

    module: Ids
    modules: list[Module]


def calls(table: Table, nesting: Nesting, context: Context, role: Bytes) -> Calls:
    """The modules called in the trace, each under the calls around it: `ResNet_0.Sequential_2.Conv2d_17`.

    Marks of ours give the path itself. A call inside an autograd node (forward work done again) has the path that the same
    module has where it is called outside of nodes.
    """
    at = context.calls
    module = np.full(len(role) + 1, NONE, dtype=np.int32)
    found = _Paths(table)
    names = table.name[nesting.rows[at]]
    if (role[at] == Role.OUR_MODULE).any():
        used, which = np.unique(names, return_inverse=True)
        module[at] = np.array([found.marked(name) for name in used.tolist()], dtype=np.int32)[which]
        return Calls(module[context.module], found.modules)
    holder = np.append(context.module, np.int32(NONE))[nesting.parent[at]]
    again = context.node[at] > holder  # a node lies between
    outer = np.where(again | (holder == NONE), NONE, np.searchsorted(at, holder)).astype(np.int32)
    said = np.full(len(at) + 1, NONE, dtype=np.int32)
    for first, elsewhere in ((~again & (outer == NONE), False), (again, True)):
        # The calls outside of nodes come first, as they know the whole path.
        level = np.flatnonzero(first)
        for depth in range(DEEPEST):
            if not len(level):
                break
            pair = said[outer[level]].astype(np.int64) * len(table.names) + names[level]
            pairs, which = np.unique(pair, return_inverse=True)
            anywhere = elsewhere and depth == 0
            told = [
                found.called(both // len(table.names), both % len(table.names), anywhere) for both in pairs.tolist()
            ]
            said[level] = np.array(told, dtype=np.int32)[which]
            level = np.flatnonzero((said[:-1] == NONE) & (said[outer] != NONE))
    module[at] = said[nearest(outer, said[:-1] != NONE)]
    return Calls(module[context.module], found.modules)


class _Paths:
    """Modules by what they are called and where, each once."""

    def __init__(self, table: Table) -> None:
        self.modules: list[Module] = []
        self._names = table.names
        self._ids: dict[tuple[int, int], int] = {}
        self._first: dict[int, int] = {}

    def marked(self, name: int) -> int:
        """The module at the dotted path that a mark of ours says."""
        return self._add((NONE, name), Module(self._names[name].removeprefix(marks.MODULE), ""))

    def called(self, under: int, name: int, again: bool) -> int:
        """The module called `name` in a call of `under`; `again`: wherever it was called first."""
        if again and name in self._first:
            return self._first[name]
        told = self._names[name].removeprefix(MODULE_PREFIX)
        if told.startswith(_OF_REGION) and under != NONE and self.modules[under].class_name == COMPILED_CLASS:
            return under
        if told.startswith(GRAPH_PREFIX):
            told = "CompiledFxGraph " + told.removeprefix(GRAPH_PREFIX)[:8]
        path = f"{self.modules[under].path}.{told}" if under != NONE else told
        is_module = self._names[name].startswith(MODULE_PREFIX)
        found = self._add((under, name), Module(path, _NUMBER.sub("", told) if is_module else COMPILED_CLASS))
        self._first.setdefault(name, found)
        return found

    def _add(self, key: tuple[int, int], module: Module) -> int:
        if key not in self._ids:
            self._ids[key] = len(self.modules)
            self.modules.append(module)
        return self._ids[key]


# ---- nodes


class NodeModules(NamedTuple):
    """Of each node: its module, and that of forward work done again in it outside of the modules called there."""

    own: Ids
    redone: Ids


def of_nodes(
    nesting: Nesting, context: Context, nodes: Nodes, called: Calls, base: Ids, ours: OurPaths | None
) -> NodeModules:
    """The modules of `nodes`. `base`: each position's module by what is called around it; ids are of `called.modules`, or NONE.

    A node's module is that of the op that made it. One that adds a gradient to a leaf follows the node before it; one whose op
    is not in the trace is of the node around it. In a trace of ours there is always one: the root at last, or the loss.
    """
    count = len(nodes.positions)
    place = np.full(len(context.node) + 1, NONE, dtype=np.int32)  # a node's number by its position
    place[nodes.positions] = np.arange(count, dtype=np.int32)
    outer = place[np.append(context.node, np.int32(NONE))[nesting.parent[nodes.positions]]]
    made = nodes.forward != NONE
    again = made & (context.node[nodes.forward] > context.module[nodes.forward])
    before = _before(nesting, nodes)
    follows = np.where(made, NONE, np.where(nodes.unnumbered & (before != NONE), before, outer)).astype(np.int32)
    own = np.full(count + 1, NONE, dtype=np.int32)
    own[:-1][made & ~again] = base[nodes.forward[made & ~again]]
    if ours is not None:
        last = ~made & (follows == NONE)
        own[:-1][last] = np.where(nodes.unnumbered[last], ours.loss, ours.root)
    source = nearest(follows, follows == NONE)
    asked = place[context.node[nodes.forward[again]]]
    inner = _called_in(nesting, context, place, count, called)
    enclosing = _Enclosing(called)
    redone = own
    for _ in range(DEEPEST):  # checkpoints in checkpoints
        redone = own[source]
        for node, modules in inner.items():
            redone[node] = enclosing.of(int(redone[node]), modules, ours)
        if np.array_equal(own[:-1][again], redone[asked]):
            break
        own[:-1][again] = redone[asked]
    return NodeModules(own[source], redone)


class OurPaths(NamedTuple):
    """Modules that a trace of ours always has: the root, and what stands for owners that are no module, by phase (or NONE)."""

    root: int
    loss: int
    by_phase: Ids


def _before(nesting: Nesting, nodes: Nodes) -> Ids:
    """For each node the last one before it under the same parent that belongs to a forward op, or NONE."""
    parent, thread = nesting.parent[nodes.positions], nesting.thread[nodes.positions]
    order = np.lexsort((nodes.positions, parent, thread))
    before = np.full(len(order), NONE, dtype=np.int32)
    if len(order):
        last = np.maximum.accumulate(np.where(nodes.unnumbered[order], NONE, np.arange(len(order))))
        held = order[np.maximum(last, 0)]
        same = (last != NONE) & (parent[held] == parent[order]) & (thread[held] == thread[order])
        before[order] = np.where(same, held, NONE)
    return before


def _called_in(nesting: Nesting, context: Context, place: Ids, count: int, called: Calls) -> dict[int, frozenset[int]]:
    """The modules called in each node, outside of other modules there, of the nodes that call any."""
    at = np.flatnonzero(context.module == np.arange(len(context.module)))
    at = at[context.node[at] != NONE]
    top = at[np.append(context.module, np.int32(NONE))[nesting.parent[at]] < context.node[at]]
    pairs = np.unique(place[context.node[top]].astype(np.int64) * (len(called.modules) + 1) + called.module[top])
    found: dict[int, set[int]] = {}
    for pair in pairs.tolist():
        node, module = divmod(pair, len(called.modules) + 1)
        found.setdefault(node, set()).add(module)
    return {node: frozenset(modules) for node, modules in found.items()}


class _Enclosing:
    """Who asked for work that is done again: the innermost module called that encloses a node's module and all called in it."""

    def __init__(self, called: Calls) -> None:
        self._modules = called.modules
        self._ids = {module.path: number for number, module in reversed(list(enumerate(called.modules)))}
        self._known: dict[tuple[int, frozenset[int]], int] = {}

    def of(self, own: int, inner: frozenset[int], ours: OurPaths | None) -> int:
        """The module that asked, of a node of module `own` that calls `inner`; `own` where there is none."""
        key = own, inner
        if key not in self._known:
            pseudo = ours is not None and (own == ours.loss or own in ours.by_phase.tolist())
            paths = [parent(self._modules[module].path) for module in sorted(inner)]
            if own != NONE and not pseudo:
                paths.append(self._modules[own].path)
            self._known[key] = self._ids.get(enclosing(paths, self._ids), own if ours is None else ours.root)
        return self._known[key]
