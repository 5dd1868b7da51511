"""What the device and the host waited for in the marked steps of a run, per step.

The span of a step runs from the beginning of its mark on the host to the end of the last work launched in it. What comes after
that is the tool's own: it waits for the device, and hands the step to the profiler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.host_only import HostLine, host_gaps
from profiler_kit.attribution.idle import gaps, idle_times
from profiler_kit.attribution.launches import launches, queue
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.shares import apportion, rounded
from profiler_kit.attribution.spans import Spans, length, overlap, union
from profiler_kit.attribution.syncs import sync_waits, wait_by_phase
from profiler_kit.attribution.timeline import timeline
from profiler_kit.attribution.waits import Waits, waits
from profiler_kit.records import marks
from profiler_kit.records.traces import IdleTime, Queue, SyncWait
from profiler_kit.traces.table import NONE, Ids, Ints


class Waiting(NamedTuple):
    """What the device and the host of a marked step waited for; `wait_ns` of the host by phase (an index of TRACE_PHASES)."""

    span_ns: int
    idle: tuple[IdleTime, ...]
    wait_ns: Mapping[int, int]
    waits: tuple[SyncWait, ...] = ()
    queue: Queue | None = None


def waiting_of_device(owned: Owned, steps: int) -> Waiting:
    """Of the device work in `owned`, which is that of the marked steps alone."""
    line, all_waits = timeline(owned), waits(owned)
    windows = _windows(owned, owned.device.step, line.start, line.end)
    covered = _clipped(windows, line.start, line.covered)
    idle = gaps(owned, replace(line, covered=covered, gap=line.start - covered), all_waits)
    busy = overlap(union(line.start, line.end, ordered=True), windows.start, windows.end)
    host_waits, calls = _of_the_program(owned, all_waits), launches(owned, line)
    return Waiting(
        span_ns=rounded(length(windows), steps),
        idle=_idle_per_step(idle_times(idle, owned.device.phase[idle.ended_by]), windows, int(busy.sum()), steps),
        wait_ns={
            phase: rounded(ns, steps) for phase, ns in enumerate(wait_by_phase(owned, host_waits, calls).tolist())
        },
        waits=_waits_per_step(sync_waits(owned, line, host_waits, calls), steps),
        queue=_queue_per_step(queue(calls), steps),
    )


def waiting_of_host(owned: Owned, line: HostLine, steps: int) -> Waiting:
    """Of the operators in `line`, which are those of the marked steps alone: a host waits for no device."""
    windows = _windows(owned, owned.host.step[line.work.position[line.owner]], line.start, line.end)
    idle = host_gaps(owned, line, _clipped(windows, line.start, line.covered))
    parts = idle_times(idle, owned.host.phase[idle.ended_by])
    busy_ns = int(line.ns.sum())
    return Waiting(rounded(length(windows), steps), _idle_per_step(parts, windows, busy_ns, steps), {})


def _idle_per_step(idle: Sequence[IdleTime], windows: Spans, busy_ns: int, steps: int) -> tuple[IdleTime, ...]:
    """`idle` divided so that it sums to the rounded span less the rounded busy time."""
    whole = rounded(length(windows), steps) - rounded(busy_ns, steps)
    shares = apportion({i: part.ns for i, part in enumerate(idle)}, steps, whole)
    return tuple(replace(part, ns=shares[i], gaps=rounded(part.gaps, steps)) for i, part in enumerate(idle))


def _of_the_program(owned: Owned, all_waits: Waits) -> Waits:
    """Those of the waits in marked steps that are not the tool's own: it waits at a step's end, in the step's mark alone."""
    table, host = owned.table, owned.host
    parent = host.parent[all_waits.position]
    names = [table.names[i].startswith(marks.STEP) for i in table.name[host.rows[parent]].tolist()]
    mine = (host.step[all_waits.position] != NONE) & (parent != NONE) & ~np.array(names, np.bool_)
    return Waits(
        position=all_waits.position[mine],
        thread=all_waits.thread[mine],
        start=all_waits.start[mine],
        end=all_waits.end[mine],
    )


def _waits_per_step(whole: Sequence[SyncWait], steps: int) -> tuple[SyncWait, ...]:
    shares = apportion({(i, part.phase): part.ns for i, wait in enumerate(whole) for part in wait.waited_for}, steps)
    per_step = []
    for i, wait in enumerate(whole):
        parts = tuple(replace(part, ns=shares[i, part.phase]) for part in wait.waited_for)
        wait_ns = sum(part.ns for part in parts)
        per_step.append(replace(wait, calls=rounded(wait.calls, steps), wait_ns=wait_ns, waited_for=parts))
    return tuple(per_step)


def _queue_per_step(whole: Queue | None, steps: int) -> Queue | None:
    return replace(whole, blocked_ns=rounded(whole.blocked_ns, steps)) if whole is not None else None


# ---- the span of the steps


def _windows(owned: Owned, step: Ids, start: Ints, end: Ints) -> Spans:
    """From each step's mark to the end of its last work; `step` of the work from `start` to `end`, NONE for no step's."""
    mine = step != NONE
    begins = np.array([mark.start_ns for mark in owned.steps], np.int64)
    ends = np.full(len(begins), np.iinfo(np.int64).min)
    np.minimum.at(begins, step[mine], start[mine])  # the clocks of host and device differ by a few us
    np.maximum.at(ends, step[mine], end[mine])
    return union(begins, ends)


def _clipped(windows: Spans, start: Ints, covered: Ints) -> Ints:
    """`covered` moved so that the gaps before each `start` lie within `windows`, and none where that start does not."""
    if not len(windows.start):
        return start
    at = np.searchsorted(windows.start, start, side="right") - 1
    inside = (at >= 0) & (start <= windows.end[at])
    since = np.concatenate((windows.start[:1], covered[1:]))  # before the first work nothing runs
    return np.where(inside, np.minimum(np.maximum(since, windows.start[at]), start), start)
