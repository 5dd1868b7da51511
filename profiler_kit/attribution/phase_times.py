"""The time of each phase on host and device, in the whole trace and outside its steps; and by module, with its kernels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.device_time import DeviceTime, Gaps
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.host_time import phase_intervals
from profiler_kit.attribution.phases import BACKWARD, RECOMPUTE
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.attribution.wait_times import PhaseWaits, phase_waits
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import PhaseTime, TraceKernel, TraceModule
from profiler_kit.traces.intervals import Intervals, count_by, empty, join, length, overlap, subtract, sum_by, union
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Mask

CONVOLUTION_OPS: Final[tuple[ConvolutionOp | None, ...]] = ("fprop", "dgrad", "both gradients", None)
_NO_CONVOLUTION: Final = np.int8(3)


class ModuleTimes(NamedTuple):
    """The time by module and phase in the order of the first work, and that without a phase, longest first."""

    modules: tuple[TraceModule, ...]
    unattributed: tuple[TraceKernel, ...]


class _Cell(NamedTuple):
    """Work of one kernel in one module and phase; `module` and `phase` may be NONE."""

    first_row: int
    phase: int
    within: int
    module: int
    kernel: TraceKernel


def module_times(attribution: Attribution, work: Work) -> ModuleTimes:
    """Return the time of `work` by module and phase, with its kernels. Collectives are split by the phase that launched them."""
    modules: list[tuple[int, TraceModule]] = []
    unattributed: list[TraceKernel] = []
    for (phase, within, number), group in groupby(_cells(attribution, work), key=lambda cell: cell[1:4]):
        cells = list(group)
        kernels = _longest_first(cell.kernel for cell in cells)
        if phase == NONE:
            unattributed += kernels
            continue
        path, class_name = attribution.modules[number] if number != NONE else ("", "")
        module = TraceModule(
            path=path,
            class_name=class_name,
            phase=TRACE_PHASES[phase],
            kernel_ns=sum(kernel.kernel_ns for kernel in kernels),
            events=sum(kernel.calls for kernel in kernels),
            within=phase_name(within),
            kernels=kernels,
        )
        modules.append((min(cell.first_row for cell in cells), module))
    return ModuleTimes(
        tuple(module for _, module in sorted(modules, key=lambda item: item[0])), _longest_first(unattributed)
    )


def _longest_first(kernels: Iterable[TraceKernel]) -> tuple[TraceKernel, ...]:
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)))


def _cells(attribution: Attribution, work: Work) -> Iterator[_Cell]:
    """Yield the cells of `work`, those of a module and phase one after another."""
    if not len(work.phase):
        return
    module = np.where(work.phase == NONE, NONE, work.module)
    within = np.where(work.phase == TRACE_PHASES.index("communication"), work.within, NONE)
    sizes = (len(TRACE_PHASES) + 1, len(TRACE_PHASES) + 1, len(attribution.modules) + 1, len(work.names))
    columns = (work.phase.astype(np.int64) + 1, within + 1, module + 1, work.name)
    cells, first, cell_of = np.unique(np.ravel_multi_index(columns, sizes), return_index=True, return_inverse=True)
    ns, calls = sum_by(cell_of, work.busy, len(cells)), np.bincount(cell_of, minlength=len(cells))
    convolution = _cell_convolutions(convolutions(attribution, work.launch), cell_of, len(cells))
    numbers = (column.tolist() for column in np.unravel_index(cells, sizes))
    for row, phase, launched, number, name, total_ns, count, kind in zip(
        first.tolist(), *numbers, ns.tolist(), calls.tolist(), convolution.tolist(), strict=True
    ):
        kernel = classify(work.names[name], CONVOLUTION_OPS[kind])
        stat = TraceKernel(
            name=work.names[name],
            family=kernel.family,
            calls=count,
            kernel_ns=total_ns,
            op=kernel.op,
            math=kernel.math,
        )
        yield _Cell(row, phase - 1, launched - 1, number - 1, stat)


def _cell_convolutions(convolution: Bytes, cell_of: Ids | Ints, size: int) -> Bytes:
    """Return the operation of each cell, as an index of `CONVOLUTION_OPS`, where its work has a single one."""
    least, largest = np.full(size, _NO_CONVOLUTION), np.zeros(size, np.int8)
    np.minimum.at(least, cell_of, convolution)
    np.maximum.at(largest, cell_of, convolution)
    result: Bytes = np.where(least == largest, least, _NO_CONVOLUTION)
    return result


def convolutions(attribution: Attribution, position: Ids) -> Bytes:
    """Return the innermost convolution operator around each host position, as an index of `CONVOLUTION_OPS`."""
    table, host = attribution.table, attribution.host
    of_name = np.array([CONVOLUTION_OPS.index(convolution_op(name)) for name in table.names] or [0], np.int8)
    # Only operators count: marks and Python calls may have the same names.
    op = np.where(host.is_operator, of_name[table.name[host.rows]], _NO_CONVOLUTION)
    if not (op != _NO_CONVOLUTION).any():
        return np.full(len(position), _NO_CONVOLUTION)
    enclosing = np.append(innermost_enclosing(host.parent, op != _NO_CONVOLUTION), np.int32(NONE))[position]
    result: Bytes = np.where(enclosing != NONE, op[enclosing], _NO_CONVOLUTION)
    return result


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
