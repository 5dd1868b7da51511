"""The summary of one trace: sums of its timeline by phase, step, module, kernel and operator, and notes on its limits."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

import numpy as np

from profiler_kit.attribution.completeness import device_record, missing_host_events
from profiler_kit.attribution.device_accounts import device_accounts, time_around, used_devices
from profiler_kit.attribution.device_time import (
    CAUSE_NUMBERS,
    DeviceTime,
    Gaps,
    device_time,
    host_caused_ns,
    idle_times,
)
from profiler_kit.attribution.host_activity import (
    compilation_intervals,
    compiled_frames,
    idle_activities,
    launching_threads,
)
from profiler_kit.attribution.host_only import HostTimeline, host_gaps, host_timeline
from profiler_kit.attribution.host_time import queue_summary
from profiler_kit.attribution.phase_times import Work, module_times, phase_times
from profiler_kit.attribution.phases import RECOMPUTE
from profiler_kit.attribution.result import Attribution, Evidence, Step
from profiler_kit.attribution.totals import (
    communication,
    kernels,
    loaders,
    median_kernel_ns,
    operators,
    optimizers,
    peak_allocated_bytes,
    shaped_operators,
    streams,
)
from profiler_kit.attribution.wait_times import sync_waits
from profiler_kit.records.traces import FIRST_STEP_FACTOR, IdleCause, TraceStep, TraceSummary, UnreadEvents
from profiler_kit.traces.intervals import Intervals, length, overlap, sum_by, union
from profiler_kit.traces.table import NONE, Ids, Ints, Kind, Mask, Table
from profiler_kit.units import duration, plural

_OTHER_THREADS_SHARE: Final = 0.02  # of the span
_LONGEST_GAP_NS: Final = 24 * 3600 * 10**9  # a profiler does not record for a day
_UNEXPLAINED_SHARE: Final = 0.05  # of the span

# The clocks of device and host are synchronized to a few us. Work that begins earlier before its launch than this shows
# drift.
_CLOCK_SKEW_NS: Final = 10_000

# Idle causes that grow with the host's time per operator. The profiler adds to it: 1.4 times with operators alone, 1.9
# times with all activities.
_HOST_CAUSES: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
_HOST_BOUND_SHARE: Final = 0.25  # of the span; above this the step time depends on the host


RECOMPUTE_NAME: Final = "autograd::recompute"  # name of a node's recomputation outside operators


def summarize(attribution: Attribution, time: DeviceTime | None = None) -> TraceSummary:
    """Return the summary of one trace. A trace without device work is summarized on the host's clock.

    `time`: the attribution's `device_time`, if the caller has it.
    """
    if not len(attribution.device.rows):
        return _summarize_host(attribution)
    time = time if time is not None else device_time(attribution)
    before, after = time_around(attribution, time)
    phase = np.append(attribution.device.phase, np.int8(NONE))
    return replace(
        summarize_device(attribution, time),
        before=idle_times(before, phase[before.ended_by]),
        after=idle_times(after, phase[after.ended_by]),
    )


def summarize_device(attribution: Attribution, time: DeviceTime, counted: Mask | None = None) -> TraceSummary:
    """Return the summary of the device work of `attribution`.

    `counted`: the host events of marked steps, if `attribution` has the work of marked steps alone.
    """
    device = attribution.device
    accounts = device_accounts(attribution, time)
    # the sums are those of all devices; the activity of the host is that of the time in which all of them are idle
    timeline = replace(time.timeline, event_busy_ns=accounts.event_busy_ns)
    phase, step = np.append(device.phase, np.int8(NONE)), np.append(device.step, np.int32(NONE))
    work = Work(
        phase=device.phase,
        within=device.within,
        module=device.module,
        name=attribution.table.name[device.rows],
        launch=device.launch,
        step=device.step,
        operator=device.operator,
        busy=timeline.event_busy_ns,
        length=device.end_ns - device.start_ns,
        span_ns=accounts.span_ns,
        gaps=accounts.gaps,
        gap_phase=phase[accounts.gaps.ended_by],
        gap_step=step[accounts.gaps.ended_by],
        names=attribution.table.names,
        counted=counted,
    )
    linked = device.launch != NONE
    return replace(
        _summary(attribution, work, time._replace(timeline=timeline)),
        clock="device",
        device_events=len(device.rows),
        linked=int(linked.sum()),
        unlinked_ns=int(timeline.event_busy_ns[~linked].sum()),
        aligned_ns=int(timeline.event_busy_ns[device.evidence == Evidence.ALIGNED].sum()),
        moduleless_ns=int(timeline.event_busy_ns[linked & (device.module == NONE) & ~device.collective].sum()),
        streams=streams(attribution),
        shapes=shaped_operators(attribution, timeline.event_busy_ns),
        kernels=kernels(attribution, timeline),
        syncs=sync_waits(attribution, timeline, time.waits, time.launches, time.gaps),
        median_kernel_ns=median_kernel_ns(attribution),
        queue=queue_summary(time.launches),
        communication=communication(attribution),
        has_modules=bool((device.module[~device.collective] != NONE).any()),
        graph_launches=attribution.graph_launches,
        accounts=accounts.devices,
    )


def _summarize_host(attribution: Attribution) -> TraceSummary:
    """Return the summary of a trace without device work. The steps count from their start to their end."""
    steps, timeline = attribution.steps, host_timeline(attribution)
    start, end = timeline.start[:1], timeline.latest
    if steps and len(start):
        start, end = np.minimum(start, steps[0].start_ns), np.maximum(end, steps[-1].end_ns)
    return summarize_host(attribution, timeline, Intervals(start, end))


def summarize_host(
    attribution: Attribution, timeline: HostTimeline, windows: Intervals, counted: Mask | None = None
) -> TraceSummary:
    """Return the summary of the operators in `timeline`, all within `windows`.

    `counted`: the host events of marked steps, if only these count.
    """
    gaps = host_gaps(attribution, timeline, windows)
    host, table, entries = attribution.host, attribution.table, timeline.work
    redone = entries.phase[timeline.entry] == RECOMPUTE
    position = entries.position
    work = Work(
        phase=entries.phase,
        within=entries.phase,
        module=entries.module,
        name=np.where(entries.recomputes, len(table.names), table.name[host.rows[position]]).astype(np.int32),
        launch=np.where(entries.recomputes, NONE, position).astype(np.int32),
        step=host.step[position],
        operator=host.operator[position],
        busy=timeline.ns,
        length=timeline.self_ns,
        span_ns=length(windows),
        gaps=gaps,
        gap_phase=np.append(host.phase, np.int8(NONE))[gaps.ended_by],
        gap_step=np.append(host.step, np.int32(NONE))[gaps.ended_by],
        names=(*table.names, RECOMPUTE_NAME),
        recompute=union(timeline.start[redone], timeline.end[redone]),
        counted=counted,
    )
    return _summary(attribution, work, None)


def _summary(attribution: Attribution, work: Work, time: DeviceTime | None) -> TraceSummary:
    """Return the part of the summary that both clocks share."""
    table, times = attribution.table, module_times(attribution, work)
    busy_ns = int(work.busy.sum())
    steps = step_times(attribution, work.step, work.busy, time, work.gaps)
    phases, outside_steps, waits_elsewhere_ns = phase_times(attribution, work, time)
    gaps = work.gaps if time is None else time.gaps
    threads = (
        np.full(len(gaps.start), NONE, np.int32) if time is None else launching_threads(attribution, gaps.ended_by)
    )
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
        host_step_ns=_median([step.host_ns for step in steps if step.kernel_ns] or [step.host_ns for step in steps]),
        devices=table.info.devices,
        rank=table.info.rank,
        world_size=table.info.world_size,
        hardware_counters=table.info.hardware_counters,
        host_events=int(((table.kind == Kind.OPERATOR) | (table.kind == Kind.ANNOTATION)).sum()),
        missing_events=missing_host_events(table),
        steps=steps,
        steps_inferred=attribution.steps_inferred,
        notes=_notes(attribution, time, gaps, waits_elsewhere_ns),
        phases=phases,
        outside_steps=outside_steps,
        idle=idle_times(work.gaps, work.gap_phase),
        modules=times.modules,
        unattributed=times.unattributed,
        operators=operators(attribution, work.operator, work.busy, work.counted),
        peak_allocated_bytes=peak_allocated_bytes(table),
        has_modules=bool((work.module != NONE).any()),
        with_stack=table.info.with_stack,
        compiled=attribution.compiled,
        loaders=loaders(attribution),
        optimizers=optimizers(attribution),
        activities=idle_activities(attribution, gaps.start, gaps.end, threads, host_caused_ns(gaps)),
        compile_ns=length(compilation_intervals(attribution)),
        compiled_frames=compiled_frames(attribution),
        device_record=device_record(attribution),
        unread=tuple(UnreadEvents(reason=reason, events=count) for reason, count in _unread(table)),
        cut_off=table.cut_off,
    )


def _unread(table: Table) -> tuple[tuple[str, int], ...]:
    """Return the number of events that could not be read, or whose arguments could not, by reason."""
    arguments = (("'args' is not an object, so it joins no events", table.unreadable_arguments),)
    return table.faults + (arguments if table.unreadable_arguments else ())


def _median(values: Sequence[int]) -> int | None:
    return int(np.median(np.array(values))) if values else None


# ---- steps


def step_times(
    attribution: Attribution, step: Ids, busy: Ints, time: DeviceTime | None = None, gaps: Gaps | None = None
) -> tuple[TraceStep, ...]:
    """Return the steps with the `busy` ns of each. `step`: the step of each busy event.

    On the device's clock, a step lasts from its first work to the first work of the next step. It is steady if the
    launch queue was no deeper when the next step began, or was already full, and if it is not a first step that is much
    longer than the others. On the host's clock, it lasts as long as its
    mark, and `gaps` are the time without an operator.
    """
    marks = attribution.steps
    total = len(marks)
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
        is_complete[_last_before_pause(marks)] = False
        idle = period - _busy_in(attribution, first[:-1], first[1:])
        steady = is_complete.copy()
        steady[time.launches.growing_steps()] = False
        steady[:1] &= not _starts_slowly(marks)
    elif gaps is not None and total:
        bounds = np.array([(mark.start_ns, mark.end_ns) for mark in marks], np.int64)
        idle = overlap(union(gaps.start, gaps.end, ordered=True), bounds[:, 0], bounds[:, 1])
    has_idle = is_complete | (time is None and gaps is not None)
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=int(period[i]) if is_complete[i] else None,
            kernel_ns=int(kernel[i]),
            idle_ns=int(idle[i]) if has_idle[i] else None,
            steady=bool(steady[i]),
        )
        for i, mark in enumerate(marks)
    )


def _busy_in(attribution: Attribution, start: Ints, end: Ints) -> Ints:
    """Return the busy time in each interval; of several devices, their mean."""
    device, (device_of, names) = attribution.device, used_devices(attribution)
    busy = np.zeros(len(start), np.int64)
    for number in range(len(names)):
        positions = np.flatnonzero(device_of == number)
        busy += overlap(union(device.start_ns[positions], device.end_ns[positions], ordered=True), start, end)
    result: Ints = busy // max(len(names), 1)
    return result


def _starts_slowly(steps: Sequence[Step]) -> bool:
    """Return whether the first of at least three steps does work on the host that the others do not."""
    times = [step.end_ns - step.start_ns for step in steps]
    return len(times) > 2 and times[0] > FIRST_STEP_FACTOR * statistics.median(times[1:])


def _last_before_pause(steps: Sequence[Step]) -> list[int]:
    """Return the indices of the steps after which the recording paused: the next one does not have the next number."""
    return [i for i, (step, following) in enumerate(pairwise(steps)) if following.number != step.number + 1]


# ---- notes on the limits of a trace


def _notes(attribution: Attribution, time: DeviceTime | None, gaps: Gaps, waits_elsewhere_ns: int) -> tuple[str, ...]:
    table = attribution.table
    notes = [*table.notes, *attribution.notes]
    if table.malformed:
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in table.faults)
        notes.append(
            f"Skipped {plural(table.malformed, 'malformed entry', 'malformed entries')} of the file ({reasons})."
        )
    if table.unpaired:
        notes.append(f"Skipped {plural(table.unpaired, 'begin or end event')} without a counterpart.")
    longest_ns = int((gaps.end - gaps.start).max(initial=0))
    if longest_ns > _LONGEST_GAP_NS:
        notes.append(
            f"A gap between two events lasts {duration(longest_ns)}. A time in the file is wrong, or the file joins "
            "several recordings, so the span and the idle time say little."
        )
    for i in _last_before_pause(attribution.steps):
        before, after = attribution.steps[i].number, attribution.steps[i + 1].number
        notes.append(
            f"Step {after} follows step {before}: the recording paused between them, or several profilers wrote the trace. "
            "The time between is idle time, but not part of a step."
        )
    if time is not None:
        notes += _device_notes(attribution, time)
        if waits_elsewhere_ns > _OTHER_THREADS_SHARE * time.timeline.span_ns:
            notes.append(
                f"Threads other than the main and autograd's threads wait for the device for {duration(waits_elsewhere_ns)} in "
                "total. These waits are in the table of host waits, but in no phase."
            )
    elif bool((table.kind == Kind.OPERATOR).any()):
        record = ""
        if any(table.info.devices) and not table.of(Kind.RUNTIME).any():
            record = " If the program uses the device, record with ProfilerActivity.CUDA, too."
        notes.append(f"No device work in the trace. All figures are self times of operators on the host.{record}")
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
        notes.append(f"{len(devices)} devices. Busy and idle times are sums over them, each in the span of all.")
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
