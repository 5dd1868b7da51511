"""Owned work to what is said of it: the timeline added up in every way that a reader asks for."""

from __future__ import annotations

import numpy as np

from profiler_kit.attribution.communication import communication
from profiler_kit.attribution.host_only import host_gaps, host_line
from profiler_kit.attribution.host_time import phase_host_ns
from profiler_kit.attribution.idle import gaps, idle_times
from profiler_kit.attribution.launches import launches, queue
from profiler_kit.attribution.loaders import loaders
from profiler_kit.attribution.ownership import PHASE_NUMBERS, How, Owned
from profiler_kit.attribution.phase_times import idle_by_phase, peak_allocated_bytes, phase_times
from profiler_kit.attribution.remarks import remarks
from profiler_kit.attribution.shaped import shaped_operators
from profiler_kit.attribution.spans import sum_by
from profiler_kit.attribution.steps import host_step_ns, step_ns, steps
from profiler_kit.attribution.syncs import sync_waits, wait_by_phase
from profiler_kit.attribution.timeline import timeline
from profiler_kit.attribution.totals import kernels, modules, operators, streams
from profiler_kit.attribution.waits import waits
from profiler_kit.records.traces import TRACE_PHASES, TraceStep, TraceSummary
from profiler_kit.traces.table import NONE, Ids, Ints


def summarise(owned: Owned) -> TraceSummary:
    """Where the time of one trace went; by the host's clock where it holds no device work."""
    return _by_device(owned) if len(owned.device.rows) else _by_host(owned)


def _by_device(owned: Owned) -> TraceSummary:
    device, table = owned.device, owned.table
    line = timeline(owned)
    stood = waits(owned)
    made = launches(owned, line)
    idle = gaps(owned, line, stood)
    marked = steps(owned, line, made)
    linked = device.launch != NONE
    nobody = linked & (device.module == NONE) & (device.phase != PHASE_NUMBERS["communication"])
    return TraceSummary(
        file=table.file,
        clock="device",
        events=table.events,
        device_events=len(device.rows),
        span_ns=line.span_ns,
        busy_ns=line.busy_ns,
        idle_ns=line.span_ns - line.busy_ns,
        sum_ns=int((line.end - line.start).sum()),
        linked=int(linked.sum()),
        unlinked_ns=int(line.piece[~linked].sum()),
        aligned_ns=int(line.piece[device.how == How.ALIGNED].sum()),
        unattributed_ns=int(line.piece[device.phase == NONE].sum()),
        moduleless_ns=int(line.piece[nobody].sum()),
        step_ns=step_ns(marked),
        host_step_ns=host_step_ns(marked),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        steps=marked,
        phases=phase_times(
            device.phase,
            line.piece,
            line.end - line.start,
            idle=idle_by_phase(idle, device.phase),
            host=phase_host_ns(owned),
            wait=wait_by_phase(owned, stood, made),
        ),
        idle=idle_times(idle, device.phase[idle.ended_by]),
        streams=streams(owned, line),
        modules=modules(owned, device.module, device.phase, line.piece),
        operators=operators(owned, device.operator, line.piece),
        shapes=shaped_operators(owned, line.piece),
        kernels=kernels(owned, line),
        syncs=sync_waits(owned, line, stood, made),
        queue=queue(made),
        communication=communication(owned, line),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((device.module[device.phase != PHASE_NUMBERS["communication"]] != NONE).any()),
        compiled=owned.compiled,
        graph_launches=owned.graph_launches,
        loaders=loaders(owned),
        notes=remarks(owned, line, made, idle),
    )


def _by_host(owned: Owned) -> TraceSummary:
    host, table = owned.host, owned.table
    line = timeline(owned)
    made = launches(owned, line)
    clock = host_line(owned)
    idle = host_gaps(owned, clock, clock.covered)
    work, busy = clock.work, int(clock.ns.sum())
    marked = _host_steps(owned, work.position, clock.ns)
    return TraceSummary(
        file=table.file,
        clock="host",
        events=table.events,
        device_events=0,
        span_ns=clock.span_ns,
        busy_ns=busy,
        idle_ns=clock.span_ns - busy,
        sum_ns=int(clock.self_ns.sum()),
        linked=0,
        unlinked_ns=0,
        aligned_ns=0,
        unattributed_ns=int(clock.ns[work.phase == NONE].sum()),
        moduleless_ns=int(clock.ns[work.module == NONE].sum()),
        step_ns=None,
        host_step_ns=host_step_ns(marked),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        steps=marked,
        phases=phase_times(
            work.phase,
            clock.ns,
            clock.self_ns,
            idle=idle_by_phase(idle, host.phase),
            host=phase_host_ns(owned),
            wait=np.zeros(len(TRACE_PHASES), np.int64),
        ),
        idle=idle_times(idle, host.phase[idle.ended_by]),
        modules=modules(owned, work.module, work.phase, clock.ns),
        operators=operators(owned, host.operator[work.position], clock.ns),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((work.module != NONE).any()),
        compiled=owned.compiled,
        loaders=loaders(owned),
        notes=remarks(owned, line, made, idle),
    )


def _host_steps(owned: Owned, called: Ids, own: Ints) -> tuple[TraceStep, ...]:
    step = owned.host.step[called]
    kernel = sum_by(step[step != NONE], own[step != NONE], len(owned.steps))
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=None,
            kernel_ns=int(kernel[number]),
            idle_ns=None,
            steady=False,
        )
        for number, mark in enumerate(owned.steps)
    )
