"""Idle time of the device and waits of the host in the marked steps of a run, per step.

The span of a step runs from the start of its mark on the host to the end of the last work launched in it. What
follows is the tool's own work: it waits for the device, and hands the step to the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import (
    device_timeline,
    host_caused_ns,
    idle_gaps,
    idle_times,
)
from profiler_kit.attribution.host_activity import idle_activities, launching_threads
from profiler_kit.attribution.host_only import HostTimeline, host_gaps
from profiler_kit.attribution.host_time import Waits, host_waits, launch_queue, queue_summary
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.shares import apportion, divide_rounded
from profiler_kit.attribution.wait_times import phase_wait_ns, sync_waits
from profiler_kit.records import marks
from profiler_kit.records.traces import HostActivity, IdleTime, Queue, SyncWait
from profiler_kit.traces.intervals import Intervals, length, overlap, union
from profiler_kit.traces.table import NONE, Ids, Ints, Mask


class StepWaits(NamedTuple):
    """Idle time of the device and waits of the host per step.

    `wait_ns`: the host's waits by phase (an index of TRACE_PHASES).
    """

    span_ns: int
    idle: tuple[IdleTime, ...]
    wait_ns: Mapping[int, int]
    activities: tuple[HostActivity, ...] = ()
    waits: tuple[SyncWait, ...] = ()
    queue: Queue | None = None


def device_waits(attribution: Attribution, steps: int) -> StepWaits:
    """Return the waits of `attribution`, whose device work is that of the marked steps alone."""
    device, timeline, waits = attribution.device, device_timeline(attribution.device), host_waits(attribution)
    windows = _windows(attribution, device.step, device.start_ns, device.end_ns)
    covered = _clip_gaps(windows, device.start_ns, timeline.covered)
    idle = idle_gaps(attribution, replace(timeline, covered=covered, gap=device.start_ns - covered), waits)
    busy = overlap(union(device.start_ns, device.end_ns, ordered=True), windows.start, windows.end)
    threads = launching_threads(attribution, idle.ended_by)
    waits, launches = _program_waits(attribution, waits), launch_queue(attribution)
    return StepWaits(
        span_ns=divide_rounded(length(windows), steps),
        idle=_idle_per_step(idle_times(idle, device.phase[idle.ended_by]), windows, int(busy.sum()), steps),
        wait_ns={
            i: divide_rounded(ns, steps) for i, ns in enumerate(phase_wait_ns(attribution, waits, launches).tolist())
        },
        activities=_activities_per_step(
            idle_activities(attribution, idle.start, idle.end, threads, host_caused_ns(idle)), steps
        ),
        waits=_waits_per_step(sync_waits(attribution, timeline, waits, launches, idle), steps),
        queue=_queue_per_step(queue_summary(launches), steps),
    )


def host_waits_of_steps(attribution: Attribution, timeline: HostTimeline, steps: int) -> StepWaits:
    """Return the idle time between the operators of the marked steps.

    Without device work, the host waits for no device.
    """
    windows = _windows(
        attribution, attribution.host.step[timeline.work.position[timeline.entry]], timeline.start, timeline.end
    )
    idle = host_gaps(attribution, timeline, _clip_gaps(windows, timeline.start, timeline.covered))
    parts = idle_times(idle, attribution.host.phase[idle.ended_by])
    busy_ns = int(timeline.ns.sum())
    main = np.full(len(idle.start), NONE, np.int32)
    return StepWaits(
        span_ns=divide_rounded(length(windows), steps),
        idle=_idle_per_step(parts, windows, busy_ns, steps),
        wait_ns={},
        activities=_activities_per_step(
            idle_activities(attribution, idle.start, idle.end, main, host_caused_ns(idle)), steps
        ),
    )


def _activities_per_step(activities: Sequence[HostActivity], steps: int) -> tuple[HostActivity, ...]:
    return tuple(
        replace(
            activity,
            calls=divide_rounded(activity.calls, steps),
            ns=divide_rounded(activity.ns, steps),
            long_ns=divide_rounded(activity.long_ns, steps),
        )
        for activity in activities
    )


def _idle_per_step(idle: Sequence[IdleTime], windows: Intervals, busy_ns: int, steps: int) -> tuple[IdleTime, ...]:
    """Return `idle` divided so that it sums to the rounded span less the rounded busy time."""
    idle_ns = divide_rounded(length(windows), steps) - divide_rounded(busy_ns, steps)
    shares = apportion({i: part.ns for i, part in enumerate(idle)}, steps, idle_ns)
    return tuple(
        replace(part, ns=shares[i], gaps=divide_rounded(part.gaps, steps), longest_ns=0) for i, part in enumerate(idle)
    )


def _program_waits(attribution: Attribution, waits: Waits) -> Waits:
    """Return the program's waits in marked steps."""
    is_program_wait = ~is_tool_wait(attribution, waits.position)
    return Waits(**{field.name: getattr(waits, field.name)[is_program_wait] for field in fields(Waits)})


def is_tool_wait(attribution: Attribution, position: Ids) -> Mask:
    """Return which of the host's waits at `position` are the tool's own.

    The wait at a step's end has only the step's mark around it. Others are outside of steps.
    """
    table, host = attribution.table, attribution.host
    parent = host.parent[position]
    names = [table.names[i].startswith(marks.STEP) for i in table.name[host.rows[parent]].tolist()]
    is_program_wait: Mask = (host.step[position] != NONE) & (parent != NONE) & ~np.array(names, np.bool_)
    return ~is_program_wait


def _waits_per_step(waits: Sequence[SyncWait], steps: int) -> tuple[SyncWait, ...]:
    shares = apportion({(i, part.phase): part.ns for i, wait in enumerate(waits) for part in wait.waited_for}, steps)
    per_step = []
    for i, wait in enumerate(waits):
        parts = tuple(replace(part, ns=shares[i, part.phase]) for part in wait.waited_for)
        wait_ns = sum(part.ns for part in parts)
        per_step.append(
            replace(
                wait,
                calls=divide_rounded(wait.calls, steps),
                wait_ns=wait_ns,
                waited_for=parts,
                idle_ns=divide_rounded(wait.idle_ns, steps),
            )
        )
    return tuple(per_step)


def _queue_per_step(queue: Queue | None, steps: int) -> Queue | None:
    return replace(queue, blocked_ns=divide_rounded(queue.blocked_ns, steps)) if queue is not None else None


# ---- the span of the steps


def _windows(attribution: Attribution, step: Ids, start: Ints, end: Ints) -> Intervals:
    """Return the time from each step's mark to the end of its last work. `step`: the step of each work item, or NONE."""
    in_step = step != NONE
    starts = np.array([mark.start_ns for mark in attribution.steps], np.int64)
    ends = np.full(len(starts), np.iinfo(np.int64).min)
    np.minimum.at(starts, step[in_step], start[in_step])  # the clocks of host and device differ by a few us
    np.maximum.at(ends, step[in_step], end[in_step])
    return union(starts, ends)


def _clip_gaps(windows: Intervals, start: Ints, covered: Ints) -> Ints:
    """Return `covered`, moved so that the gap before each `start` lies within `windows`.

    Gaps outside the windows are empty.
    """
    if not len(windows.start):
        return start
    window = np.searchsorted(windows.start, start, side="right") - 1
    inside = (window >= 0) & (start <= windows.end[window])
    gap_start = np.concatenate((windows.start[:1], covered[1:]))  # before the first work the device is idle
    return np.where(inside, np.minimum(np.maximum(gap_start, windows.start[window]), start), start)
