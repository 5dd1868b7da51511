"""Work of the backward pass whose gradients no optimizer step uses.

An accumulation either stores a gradient where there was none (it is *new*), or adds to the one that is there.

- The first pass after an optimizer step adds to a gradient that nobody has reset since: no optimizer owns the parameter, or it
  resets the sum before its next step. This shows only beside new gradients: an optimizer that fills gradients with zeros instead
  of dropping them leaves none.
- A new gradient that no optimizer step lists before a later pass stores a new one again was dropped. Profilers list the
  tensors of an operator up to a length; a longer list may hold any of them.

Behind the last accumulation of a pass that is used, the whole pass is unused. Before it, used gradients come through the same
nodes: of a node whose accumulations are all unused, the gradients of its parameters are unused, and that of its input is not.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.simulation.parameter_gradients import ParameterGradients
from profiler_kit.traces.names import NODE_PREFIX, OPTIMIZER_STEP, accumulates
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

_TENSOR: Final = re.compile(r"\Aaten::(?!_foreach_|_fused_|_amp_foreach_)")  # operators whose first argument is no list
_ADDS: Final = frozenset({"aten::add_", "aten::add"})
Shape = tuple[int, ...]


class _Pass(NamedTuple):
    """A backward pass: its nodes in order (positions in `Host`), which accumulate, and which of these store a new gradient."""

    nodes: Ids
    accumulates: Mask
    is_new: Mask


class _OptimizerStep(NamedTuple):
    """The end of a step of an optimizer, and how many tensors of each shape it updates; None if the trace does not say."""

    end_ns: int
    updates: Counter[Shape] | None


def unused_gradients(attribution: Attribution) -> Mask:
    """Return which host events belong to backward work whose gradients no optimizer step uses.

    The gradients of a step that differentiates gradients do not count: its passes cannot be told apart.
    """
    node, optimizer = _outer_nodes(attribution), _optimizer_steps(attribution)
    is_unused, inside = np.zeros(len(node) + 1, np.bool_), np.zeros(len(node), np.bool_)
    if len(optimizer) >= max(len(attribution.steps), 1) and not differentiates_gradients(attribution):
        passes = list(_passes(attribution, node))
        gradients = ParameterGradients.of(attribution, node)
        for of_pass, unused in zip(passes, _unused(attribution, passes, optimizer), strict=True):
            is_unused[_without_use(of_pass, unused)] = True
            for of_node in _nodes_without_used(of_pass, unused, gradients):
                inside[gradients.work(of_node)] = True
    return inside | is_unused[node]


def differentiates_gradients(attribution: Attribution) -> bool:
    """Return whether a forward operator of a node ran in a backward pass."""
    forward = attribution.node_forward
    return bool((attribution.host.node[forward[forward != NONE]] != NONE).any())


def _outer_nodes(attribution: Attribution) -> Ids:
    """Return the node of each host event, or NONE. Autograd records a node twice: its evaluation, and in it the call."""
    host, table = attribution.host, attribution.table
    index = {name: i for i, name in enumerate(table.names)}
    called = [index.get(name.removeprefix(NODE_PREFIX), i) for i, name in enumerate(table.names)]
    name = np.append(np.array(called, np.int32)[table.name[host.rows]], np.int32(NONE))
    parent, node = np.append(host.parent, np.int32(NONE)), np.append(host.node, np.int32(NONE))
    around = node[parent[host.node]]
    return np.where((around != NONE) & (name[around] == name[host.node]), around, host.node).astype(np.int32)


def _passes(attribution: Attribution, node: Ids) -> Iterator[_Pass]:
    """Yield the backward passes by their start. Within a pass, autograd runs the node with the highest number that is ready."""
    host, table = attribution.host, attribution.table
    nodes = np.unique(node[node != NONE])
    order = nodes[np.lexsort((host.start_ns[nodes], host.thread[nodes]))]
    stores = np.array([accumulates(name) for name in table.names], np.bool_)[table.name[host.rows[order]]]
    adding = np.array([name in _ADDS for name in table.names], np.bool_)[table.name[host.rows]]
    is_new = stores & ~np.isin(order, node[adding])
    number = _previous(table.sequence[host.rows[order]], ~stores)  # an accumulation belongs to the node before it
    thread = host.thread[order]
    begins = (np.diff(number, prepend=number[:1]) > 0) | (np.diff(thread, prepend=thread[:1]) != 0)
    parts = [part for part in np.split(np.arange(len(order)), np.flatnonzero(begins)) if len(part)]
    for part in sorted(parts, key=lambda part: int(host.start_ns[order[part[0]]])):
        yield _Pass(order[part], stores[part], is_new[part])


def _previous(values: Ints, is_known: Mask) -> Ints:
    """Return the last value at or before each position that is known; the value itself where none is."""
    index = np.maximum.accumulate(np.where(is_known, np.arange(len(values)), 0))
    return values[index]


def _optimizer_steps(attribution: Attribution) -> list[_OptimizerStep]:
    """Return the marked steps of optimizers in order."""
    host, table = attribution.host, attribution.table
    marks = np.flatnonzero(np.array([name.startswith(OPTIMIZER_STEP) for name in table.names])[table.name[host.rows]])
    outermost = outermost_enclosing(host.parent, host.operator)
    of_optimizer = host.phase == PHASE_NUMBERS["optimizer"]
    outer = np.flatnonzero((outermost == np.arange(len(host.rows))) & of_optimizer)
    steps = []
    for mark in marks[np.argsort(host.start_ns[marks])].tolist():
        start_ns, end_ns = int(host.start_ns[mark]), int(host.end_ns[mark])
        inside = outer[(host.start_ns[outer] >= start_ns) & (host.end_ns[outer] <= end_ns)]
        steps.append(_OptimizerStep(end_ns, _updates(attribution, inside)))
    return steps


def _updates(attribution: Attribution, operators: Ids | Ints) -> Counter[Shape] | None:
    """Return how many tensors of each shape `operators` update, as the first argument of the operator with most of them."""
    table, rows = attribution.table, attribution.host.rows[operators]
    by_operator: dict[int, Counter[Shape]] = {}
    for name, shapes in zip(table.name[rows].tolist(), table.shapes[rows].tolist(), strict=True):
        tensors = _first_argument(table.texts[shapes]) if shapes != NONE else None
        if tensors is None or not (tensors or _TENSOR.match(table.names[name])):
            return None
        by_operator.setdefault(name, Counter()).update(tensors)
    total: Counter[Shape] = Counter()
    for counts in by_operator.values():
        total |= counts
    return total or None


def _first_argument(text: str) -> list[Shape] | None:
    """Return the shapes of the first argument: of a tensor, or of each tensor of a list; empty for a number; None if unknown.

    The list is also empty if it is too long for the profiler.
    """
    try:
        first = json.loads(text)[0]
    except (ValueError, IndexError, TypeError, KeyError):
        return None
    if not isinstance(first, list):
        return None
    return [tuple(first)] if first and isinstance(first[0], int) else [tuple(shape) for shape in first]


def _unused(attribution: Attribution, passes: Sequence[_Pass], optimizer: Sequence[_OptimizerStep]) -> Iterator[Mask]:
    """Yield for each pass which of its nodes store a gradient that no optimizer step uses."""
    starts = [int(attribution.host.start_ns[item.nodes[0]]) for item in passes]
    shapes = [_gradient_shapes(attribution, item) for item in passes]
    ends = np.array([step.end_ns for step in optimizer])
    for i, item in enumerate(passes):
        earlier = int(np.searchsorted(ends, starts[i]))
        is_first = i == 0 or np.searchsorted(ends, starts[i - 1]) < earlier
        unused = item.accumulates & ~item.is_new & (is_first and bool(item.is_new.any()))
        for shape in {shapes[i][at] for at in np.flatnonzero(item.is_new).tolist()} - {()}:
            again = next((j for j in range(i + 1, len(passes)) if _is_new(passes[j], shapes[j], shape)), None)
            later = int(np.searchsorted(ends, starts[again])) if again is not None else len(optimizer)
            used = _total(optimizer[earlier:later], shape)
            members = [at for at in np.flatnonzero(item.is_new).tolist() if shapes[i][at] == shape]
            if used is not None and (again is not None or later > earlier):
                unused[members[used:]] = True
        yield unused


def _gradient_shapes(attribution: Attribution, item: _Pass) -> list[Shape]:
    """Return the shape of the gradient of each node that accumulates one; () where it is unknown."""
    table, host = attribution.table, attribution.host
    result: list[Shape] = [()] * len(item.nodes)
    for at in np.flatnonzero(item.accumulates).tolist():
        inner = int(item.nodes[at]) + 1  # the operator of an accumulation follows its node
        shapes = int(table.shapes[host.rows[inner]]) if inner < len(host.rows) else NONE
        tensors = _first_argument(table.texts[shapes]) if shapes != NONE else None
        result[at] = tensors[0] if tensors else ()
    return result


def _is_new(item: _Pass, shapes: Sequence[Shape], shape: Shape) -> bool:
    return any(shapes[at] == shape for at in np.flatnonzero(item.is_new).tolist())


def _total(steps: Sequence[_OptimizerStep], shape: Shape) -> int | None:
    """Return how many tensors of a shape `steps` update; None if one of them may update any."""
    counts = [step.updates for step in steps]
    return (
        None if any(count is None for count in counts) else sum(count[shape] for count in counts if count is not None)
    )


def _without_use(item: _Pass, unused: Mask) -> Ids:
    """Return the nodes of a pass that only unused gradients need."""
    used = np.flatnonzero(item.accumulates & ~unused)
    behind = np.arange(len(item.nodes)) > (used[-1] if len(used) else len(item.nodes))
    return item.nodes[unused | (behind & bool(unused.any()))]


def _nodes_without_used(item: _Pass, unused: Mask, gradients: ParameterGradients) -> Iterator[int]:
    """Yield the nodes of a pass of which all accumulations are unused, those behind views of a gradient included."""
    source, stored = NONE, list[bool]()
    for node, is_stored, is_unused in zip(item.nodes.tolist(), item.accumulates.tolist(), unused.tolist(), strict=True):
        if is_stored:
            stored.append(is_unused)
        elif gradients.computes(node):
            if stored and all(stored):
                yield source
            source, stored = node, []
