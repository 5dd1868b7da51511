"""Operators by name, and by the shapes of their inputs: where modules have no names, shapes tell one layer from another.

Also which loader fetched the batches.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, climb
from profiler_kit.records.traces import TRACE_PHASES, ShapedOperator, TraceOperator
from profiler_kit.traces.intervals import count_by, sum_by
from profiler_kit.traces.names import LOADER_PREFIX, operator_family
from profiler_kit.traces.table import NONE, Ids, Ints

MOST: Final = 20
# Source: torch/utils/data/dataloader.py, _BaseDataLoaderIter._profile_name.
_FETCH: Final = re.compile(re.escape(LOADER_PREFIX) + r"(\w{1,100})\.__next__\Z")
_ATEN: Final = re.compile(r"\Aaten::")
_LONGEST: Final = 4096  # characters of a text of shapes: a list of thousands of tensors tells no layer


def operators(attribution: Attribution, operator: Ids, ns: Ints) -> tuple[TraceOperator, ...]:
    """Every operator of the trace by name: `ns` by `operator` (positions in `Attribution.host`), and its own time on the host."""
    table, host = attribution.table, attribution.host
    name_of, size = table.name[host.rows], len(table.names)
    at = np.flatnonzero(host.is_operator)
    duration = host.end_ns[at] - host.start_ns[at]
    calls, total = count_by(name_of[at], size), sum_by(name_of[at], duration, size)
    around = host.enclosing(host.operator, at)
    within = sum_by(name_of[around[around != NONE]], duration[around != NONE], size)
    launched = operator != NONE
    kernel = sum_by(name_of[operator[launched]], ns[launched], size)
    entries = [
        TraceOperator(
            name=table.names[i],
            family=operator_family(table.names[i]),
            calls=int(calls[i]),
            kernel_ns=int(kernel[i]),
            host_self_ns=max(int(total[i]) - int(within[i]), 0),
        )
        for i in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.kernel_ns, -entry.host_self_ns)))


def shaped_operators(attribution: Attribution, ns: Ints) -> tuple[ShapedOperator, ...]:
    """The operators by shapes whose work takes most of `ns` (one entry per device event), the longest first.

    Work of backward belongs to the operator that made its node, work without a launch to that of the same work of another step.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    if not (table.shapes != NONE).any():
        return ()
    operator = device.operator
    operator = np.where(device.aligned != NONE, operator[device.aligned], operator)
    events = np.flatnonzero((operator != NONE) & ~device.collective)
    different, place = _different(operator[events], len(host.rows))
    called = _called(attribution, _forward(attribution, different))
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
    entries: list[ShapedOperator] = []
    for number in np.argsort(-total, kind="stable").tolist():
        if len(entries) == MOST or not total[number]:
            break
        name, shapes = divmod(int(keys[number]), len(table.texts))
        parsed = tensor_shapes(table.texts[shapes])
        if not parsed:
            continue
        entries.append(
            ShapedOperator(
                name=table.names[name],
                family=operator_family(table.names[name]),
                shapes=parsed,
                calls=int(calls[number]),
                kernel_ns=int(total[number]),
                forward_ns=int(by_phase[number, PHASE_NUMBERS["forward"]]),
                backward_ns=int(by_phase[number, PHASE_NUMBERS["backward"]]),
                recompute_ns=int(by_phase[number, PHASE_NUMBERS["recompute"]]),
            )
        )
    return tuple(entries)


def _different(positions: Ids, size: int) -> tuple[Ids, Ids]:
    """The different ones of `positions` (0 up to `size`) in order, and for each of `positions` which of them it is."""
    seen = np.zeros(size, np.bool_)
    seen[positions] = True
    different = np.flatnonzero(seen).astype(np.int32)
    place = np.empty(size, np.int32)
    place[different] = np.arange(len(different), dtype=np.int32)
    return different, place[positions]


def _first_of(positions: Ids, size: int) -> Ids:
    """Where each of the different `positions` (0 up to `size`) stands first."""
    where = np.full(size, NONE, np.int32)
    where[positions[::-1]] = np.arange(len(positions), dtype=np.int32)[::-1]
    first: Ids = where[where != NONE]
    return first


def _forward(attribution: Attribution, operator: Ids) -> Ids:
    """Instead of each operator that a node runs the one that made the node, where that is known."""
    node, nodes = attribution.host.node[operator], attribution.nodes
    if not len(nodes):
        return operator
    at = np.minimum(np.searchsorted(nodes, node), len(nodes) - 1)
    forward = np.where((node != NONE) & (nodes[at] == node), attribution.node_forward[at], NONE)
    return np.where(forward != NONE, forward, operator).astype(np.int32)


def _called(attribution: Attribution, operator: Ids) -> Ids:
    """The outermost of PyTorch's own operators around each: what the program called, not what that called in turn."""
    table, host = attribution.table, attribution.host

    def enclosing_operator(operator: Ids) -> Ids:
        # What an author's own operator or range encloses is called by that, not by what is around it.
        above = host.parent[operator]
        rows = host.rows[above]
        plain = (above != NONE) & (host.operator[above] == above) & (table.shapes[rows] != NONE)
        return np.where(plain & table.named(rows, _ATEN), above, NONE).astype(np.int32)

    return climb(operator, enclosing_operator)


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


def loaders(attribution: Attribution) -> tuple[str, ...]:
    """The classes of the iterators that fetched batches, as the profiler names them around each fetch; the longest first."""
    table, host = attribution.table, attribution.host
    classes = {i: match.group(1) for i, name in enumerate(table.names) if (match := _FETCH.match(name))}
    if not classes:
        return ()
    name = table.name[host.rows]
    fetches = np.isin(name, np.array(list(classes), np.int32))
    spent = sum_by(name[fetches], (host.end_ns - host.start_ns)[fetches], len(table.names))
    return tuple(dict.fromkeys(classes[i] for i in sorted(classes, key=lambda i: -int(spent[i]))))
