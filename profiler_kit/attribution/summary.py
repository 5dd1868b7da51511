"""The summary of one trace: sums of its timeline by phase, step, module, kernel and operator, and notes on its limits."""

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
    host_caused_ns,
    idle_times,
    phase_wait_ns,
    sync_waits,
)
from profiler_kit.attribution.host_activity import (
    compilation_intervals,
    compiled_frames,
    idle_activities,
    launching_threads,
)
from profiler_kit.attribution.host_only import host_gaps, host_timeline
from profiler_kit.attribution.host_time import phase_host_ns, queue_summary
from profiler_kit.attribution.result import Attribution, Evidence
from profiler_kit.attribution.totals import (
    communication,
    kernels,
    loaders,
    median_kernel_ns,
    modules,
    operators,
    peak_allocated_bytes,
    shaped_operators,
    streams,
)
from profiler_kit.records.traces import TRACE_PHASES, IdleCause, PhaseTime, TraceStep, TraceSummary
from profiler_kit.traces.intervals import count_by, length, overlap, sum_by, union
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Kind
from profiler_kit.units import duration, plural

_UNEXPLAINED_SHARE: Final = 0.05  # of the span

# The clocks of device and host are synchronized to a few us. Work that begins earlier before its launch than this shows
# drift.
_CLOCK_SKEW_NS: Final = 10_000

# Idle causes that grow with the host's time per operator. The profiler adds to it: 1.4 times with operators alone, 1.9
# times with all activities.
_HOST_CAUSES: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
_HOST_BOUND_SHARE: Final = 0.25  # of the span; above this the step time depends on the host


class _Work(NamedTuple):
    """The events that the figures sum: device events, or operators in a trace without device work.

    `busy`: ns of each event, with every busy instant counted once. `length`: the duration of each event. `gap_phase`:
    the phase of the event that ended each gap. `gap_thread`: the thread that launched it, or NONE.
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
    gap_thread: Ids


def summarize(attribution: Attribution, time: DeviceTime | None = None) -> TraceSummary:
    """Return the summary of one trace. A trace without device work is summarized on the host's clock.

    `time`: the attribution's `device_time`, if the caller has it.
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
        busy=timeline.event_busy_ns,
        length=device.end_ns - device.start_ns,
        span_ns=timeline.span_ns,
        gaps=gaps,
        gap_phase=device.phase[gaps.ended_by],
        gap_thread=launching_threads(attribution, gaps.ended_by),
    )
    linked = device.launch != NONE
    return replace(
        _summary(attribution, work, time),
        clock="device",
        device_events=len(device.rows),
        linked=int(linked.sum()),
        unlinked_ns=int(timeline.event_busy_ns[~linked].sum()),
        aligned_ns=int(timeline.event_busy_ns[device.evidence == Evidence.ALIGNED].sum()),
        moduleless_ns=int(timeline.event_busy_ns[linked & (device.module == NONE) & ~device.collective].sum()),
        streams=streams(attribution),
        shapes=shaped_operators(attribution, timeline.event_busy_ns),
        kernels=kernels(attribution, timeline),
        syncs=sync_waits(attribution, timeline, waits, launches, gaps),
        median_kernel_ns=median_kernel_ns(attribution),
        queue=queue_summary(launches),
        communication=communication(attribution),
        has_modules=bool((device.module[~device.collective] != NONE).any()),
        graph_launches=attribution.graph_launches,
    )


def _host_work(attribution: Attribution) -> _Work:
    host = attribution.host
    timeline = host_timeline(attribution)
    gaps = host_gaps(attribution, timeline, timeline.covered)
    return _Work(
        phase=timeline.work.phase,
        module=timeline.work.module,
        step=host.step[timeline.work.position],
        operator=host.operator[timeline.work.position],
        busy=timeline.ns,
        length=timeline.self_ns,
        span_ns=timeline.span_ns,
        gaps=gaps,
        gap_phase=host.phase[gaps.ended_by],
        gap_thread=np.full(len(gaps.start), NONE, np.int32),
    )


def _summary(attribution: Attribution, work: _Work, time: DeviceTime | None) -> TraceSummary:
    """Return the part of the summary that both clocks share."""
    table = attribution.table
    busy_ns = int(work.busy.sum())
    steps = step_times(attribution, work.step, work.busy, time)
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
        steps_inferred=attribution.steps_inferred,
        notes=_notes(attribution, time),
        phases=_phase_times(attribution, work, time),
        idle=idle_times(work.gaps, work.gap_phase),
        modules=modules(attribution, work.module, work.phase, work.busy),
        operators=operators(attribution, work.operator, work.busy),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((work.module != NONE).any()),
        compiled=attribution.compiled,
        loaders=loaders(attribution),
        activities=idle_activities(
            attribution, work.gaps.start, work.gaps.end, work.gap_thread, host_caused_ns(work.gaps)
        ),
        compile_ns=length(compilation_intervals(attribution)),
        compiled_frames=compiled_frames(attribution),
    )


def _phase_times(attribution: Attribution, work: _Work, time: DeviceTime | None) -> tuple[PhaseTime, ...]:
    """Return all phases with device work or host time, in the order of TRACE_PHASES."""
    host_ns = phase_host_ns(attribution)
    # Index -1, no phase, selects the last entry.
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
            host_ns=host_ns.get(number),
            kernel_ns=int(kernel[number]),
            sum_ns=int(total[number]),
            idle_ns=int(idle[number]),
            wait_ns=int(wait[number]),
            events=int(events[number]),
        )
        for number, name in enumerate(TRACE_PHASES)
        if events[number] or number in host_ns
    )


def _median(values: Sequence[int]) -> int | None:
    return int(np.median(np.array(values))) if values else None


# ---- steps


def step_times(
    attribution: Attribution, step: Ids, busy: Ints, time: DeviceTime | None = None
) -> tuple[TraceStep, ...]:
    """Return the steps with the `busy` ns of each. `step`: the step of each busy event.

    On the device's clock, a step lasts from its first work to the first work of the next step. It is steady if the
    launch queue was no deeper when the next step began, or was already full.
    """
    total = len(attribution.steps)
    in_step = np.flatnonzero(step != NONE)
    kernel = sum_by(step[in_step], busy[in_step], total)
    period, idle = np.zeros(total, np.int64), np.zeros(total, np.int64)
    is_complete, steady = np.zeros(total, np.bool_), np.zeros(total, np.bool_)
    if time is not None:
        device = attribution.device
        present, index = np.unique(step[in_step], return_index=True)
        first, has_work = np.zeros(total + 1, np.int64), np.zeros(total + 1, np.bool_)
        first[present], has_work[present] = device.start_ns[in_step[index]], True
        period = first[1:] - first[:-1]
        is_complete = has_work[:-1] & has_work[1:] & (period >= 0)
        idle = period - overlap(union(device.start_ns, device.end_ns, ordered=True), first[:-1], first[1:])
        steady = is_complete.copy()
        steady[time.launches.growing_steps()] = False
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=int(period[i]) if is_complete[i] else None,
            kernel_ns=int(kernel[i]),
            idle_ns=int(idle[i]) if is_complete[i] else None,
            steady=bool(steady[i]),
        )
        for i, mark in enumerate(attribution.steps)
    )


# ---- notes on the limits of a trace


def _notes(attribution: Attribution, time: DeviceTime | None) -> tuple[str, ...]:
    table = attribution.table
    notes = [*table.notes, *attribution.notes]
    if table.malformed:
        notes.append(f"Skipped {plural(table.malformed, 'malformed entry', 'malformed entries')} of the file.")
    if table.unpaired:
        notes.append(f"Skipped {plural(table.unpaired, 'begin or end event')} without a counterpart.")
    if time is not None:
        notes += _device_notes(attribution, time)
    elif bool((table.kind == Kind.OPERATOR).any()):
        notes.append("No device work in the trace. All figures are self times of operators on the host.")
    else:
        notes.append("The trace holds neither device work nor operators. All figures are zero.")
    return tuple(dict.fromkeys(notes))


def _device_notes(attribution: Attribution, time: DeviceTime) -> list[str]:
    table, device = attribution.table, attribution.device
    timeline, _, launches, gaps = time
    notes = []
    stream = table.stream[device.rows]
    devices = {table.streams[i].device for i in np.unique(stream[stream >= 0]).tolist()}
    if len(devices) > 1:
        notes.append(f"{len(devices)} devices share one timeline. It is idle only where all of them are idle.")
    host_ns = int(gaps.ns[[CAUSE_NUMBERS[cause] for cause in _HOST_CAUSES]].sum())
    if host_ns > _HOST_BOUND_SHARE * timeline.span_ns:
        notes.append(
            f"The device waits for the host's own work for {duration(host_ns)} of {duration(timeline.span_ns)}. "
            "The profiler slows the host: without it, this idle time and the steps are shorter."
        )
    is_launched = device.launch[gaps.ended_by] != NONE
    unexplained_ns = int(gaps.ns[CAUSE_NUMBERS["unknown"], is_launched].sum())
    if unexplained_ns > _UNEXPLAINED_SHARE * timeline.span_ns:
        notes.append(
            f"The device is idle for {duration(unexplained_ns)} of {duration(timeline.span_ns)} although work was launched. "
            "It may have run work that the trace does not hold: launched earlier, filtered out, or of another process."
        )
    concurrent_ns = int((device.end_ns - device.start_ns).sum()) - timeline.busy_ns
    if concurrent_ns:
        notes.append(
            f"{duration(concurrent_ns)} of device work ran at the same time as other work, "
            "so durations sum to more than the busy time."
        )
    lead_ns = launches.start - launches.first_work_ns
    if len(lead_ns) and int(lead_ns.max()) > _CLOCK_SKEW_NS:
        notes.append(
            f"{int((lead_ns > _CLOCK_SKEW_NS).sum()):,} device events begin up to {duration(int(lead_ns.max()))} before "
            "their launch: the clocks of host and device differ."
        )
    if not len(launches.start):
        notes.append("The trace holds no launches, so the causes of idle time are unknown.")
    return notes
