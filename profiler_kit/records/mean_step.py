"""The mean of the traced steps of a run: the figures of its `TraceSummary`, divided by the number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeVar

from profiler_kit.records.counts import COMMUNICATION_PATH, PHASES, Phase
from profiler_kit.records.sums import apportion, divide_rounded
from profiler_kit.records.traces import (
    HostActivity,
    IdleTime,
    PhaseTime,
    Queue,
    ShapedOperator,
    StreamTime,
    SyncWait,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceSummary,
)

Record = TypeVar("Record", HostActivity, Queue, StreamTime, TraceOperator, ShapedOperator)


class LossShares(NamedTuple):
    """The shares of the loss in the time between calls of models, and from the last call to the backward pass."""

    between_calls: float = 1.0
    after_last_call: float = 1.0


class _Part(NamedTuple):
    """The work of one kernel in one layer. `layer` None is unattributed, `kernel` None is work whose kernels are unknown."""

    layer: tuple[str, Phase] | None
    kernel: TraceKernel | None
    ns: int


def mean_step(traced: TraceSummary) -> TraceSummary:
    """Return the mean of the steps of `traced` as a summary without steps. Such a summary is the mean already.

    `modules` and `unattributed_ns` sum to the busy time of the devices, and so do `kernels` (on the host's clock: operators).

    **Counts**: a collective counts for the phase that launched it. Work of the phase "other" is unattributed. Of several
    devices, span and idle time are the mean, so there are no `accounts`.
    """
    steps = max(1, len(traced.steps))
    parts = list(_parts(traced))
    shares = apportion({i: part.ns for i, part in enumerate(parts)}, steps)
    by_layer: dict[tuple[str, Phase] | None, list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        by_layer[part.layer].append(i)

    def mean_kernels(members: Iterable[int]) -> tuple[TraceKernel, ...]:
        by_name: dict[str, list[tuple[TraceKernel, int]]] = defaultdict(list)
        for i in members:
            if (kernel := parts[i].kernel) is not None:
                by_name[kernel.name].append((kernel, shares[i]))
        return _longest_first(_mean_kernel(kernels, steps) for kernels in by_name.values())

    unattributed = by_layer.pop(None, [])
    classes = {module.path: module.class_name for module in traced.modules}
    modules = []
    for layer, members in by_layer.items():
        if layer is not None:
            path, phase = layer
            kernels = mean_kernels(members)
            module = TraceModule(
                path=path,
                class_name=classes[path],
                phase=phase,
                kernel_ns=sum(shares[i] for i in members),
                events=sum(kernel.calls for kernel in kernels),
                within=phase if path == COMMUNICATION_PATH else "",
                kernels=kernels,
            )
            modules.append((PHASES.index(phase), module))
    modules_by_phase = tuple(module for _, module in sorted(modules, key=lambda item: item[0]))
    sums_ns = {kernel.name: divide_rounded(ns, steps) for kernel in traced.kernels if (ns := kernel.sum_ns) is not None}
    kernels = tuple(replace(kernel, sum_ns=sums_ns.get(kernel.name)) for kernel in mean_kernels(range(len(parts))))
    device_steps = steps * max(1, len(traced.accounts))
    device_ns = sum(shares.values())
    span_ns, busy_ns = divide_rounded(traced.span_ns, device_steps), divide_rounded(traced.busy_ns, device_steps)
    idle = _idle(traced.idle, device_steps, span_ns - busy_ns if traced.span_ns or traced.steps else None)
    idle_ns = sum(part.ns for part in idle) if span_ns else 0
    return TraceSummary(
        file="",
        clock=traced.clock,
        device_events=sum(kernel.calls for kernel in kernels) if traced.clock == "device" else 0,
        span_ns=span_ns,
        busy_ns=span_ns - idle_ns if span_ns else device_ns,
        idle_ns=idle_ns,
        sum_ns=device_ns,
        unattributed_ns=sum(shares[i] for i in unattributed),
        unattributed=mean_kernels(unattributed),
        devices=traced.devices,
        step_ns=traced.step_ns,
        host_step_ns=traced.host_step_ns,
        untraced_step_ns=traced.untraced_step_ns,
        phases=tuple(_phases(traced, modules_by_phase, idle, steps)),
        idle=idle,
        streams=tuple(_per_step(stream, steps, "events", "busy_ns") for stream in traced.streams),
        modules=modules_by_phase,
        operators=tuple(_per_step(operator, steps, *_OPERATOR_TIMES) for operator in traced.operators),
        shapes=tuple(_per_step(shape, steps, *_SHAPE_TIMES) for shape in traced.shapes),
        kernels=kernels,
        syncs=_waits(traced.syncs, steps),
        queue=_per_step(traced.queue, steps, "blocked_ns") if traced.queue else None,
        activities=tuple(_per_step(activity, steps, "calls", "ns", "long_ns") for activity in traced.activities),
        has_modules=traced.has_modules,
        sites=traced.sites,
    )


_OPERATOR_TIMES: Final = ("calls", "kernel_ns", "host_self_ns", "float64_ns", "longest_ns")
_SHAPE_TIMES: Final = ("calls", "kernel_ns", "forward_ns", "backward_ns", "recompute_ns")


def _per_step(record: Record, steps: int, *names: str) -> Record:
    """Return `record` with the fields `names` divided by `steps`."""
    means: dict[str, Any] = {name: divide_rounded(getattr(record, name), steps) for name in names}
    return replace(record, **means)


def _mean_kernel(kernels: Sequence[tuple[TraceKernel, int]], steps: int) -> TraceKernel:
    """Return one kernel of `kernels` with the same name and their times."""
    longest, _ = max(kernels, key=lambda item: item[0].kernel_ns)
    op = longest.op if len({kernel.op for kernel, _ in kernels}) == 1 else None
    calls = divide_rounded(sum(kernel.calls for kernel, _ in kernels), steps)
    return replace(longest, op=op, calls=calls, kernel_ns=sum(ns for _, ns in kernels), sum_ns=None)


def _longest_first(kernels: Iterable[TraceKernel]) -> tuple[TraceKernel, ...]:
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)))


def _parts(traced: TraceSummary) -> Iterator[_Part]:
    for module in traced.modules:
        phase = next((name for name in PHASES if name == module.launched_in), None)
        yield from _kernel_parts((module.path, phase) if phase is not None else None, module.kernels, module.kernel_ns)
    yield from _kernel_parts(None, traced.unattributed, traced.unattributed_ns)


def _kernel_parts(layer: tuple[str, Phase] | None, kernels: Sequence[TraceKernel], total_ns: int) -> Iterator[_Part]:
    yield from (_Part(layer, kernel, kernel.kernel_ns) for kernel in kernels)
    if (rest_ns := total_ns - sum(kernel.kernel_ns for kernel in kernels)) or not kernels:
        yield _Part(layer, None, rest_ns)


def _phases(
    traced: TraceSummary, modules: Sequence[TraceModule], idle: Sequence[IdleTime], steps: int
) -> Iterator[PhaseTime]:
    """Yield the phases with work or time on the host. That of "other" includes time without a phase, so it is unknown."""
    kernel_ns, events = Counter[str](), Counter[str]()
    for module in modules:
        kernel_ns[module.phase] += module.kernel_ns
        events[module.phase] += module.events
    for timing in () if traced.steps else traced.phases:
        kernel_ns[timing.phase] = kernel_ns[timing.phase] if timing.kernel_ns is None else timing.kernel_ns
    timings: dict[str, PhaseTime] = {timing.phase: timing for timing in traced.phases if timing.phase != "other"}
    has_waits = traced.clock == "device" and traced.span_ns > 0
    for phase in PHASES:
        timing = timings.get(phase, PhaseTime(phase=phase))
        if phase in kernel_ns or timing.host_ns is not None:
            yield PhaseTime(
                phase=phase,
                kernel_ns=kernel_ns[phase],
                host_ns=divide_rounded(timing.host_ns, steps) if timing.host_ns is not None else None,
                wait_ns=divide_rounded(timing.wait_ns or 0, steps) if has_waits else None,
                sum_ns=kernel_ns[phase],
                idle_ns=sum(part.ns for part in idle if part.phase == phase),
                events=events[phase],
            )


def _idle(idle: Sequence[IdleTime], steps: int, idle_ns: int | None) -> tuple[IdleTime, ...]:
    shares = apportion({i: part.ns for i, part in enumerate(idle)}, steps, idle_ns)
    return tuple(
        replace(part, ns=shares[i], gaps=divide_rounded(part.gaps, steps), longest_ns=0) for i, part in enumerate(idle)
    )


def _waits(waits: Sequence[SyncWait], steps: int) -> tuple[SyncWait, ...]:
    shares = apportion({(i, part.phase): part.ns for i, wait in enumerate(waits) for part in wait.waited_for}, steps)
    means = []
    for i, wait in enumerate(waits):
        parts = tuple(replace(part, ns=shares[i, part.phase]) for part in wait.waited_for)
        calls, idle_ns = divide_rounded(wait.calls, steps), divide_rounded(wait.idle_ns, steps)
        means.append(
            replace(wait, calls=calls, wait_ns=sum(part.ns for part in parts), waited_for=parts, idle_ns=idle_ns)
        )
    return tuple(means)
