"""The figures of a `ConfigRun` from its trace: work, idle time and waits of an average traced step.

Only marked steps count. The trace also holds work outside of them (the profiler's own warm-up), which is left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, cast

import numpy as np

from profiler_kit.attribution.busy_time import event_devices
from profiler_kit.attribution.device_time import device_timeline
from profiler_kit.attribution.events import innermost_enclosing
from profiler_kit.attribution.host_only import HostTimeline, host_timeline
from profiler_kit.attribution.host_time import phase_host_ns
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.attribution.run_waits import device_waits, host_waits_of_steps
from profiler_kit.attribution.shares import apportion, divide_rounded
from profiler_kit.errors import TraceError
from profiler_kit.records import marks
from profiler_kit.records.counts import PHASES, Phase
from profiler_kit.records.runs import ConfigRun, KernelStat, LayerTiming, PhaseTiming
from profiler_kit.records.traces import TRACE_PHASES
from profiler_kit.traces.intervals import sum_by
from profiler_kit.traces.kernels import ConvolutionOp, classify, convolution_op
from profiler_kit.traces.table import NONE, Bytes, Ids, Ints, Mask
from profiler_kit.units import text

Clock = Literal["kernel", "operator"]

NEGLIGIBLE_SHARE: Final = 0.005  # of the time: less than any displayed digit
RECOMPUTE_NAME: Final = "autograd::recompute"  # name of a node's recomputation outside operators
_OTHER: Final = PHASE_NUMBERS["other"]


def attribute_run(run: ConfigRun, attribution: Attribution, *, clock: Clock | None = None) -> ConfigRun:
    """Return `run` with figures per traced step: work by phase, module and kernel, idle time, waits and launch queue.

    `clock`: ``kernel`` sums device work, ``operator`` sums self times of operators on the host. The default is
    ``kernel`` if the trace has device events, else ``operator``.

    Counts: each busy instant of a device once, also where kernels of several streams overlap; for a collective only
    where no other work runs. The module of a collective is COMMUNICATION_PATH. Work launched outside the marked steps is
    left out. Kernels without a launch are unattributed. The notes state how much of each there is.

    Raises: TraceError for a trace without marks of profiler_kit, or without device events for the kernel clock.
    """
    require_steps(attribution)
    selected: Clock = clock or ("kernel" if len(attribution.device.rows) else "operator")
    if selected == "kernel" and not len(attribution.device.rows):
        raise TraceError(
            "the trace holds no device work",
            where=attribution.table.file,
            hint="use the operator clock, or record on a device with CUDA activity",
        )
    steps, step_attribution = len(attribution.steps), attribution
    if selected == "kernel":
        step_attribution = _work_of_steps(attribution)
        work, waits = _kernel_work(step_attribution), device_waits(step_attribution, steps)
    else:
        timeline = host_timeline(attribution, _host_events_of_steps(attribution))
        work, waits = _operator_work(attribution, timeline), host_waits_of_steps(attribution, timeline, steps)
    figures = _per_step(work, steps)
    host_ns = {phase: divide_rounded(ns, steps) for phase, ns in phase_host_ns(attribution).items()}
    return replace(
        run,
        clock=selected,
        traced_steps=steps,
        phases=_phases(run.phases, figures.layers, host_ns, waits.wait_ns),
        modules=figures.layers,
        kernels=figures.kernels,
        unattributed_ns=figures.unattributed_ns,
        span_ns=waits.span_ns,
        idle=waits.idle,
        activities=waits.activities,
        waits=waits.waits,
        queue=waits.queue,
        notes=(*run.notes, *_notes(attribution, work, step_attribution)),
    )


def require_steps(attribution: Attribution) -> None:
    """Raise TraceError if the trace has no step marks of profiler_kit."""
    names = attribution.table.names
    if not any(
        names[i].startswith(marks.STEP) for i in np.unique(attribution.table.name[attribution.host.rows]).tolist()
    ):
        raise TraceError(
            f"the trace has no step marks of profiler_kit ({marks.STEP}...)",
            where=attribution.table.file,
            hint="give a trace that analyze wrote, traces/<config>.json.gz in its report folder",
        )


# ---- work of the marked steps


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """Kernels, copies, fills or operators of the traced steps. `phase` is NONE for unattributed work.

    `linked`: which were launched in a step. `sum_ns`: durations. `ns`: time with each busy instant counted once.
    `convolution`: an index of `_CONVOLUTION_OPS`, of the operator that launched each. `name` and `module` are indices
    of `names` and `paths`.
    """

    names: Sequence[str]
    paths: Sequence[str]
    name: Ids
    phase: Bytes
    module: Ids
    linked: Mask
    convolution: Bytes
    ns: Ints
    sum_ns: Ints


_CONVOLUTION_OPS: Final[tuple[ConvolutionOp | None, ...]] = ("fprop", "dgrad", "both gradients", None)
_NO_CONVOLUTION: Final = np.int8(3)


def _work_of_steps(attribution: Attribution) -> Attribution:
    """Return `attribution` with the device work launched in marked steps, and later work without a known launch."""
    device = attribution.device
    without_launch = (
        (device.launch == NONE) & (device.step == NONE) & (device.start_ns >= attribution.steps[0].start_ns)
    )
    included = (device.step != NONE) | without_launch
    return replace(attribution, device=device.selected(included))


def _kernel_work(attribution: Attribution) -> _Work:
    device, table = attribution.device, attribution.table
    linked = device.step != NONE
    return _Work(
        names=table.names,
        paths=[module.path for module in attribution.modules],
        name=table.name[device.rows],
        phase=np.where(linked & (device.within != _OTHER), device.within, NONE).astype(np.int8),
        module=device.module,
        linked=linked,
        convolution=_convolution_kinds(attribution, device.launch),
        ns=_busy_ns(attribution),
        sum_ns=device.end_ns - device.start_ns,
    )


def _busy_ns(attribution: Attribution) -> Ints:
    """Return the busy time of each device event, with each instant of a device counted for one event."""
    busy_ns = np.zeros(len(attribution.device.rows), np.int64)
    device_of, names = event_devices(attribution)
    for number in range(max(len(names), 1)):
        of_device = device_of == number
        busy_ns[of_device] = device_timeline(attribution.device.selected(of_device)).event_busy_ns
    return busy_ns


def _host_events_of_steps(attribution: Attribution) -> Mask:
    """Return which host events lie in a marked step, on a thread with phase marks or autograd nodes."""
    host = attribution.host
    on_step_thread = np.isin(host.thread, host.thread[(host.phase != NONE) & (host.phase != _OTHER)])
    return np.asarray((host.step != NONE) & on_step_thread, np.bool_)


def _operator_work(attribution: Attribution, timeline: HostTimeline) -> _Work:
    table, work = attribution.table, timeline.work
    included = ~work.recomputes | (timeline.self_ns > 0)
    position = work.position[included]
    name = np.where(work.recomputes[included], len(table.names), table.name[attribution.host.rows[position]])
    phase = work.phase[included]
    return _Work(
        names=(*table.names, RECOMPUTE_NAME),
        paths=[module.path for module in attribution.modules],
        name=name.astype(np.int32),
        phase=np.where(phase != _OTHER, phase, NONE).astype(np.int8),
        module=work.module[included],
        linked=np.ones(len(position), np.bool_),
        convolution=np.where(work.recomputes[included], _NO_CONVOLUTION, _convolution_kinds(attribution, position)),
        ns=timeline.ns[included],
        sum_ns=timeline.self_ns[included],
    )


def _convolution_kinds(attribution: Attribution, position: Ids) -> Bytes:
    """Return the innermost convolution operator around each host position, as an index of `_CONVOLUTION_OPS`."""
    table, host = attribution.table, attribution.host
    of_name = np.array([_CONVOLUTION_OPS.index(convolution_op(name)) for name in table.names] or [0], np.int8)
    # Only operators count: marks and Python calls may have the same names.
    op = np.where(host.is_operator, of_name[table.name[host.rows]], _NO_CONVOLUTION)
    enclosing = np.append(innermost_enclosing(host.parent, op != _NO_CONVOLUTION), np.int32(NONE))[position]
    return (
        np.where(enclosing != NONE, op[enclosing], _NO_CONVOLUTION)
        if len(op)
        else np.full(len(position), _NO_CONVOLUTION)
    )


# ---- per step


class _WorkKey(NamedTuple):
    """The key of the sums: work of one name in one phase and module. Phase NONE is unattributed."""

    phase: int
    module: int
    name: int


class _StepFigures(NamedTuple):
    """Figures of one step. `layers` and `unattributed_ns` sum to the busy time, and so do `kernels`."""

    layers: tuple[LayerTiming, ...]
    kernels: tuple[KernelStat, ...]
    unattributed_ns: int


def _per_step(work: _Work, steps: int) -> _StepFigures:
    """Return `work` by layer and by name, divided by the number of `steps`.

    Layers of a phase are in order of their first work.
    """
    unattributed_rows = work.phase == NONE
    columns = (work.phase, np.where(unattributed_rows, NONE, work.module), work.name)
    keys, first_row, key_index = np.unique(np.stack(columns, axis=1), axis=0, return_index=True, return_inverse=True)
    key_index = key_index.reshape(-1)
    work_keys = [_WorkKey(*key) for key in keys.tolist()]
    total = sum_by(key_index, work.ns, len(work_keys)).tolist()
    calls = np.bincount(key_index, minlength=len(work_keys)).tolist()
    convolutions_of: dict[_WorkKey, set[int]] = defaultdict(set)
    for index, convolution in np.unique(np.stack((key_index, work.convolution), axis=1), axis=0).tolist():
        convolutions_of[work_keys[index]].add(convolution)
    ordered_keys = [work_keys[i] for i in np.argsort(first_row).tolist()]
    calls_of = dict(zip(work_keys, calls, strict=True))
    totals = dict(zip(work_keys, total, strict=True))
    shares = apportion({key_index: totals[key_index] for key_index in ordered_keys}, steps)

    def stats(groups: Iterable[tuple[int, Sequence[_WorkKey]]]) -> tuple[KernelStat, ...]:
        kernels = []
        for name, members in groups:
            convolutions = {number for key_index in members for number in convolutions_of[key_index]}
            kind = classify(
                work.names[name], _CONVOLUTION_OPS[next(iter(convolutions))] if len(convolutions) == 1 else None
            )
            kernels.append(
                KernelStat(
                    name=work.names[name],
                    family=kind.family,
                    calls=divide_rounded(sum(calls_of[key_index] for key_index in members), steps),
                    kernel_ns=sum(shares[key_index] for key_index in members),
                    op=kind.op,
                    math=kind.math,
                )
            )
        return tuple(sorted(kernels, key=lambda stat: (-stat.kernel_ns, stat.name)))

    by_layer: dict[tuple[int, int], list[_WorkKey]] = defaultdict(list)
    by_name: dict[int, list[_WorkKey]] = defaultdict(list)
    for member in ordered_keys:
        by_layer[member.phase, member.module].append(member)
        by_name[member.name].append(member)
    unattributed = by_layer.pop((NONE, NONE), [])
    layers = [
        LayerTiming(
            path=work.paths[module] if module != NONE else "",
            phase=cast(Phase, TRACE_PHASES[phase]),
            kernel_ns=sum(shares[key_index] for key_index in members),
            kernels=stats((key_index.name, [key_index]) for key_index in members),
        )
        for (phase, module), members in by_layer.items()
    ]
    return _StepFigures(
        layers=tuple(sorted(layers, key=lambda layer: PHASES.index(layer.phase))),
        kernels=stats(by_name.items()),
        unattributed_ns=sum(shares[key_index] for key_index in unattributed),
    )


def _phases(
    stopwatch_timings: Sequence[PhaseTiming],
    layers: Sequence[LayerTiming],
    host_ns: Mapping[int, int],
    wait_ns: Mapping[int, int],
) -> tuple[PhaseTiming, ...]:
    """Return the phases with a stopwatch time or with work, each with its kernel time and its time on the host."""
    stopwatch = {timing.phase: timing for timing in stopwatch_timings}
    kernel_ns: dict[Phase, int] = defaultdict(int)
    for layer in layers:
        kernel_ns[layer.phase] += layer.kernel_ns
    return tuple(
        replace(
            stopwatch.get(phase, PhaseTiming(phase=phase)),
            kernel_ns=kernel_ns.get(phase, 0),
            host_ns=host_ns.get(PHASE_NUMBERS[phase])
            if phase != "other"
            else None,  # the host's time in other includes time without a phase
            wait_ns=wait_ns.get(PHASE_NUMBERS[phase]),
        )
        for phase in PHASES
        if phase in stopwatch or phase in kernel_ns
    )


# ---- notes


def _notes(attribution: Attribution, work: _Work, step_attribution: Attribution) -> Iterator[str]:
    """Yield one sentence for each part of the work that the figures leave out.

    `step_attribution`: only the work of marked steps.
    """
    total, count = int(work.ns.sum()), len(work.ns)
    for group, predicate in (
        (~work.linked, "have no launch in the trace"),
        (work.linked & (work.phase == NONE), "ran in a step but in none of its phases"),
    ):
        if group.any():
            share = f"{100 * int(work.ns[group].sum()) / total:.2g} % of the time" if total else "no time"
            yield f"{int(group.sum())} of {count} events {predicate} ({share}). They are unattributed."
    concurrent_ns = int(work.sum_ns.sum()) - total
    if concurrent_ns > NEGLIGIBLE_SHARE * total:
        yield f"{text(concurrent_ns, 'ns')} of work ran at the same time as other work. Each instant is counted once."
    device = attribution.device
    outside = ~np.isin(device.rows, step_attribution.device.rows)
    if outside.any():
        ns = int((device.end_ns - device.start_ns)[outside].sum())
        yield f"{int(outside.sum())} device events ({text(ns, 'ns')}) were launched outside the traced steps and are not counted."
    if attribution.table.malformed:
        yield f"{attribution.table.malformed} malformed events were skipped."
