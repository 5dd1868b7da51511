"""Module calls, call stacks, and links from forward to backward operators, as torch-tb-profiler 0.4.3 can use them without loss.

If a trace has links and modules, the plugin takes every autograd node off its tree and puts it under the module of its forward
operator. It drops a node without such an operator, and it fails on a module without any node. Therefore, a node without a link
gets another name, which the plugin does not recognize, and a module call without operators is hidden. If a module
with operators has no backward, the links are arrows on the timeline only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records import marks
from profiler_kit.records.paths import parent_path
from profiler_kit.traces.names import MODULE_PREFIX, NODE_PREFIX, accumulates
from profiler_kit.traces.table import CALL_STACK, NONE, Kind, Table

MAX_FRAMES: Final = 20  # of a call stack, from the innermost


class ModuleCalls:
    """The module calls of a trace, `number_of` each position, and the module above each number in the tree of modules."""

    def __init__(self, attribution: Attribution) -> None:
        table, host = attribution.table, attribution.host
        self.modules = attribution.modules
        marked = np.array([name.startswith(marks.MODULE) for name in table.names], dtype=bool)
        in_python = np.array([name.startswith(MODULE_PREFIX) for name in table.names], dtype=bool)
        names, kind = table.name[host.rows], table.kind[host.rows]
        self.has_marks = bool(marked[names].any()) if len(names) else False
        is_call = marked[names] if self.has_marks else in_python[names] & (kind == Kind.PYTHON)
        is_call &= host.module != NONE
        calls = np.flatnonzero(is_call)
        self.number_of: dict[int, int] = dict(zip(calls.tolist(), host.module[calls].tolist(), strict=True))
        called = {self.modules[number].path: number for number in self.number_of.values()}
        self._above: dict[int, int] = {}
        for path, number in called.items():
            above = path
            while above:
                above = parent_path(above)
                if above in called and called[above] != number:
                    self._above[number] = called[above]
                    break

    def arguments(self, i: int) -> str:
        """The arguments of the module call at position `i`."""
        number = self.number_of[i]
        above = self._above.get(number)
        parent = "null" if above is None else str(above + 1)
        return f'"Python id":{number + 1},"Python parent id":{parent},"Python module id":{number}'


class CallStacks:
    """Call stacks of operators as JSON, from the innermost call to the outermost."""

    def __init__(self, attribution: Attribution) -> None:
        self._attribution = attribution
        self._recorded = sparse_texts(attribution.table, CALL_STACK)
        self._rows = attribution.host.rows.tolist()
        self._python = attribution.host.python.tolist()
        self._above = attribution.host.parent.tolist()
        self._of_call: dict[int, str] = {}

    def of(self, i: int) -> str:
        """The stack of the operator at position `i`; "" if it is unknown."""
        if self._rows[i] in self._recorded:
            return self._recorded[self._rows[i]]
        call = self._python[i]
        if call == NONE:
            module = int(self._attribution.host.module[i])
            path = self._attribution.modules[module].path if module != NONE else ""
            return json.dumps(path) if path else ""
        if call not in self._of_call:
            frames: list[str] = []
            table, rows = self._attribution.table, self._attribution.host.rows
            position = call
            while position != NONE and len(frames) < MAX_FRAMES:
                frames.append(table.names[int(table.name[rows[position]])])
                above = self._above[position]
                position = self._python[above] if above != NONE else NONE
            self._of_call[call] = json.dumps(";".join(frames))
        return self._of_call[call]


def sparse_texts(table: Table, key: str) -> dict[int, str]:
    """The values of a sparse column as JSON, by row."""
    sparse = table.more.get(key)
    if sparse is None:
        return {}
    values = sparse.values.tolist()
    if sparse.texts:
        texts = [text if text[:1] in '["' else json.dumps(text) for text in sparse.texts]
        return {row: texts[int(value)] for row, value in zip(sparse.rows.tolist(), values, strict=True) if value >= 0}
    return {row: repr(value) for row, value in zip(sparse.rows.tolist(), values, strict=True)}


RENAMED_PREFIX = "evaluate_function: "


class BackwardLinks(NamedTuple):
    """`pairs` of positions, forward and backward, and the `category` of their events.

    `renamed`: the new names of nodes. `hidden`: the module calls that the plugin must not see.
    """

    category: str
    pairs: tuple[tuple[int, int], ...]
    renamed: dict[int, str]
    hidden: frozenset[int]


def backward_links(
    attribution: Attribution, category: Sequence[str], parent: Sequence[int], start: Sequence[int]
) -> BackwardLinks:
    """The links of a trace, for the plugin's tree where they keep all modules, else for the timeline alone.

    `category`, `parent`, `start`: of each host position, its category, the position above it in the plugin's tree, its time.
    """
    forward_of = {
        node: forward
        for node, forward in zip(attribution.nodes.tolist(), attribution.node_forward.tolist(), strict=True)
        if forward != NONE
    }
    arrows = BackwardLinks("fwdbwd", tuple((forward, node) for node, forward in forward_of.items()), {}, frozenset())
    if "module" not in category:
        return arrows
    names, rows = attribution.table.names, attribution.host.rows
    name_of = [names[number] for number in attribution.table.name[rows].tolist()]
    roots = [
        i
        for i, name in enumerate(name_of)
        if name.startswith(NODE_PREFIX.rstrip()) and category[i] == "cpu_op" and _below_steps(i, category, parent)
    ]
    children = _first_children(roots, category, parent)
    times = Counter(start[i] for i, kind in enumerate(category) if kind in ("user_annotation", "cpu_op", "module"))
    pairs: list[tuple[int, int]] = []
    with_backward: set[int] = set()
    linked_forwards: set[int] = set()
    renamed: dict[int, str] = {}
    previous: dict[int, bool] = {}  # whether the node before is linked, by the position above both
    for root in roots:
        group = parent[root] if parent[root] != NONE else -2 - int(attribution.host.thread[root])
        if accumulates(name_of[root]):  # belongs to the node before it
            is_linked = previous.get(group, False)
        else:
            forward = forward_of.get(root, NONE)
            modules = _modules_around(forward, category, parent)
            is_linked = (
                bool(modules)
                and root in children
                and forward not in linked_forwards
                and times[start[forward]] == 1
                and times[start[children[root]]] <= 1 + (start[root] == start[children[root]])
            )
            if is_linked:
                pairs.append((forward, children[root]))
                linked_forwards.add(forward)
                with_backward.update(modules)
        previous[group] = is_linked
        if not is_linked:
            renamed[root] = RENAMED_PREFIX + name_of[root].removeprefix(NODE_PREFIX)
    node = attribution.host.node.tolist()
    calls = {i for i, kind in enumerate(category) if kind == "module"}
    recomputed = {i for i in calls if node[i] != NONE}
    with_operators = {
        module for i, kind in enumerate(category) if kind == "cpu_op" for module in _modules_around(i, category, parent)
    }
    if not pairs or with_operators - recomputed - with_backward:
        return arrows
    return BackwardLinks("forward_backward", tuple(pairs), renamed, frozenset(calls - with_backward))


def _below_steps(i: int, category: Sequence[str], parent: Sequence[int]) -> bool:
    """Whether only steps are above `i`."""
    above = parent[i]
    while above != NONE and category[above] == "user_annotation":
        above = parent[above]
    return above == NONE


def _first_children(roots: Sequence[int], category: Sequence[str], parent: Sequence[int]) -> dict[int, int]:
    """The first operator in each of `roots` that has one."""
    children: dict[int, int] = {}
    expected = set(roots)
    for i, kind in enumerate(category):
        if kind == "cpu_op" and parent[i] in expected:
            children.setdefault(parent[i], i)
    return children


def _modules_around(operator: int, category: Sequence[str], parent: Sequence[int]) -> list[int]:
    """The module calls around an operator, if the plugin finds the outermost of them: only steps may be above it."""
    modules: list[int] = []
    position = parent[operator] if operator != NONE else NONE
    while position != NONE:
        if category[position] == "module":
            modules.append(position)
        position = parent[position]
    return modules if modules and _below_steps(modules[-1], category, parent) else []
