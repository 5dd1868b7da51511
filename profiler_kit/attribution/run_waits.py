"""What the device and the host waited for in the marked steps of a run, per step.

The span of a step runs from the beginning of its mark on the host to the end of the last work launched in it. What comes after
that is the tool's own: it waits for the device, and hands the step to the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import device_timeline, idle_gaps, idle_times, phase_wait_ns, sync_waits
from profiler_kit.attribution.host_only import HostLine, host_gaps
from profiler_kit.attribution.host_time import Waits, host_waits, launch_queue, queue_summary
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.shares import apportion, divide_rounded
from profiler_kit.records import marks
from profiler_kit.records.traces import IdleTime, Queue, SyncWait
from profiler_kit.traces.intervals import Intervals, length, overlap, union
from profiler_kit.traces.table import NONE, Ids, Ints


class Waiting(NamedTuple):
    """What the device and the host of a marked step waited for; `wait_ns` of the host by phase (an index of TRACE_PHASES)."""

    span_ns: int
    idle: tuple[IdleTime, ...]
    wait_ns: Mapping[int, int]
    waits: tuple[SyncWait, ...] = ()
    queue: Queue | None = None


def waiting_of_device(attribution: Attribution, steps: int) -> Waiting:
    """Of the device work in `attribution`, which is that of the marked steps alone."""
    device, timeline, waits = attribution.device, device_timeline(attribution.device), host_waits(attribution)
    windows = _windows(attribution, device.step, device.start_ns, device.end_ns)
    covered = _clipped(windows, device.start_ns, timeline.covered)
    idle = idle_gaps(attribution, replace(timeline, covered=covered, gap=device.start_ns - covered), waits)
    busy = overlap(union(device.start_ns, device.end_ns, ordered=True), windows.start, windows.end)
    waits, launches = _of_the_program(attribution, waits), launch_queue(attribution)
    return Waiting(
        span_ns=divide_rounded(length(windows), steps),
        idle=_idle_per_step(idle_times(idle, device.phase[idle.ended_by]), windows, int(busy.sum()), steps),
        wait_ns={
            i: divide_rounded(ns, steps) for i, ns in enumerate(phase_wait_ns(attribution, waits, launches).tolist())
        },
        waits=_waits_per_step(sync_waits(attribution, timeline, waits, launches), steps),
        queue=_queue_per_step(queue_summary(launches), steps),
    )


def waiting_of_host(attribution: Attribution, line: HostLine, steps: int) -> Waiting:
    """Of the operators in `line`, which are those of the marked steps alone: a host waits for no device."""
    windows = _windows(attribution, attribution.host.step[line.work.position[line.owner]], line.start, line.end)
    idle = host_gaps(attribution, line, _clipped(windows, line.start, line.covered))
    parts = idle_times(idle, attribution.host.phase[idle.ended_by])
    busy_ns = int(line.ns.sum())
    return Waiting(divide_rounded(length(windows), steps), _idle_per_step(parts, windows, busy_ns, steps), {})


def _idle_per_step(idle: Sequence[IdleTime], windows: Intervals, busy_ns: int, steps: int) -> tuple[IdleTime, ...]:
    """`idle` divided so that it sums to the rounded span less the rounded busy time."""
    whole = divide_rounded(length(windows), steps) - divide_rounded(busy_ns, steps)
    shares = apportion({i: part.ns for i, part in enumerate(idle)}, steps, whole)
    return tuple(replace(part, ns=shares[i], gaps=divide_rounded(part.gaps, steps)) for i, part in enumerate(idle))


def _of_the_program(attribution: Attribution, waits: Waits) -> Waits:
    """Those of the waits in marked steps that are not the tool's own: it waits at a step's end, in the step's mark alone."""
    table, host = attribution.table, attribution.host
    parent = host.parent[waits.position]
    names = [table.names[i].startswith(marks.STEP) for i in table.name[host.rows[parent]].tolist()]
    mine = (host.step[waits.position] != NONE) & (parent != NONE) & ~np.array(names, np.bool_)
    return Waits(**{field.name: getattr(waits, field.name)[mine] for field in fields(Waits)})


def _waits_per_step(whole: Sequence[SyncWait], steps: int) -> tuple[SyncWait, ...]:
    shares = apportion({(i, part.phase): part.ns for i, wait in enumerate(whole) for part in wait.waited_for}, steps)
    per_step = []
    for i, wait in enumerate(whole):
        parts = tuple(replace(part, ns=shares[i, part.phase]) for part in wait.waited_for)
        wait_ns = sum(part.ns for part in parts)
        per_step.append(replace(wait, calls=divide_rounded(wait.calls, steps), wait_ns=wait_ns, waited_for=parts))
    return tuple(per_step)


def _queue_per_step(whole: Queue | None, steps: int) -> Queue | None:
    return replace(whole, blocked_ns=divide_rounded(whole.blocked_ns, steps)) if whole is not None else None


# ---- the span of the steps


def _windows(attribution: Attribution, step: Ids, start: Ints, end: Ints) -> Intervals:
    """From each step's mark to the end of its last work; `step` of the work from `start` to `end`, NONE for no step's."""
    mine = step != NONE
    begins = np.array([mark.start_ns for mark in attribution.steps], np.int64)
    ends = np.full(len(begins), np.iinfo(np.int64).min)
    np.minimum.at(begins, step[mine], start[mine])  # the clocks of host and device differ by a few us
    np.maximum.at(ends, step[mine], end[mine])
    return union(begins, ends)


def _clipped(windows: Intervals, start: Ints, covered: Ints) -> Ints:
    """`covered` moved so that the gaps before each `start` lie within `windows`, and none where that start does not."""
    if not len(windows.start):
        return start
    at = np.searchsorted(windows.start, start, side="right") - 1
    inside = (at >= 0) & (start <= windows.end[at])
    since = np.concatenate((windows.start[:1], covered[1:]))  # before the first work nothing runs
    return np.where(inside, np.minimum(np.maximum(since, windows.start[at]), start), start)
