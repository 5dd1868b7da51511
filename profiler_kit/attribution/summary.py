"""The summary of one trace: its timeline added up in every way that a reader asks for, and what to know before believing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import (
    CAUSE_NUMBERS,
    DeviceTime,
    Gaps,
    device_time,
    idle_times,
    phase_wait_ns,
    sync_waits,
)
from profiler_kit.attribution.host_only import host_gaps, host_line
from profiler_kit.attribution.host_time import phase_host_ns, queue_summary
from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.attribution.totals import (
    communication,
    kernels,
    loaders,
    modules,
    operators,
    peak_allocated_bytes,
    shaped_operators,
    streams,
)
from profiler_kit.records.traces import TRACE_PHASES, IdleCause, PhaseTime, TraceStep, TraceSummary
from profiler_kit.traces.intervals import count_by, overlap, sum_by, union
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind
from profiler_kit.units import duration

_UNEXPLAINED: Final = 0.05  # of the span

# Clocks of device and host are synchronized to a few us; work that begins before its launch by more than that shows drift.
_CLOCK_SKEW_NS: Final = 10_000

# What the host spends on each operator; the profiler adds to it: 1.4 times with operators alone, 1.9 times with everything.
_HOSTS: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
_HOST_BOUND: Final = 0.25  # of the span; then steps depend on it


class _Work(NamedTuple):
    """What the figures add up: the device's events, or operators where there is no device work.

    `busy`: every busy instant once, `length`: each event's own; `gaps` and the phase of what ended each.
    """

    phase: Bytes
    module: Ids
    step: Ids
    operator: Ids
    busy: Ints
    length: Ints
    span_ns: int
    gaps: Gaps
    gap_phase: Bytes


def summarize(attribution: Attribution, time: DeviceTime | None = None) -> TraceSummary:
    """Where the time of one trace went; by the host's clock where it holds no device work.

    `time`: the attribution's `device_time`, where the caller has it.
    """
    device = attribution.device
    if not len(device.rows):
        work = _host_work(attribution)
        return _summary(attribution, work, None)
    time = time if time is not None else device_time(attribution)
    timeline, waits, launches, gaps = time
    work = _Work(
        phase=device.phase,
        module=device.module,
        step=device.step,
        operator=device.operator,
        busy=timeline.piece,
        length=device.end_ns - device.start_ns,
        span_ns=timeline.span_ns,
        gaps=gaps,
        gap_phase=device.phase[gaps.ended_by],
    )
    linked = device.launch != NONE
    return replace(
        _summary(attribution, work, time),
        clock="device",
        device_events=len(device.rows),
        linked=int(linked.sum()),
        unlinked_ns=int(timeline.piece[~linked].sum()),
        aligned_ns=int(timeline.piece[device.evidence == Evidence.ALIGNED].sum()),
        moduleless_ns=int(timeline.piece[linked & (device.module == NONE) & ~device.collective].sum()),
        streams=streams(attribution),
        shapes=shaped_operators(attribution, timeline.piece),
        kernels=kernels(attribution, timeline),
        syncs=sync_waits(attribution, timeline, waits, launches),
        queue=queue_summary(launches),
        communication=communication(attribution),
        has_modules=bool((device.module[~device.collective] != NONE).any()),
        graph_launches=attribution.graph_launches,
    )


def _host_work(attribution: Attribution) -> _Work:
    host = attribution.host
    line = host_line(attribution)
    gaps = host_gaps(attribution, line, line.covered)
    return _Work(
        phase=line.work.phase,
        module=line.work.module,
        step=host.step[line.work.position],
        operator=host.operator[line.work.position],
        busy=line.ns,
        length=line.self_ns,
        span_ns=line.span_ns,
        gaps=gaps,
        gap_phase=host.phase[gaps.ended_by],
    )


def _summary(attribution: Attribution, work: _Work, time: DeviceTime | None) -> TraceSummary:
    """What the summaries of both clocks hold."""
    table = attribution.table
    busy_ns = int(work.busy.sum())
    steps = marked_steps(attribution, work.step, work.busy, time)
    periods = [step.device_ns for step in steps if step.device_ns is not None]
    steady = [step.device_ns for step in steps if step.device_ns is not None and step.steady]
    return TraceSummary(
        file=table.file,
        clock="host",
        events=table.events,
        device_events=0,
        span_ns=work.span_ns,
        busy_ns=busy_ns,
        idle_ns=work.span_ns - busy_ns,
        sum_ns=int(work.length.sum()),
        linked=0,
        unlinked_ns=0,
        aligned_ns=0,
        unattributed_ns=int(work.busy[work.phase == NONE].sum()),
        moduleless_ns=int(work.busy[work.module == NONE].sum()),
        step_ns=_median(steady or periods),
        host_step_ns=_median([step.host_ns for step in steps]),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        steps=steps,
        notes=_notes(attribution, time),
        phases=_phase_times(attribution, work, time),
        idle=idle_times(work.gaps, work.gap_phase),
        modules=modules(attribution, work.module, work.phase, work.busy),
        operators=operators(attribution, work.operator, work.busy),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((work.module != NONE).any()),
        compiled=attribution.compiled,
        loaders=loaders(attribution),
    )


def _phase_times(attribution: Attribution, work: _Work, time: DeviceTime | None) -> tuple[PhaseTime, ...]:
    """Every phase that has work or a part on the host, in TRACE_PHASES' order."""
    host = phase_host_ns(attribution)
    # What has no phase stands last.
    last = len(TRACE_PHASES)
    phase, gap_phase = work.phase % (last + 1), work.gap_phase % (last + 1)
    events = count_by(phase, last + 1)
    wait = np.zeros(last + 1, np.int64)
    if time is not None:
        wait = phase_wait_ns(attribution, time.waits, time.launches)
    kernel, total = sum_by(phase, work.busy, last + 1), sum_by(phase, work.length, last + 1)
    idle = sum_by(gap_phase, work.gaps.end - work.gaps.start, last + 1)
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


def _median(values: Sequence[int]) -> int | None:
    return int(np.median(np.array(values))) if values else None


# ---- steps


def marked_steps(
    attribution: Attribution, step: Ids, busy: Ints, time: DeviceTime | None = None
) -> tuple[TraceStep, ...]:
    """The marked steps, with the `busy` ns in each; `step`: of what was busy.

    By the device's clock a step is from its first work to the first work of the next. It is steady where the launch queue was no
    deeper when the next one began, or was full already.
    """
    total = len(attribution.steps)
    inside = np.flatnonzero(step != NONE)
    kernel = sum_by(step[inside], busy[inside], total)
    period, idle = np.zeros(total, np.int64), np.zeros(total, np.int64)
    ended, steady = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    if time is not None:
        device = attribution.device
        present, index = np.unique(step[inside], return_index=True)
        first, has_work = np.zeros(total + 1, np.int64), np.zeros(total + 1, np.bool_)
        first[present], has_work[present] = device.start_ns[inside[index]], True
        period = first[1:] - first[:-1]
        ended = has_work[:-1] & has_work[1:] & (period >= 0)
        idle = period - overlap(union(device.start_ns, device.end_ns, ordered=True), first[:-1], first[1:])
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


# ---- notes: what the trace lacks or holds beside the ordinary


def _notes(attribution: Attribution, time: DeviceTime | None) -> tuple[str, ...]:
    table = attribution.table
    notes = [*table.notes, *attribution.notes]
    if table.malformed:
        notes.append(f"{table.malformed:,} entries of the file are no events and are left out")
    if table.unpaired:
        notes.append(f"{table.unpaired:,} begin or end events have no partner and are left out")
    if time is not None:
        notes += _device_notes(attribution, time)
    elif bool((table.kind == Kind.OPERATOR).any()):
        notes.append("no device work: figures are the operators' own time on the host")
    else:
        notes.append("neither device work nor operators: nothing to add up")
    return tuple(dict.fromkeys(notes))


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
