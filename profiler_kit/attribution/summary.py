"""The summary of one trace: its timeline added up in every way that a reader asks for, and what to know before believing it."""

from __future__ import annotations

from typing import Final

import numpy as np

from profiler_kit.attribution.host_only import host_line
from profiler_kit.attribution.idle import CAUSE_NUMBERS, DeviceTime, device_time, idle_times
from profiler_kit.attribution.operators import loaders, operators, shaped_operators
from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.attribution.timeline import phase_host_ns
from profiler_kit.attribution.totals import communication, kernels, modules, peak_allocated_bytes, phase_times, streams
from profiler_kit.attribution.waits import queue_summary, sync_waits, wait_by_phase
from profiler_kit.records.traces import TRACE_PHASES, IdleCause, TraceStep, TraceSummary
from profiler_kit.traces.intervals import overlap, sum_by, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind
from profiler_kit.units import duration

_UNEXPLAINED: Final = 0.05  # of the span

# Clocks of device and host are synchronized to a few us; work that begins before its launch by more than that shows drift.
_CLOCK_SKEW_NS: Final = 10_000

# What the host spends on each operator; the profiler adds to it: 1.4 times with operators alone, 1.9 times with everything.
_HOSTS: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
_HOST_BOUND: Final = 0.25  # of the span; then steps depend on it


def summarize(attribution: Attribution, time: DeviceTime | None = None) -> TraceSummary:
    """Where the time of one trace went; by the host's clock where it holds no device work.

    `time`: the attribution's `device_time`, where the caller has it.
    """
    if not len(attribution.device.rows):
        return _by_host(attribution)
    return _by_device(attribution, time if time is not None else device_time(attribution))


def _by_device(attribution: Attribution, time: DeviceTime) -> TraceSummary:
    device, table = attribution.device, attribution.table
    timeline, waits, launches, gaps = time
    steps = device_steps(attribution, time)
    linked = device.launch != NONE
    length = device.end_ns - device.start_ns
    return TraceSummary(
        file=table.file,
        clock="device",
        events=table.events,
        device_events=len(device.rows),
        span_ns=timeline.span_ns,
        busy_ns=timeline.busy_ns,
        idle_ns=timeline.span_ns - timeline.busy_ns,
        sum_ns=int(length.sum()),
        linked=int(linked.sum()),
        unlinked_ns=int(timeline.piece[~linked].sum()),
        aligned_ns=int(timeline.piece[device.evidence == Evidence.ALIGNED].sum()),
        unattributed_ns=int(timeline.piece[device.phase == NONE].sum()),
        moduleless_ns=int(timeline.piece[linked & (device.module == NONE) & ~device.collective].sum()),
        step_ns=_step_ns(steps),
        host_step_ns=_host_step_ns(steps),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        steps=steps,
        phases=phase_times(
            device.phase,
            timeline.piece,
            length,
            idle=gaps.by_phase(device.phase),
            host=phase_host_ns(attribution),
            wait=wait_by_phase(attribution, waits, launches),
        ),
        idle=idle_times(gaps, device.phase[gaps.ended_by]),
        streams=streams(attribution),
        modules=modules(attribution, device.module, device.phase, timeline.piece),
        operators=operators(attribution, device.operator, timeline.piece),
        shapes=shaped_operators(attribution, timeline.piece),
        kernels=kernels(attribution, timeline),
        syncs=sync_waits(attribution, timeline, waits, launches),
        queue=queue_summary(launches),
        communication=communication(attribution),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((device.module[~device.collective] != NONE).any()),
        compiled=attribution.compiled,
        graph_launches=attribution.graph_launches,
        loaders=loaders(attribution),
        notes=tuple(dict.fromkeys((*_notes(attribution), *_device_notes(attribution, time)))),
    )


def _by_host(attribution: Attribution) -> TraceSummary:
    host, table = attribution.host, attribution.table
    line = host_line(attribution)
    called = np.flatnonzero(host.is_operator).astype(np.int32)
    phase, busy, alone = host.phase[called], line.ns[called], line.self_ns[called]
    steps = _host_steps(attribution, called, busy)
    note = "neither device work nor operators: nothing to add up"
    if bool((table.kind == Kind.OPERATOR).any()):
        note = "no device work: figures are the operators' own time on the host"
    return TraceSummary(
        file=table.file,
        clock="host",
        events=table.events,
        device_events=0,
        span_ns=line.end_ns - line.start_ns,
        busy_ns=int(busy.sum()),
        idle_ns=line.end_ns - line.start_ns - int(busy.sum()),
        sum_ns=int(alone.sum()),
        linked=0,
        unlinked_ns=0,
        aligned_ns=0,
        unattributed_ns=int(busy[phase == NONE].sum()),
        moduleless_ns=int(busy[host.module[called] == NONE].sum()),
        step_ns=None,
        host_step_ns=_host_step_ns(steps),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        steps=steps,
        phases=phase_times(
            phase,
            busy,
            alone,
            idle=line.gaps.by_phase(host.phase),
            host=phase_host_ns(attribution),
            wait=np.zeros(len(TRACE_PHASES), np.int64),
        ),
        idle=idle_times(line.gaps, host.phase[line.gaps.ended_by]),
        modules=modules(attribution, host.module[called], phase, busy),
        operators=operators(attribution, called, busy),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((host.module[called] != NONE).any()),
        compiled=attribution.compiled,
        loaders=loaders(attribution),
        notes=tuple(dict.fromkeys((*_notes(attribution), note))),
    )


# ---- steps


def device_steps(attribution: Attribution, time: DeviceTime) -> tuple[TraceStep, ...]:
    """The marked steps by the device's clock: from the first work of one to the first work of the next.

    A step is steady where the launch queue was no deeper when the next one began, or was full already.
    """
    device, total = attribution.device, len(attribution.steps)
    inside = np.flatnonzero(device.step != NONE)
    kernel = sum_by(device.step[inside], time.timeline.piece[inside], total)
    present, index = np.unique(device.step[inside], return_index=True)
    first = np.zeros(total + 1, np.int64)
    first[present] = device.start_ns[inside[index]]
    has_work = np.zeros(total + 1, np.bool_)
    has_work[present] = True
    ended = has_work[:-1] & has_work[1:] & (first[1:] >= first[:-1])
    period = first[1:] - first[:-1]
    busy = union(device.start_ns, device.end_ns, ordered=True)
    idle = period - overlap(busy, first[:-1], first[1:])
    steady = ended.copy()
    steady[time.launches.growing_steps()] = False
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=int(period[i]) if ended[i] else None,
            kernel_ns=int(kernel[i]),
            idle_ns=int(idle[i]) if ended[i] else None,
            steady=bool(steady[i]),
        )
        for i, mark in enumerate(attribution.steps)
    )


def _host_steps(attribution: Attribution, called: Ids, busy: Ints) -> tuple[TraceStep, ...]:
    step = attribution.host.step[called]
    kernel = sum_by(step[step != NONE], busy[step != NONE], len(attribution.steps))
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=None,
            kernel_ns=int(kernel[number]),
            idle_ns=None,
            steady=False,
        )
        for number, mark in enumerate(attribution.steps)
    )


def _step_ns(steps: tuple[TraceStep, ...]) -> int | None:
    """The median period of the steady steps, of all that have one where none is steady; None without any."""
    periods = [step.device_ns for step in steps if step.device_ns is not None and step.steady]
    periods = periods or [step.device_ns for step in steps if step.device_ns is not None]
    return int(np.median(np.array(periods))) if periods else None


def _host_step_ns(steps: tuple[TraceStep, ...]) -> int | None:
    """The median duration of the steps' marks; None without steps."""
    return int(np.median(np.array([step.host_ns for step in steps]))) if steps else None


# ---- notes: what the trace lacks or holds beside the ordinary


def _notes(attribution: Attribution) -> list[str]:
    table = attribution.table
    notes = [*table.notes, *attribution.notes]
    if table.malformed:
        notes.append(f"{table.malformed:,} entries of the file are no events and are left out")
    if table.unpaired:
        notes.append(f"{table.unpaired:,} begin or end events have no partner and are left out")
    return notes


def _device_notes(attribution: Attribution, time: DeviceTime) -> list[str]:
    table, device = attribution.table, attribution.device
    timeline, _, launches, gaps = time
    notes = []
    stream = table.stream[device.rows]
    devices = {table.streams[i].device for i in np.unique(stream[stream >= 0]).tolist()}
    if len(devices) > 1:
        notes.append(f"{len(devices)} devices share one timeline here: it is idle only where all of them are")
    hosts = int(gaps.ns[[CAUSE_NUMBERS[cause] for cause in _HOSTS]].sum())
    if hosts > _HOST_BOUND * timeline.span_ns:
        notes.append(
            f"for {duration(hosts)} of {duration(timeline.span_ns)} the device waits for the host's own work, and recording a "
            "trace slows the host: without the profiler this idle time is less and steps are shorter"
        )
    launched = device.launch[gaps.ended_by] != NONE
    unexplained = int(gaps.ns[CAUSE_NUMBERS["unknown"], launched].sum())
    if unexplained > _UNEXPLAINED * timeline.span_ns:
        notes.append(
            f"for {duration(unexplained)} of {duration(timeline.span_ns)} nothing in the trace ran although work was launched: "
            "the device may have done what is not in the trace (launched before it began, left out of it, of another process)"
        )
    beside = int((device.end_ns - device.start_ns).sum()) - timeline.busy_ns
    if beside:
        notes.append(
            f"{duration(beside)} of device work ran beside other work: durations add up to more than the busy time"
        )
    early = launches.start - launches.begun
    if len(early) and int(early.max()) > _CLOCK_SKEW_NS:
        notes.append(
            f"{int((early > _CLOCK_SKEW_NS).sum()):,} pieces of work begin up to {duration(int(early.max()))} before "
            "their launch: the clocks of host and device differ by as much"
        )
    if not len(launches.start):
        notes.append("no launch is in the trace: what the device waited for cannot be told")
    return notes
