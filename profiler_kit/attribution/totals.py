"""Device time by stream, module, operator and kernel: the same busy instants, added up by another owner each time."""

from __future__ import annotations

import numpy as np

from profiler_kit.attribution.host_states import are_operators
from profiler_kit.attribution.ownership import PHASE_NUMBERS, Owned
from profiler_kit.attribution.spans import count_by, length, sum_by, union
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.attribution.times import times
from profiler_kit.records.traces import TRACE_PHASES, StreamTime, TraceKernel, TraceModule, TraceOperator
from profiler_kit.traces import operators as operator_names
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints


def streams(owned: Owned, line: Timeline) -> tuple[StreamTime, ...]:
    """Each stream with work, busiest first."""
    found = []
    order = np.argsort(line.stream, kind="stable")  # keeps the order of time within a stream
    numbers, first = np.unique(line.stream[order], return_index=True)
    for number, rows in zip(numbers.tolist(), np.split(order, first[1:]), strict=True):
        device, stream = owned.table.streams[number] if number != NONE else ("", "")
        found.append(
            StreamTime(
                device=device,
                stream=stream,
                events=len(rows),
                busy_ns=length(union(line.start[rows], line.end[rows], ordered=True)),
                communication=bool((owned.device.phase[rows] == PHASE_NUMBERS["communication"]).all()),
            )
        )
    return tuple(sorted(found, key=lambda stream: -stream.busy_ns))


def modules(owned: Owned, module: Ids, phase: Bytes, ns: Ints) -> tuple[TraceModule, ...]:
    """Time by module and phase, longest first; what has no phase is nobody's, see `unattributed_ns`."""
    has = phase != NONE
    count = len(TRACE_PHASES)
    size = (len(owned.modules) + 1) * count
    key = (module[has].astype(np.int64) + 1) * count + phase[has]
    total, events = sum_by(key, ns[has], size), count_by(key, size)
    found = []
    for index in np.flatnonzero(events).tolist():
        own, number = index // count - 1, index % count
        path, class_name = owned.modules[own] if own != NONE else ("", "")
        found.append(
            TraceModule(
                path=path,
                class_name=class_name,
                phase=TRACE_PHASES[number],
                kernel_ns=int(total[index]),
                events=int(events[index]),
            )
        )
    return tuple(sorted(found, key=lambda module: -module.kernel_ns))


def operators(owned: Owned, operator: Ids, ns: Ints) -> tuple[TraceOperator, ...]:
    """Every operator of the trace by name: `ns` by `operator` (positions in `Owned.host`), and its own time on the host."""
    table, host = owned.table, owned.host
    size = len(table.names)
    called = np.flatnonzero(are_operators(host))
    rows = host.rows[called]
    start, end = times(table, rows)
    duration = end - start
    calls, total = count_by(table.name[rows], size), sum_by(table.name[rows], duration, size)
    above = host.parent[called]
    around = np.where(above != NONE, host.operator[above], NONE)
    inner = around != NONE
    within = sum_by(table.name[host.rows[around[inner]]], duration[inner], size)
    launched = operator != NONE
    kernel = sum_by(table.name[host.rows[operator[launched]]], ns[launched], size)
    found = [
        TraceOperator(
            name=table.names[i],
            family=operator_names.family(table.names[i]),
            calls=int(calls[i]),
            kernel_ns=int(kernel[i]),
            host_self_ns=max(int(total[i]) - int(within[i]), 0),
        )
        for i in np.flatnonzero(calls).tolist()
    ]
    return tuple(sorted(found, key=lambda entry: (-entry.kernel_ns, -entry.host_self_ns)))


def kernels(owned: Owned, line: Timeline) -> tuple[TraceKernel, ...]:
    """Device work by name, longest first."""
    size = len(owned.table.names)
    calls = count_by(line.name, size)
    own, total = sum_by(line.name, line.piece, size), sum_by(line.name, line.end - line.start, size)
    operator = np.full(size, NONE, np.int32)
    operator[line.name[::-1]] = owned.device.operator[::-1]  # the first one's is written last
    found = []
    for i in np.flatnonzero(calls).tolist():
        known = classify(owned.table.names[i], _convolution(owned, int(operator[i])))
        found.append(
            TraceKernel(
                name=owned.table.names[i],
                family=known.family,
                op=known.op,
                math=known.math,
                calls=int(calls[i]),
                kernel_ns=int(own[i]),
                sum_ns=int(total[i]),
            )
        )
    return tuple(sorted(found, key=lambda kernel: (-kernel.kernel_ns, -kernel.sum_ns)))


def _convolution(owned: Owned, operator: int) -> ConvolutionOp | None:
    """What the innermost convolution operator around `operator` does, or None where there is none."""
    table, host = owned.table, owned.host
    while operator != NONE:
        if (does := convolution_op(table.names[table.name[host.rows[operator]]])) is not None:
            return does
        above = int(host.parent[operator])
        operator = int(host.operator[above]) if above != NONE else NONE
    return None
