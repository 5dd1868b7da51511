"""Device time by stream, module, kernel, operator, shape and collective: the same busy instants, added up by another owner."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any, Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import Timeline
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, climb
from profiler_kit.records.traces import (
    TRACE_PHASES,
    CollectiveTime,
    Communication,
    ShapedOperator,
    StreamTime,
    TraceKernel,
    TraceModule,
    TraceOperator,
)
from profiler_kit.traces.intervals import count_by, length, subtract, sum_by, union
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.names import LOADER_PREFIX, calls_collective, collective_kind, element_bytes, operator_family
from profiler_kit.traces.table import (
    ALLOCATED,
    COLLECTIVE_NAME,
    DEVICE_TYPE,
    DTYPE,
    HOST_TYPE,
    IN_ELEMENTS,
    NONE,
    Bytes,
    Ids,
    Ints,
    Kind,
    Table,
)

MOST: Final = 20
# Source: torch/utils/data/dataloader.py, _BaseDataLoaderIter._profile_name.
_FETCH: Final = re.compile(re.escape(LOADER_PREFIX) + r"(\w{1,100})\.__next__\Z")
_ATEN: Final = re.compile(r"\Aaten::")
_LONGEST: Final = 4096  # characters of a text of shapes: a list of thousands of tensors tells no layer
_DEEPEST: Final = 64  # calls around a launch: further out none says anything of it
_MOST_ELEMENTS: Final = 1 << 58  # of 16 bytes: what an id of a broken trace may say does not run over
OTHER: Final = "collective"  # of a kind that the trace does not tell


def streams(attribution: Attribution) -> tuple[StreamTime, ...]:
    """Each stream with work, busiest first."""
    device = attribution.device
    stream = attribution.table.stream[device.rows]
    entries = []
    order = np.argsort(stream, kind="stable")  # keeps the order of time within a stream
    numbers, first = np.unique(stream[order], return_index=True)
    for number, events in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        device_name, stream_name = attribution.table.streams[number] if number != NONE else ("", "")
        entries.append(
            StreamTime(
                device=device_name,
                stream=stream_name,
                events=len(events),
                busy_ns=length(union(device.start_ns[events], device.end_ns[events], ordered=True)),
                communication=bool(device.collective[events].all()),
            )
        )
    return tuple(sorted(entries, key=lambda entry: -entry.busy_ns))


def modules(attribution: Attribution, module: Ids, phase: Bytes, ns: Ints) -> tuple[TraceModule, ...]:
    """Time by module and phase, longest first. Time of no phase is in none of them, see `unattributed_ns`."""
    has_phase = phase != NONE
    count = len(TRACE_PHASES)
    size = (len(attribution.modules) + 1) * count
    key = (module[has_phase].astype(np.int64) + 1) * count + phase[has_phase]
    total, events = sum_by(key, ns[has_phase], size), count_by(key, size)
    entries = []
    for index in np.flatnonzero(events).tolist():
        number, of_phase = index // count - 1, index % count
        path, class_name = attribution.modules[number] if number != NONE else ("", "")
        entries.append(
            TraceModule(
                path=path,
                class_name=class_name,
                phase=TRACE_PHASES[of_phase],
                kernel_ns=int(total[index]),
                events=int(events[index]),
            )
        )
    return tuple(sorted(entries, key=lambda entry: -entry.kernel_ns))


def kernels(attribution: Attribution, timeline: Timeline) -> tuple[TraceKernel, ...]:
    """Device work by name, longest first."""
    table, device = attribution.table, attribution.device
    name, size = table.name[device.rows], len(table.names)
    calls = count_by(name, size)
    busy, total = sum_by(name, timeline.piece, size), sum_by(name, device.end_ns - device.start_ns, size)
    operator = np.full(size, NONE, np.int32)
    operator[name[::-1]] = device.operator[::-1]  # the first one's is written last
    entries = []
    for i in np.flatnonzero(calls).tolist():
        convolution = _convolution(attribution, int(operator[i]))
        kernel = classify(table.names[i], convolution)
        entries.append(
            TraceKernel(
                name=table.names[i],
                family=kernel.family,
                op=kernel.op,
                math=kernel.math,
                calls=int(calls[i]),
                kernel_ns=int(busy[i]),
                sum_ns=int(total[i]),
            )
        )
    return tuple(sorted(entries, key=lambda entry: (-entry.kernel_ns, -entry.sum_ns)))


def _convolution(attribution: Attribution, operator: int) -> ConvolutionOp | None:
    """What the innermost convolution operator around `operator` does, or None where there is none."""
    table, host = attribution.table, attribution.host
    while operator != NONE:
        if (op := convolution_op(table.names[table.name[host.rows[operator]]])) is not None:
            return op
        above = int(host.parent[operator])
        operator = int(host.operator[above]) if above != NONE else NONE
    return None


def peak_allocated_bytes(table: Table) -> int | None:
    """The most bytes allocated on a device at once, by the profiler's memory events; None where it recorded none."""
    sparse = table.more.get(ALLOCATED)
    if sparse is None or sparse.texts:
        return None
    values = sparse.values[table.numbers_at(DEVICE_TYPE, sparse.rows) != HOST_TYPE]
    return int(values.max()) if len(values) else None


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


# ---- operators


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
    forward = _forward(attribution, different)
    called = _called(attribution, forward)
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
    shapes: list[tuple[int, ...]] = []
    return tuple(shapes) if isinstance(written, list) and all(_gather(value, shapes, 0) for value in written) else ()


def _gather(value: Any, shapes: list[tuple[int, ...]], depth: int) -> bool:
    """Adds the shapes in `value`, a shape or a list of such; whether it is one of them."""
    if not isinstance(value, list) or depth > 2:
        return False
    if value and all(type(size) is int and size >= 0 for size in value):
        shapes.append(tuple(value))
        return True
    return all(_gather(inner, shapes, depth + 1) for inner in value)


# ---- collectives


def communication(attribution: Attribution) -> Communication | None:
    """The collectives of a trace; None where it has none. What exposes them is time without a kernel of another sort."""
    device = attribution.device
    collective = device.collective
    if not collective.any():
        return None
    kernels = ~collective & (attribution.table.kind[device.rows] == Kind.KERNEL)
    intervals = union(device.start_ns[collective], device.end_ns[collective], ordered=True)
    covered = union(device.start_ns[kernels], device.end_ns[kernels], ordered=True)
    events = np.flatnonzero(collective).astype(np.int32)
    duration = (device.end_ns - device.start_ns)[events].tolist()
    kinds, sizes = messages(attribution, device.rows[events], device.launch[events])
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, ns, size in zip(kinds, duration, sizes, strict=True):
        groups[kind].append((ns, size))
    by_kind = [
        CollectiveTime(
            kind=kind,
            events=len(members),
            sum_ns=sum(ns for ns, _ in members),
            bytes=None if any(size == NONE for _, size in members) else sum(size for _, size in members),
        )
        for kind, members in groups.items()
    ]
    return Communication(
        events=len(events),
        sum_ns=sum(duration),
        union_ns=length(intervals),
        exposed_ns=length(subtract(intervals, covered)),
        by_kind=tuple(sorted(by_kind, key=lambda entry: -entry.sum_ns)),
    )


class Messages(NamedTuple):
    """Of collectives: the kind of each, and the size of its input in bytes, NONE where the trace does not tell."""

    kinds: list[str]
    sizes: list[int]


def messages(attribution: Attribution, rows: Ids, launch: Ids) -> Messages:
    """The messages of the collectives `rows`, launched at the positions `launch` or NONE.

    A kind is as the profiler noted, as the event's name says, or as the call around its launch is named.
    """
    table = attribution.table
    noted = table.texts_at(COLLECTIVE_NAME, rows)
    elements = table.numbers_at(IN_ELEMENTS, rows)
    sizes = [element_bytes(dtype) for dtype in table.texts_at(DTYPE, rows)]
    size = np.array([NONE if each is None else each for each in sizes], np.int64)
    known = (elements >= 0) & (size != NONE)
    kinds = []
    for name, note, position in zip(table.name[rows].tolist(), noted, launch.tolist(), strict=True):
        kind = collective_kind(note) or collective_kind(table.names[name]) or _kind_by_call(attribution, position)
        kinds.append(kind or OTHER)
    return Messages(kinds, np.where(known, np.clip(elements, 0, _MOST_ELEMENTS) * size, NONE).tolist())


def _kind_by_call(attribution: Attribution, launch: int) -> str | None:
    table, host = attribution.table, attribution.host
    at = int(host.parent[launch]) if launch != NONE else NONE
    for _ in range(_DEEPEST):
        if at == NONE:
            break
        name = table.names[table.name[host.rows[at]]]
        if calls_collective(name) and (kind := collective_kind(name)) is not None:
            return kind
        at = int(host.parent[at])
    return None
