"""The module of each host event, and of each autograd node through the forward operator that created it."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import HostEvents, Role, innermost_enclosing
from profiler_kit.attribution.links import Nodes
from profiler_kit.attribution.phases import BACKWARD, RECOMPUTE, Phases
from profiler_kit.attribution.result import Module
from profiler_kit.records import marks
from profiler_kit.records.counts import DATA_PATH, LOSS_PATH, OPTIMIZER_PATH, TRACE_PHASES, TRANSFER_PATH
from profiler_kit.records.paths import innermost_module, parent_path
from profiler_kit.traces.names import GRAPH_PREFIX, MODULE_PREFIX
from profiler_kit.traces.table import NONE, Ids, Ints, Table

# Deeper calls are attributed to the module at this depth, as paths grow with the depth.
MAX_MODULE_DEPTH: Final = 100
COMPILED_CLASS: Final = "torch.compile"
# Calls inside a compiled region. Their names differ between forward and backward, so the region is the module.
_REGION_INTERNALS: Final = ("CompiledFunction", "GraphModule_", GRAPH_PREFIX)
_NUMBER: Final = re.compile(r"_\d+\Z")
_PSEUDO_PATHS: Final = {"data": DATA_PATH, "transfer": TRANSFER_PATH, "loss": LOSS_PATH, "optimizer": OPTIMIZER_PATH}


class Modules(NamedTuple):
    """`module`: for each position an index of `modules`, or NONE. `node_redone`: as in `Attribution`."""

    module: Ids
    node_redone: Ids
    modules: tuple[Module, ...]


class _MarkedPaths(NamedTuple):
    """Modules of all traces with marks of profiler_kit: the root, and pseudo paths by phase (or NONE)."""

    root: int
    loss: int
    by_phase: Ids


def host_modules(table: Table, events: HostEvents, nodes: Nodes, phases: Phases, step: Ids) -> Modules:
    """Return the module of each host event.

    The module is that of the enclosing call, or the one whose backward an enclosing node runs.

    In a trace with marks of profiler_kit, work outside modules has a path too: the root in forward, else (loss),
    (optimizer) and so on.
    """
    paths = _Paths(table)
    module = _call_modules(table, events, paths)
    call_module = module.copy()
    marked_paths: _MarkedPaths | None = None
    outside = events.node == NONE
    if events.has(Role.PHASE):
        by_phase = [
            paths.find_or_add(_PSEUDO_PATHS[phase]) if phase in _PSEUDO_PATHS else NONE for phase in TRACE_PHASES
        ]
        marked_paths = _MarkedPaths(
            paths.find_or_add(""), paths.find_or_add(LOSS_PATH), np.array(by_phase, dtype=np.int32)
        )
        pseudo = np.append(marked_paths.by_phase, np.int32(NONE))[phases.phase]
        module = np.where(outside & (pseudo != NONE), pseudo, module).astype(np.int32)
        module[(module == NONE) & (phases.phase != NONE) & outside] = marked_paths.root
    node_redone = np.zeros(0, np.int32)
    if len(nodes.positions):
        node_modules = _node_modules(events, nodes, paths, call_module, module, marked_paths)
        node_redone = node_modules.redone
        in_node = np.flatnonzero((events.node > events.module) & ~outside)
        node = np.searchsorted(nodes.positions, events.node[in_node])
        module[in_node] = np.where(
            phases.phase[in_node] == RECOMPUTE, node_modules.redone[node], node_modules.module[node]
        )
        if marked_paths is not None:
            positions = np.flatnonzero((phases.phase == BACKWARD) & outside).astype(np.int32)
            module[positions] = _module_of_previous_node(
                events, nodes, node_modules.module, step, positions, marked_paths.loss
            )
    return Modules(module, node_redone, tuple(paths.modules))


# ---- calls


def _call_modules(table: Table, events: HostEvents, paths: _Paths) -> Ids:
    """Return the module call that encloses each event, as a path of calls: `ResNet_0.Sequential_2.Conv2d_17`.

    Marks of profiler_kit give the path itself. A call inside an autograd node (recomputed forward work) has the path
    of the same module's first call outside nodes.
    """
    calls = events.calls
    module = np.full(len(events.rows) + 1, NONE, dtype=np.int32)
    names = table.name[events.rows[calls]]
    if events.has(Role.OUR_MODULE):
        unique_names, name_index = np.unique(names, return_inverse=True)
        module[calls] = np.array([paths.add_marked(name) for name in unique_names.tolist()], dtype=np.int32)[name_index]
        return module[events.module]
    enclosing_call = _at_parent(events, events.module, calls)
    is_recomputed = events.node[calls] > enclosing_call  # a node lies between the calls
    outer_call = np.where(
        is_recomputed | (enclosing_call == NONE), NONE, np.searchsorted(calls, enclosing_call)
    ).astype(np.int32)
    number = np.full(len(calls) + 1, NONE, dtype=np.int32)
    for is_first, in_node in ((~is_recomputed & (outer_call == NONE), False), (is_recomputed, True)):
        # Calls outside nodes come first, because their whole path is known.
        level = np.flatnonzero(is_first)
        for depth in range(MAX_MODULE_DEPTH):
            if not len(level):
                break
            pair = number[outer_call[level]].astype(np.int64) * len(table.names) + names[level]
            pairs, name_index = np.unique(pair, return_inverse=True)
            match_first_call = in_node and depth == 0
            numbers = [
                paths.add_call(key // len(table.names), key % len(table.names), match_first_call)
                for key in pairs.tolist()
            ]
            number[level] = np.array(numbers, dtype=np.int32)[name_index]
            level = np.flatnonzero((number[:-1] == NONE) & (number[outer_call] != NONE))
    module[calls] = number[innermost_enclosing(outer_call, number[:-1] != NONE)]
    return module[events.module]


class _Paths:
    """The modules of a trace, each once, by name and parent."""

    def __init__(self, table: Table) -> None:
        self.modules: list[Module] = []
        self._names = table.names
        self._numbers: dict[tuple[int, int], int] = {}
        self._first: dict[int, int] = {}

    def add_marked(self, name: int) -> int:
        """Return the number of the module at the dotted path in a mark of profiler_kit."""
        return self._add((NONE, name), Module(self._names[name].removeprefix(marks.MODULE), ""))

    def add_call(self, parent: int, name: int, match_first_call: bool) -> int:
        """Return the number of the module called `name` inside `parent`.

        `match_first_call`: use the module's first call, whatever its parent.
        """
        if match_first_call and name in self._first:
            return self._first[name]
        call = self._names[name].removeprefix(MODULE_PREFIX)
        if call.startswith(_REGION_INTERNALS) and parent != NONE and self.modules[parent].class_name == COMPILED_CLASS:
            return parent
        if call.startswith(GRAPH_PREFIX):
            call = "CompiledFxGraph " + call.removeprefix(GRAPH_PREFIX)[:8]
        path = f"{self.modules[parent].path}.{call}" if parent != NONE else call
        is_module = self._names[name].startswith(MODULE_PREFIX)
        number = self._add((parent, name), Module(path, _NUMBER.sub("", call) if is_module else COMPILED_CLASS))
        self._first.setdefault(name, number)
        return number

    def find_or_add(self, path: str) -> int:
        """Return the number of the first module at `path`. Adds the module if there is none."""
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


def _at_parent(events: HostEvents, column: Ids, positions: Ids | Ints) -> Ids:
    """Return the value of `column` at the event that encloses each of `positions`, or NONE."""
    values: Ids = np.append(column, np.int32(NONE))[events.parent[positions]]
    return values


# ---- nodes


class _NodeModules(NamedTuple):
    """`module`: the module of each node.

    `redone`: the module of forward work recomputed in it, outside the modules called there.
    """

    module: Ids
    redone: Ids


def _node_modules(
    events: HostEvents, nodes: Nodes, paths: _Paths, calls: Ids, module_around: Ids, marked_paths: _MarkedPaths | None
) -> _NodeModules:
    """Return the modules of `nodes`.

    A node has the module of the forward operator that created it. A node that accumulates a gradient has the module
    of the node before it. A node whose operator is not in the trace has the module of the node around it. In a trace
    with marks of profiler_kit, every node has a module: the root or the loss if nothing else applies.

    `calls`: the module of the enclosing call, by position. `module_around`: the module by all enclosing events.
    """
    count = len(nodes.positions)
    node_index = np.full(len(events.node) + 1, NONE, dtype=np.int32)  # the index of each node, by position
    node_index[nodes.positions] = np.arange(count, dtype=np.int32)
    outer = node_index[_at_parent(events, events.node, nodes.positions)]
    has_op = nodes.forward != NONE
    from_recomputation = has_op & (events.node[nodes.forward] > events.module[nodes.forward])
    before = _node_before(events, nodes)
    follows = np.where(has_op, NONE, np.where(nodes.unnumbered & (before != NONE), before, outer)).astype(np.int32)
    module = np.full(count + 1, NONE, dtype=np.int32)
    module[:-1][has_op & ~from_recomputation] = module_around[nodes.forward[has_op & ~from_recomputation]]
    if marked_paths is not None:
        without_evidence = ~has_op & (follows == NONE)
        module[:-1][without_evidence] = np.where(
            nodes.unnumbered[without_evidence], marked_paths.loss, marked_paths.root
        )
    source = innermost_enclosing(follows, follows == NONE)
    requesting_node = node_index[events.node[nodes.forward[from_recomputation]]]
    called_modules = _modules_called_in(events, node_index, calls, len(paths.modules) + 1)
    recomputing = _RecomputationRequesters(paths.modules, marked_paths)
    redone = module
    for _ in range(MAX_MODULE_DEPTH):  # nested checkpoints
        redone = module[source]
        for node, modules in called_modules.items():
            redone[node] = recomputing.module(int(redone[node]), modules)
        if np.array_equal(module[:-1][from_recomputation], redone[requesting_node]):
            break
        module[:-1][from_recomputation] = redone[requesting_node]
    return _NodeModules(module[source], redone)


def _node_before(events: HostEvents, nodes: Nodes) -> Ids:
    """Return, for each node, the previous node under the same parent that has a forward operator, or NONE."""
    parent, thread = events.parent[nodes.positions], events.thread[nodes.positions]
    order = np.lexsort((nodes.positions, parent, thread))
    before = np.full(len(order), NONE, dtype=np.int32)
    if len(order):
        last = np.maximum.accumulate(np.where(nodes.unnumbered[order], NONE, np.arange(len(order))))
        candidate = order[np.maximum(last, 0)]
        same_parent = (last != NONE) & (parent[candidate] == parent[order]) & (thread[candidate] == thread[order])
        before[order] = np.where(same_parent, candidate, NONE)
    return before


def _modules_called_in(events: HostEvents, node_index: Ids, calls: Ids, scale: int) -> dict[int, frozenset[int]]:
    """Return the modules called in each node, without those inside other modules, for nodes that call any."""
    call_events = np.flatnonzero(events.module == np.arange(len(events.module)))
    call_events = call_events[events.node[call_events] != NONE]
    top = call_events[_at_parent(events, events.module, call_events) < events.node[call_events]]
    modules: dict[int, set[int]] = {}
    for pair in np.unique(node_index[events.node[top]].astype(np.int64) * scale + calls[top]).tolist():
        modules.setdefault(pair // scale, set()).add(pair % scale)
    return {node: frozenset(called) for node, called in modules.items()}


class _RecomputationRequesters:
    """Finds the module that requested recomputation in a node.

    This is the innermost module that encloses the node's module and all modules called in the node.
    """

    def __init__(self, modules: list[Module], marked_paths: _MarkedPaths | None) -> None:
        self._modules = modules
        self._marked_paths = marked_paths
        self._pseudo = {NONE} if marked_paths is None else {NONE, marked_paths.loss, *marked_paths.by_phase.tolist()}
        self._numbers = {module.path: number for number, module in reversed(list(enumerate(modules)))}
        self._cache: dict[tuple[int, frozenset[int]], int] = {}

    def module(self, node_module: int, called: frozenset[int]) -> int:
        """Return the requesting module of a node of module `node_module` that calls `called`.

        The default is `node_module` or the root.
        """
        key = node_module, called
        if key not in self._cache:
            paths = [parent_path(self._modules[module].path) for module in sorted(called)]
            if node_module not in self._pseudo:
                paths.append(self._modules[node_module].path)
            default = node_module if self._marked_paths is None else self._marked_paths.root
            self._cache[key] = self._numbers.get(innermost_module(paths, self._numbers), default)
        return self._cache[key]


def _module_of_previous_node(
    events: HostEvents, nodes: Nodes, module: Ids, step: Ids, positions: Ids, loss: int
) -> Ids:
    """Return the module of the last node before each of `positions` in the same thread and step, else the loss."""
    index = np.searchsorted(nodes.positions, positions) - 1
    node = nodes.positions[np.maximum(index, 0)]
    is_valid = (index >= 0) & (events.thread[node] == events.thread[positions]) & (step[node] == step[positions])
    return np.where(is_valid, module[np.maximum(index, 0)], loss).astype(np.int32)
