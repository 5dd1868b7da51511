"""Device time by operator and its inputs' shapes: where modules have no names, shapes tell one layer from another."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from profiler_kit.inspection.ownership import PHASE_NUMBERS, Owned
from profiler_kit.inspection.spans import count_by, sum_by
from profiler_kit.records.traces import ShapedOperator
from profiler_kit.traces import operators as operator_names
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints

MOST: Final = 20
_DEEPEST: Final = 64  # operators around one: further out none is one that a program calls
_LONGEST: Final = 4096  # characters of a text of shapes: a list of thousands of tensors tells no layer


def shaped_operators(owned: Owned, ns: Ints) -> tuple[ShapedOperator, ...]:
    """The operators by shapes whose work takes most of `ns` (one entry per device event), the longest first.

    Work of backward belongs to the operator that made its node, work without a launch to that of the same work of another step.
    """
    table, host, device = owned.table, owned.host, owned.device
    if not (table.shapes != NONE).any():
        return ()
    operator = device.operator.copy()
    if len(device.like):
        operator = np.where(device.like != NONE, operator[device.like], operator)
    events = np.flatnonzero((operator != NONE) & (device.phase != PHASE_NUMBERS["communication"]))
    asked, index = np.unique(operator[events], return_inverse=True)
    called = _called(owned, _forward(owned, asked.astype(np.int32)))
    called = called[index]
    has = table.shapes[host.rows[called]] != NONE
    events, called = events[has], called[has]
    rows = host.rows[called]
    key = table.name[rows].astype(np.int64) * len(table.texts) + table.shapes[rows]
    keys, group = np.unique(key, return_inverse=True)
    total = sum_by(group, ns[events], len(keys))
    calls = _calls(called, group, len(keys))
    parts = {name: _part(group, ns[events], device.phase[events], name, len(keys)) for name in _PARTS}
    found: list[ShapedOperator] = []
    for number in np.argsort(-total, kind="stable").tolist():
        if len(found) == MOST or not total[number]:
            break
        name, shapes = divmod(int(keys[number]), len(table.texts))
        known = tensor_shapes(table.texts[shapes])
        if not known:
            continue
        found.append(
            ShapedOperator(
                name=table.names[name],
                family=operator_names.family(table.names[name]),
                shapes=known,
                calls=int(calls[number]),
                kernel_ns=int(total[number]),
                forward_ns=int(parts["forward"][number]),
                backward_ns=int(parts["backward"][number]),
                recompute_ns=int(parts["recompute"][number]),
            )
        )
    return tuple(found)


_PARTS: Final = ("forward", "backward", "recompute")


def _part(group: Ints, ns: Ints, phase: Bytes, name: str, size: int) -> Ints:
    here = phase == PHASE_NUMBERS[name]  # type: ignore[index]
    return sum_by(group[here], ns[here], size)


def _calls(called: Ids, group: Ints, size: int) -> Ints:
    """How many different ones of `called` each group has."""
    _, first = np.unique(called, return_index=True)
    return count_by(group[first], size)


def _forward(owned: Owned, operator: Ids) -> Ids:
    """Instead of each operator that a node runs the one that made the node, where that is known."""
    node = owned.host.node[operator]
    if not len(owned.nodes):
        return operator
    at = np.minimum(np.searchsorted(owned.nodes, node), len(owned.nodes) - 1)
    made = np.where((node != NONE) & (owned.nodes[at] == node), owned.made[at], NONE)
    return np.where(made != NONE, made, operator).astype(np.int32)


def _called(owned: Owned, operator: Ids) -> Ids:
    """The outermost of PyTorch's own operators around each: what the program called, not what that called in turn."""
    table, host = owned.table, owned.host
    plain = np.array([name.startswith("aten::") for name in table.names], np.bool_)
    outer = operator.copy()
    for _ in range(_DEEPEST):
        parent = host.parent[outer]
        above = np.where(parent != NONE, host.operator[parent], NONE)
        # What an author's own operator or range stands between is called by that, not by what is around it.
        rises = (above != NONE) & (above == parent) & plain[table.name[host.rows[above]]]
        rises &= table.shapes[host.rows[above]] != NONE
        if not rises.any():
            break
        outer = np.where(rises, above, outer)
    return outer


def tensor_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """The shapes with a dimension in "Input Dims" as written, lists of tensors laid flat; none where it is something else."""
    if len(text) > _LONGEST:
        return ()
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    found: list[tuple[int, ...]] = []
    return tuple(found) if isinstance(written, list) and all(_gather(one, found, 0) for one in written) else ()


def _gather(value: Any, found: list[tuple[int, ...]], depth: int) -> bool:
    """Adds the shapes in `value`, a shape or a list of such; whether it is one."""
    if not isinstance(value, list) or depth > 2:
        return False
    if value and all(type(size) is int and size >= 0 for size in value):
        found.append(tuple(value))
        return True
    return all(_gather(one, found, depth + 1) for one in value)
