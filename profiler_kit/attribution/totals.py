"""Device time by phase, stream, module, operator, kernel and collective: the same busy instants, added up by another owner."""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Final

import numpy as np

from profiler_kit.attribution.device_time import Timeline
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.traces import (
    TRACE_PHASES,
    CollectiveTime,
    Communication,
    StreamTime,
    TraceKernel,
    TraceModule,
)
from profiler_kit.traces.intervals import count_by, length, subtract, sum_by, union
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.names import calls_collective, collective_kind, element_bytes
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
    known = phase != NONE
    count = len(TRACE_PHASES)
    size = (len(attribution.modules) + 1) * count
    key = (module[known].astype(np.int64) + 1) * count + phase[known]
    total, events = sum_by(key, ns[known], size), count_by(key, size)
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
        kernel = classify(table.names[i], _convolution(attribution, int(operator[i])))
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


# ---- collectives


_DEEPEST: Final = 64  # calls around a launch: further out none says anything of it
_MOST_ELEMENTS: Final = 1 << 58  # of 16 bytes: what an id of a broken trace may say does not run over
OTHER: Final = "collective"  # of a kind that nothing tells


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
    sizes = message_bytes(attribution.table, device.rows[events]).tolist()
    groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for kind, ns, size in zip(collective_kinds(attribution, events), duration, sizes, strict=True):
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


def collective_kinds(attribution: Attribution, events: Ids) -> list[str]:
    """What each collective is: as the profiler noted, as its kernel's name says, or as the call around its launch is named."""
    table, device = attribution.table, attribution.device
    noted = table.texts_at(COLLECTIVE_NAME, device.rows[events])
    kinds = []
    for event, note in zip(events.tolist(), noted, strict=True):
        kind = _kind(note) or _kind(table.names[table.name[device.rows[event]]])
        kinds.append(kind or _kind_by_call(attribution, int(device.launch[event])) or OTHER)
    return kinds


@cache
def _kind(text: str) -> str | None:
    return collective_kind(text) if text else None


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


def message_bytes(table: Table, rows: Ids) -> Ints:
    """The size of each collective's input in bytes, NONE where the trace does not tell."""
    elements = table.numbers_at(IN_ELEMENTS, rows)
    sizes = [element_bytes(dtype) for dtype in table.texts_at(DTYPE, rows)]
    size = np.array([NONE if each is None else each for each in sizes], np.int64)
    known = (elements >= 0) & (size != NONE)
    return np.where(known, np.clip(elements, 0, _MOST_ELEMENTS) * size, NONE)
