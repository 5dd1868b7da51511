"""Work that a step does in vain: its result is there already, or nothing uses it.

- ``backward``: backward of an operator after its first one in the step: several losses that share a graph are each differentiated
  through all of it, where one pass through their sum would do. Gradients that are differentiated themselves do not count.
- ``weights``: work on weights in a program that trains nothing, as a normalization of weights or a cast in each call: operators
  whose largest input has the shape of a weight of a layer, and that of no layer's input.
- ``growing``: work of a program that trains nothing on inputs that grow from round to round (`growing_inputs`).
- ``calls``: calls of a module directly after another one, which could be one call with a larger batch (`adjacent_calls`).
- ``unused``: backward work whose gradients no optimizer step uses (`unused_gradients`).
"""

from __future__ import annotations

import math
import re
from typing import Final

import numpy as np

from profiler_kit.attribution.events import outermost_enclosing
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.totals import tensor_shapes
from profiler_kit.simulation.adjacent_calls import later_calls
from profiler_kit.simulation.growing_inputs import work_on_growing_inputs
from profiler_kit.simulation.unused_gradients import differentiates_gradients, unused_gradients
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask

REPEATED: Final = ("backward", "weights", "unused", "growing", "calls")
CAN_JOIN: Final = frozenset({"calls"})  # kinds that earlier work could do as well, in larger kernels
NEEDS_LAUNCHES: Final = frozenset({"growing"})  # kinds of which a part of each kernel stays, and the host's work
# Operators of layers, and the arguments that are their input and their weight.
_LAYER: Final = re.compile(r"\Aaten::(?:linear|conv(?:_transpose)?[123]d)\Z")
_INPUT: Final = 0
_WEIGHT: Final = 1
Shape = tuple[int, ...]


def repeated_work(attribution: Attribution, launches: Ids, *, trains: bool) -> Ids:
    """Return the index in `REPEATED` of each host event's work, or NONE, which the last entry is. `launches`: of device work."""
    number = np.full(len(attribution.host.rows) + 1, NONE, np.int32)
    number[:-1][later_calls(attribution, launches)] = REPEATED.index("calls")
    if trains:
        number[:-1][unused_gradients(attribution)] = REPEATED.index("unused")
        number[:-1][_later_passes(attribution)] = REPEATED.index("backward")
    else:
        number[:-1][_work_on_weights(attribution, launches)] = REPEATED.index("weights")
        number[:-1][work_on_growing_inputs(attribution, launches)] = REPEATED.index("growing")
    return number


def _later_passes(attribution: Attribution) -> Mask:
    """Return the events of autograd nodes whose forward operator had a node of the same name before."""
    host, nodes, forward = attribution.host, attribution.nodes, attribution.node_forward
    is_later = np.zeros(len(host.rows) + 1, np.bool_)
    if not differentiates_gradients(attribution):
        names = attribution.table.name[host.rows[nodes]]
        order = np.lexsort((host.start_ns[nodes], names, forward))
        is_same = (np.diff(forward[order], prepend=NONE) == 0) & (np.diff(names[order], prepend=NONE) == 0)
        is_later[nodes[order][is_same & (forward[order] != NONE)]] = True
    later: Mask = is_later[host.node]
    return later


def _work_on_weights(attribution: Attribution, launches: Ids) -> Mask:
    """Return the events of operators on weights, and of calls that launch nothing else."""
    host, table = attribution.host, attribution.table
    outermost = outermost_enclosing(host.parent, host.operator)
    at = np.unique(outermost[launches[launches != NONE]])
    at = at[at != NONE]
    is_weight = _shapes_of_weights(attribution)
    is_member = np.zeros(len(host.rows) + 1, np.bool_)
    for text in np.unique(table.shapes[host.rows[at]]).tolist() if is_weight else ():
        if text != NONE and _is_on_weight(tensor_shapes(table.texts[text]), is_weight):
            is_member[at[table.shapes[host.rows[at]] == text]] = True
    return is_member[outermost] | _inside_calls(attribution, launches[launches != NONE], is_member[outermost])


def _shapes_of_weights(attribution: Attribution) -> set[Shape]:
    """Return the shapes of the weights of layers, without those that an input of a layer has as well."""
    host, table = attribution.host, attribution.table
    rows = host.rows[host.is_operator & table.named(host.rows, _LAYER)]
    texts = np.unique(table.shapes[rows])
    shapes = [tensor_shapes(table.texts[i]) for i in texts.tolist() if i != NONE]
    layers = [item for item in shapes if len(item) > _WEIGHT]
    return {item[_WEIGHT] for item in layers} - {item[_INPUT] for item in layers}


def _is_on_weight(shapes: tuple[Shape, ...], weights: set[Shape]) -> bool:
    """Return whether the largest of `shapes` is that of a weight, and the others can be parts of it."""
    largest = max(shapes, key=math.prod, default=())
    return largest in weights and all(size in (1, *largest) for shape in shapes for size in shape)


def _inside_calls(attribution: Attribution, launches: Ids, is_member: Mask) -> Mask:
    """Return the events inside Python calls of which all launches are members."""
    host, count = attribution.host, len(attribution.host.rows)
    stop = _ends(attribution)
    is_launch = np.zeros(count, np.bool_)
    is_launch[launches] = True
    total, inside = (np.append(0, np.cumsum(mask)) for mask in (is_launch, is_launch & is_member))
    launched, of_members = total[stop] - total[:-1], inside[stop] - inside[:-1]
    is_call = attribution.table.kind[host.rows] == Kind.PYTHON
    calls = np.flatnonzero(is_call & (of_members > 0) & (of_members == launched))
    depth = np.zeros(count + 1, np.int64)
    np.add.at(depth, calls, 1)
    np.add.at(depth, stop[calls], -1)
    covered: Mask = np.cumsum(depth)[:-1] > 0
    return covered


def _ends(attribution: Attribution) -> Ints:
    """Return for each host event the position of the first later one of its thread that it does not enclose."""
    host, stop = attribution.host, np.zeros(len(attribution.host.rows), np.int64)
    for thread in np.unique(host.thread).tolist():
        low, high = np.searchsorted(host.thread, np.array((thread, thread + 1), host.thread.dtype)).tolist()
        stop[low:high] = low + np.searchsorted(host.start_ns[low:high], host.end_ns[low:high])
    return stop
