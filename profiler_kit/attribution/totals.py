"""Sums of device time by stream, module, kernel, operator, shape and collective."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from typing import Any, Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import Timeline
from profiler_kit.attribution.phase_times import CONVOLUTION_OPS, convolutions
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution, climb
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import (
    CollectiveTime,
    Communication,
    ShapedOperator,
    StreamTime,
    TraceKernel,
    TraceOperator,
)
from profiler_kit.traces.intervals import count_by, length, subtract, sum_by, union
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.names import (
    LOADER_PREFIX,
    OPTIMIZER_STEP,
    calls_collective,
    collective_kind,
    element_bytes,
    operator_family,
)
from profiler_kit.traces.table import (
    ALLOCATED,
    COLLECTIVE_NAME,
    DEVICE_TYPE,
    DTYPE,
    HOST_TYPE,
    IN_ELEMENTS,
    INPUT_TYPES,
    NONE,
    Ids,
    Ints,
    Kind,
    Mask,
    Table,
)

MAX_SHAPED_OPERATORS: Final = 20
# Source: torch/utils/data/dataloader.py, _BaseDataLoaderIter._profile_name.
_FETCH: Final = re.compile(re.escape(LOADER_PREFIX) + r"(\w{1,100})\.__next__\Z")
# Source: torch/optim/optimizer.py, Optimizer.profile_hook_step.
_OPTIMIZER: Final = re.compile(re.escape(OPTIMIZER_STEP) + r"(\w{1,100})\.step\Z")
_FIRST_TYPE: Final = re.compile(r'\[+\s*"([^"]*)"')
_FLOAT_TYPES: Final = {"double": "float64", "float": "float32", "c10::BFloat16": "bfloat16", "c10::Half": "float16"}
_ATEN: Final = re.compile(r"\Aaten::")
# characters of a text of shapes; a list of thousands of tensors does not identify a layer
_MAX_SHAPES_LENGTH: Final = 4096
_MAX_CALL_DEPTH: Final = 64  # levels of calls around a launch to search
# Smaller messages take as long as their latency.
_LARGE_MESSAGE_BYTES: Final = 1 << 20
_MAX_ELEMENTS: Final = 1 << 58  # of up to 16 bytes: values of a broken trace must not overflow
OTHER_KIND: Final = "collective"  # the kind of a collective whose kind is unknown


def streams(attribution: Attribution) -> tuple[StreamTime, ...]:
    """Return the time of each stream with work, busiest first."""
    device = attribution.device
    stream = attribution.table.stream[device.rows]
    entries = []
    order = np.argsort(stream, kind="stable")  # a stable sort keeps the order of time within a stream
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


def kernels(attribution: Attribution, timeline: Timeline) -> tuple[TraceKernel, ...]:
    """Return the device work by name, longest first."""
    table, device = attribution.table, attribution.device
    name, size = table.name[device.rows], len(table.names)
    calls = count_by(name, size)
    busy, total = sum_by(name, timeline.event_busy_ns, size), sum_by(name, device.end_ns - device.start_ns, size)
    operator = np.full(size, NONE, np.int32)
    operator[name[::-1]] = device.operator[::-1]  # in reverse, so that the first event's operator is written last
    used = np.flatnonzero(calls)
    entries = []
    for i, convolution in zip(used.tolist(), convolutions(attribution, operator[used]).tolist(), strict=True):
        kernel = classify(table.names[i], CONVOLUTION_OPS[convolution])
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
    return tuple(sorted(entries, key=lambda entry: (-entry.kernel_ns, -entry.duration_ns)))


def median_kernel_ns(attribution: Attribution) -> int | None:
    """Return the median duration of all kernels; copies, fills and collectives do not count. None without kernels."""
    device = attribution.device
    is_kernel = (attribution.table.kind[device.rows] == Kind.KERNEL) & ~device.collective
    return int(np.median((device.end_ns - device.start_ns)[is_kernel])) if is_kernel.any() else None


def peak_allocated_bytes(table: Table) -> int | None:
    """Return the peak of allocated bytes on a device, from the profiler's memory events; None if it recorded none."""
    sparse = table.more.get(ALLOCATED)
    if sparse is None or sparse.texts:
        return None
    values = sparse.values[table.numbers_at(DEVICE_TYPE, sparse.rows) != HOST_TYPE]
    return int(values.max()) if len(values) else None


def loaders(attribution: Attribution) -> tuple[str, ...]:
    """Return the classes of the DataLoader iterators, as the profiler names them around each fetch, the longest first."""
    return _classes(attribution, _FETCH)


def optimizers(attribution: Attribution) -> tuple[str, ...]:
    """Return the classes of the optimizers, as the profiler names them around each step, the longest first."""
    return _classes(attribution, _OPTIMIZER)


def _classes(attribution: Attribution, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """Return the classes that the ranges with names of `pattern` state, the longest first."""
    table, host = attribution.table, attribution.host
    classes = {i: match.group(1) for i, name in enumerate(table.names) if (match := pattern.match(name))}
    if not classes:
        return ()
    name = table.name[host.rows]
    ranges = np.isin(name, np.array(list(classes), np.int32))
    range_ns = sum_by(name[ranges], (host.end_ns - host.start_ns)[ranges], len(table.names))
    return tuple(dict.fromkeys(classes[i] for i in sorted(classes, key=lambda i: -int(range_ns[i]))))


# ---- operators


def operators(
    attribution: Attribution, operator: Ids, ns: Ints, counted: Mask | None = None
) -> tuple[TraceOperator, ...]:
    """Return the operators of the trace by name, with their device time and their self time on the host.

    `ns`: device time by `operator`, positions in `Attribution.host`. `counted`: the host events that count; None for all.
    """
    table, host = attribution.table, attribution.host
    name_of, size = table.name[host.rows], len(table.names)
    positions = np.flatnonzero(host.is_operator if counted is None else host.is_operator & counted)
    duration = host.end_ns[positions] - host.start_ns[positions]
    calls, total = count_by(name_of[positions], size), sum_by(name_of[positions], duration, size)
    enclosing = host.enclosing(host.operator, positions)
    children = sum_by(name_of[enclosing[enclosing != NONE]], duration[enclosing != NONE], size)
    has_operator = operator != NONE
    operator, ns = operator[has_operator], ns[has_operator]
    kernel = sum_by(name_of[operator], ns, size)
    typed = _first_input_types(table, host.rows[operator])
    has_type = np.flatnonzero(typed != NONE)
    cells = name_of[operator[has_type]] * len(_FLOAT_TYPES) + typed[has_type]
    type_ns = sum_by(cells, ns[has_type], size * len(_FLOAT_TYPES)).reshape(size, len(_FLOAT_TYPES))
    longest = _longest_calls(name_of, operator, ns, size, max(1, len(attribution.steps)))
    dtypes = tuple(_FLOAT_TYPES.values())
    entries = [
        TraceOperator(
            name=table.names[i],
            family=operator_family(table.names[i]),
            calls=int(calls[i]),
            kernel_ns=int(kernel[i]),
            host_self_ns=max(int(total[i]) - int(children[i]), 0),
            float64_ns=int(type_ns[i, 0]),
            longest_ns=int(longest[i]),
            dtypes=tuple(dtypes[j] for j in np.argsort(-type_ns[i], kind="stable") if type_ns[i, j]),
        )
        for i in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(entries, key=lambda entry: (-entry.kernel_ns, -entry.host_self_ns)))


def _longest_calls(name_of: Ids, operator: Ids, ns: Ints, size: int, count: int) -> Ints:
    """Return, for each of `size` names, the sum of `ns` in the `count` calls of it with the most.

    `operator`: the call of each of `ns`. `name_of`: the name of each call.
    """
    ns_of = sum_by(operator, ns, len(name_of))
    calls = np.flatnonzero(ns_of)
    calls = calls[np.lexsort((-ns_of[calls], name_of[calls]))]
    names = name_of[calls]
    rank = np.arange(len(calls)) - np.searchsorted(names, names)
    calls = calls[rank < count]
    return sum_by(name_of[calls], ns_of[calls], size)


def _first_input_types(table: Table, rows: Ids) -> Ids:
    """Return the type of the first input at each of `rows`, as a position in `_FLOAT_TYPES`; `NONE` for other or no types."""
    types = table.more.get(INPUT_TYPES)
    if types is None or not len(types.rows) or not len(rows):
        return np.full(len(rows), NONE, np.int32)
    # A later input may be a scalar, which does not make the operation one of its type.
    first = [match[1] if (match := _FIRST_TYPE.match(text)) is not None else "" for text in types.texts]
    numbers = {name: number for number, name in enumerate(_FLOAT_TYPES)}
    number_of = np.array([numbers.get(name, NONE) for name in first], np.int32)
    index = np.minimum(np.searchsorted(types.rows, rows), len(types.rows) - 1)
    recorded: Ids = np.where(types.rows[index] == rows, number_of[types.values[index].astype(np.int64)], np.int32(NONE))
    return recorded


def shaped_operators(attribution: Attribution, ns: Ints) -> tuple[ShapedOperator, ...]:
    """Return the operators by input shapes with the most of `ns` (one value per device event), longest first.

    Backward work is attributed to the operator that created its node, work without a launch to that of the matching
    work of another step.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    if not (table.shapes != NONE).any():
        return ()
    operator = device.operator
    operator = np.where(device.aligned != NONE, operator[device.aligned], operator)
    events = np.flatnonzero((operator != NONE) & ~device.collective)
    unique_operators, unique_index = _unique_positions(operator[events], len(host.rows))
    forward = _forward_operators(attribution, unique_operators)
    user_call = _outermost_aten(attribution, forward)
    rows = host.rows[user_call]
    key = table.name[rows].astype(np.int64) * len(table.texts) + table.shapes[rows]
    key[table.shapes[rows] == NONE] = NONE
    keys, group = np.unique(key, return_inverse=True)
    # The ns of each event by operator call and phase. Index -1, no phase, selects the last column.
    phases = len(TRACE_PHASES) + 1
    by_phase = sum_by(group[unique_index] * phases + device.phase[events] % phases, ns[events], len(keys) * phases)
    by_phase = by_phase.reshape(len(keys), phases)
    total = np.where(keys != NONE, by_phase.sum(axis=1), 0)
    calls = count_by(group[_first_index(user_call, len(host.rows))], len(keys))
    entries: list[ShapedOperator] = []
    for number in np.argsort(-total, kind="stable").tolist():
        if len(entries) == MAX_SHAPED_OPERATORS or not total[number]:
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


def _unique_positions(positions: Ids, size: int) -> tuple[Ids, Ids]:
    """Return the unique `positions` (0 up to `size`) in order, and the index of each of `positions` in them."""
    is_present = np.zeros(size, np.bool_)
    is_present[positions] = True
    unique = np.flatnonzero(is_present).astype(np.int32)
    index = np.empty(size, np.int32)
    index[unique] = np.arange(len(unique), dtype=np.int32)
    return unique, index[positions]


def _first_index(positions: Ids, size: int) -> Ids:
    """Return the index of the first occurrence of each unique value in `positions` (0 up to `size`)."""
    index = np.full(size, NONE, np.int32)
    index[positions[::-1]] = np.arange(len(positions), dtype=np.int32)[::-1]
    first: Ids = index[index != NONE]
    return first


def _forward_operators(attribution: Attribution, operator: Ids) -> Ids:
    """Return, for each operator in a backward node, the forward operator of the node, if known, else itself."""
    forward = attribution.forward_of(attribution.host.node[operator])
    return np.where(forward != NONE, forward, operator).astype(np.int32)


def _outermost_aten(attribution: Attribution, operator: Ids) -> Ids:
    """Return the outermost of PyTorch's own operators around each: the one that the program called."""
    table, host = attribution.table, attribution.host

    def enclosing_operator(operator: Ids) -> Ids:
        # An operator or range of the user's code is the caller of the operators inside it.
        parent = host.parent[operator]
        rows = host.rows[parent]
        is_recorded_operator = (parent != NONE) & (host.operator[parent] == parent) & (table.shapes[rows] != NONE)
        return np.where(is_recorded_operator & table.named(rows, _ATEN), parent, NONE).astype(np.int32)

    return climb(operator, enclosing_operator)


def tensor_shapes(text: str) -> tuple[tuple[int, ...], ...]:
    """Return the non-scalar shapes in the text of "Input Dims"; empty if it does not parse.

    Lists of tensors are flattened.
    """
    if len(text) > _MAX_SHAPES_LENGTH:
        return ()
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return ()
    shapes: list[tuple[int, ...]] = []
    return (
        tuple(shapes) if isinstance(parsed, list) and all(_append_shapes(value, shapes, 0) for value in parsed) else ()
    )


def _append_shapes(value: Any, shapes: list[tuple[int, ...]], depth: int) -> bool:
    """Append the shapes in `value` (a shape, or a list of shapes) to `shapes`. Returns False if it is neither."""
    if not isinstance(value, list) or depth > 2:
        return False
    if value and all(type(size) is int and size >= 0 for size in value):
        shapes.append(tuple(value))
        return True
    return all(_append_shapes(element, shapes, depth + 1) for element in value)


# ---- collectives


def communication(attribution: Attribution) -> Communication | None:
    """Return the figures of the collectives of a trace; None if it has none.

    Communication is exposed while no other kernel runs.
    """
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
            bytes_per_s=_bytes_per_s([(ns, size) for ns, size in members if size >= _LARGE_MESSAGE_BYTES]),
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


def _bytes_per_s(large: list[tuple[int, int]]) -> float | None:
    """Return the rate of messages, given as durations in ns and sizes; None without a duration."""
    ns = sum(ns for ns, _ in large)
    return 1e9 * sum(size for _, size in large) / ns if ns > 0 else None


class Messages(NamedTuple):
    """The kind of each collective, and the size of its input in bytes or NONE."""

    kinds: list[str]
    sizes: list[int]


def messages(attribution: Attribution, rows: Ids, launch: Ids) -> Messages:
    """Return the messages of the collectives `rows`, launched at the positions `launch` or NONE.

    The kind is the one the profiler recorded, else the one in the name of a call around the launch, else the one in the
    event's name. NCCL runs several kinds with one kernel (``ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t``), so its name is the
    weakest evidence.
    """
    table = attribution.table
    stated_kinds = table.texts_at(COLLECTIVE_NAME, rows)
    elements = table.numbers_at(IN_ELEMENTS, rows)
    sizes = [element_bytes(dtype) for dtype in table.texts_at(DTYPE, rows)]
    size = np.array([NONE if size_or_none is None else size_or_none for size_or_none in sizes], np.int64)
    is_known = (elements >= 0) & (size != NONE)
    kinds = []
    for name, stated_kind, position in zip(table.name[rows].tolist(), stated_kinds, launch.tolist(), strict=True):
        kind = (
            collective_kind(stated_kind) or _kind_by_call(attribution, position) or collective_kind(table.names[name])
        )
        kinds.append(kind or OTHER_KIND)
    return Messages(kinds, np.where(is_known, np.clip(elements, 0, _MAX_ELEMENTS) * size, NONE).tolist())


def _kind_by_call(attribution: Attribution, launch: int) -> str | None:
    table, host = attribution.table, attribution.host
    at = int(host.parent[launch]) if launch != NONE else NONE
    for _ in range(_MAX_CALL_DEPTH):
        if at == NONE:
            break
        name = table.names[table.name[host.rows[at]]]
        if calls_collective(name) and (kind := collective_kind(name)) is not None:
            return kind
        at = int(host.parent[at])
    return None
