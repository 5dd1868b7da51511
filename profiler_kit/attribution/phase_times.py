"""The host's clock beside the device's, phase by phase."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from profiler_kit.attribution.idle import Gaps
from profiler_kit.attribution.spans import count_by, sum_by
from profiler_kit.records.traces import TRACE_PHASES, PhaseTime
from profiler_kit.traces.sparse import ALLOCATED, DEVICE_TYPE, HOST_TYPE, numbers_at
from profiler_kit.traces.table import NONE, Bytes, Ints, Table


def phase_times(
    phase: Bytes, own: Ints, duration: Ints, *, idle: Ints, host: Mapping[int, int], wait: Ints
) -> tuple[PhaseTime, ...]:
    """Every phase that has work or a part on the host, in TRACE_PHASES' order; `idle` and `wait` are by phase."""
    has = phase != NONE
    key, size = phase[has].astype(np.int64), len(TRACE_PHASES)
    events, kernel, total = count_by(key, size), sum_by(key, own[has], size), sum_by(key, duration[has], size)
    return tuple(
        PhaseTime(
            phase=name,
            host_ns=host.get(number),
            kernel_ns=int(kernel[number]),
            sum_ns=int(total[number]),
            idle_ns=int(idle[number]),
            wait_ns=int(wait[number]),
            events=int(events[number]),
        )
        for number, name in enumerate(TRACE_PHASES)
        if events[number] or number in host
    )


def idle_by_phase(found: Gaps, phase: Bytes) -> Ints:
    """Idle ns by the phase of what ended each gap."""
    ended = phase[found.ended_by]
    return sum_by(ended[ended != NONE].astype(np.int64), (found.end - found.start)[ended != NONE], len(TRACE_PHASES))


def peak_allocated_bytes(table: Table) -> int | None:
    """The most bytes allocated on a device at once, by the profiler's memory events; None where it recorded none."""
    sparse = table.more.get(ALLOCATED)
    if sparse is None or sparse.texts:
        return None
    values = sparse.values[numbers_at(table, DEVICE_TYPE, sparse.rows) != HOST_TYPE]
    return int(values.max()) if len(values) else None
