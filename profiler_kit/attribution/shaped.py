"""Device time by operator and its inputs' shapes: where modules have no names, shapes tell one layer from another."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.spans import count_by, sum_by
from profiler_kit.records.traces import TRACE_PHASES, ShapedOperator
from profiler_kit.traces import operators as operator_names
from profiler_kit.traces.table import NONE, Ids, Ints

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
    operator = device.operator
    if len(device.like):
        operator = np.where(device.like != NONE, operator[device.like], operator)
    events = np.flatnonzero((operator != NONE) & (device.phase != PHASE_NUMBERS["communication"]))
    asked, place = _different(operator[events], len(host.rows))
    called = _called(owned, _forward(owned, asked))
    rows = host.rows[called]
    key = table.name[rows].astype(np.int64) * len(table.texts) + table.shapes[rows]
    key[table.shapes[rows] == NONE] = NONE
    keys, group = np.unique(key, return_inverse=True)
    # Every event's ns by what was called and by phase, of which NONE stands last.
    phases = len(TRACE_PHASES) + 1
    by_phase = sum_by(group[place] * phases + device.phase[events] % phases, ns[events], len(keys) * phases)
    by_phase = by_phase.reshape(len(keys), phases)
    total = np.where(keys != NONE, by_phase.sum(axis=1), 0)
    calls = count_by(group[_first_of(called, len(host.rows))], len(keys))
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
                forward_ns=int(by_phase[number, PHASE_NUMBERS["forward"]]),
                backward_ns=int(by_phase[number, PHASE_NUMBERS["backward"]]),
                recompute_ns=int(by_phase[number, PHASE_NUMBERS["recompute"]]),
            )
        )
    return tuple(found)


def _different(positions: Ids, size: int) -> tuple[Ids, Ids]:
    """The different ones of `positions` (0 up to `size`) in order, and for each of `positions` which of them it is."""
    seen = np.zeros(size, np.bool_)
    seen[positions] = True
    found = np.flatnonzero(seen).astype(np.int32)
    place = np.empty(size, np.int32)
    place[found] = np.arange(len(found), dtype=np.int32)
    return found, place[positions]


def _first_of(positions: Ids, size: int) -> Ids:
    """Where each of the different `positions` (0 up to `size`) stands first."""
    where = np.full(size, NONE, np.int32)
    where[positions[::-1]] = np.arange(len(positions), dtype=np.int32)[::-1]
    found: Ids = where[where != NONE]
    return found


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
    outer: Ids = operator.copy()
    rising = np.arange(len(outer))
    for _ in range(_DEEPEST):
        above = host.parent[outer[rising]]
        # What an author's own operator or range stands between is called by that, not by what is around it.
        rows = host.rows[above]
        there = (
            (above != NONE) & (host.operator[above] == above) & plain[table.name[rows]] & (table.shapes[rows] != NONE)
        )
        rising, above = rising[there], above[there]
        if not len(rising):
            break
        outer[rising] = above
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
