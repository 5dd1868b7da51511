"""The time of each phase on host and device, in the whole trace and outside its steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import DeviceTime, Gaps
from profiler_kit.attribution.host_time import phase_intervals
from profiler_kit.attribution.phases import BACKWARD, RECOMPUTE
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.wait_times import PhaseWaits, phase_waits
from profiler_kit.records.traces import TRACE_PHASES, PhaseTime
from profiler_kit.traces.intervals import Intervals, count_by, empty, join, length, overlap, subtract, sum_by, union
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Mask


class Work(NamedTuple):
    """The events that the figures sum: device events, or operators in a trace without device work.

    `busy`: ns of each event, with every busy instant counted once. `length`: the duration of each event. `gap_phase`
    and `gap_step`: the phase and the step of the event that ended each gap, NONE where none did. `recompute`:
    the intervals in which operators of recomputation run, without device work. `within`: the phase that launched each
    collective. `name`: an index of `names`. `launch`: the host event whose operators tell what a convolution computes.
    `counted`: the host events of marked steps, if only these count.
    """

    phase: Bytes
    within: Bytes
    module: Ids
    name: Ids
    launch: Ids
    step: Ids
    operator: Ids
    busy: Ints
    length: Ints
    span_ns: int
    gaps: Gaps
    gap_phase: Bytes
    gap_step: Ids
    names: Sequence[str]
    recompute: Intervals = empty()
    counted: Mask | None = None


class PhaseTimes(NamedTuple):
    """All phases with device work or host time, in the order of TRACE_PHASES, and their parts outside the steps."""

    phases: tuple[PhaseTime, ...]
    outside_steps: tuple[PhaseTime, ...]
    waits_elsewhere_ns: int


def phase_times(attribution: Attribution, work: Work, time: DeviceTime | None) -> PhaseTimes:
    """Return the time of each phase. Device work without a launch belongs to no step of the trace.

    `time`: None for a trace without device work.
    """
    waits = (
        phase_waits(attribution, time.waits, time.launches)
        if time is not None
        else PhaseWaits(np.zeros(0, np.int32), {}, 0)
    )
    host = _with_recompute(phase_intervals(attribution, waits.position), work.recompute)
    steps = _step_intervals(attribution)
    if work.counted is not None:
        host, waits = _inside(host, steps), waits._replace(intervals=_inside(waits.intervals, steps))
    everything = np.ones(len(work.phase), np.bool_), np.ones(len(work.gap_phase), np.bool_)
    total = _times(work, *everything, _lengths(host), _lengths(waits.intervals))
    if not attribution.steps or work.counted is not None:
        return PhaseTimes(total, (), waits.elsewhere_ns)
    outside = _times(
        work,
        work.step == NONE,
        work.gap_step == NONE,
        _lengths_outside(host, steps),
        _lengths_outside(waits.intervals, steps),
    )
    return PhaseTimes(total, outside, waits.elsewhere_ns)


def _with_recompute(host: dict[int, Intervals], recompute: Intervals) -> dict[int, Intervals]:
    """Return the intervals of each phase, with what operators of recomputation take from backward.

    A node that recomputes is recomputation from its start, before its first recomputed event.
    """
    if not len(recompute.start):
        return host
    return {
        **{
            phase: subtract(intervals, recompute) if phase == BACKWARD else intervals
            for phase, intervals in host.items()
        },
        RECOMPUTE: join(host.get(RECOMPUTE, empty()), recompute),
    }


def _step_intervals(attribution: Attribution) -> Intervals:
    bounds = np.array([(step.start_ns, step.end_ns) for step in attribution.steps], np.int64).reshape(-1, 2)
    return union(bounds[:, 0], bounds[:, 1])


def _inside(intervals: dict[int, Intervals], steps: Intervals) -> dict[int, Intervals]:
    """Return the parts in `steps` of the intervals of each phase that has any."""
    inside = {phase: subtract(of_phase, subtract(of_phase, steps)) for phase, of_phase in intervals.items()}
    return {phase: of_phase for phase, of_phase in inside.items() if len(of_phase.start)}


def _lengths(intervals: dict[int, Intervals]) -> dict[int, int]:
    return {phase: length(of_phase) for phase, of_phase in intervals.items()}


def _lengths_outside(intervals: dict[int, Intervals], steps: Intervals) -> dict[int, int]:
    """Return the ns of each phase outside `steps`, where there are any."""
    outside = {
        phase: length(of_phase) - int(overlap(steps, of_phase.start, of_phase.end).sum())
        for phase, of_phase in intervals.items()
    }
    return {phase: ns for phase, ns in outside.items() if ns}


def _times(
    work: Work, events_mask: Mask, gaps_mask: Mask, host_ns: dict[int, int], wait_ns: dict[int, int]
) -> tuple[PhaseTime, ...]:
    """Return the phases of the events and gaps in the masks."""
    # Index -1, no phase, selects the last entry.
    size = len(TRACE_PHASES) + 1
    phase, gap_phase = work.phase[events_mask] % size, work.gap_phase[gaps_mask] % size
    events = count_by(phase, size)
    kernel, total = sum_by(phase, work.busy[events_mask], size), sum_by(phase, work.length[events_mask], size)
    idle = sum_by(gap_phase, (work.gaps.end - work.gaps.start)[gaps_mask], size)
    return tuple(
        PhaseTime(
            phase=name,
            host_ns=host_ns.get(number),
            kernel_ns=int(kernel[number]),
            sum_ns=int(total[number]),
            idle_ns=int(idle[number]),
            wait_ns=wait_ns.get(number, 0),
            events=int(events[number]),
        )
        for number, name in enumerate(TRACE_PHASES)
        if events[number] or number in host_ns
    )
