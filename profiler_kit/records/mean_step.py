"""The mean of the traced steps of a run: the figures of its `TraceSummary`, divided by the number of steps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, NamedTuple, TypeVar

from profiler_kit.records.counts import COMMUNICATION_PATH, PHASES, Phase
from profiler_kit.records.samples import Interval
from profiler_kit.records.sums import apportion, divide_rounded
from profiler_kit.records.traces import (
    HostActivity,
    IdleTime,
    KernelStat,
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

Clock = Literal["kernel", "operator"]
Record = TypeVar("Record", HostActivity, Queue, StreamTime, TraceOperator, ShapedOperator)

CLOCKS: Final[dict[Literal["device", "host"], Clock]] = {"device": "kernel", "host": "operator"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTiming:
    """The clocks of one phase, in ns per step. None where the clock does not exist or was not read.

    - `stopwatch_ns`: median host time without synchronization; the loss phase ends with ``.item()``.
    - `event_ns`: median time between CUDA events around the phase.
    - `kernel_ns`: device time of the kernels that the phase launched, from traced steps (on a CPU: operator time).
    - `host_ns`: wall time of the phase on the host, from traced steps.
    - `wait_ns`: the part of `host_ns` in which the host waited for the device.
    """

    phase: Phase
    stopwatch_ns: int | None = None
    event_ns: int | None = None
    kernel_ns: int | None = None
    host_ns: int | None = None
    wait_ns: int | None = None


class LossShares(NamedTuple):
    """The shares of the loss in the time between calls of models, and from the last call to the backward pass."""

    between_calls: float = 1.0
    after_last_call: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTiming:
    """Device time of one path in one phase, excluding children, in ns per step. `path` is a module path or a pseudo path."""

    path: str
    phase: Phase
    kernel_ns: int
    kernels: tuple[KernelStat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanStep:
    """The figures of one traced step. `modules` and `unattributed_ns` sum to the busy time of the devices, and so do `kernels`.

    `phases` holds `kernel_ns`, `host_ns` and `wait_ns` alone. The other fields are those of `ConfigRun`.
    """

    clock: Clock | None = None
    phases: tuple[PhaseTiming, ...] = ()
    modules: tuple[LayerTiming, ...] = ()
    kernels: tuple[KernelStat, ...] = ()
    unattributed_ns: int | None = None
    span_ns: int | None = None
    idle: tuple[IdleTime, ...] = ()
    activities: tuple[HostActivity, ...] = ()
    waits: tuple[SyncWait, ...] = ()
    queue: Queue | None = None


class _Part(NamedTuple):
    """The work of one kernel in one layer. `layer` None is unattributed, `kernel` None is work whose kernels are unknown."""

    layer: tuple[str, Phase] | None
    kernel: KernelStat | None
    ns: int


def mean_step(traced: TraceSummary) -> MeanStep:
    """Return the mean of the steps of `traced`. A summary without steps is the mean already.

    **Counts**: a collective counts for the phase that launched it. Work of the phase "other" is unattributed. Of several
    devices, span and idle time are the mean.
    """
    steps = max(1, len(traced.steps))
    parts = list(_parts(traced))
    shares = apportion({i: part.ns for i, part in enumerate(parts)}, steps)
    by_layer: dict[tuple[str, Phase] | None, list[int]] = defaultdict(list)
    by_name: dict[str, list[int]] = defaultdict(list)
    for i, part in enumerate(parts):
        by_layer[part.layer].append(i)
        if part.kernel is not None:
            by_name[part.kernel.name].append(i)

    def kernel(members: Sequence[int]) -> KernelStat:
        kernels = [kernel for i in members if (kernel := parts[i].kernel) is not None]
        calls = divide_rounded(sum(kernel.calls for kernel in kernels), steps)
        longest = max(kernels, key=lambda kernel: kernel.kernel_ns)
        op = longest.op if len({kernel.op for kernel in kernels}) == 1 else None
        return replace(longest, op=op, calls=calls, kernel_ns=sum(shares[i] for i in members))

    unattributed = by_layer.pop(None, [])
    layers = [
        LayerTiming(
            path=layer[0],
            phase=layer[1],
            kernel_ns=sum(shares[i] for i in members),
            kernels=_longest_first(kernel([i]) for i in members if parts[i].kernel is not None),
        )
        for layer, members in by_layer.items()
        if layer is not None
    ]
    layers.sort(key=lambda layer: PHASES.index(layer.phase))
    device_steps = steps * max(1, len(traced.accounts))
    span_ns, busy_ns = divide_rounded(traced.span_ns, device_steps), divide_rounded(traced.busy_ns, device_steps)
    has_span = traced.span_ns > 0 or bool(traced.steps)
    return MeanStep(
        clock=CLOCKS[traced.clock],
        phases=tuple(_phases(traced, layers, steps)),
        modules=tuple(layers),
        kernels=_longest_first(kernel(members) for members in by_name.values()),
        unattributed_ns=sum(shares[i] for i in unattributed),
        span_ns=span_ns if has_span else None,
        idle=_idle(traced.idle, device_steps, span_ns - busy_ns if has_span else None),
        activities=tuple(_per_step(activity, steps, "calls", "ns", "long_ns") for activity in traced.activities),
        waits=_waits(traced.syncs, steps),
        queue=_per_step(traced.queue, steps, "blocked_ns") if traced.queue else None,
    )


def mean_summary(traced: TraceSummary, step: MeanStep) -> TraceSummary:
    """Return the summary of `step`, the mean of the steps of `traced`: what a report shows of a run as it shows a trace.

    It has no steps, and no `accounts`: of several devices, span and idle time are the mean.
    """
    steps, summary = len(traced.steps), as_traced(step, traced.untraced_step_ns)
    if not steps:
        kernels, operators = traced.kernels or summary.kernels, traced.operators or summary.operators
        return replace(traced, kernels=kernels, operators=operators)
    classes = {module.path: module.class_name for module in traced.modules}
    sums_ns = {kernel.name: divide_rounded(kernel.sum_ns, steps) for kernel in traced.kernels}
    return replace(
        summary,
        devices=traced.devices,
        step_ns=traced.step_ns,
        host_step_ns=traced.host_step_ns,
        phases=tuple(replace(timing, idle_ns=_idle_before(step, timing)) for timing in summary.phases),
        streams=tuple(_per_step(stream, steps, "events", "busy_ns") for stream in traced.streams),
        modules=tuple(replace(module, class_name=classes.get(module.path, "")) for module in summary.modules),
        operators=tuple(_per_step(operator, steps, *_OPERATOR_TIMES) for operator in traced.operators),
        shapes=tuple(_per_step(shape, steps, *_SHAPE_TIMES) for shape in traced.shapes),
        kernels=tuple(replace(kernel, sum_ns=sums_ns.get(kernel.name, kernel.sum_ns)) for kernel in summary.kernels),
        has_modules=traced.has_modules,
        sites=traced.sites,
    )


_OPERATOR_TIMES: Final = ("calls", "kernel_ns", "host_self_ns", "float64_ns", "longest_ns")
_SHAPE_TIMES: Final = ("calls", "kernel_ns", "forward_ns", "backward_ns", "recompute_ns")


def _per_step(record: Record, steps: int, *names: str) -> Record:
    """Return `record` with the fields `names` divided by `steps`."""
    means: dict[str, Any] = {name: divide_rounded(getattr(record, name), steps) for name in names}
    return replace(record, **means)


def _idle_before(step: MeanStep, timing: PhaseTime) -> int:
    return sum(part.ns for part in step.idle if part.phase == timing.phase)


def as_traced(step: MeanStep, untraced_step_ns: Interval | None = None) -> TraceSummary:
    """Return a summary without steps whose `mean_step` is `step`. It knows nothing else about the trace."""
    of_layers: Counter[str] = Counter()
    for layer in step.modules:
        of_layers.update({kernel.name: kernel.kernel_ns for kernel in layer.kernels})
    kernels = step.kernels or tuple(kernel for layer in step.modules for kernel in layer.kernels)
    rest = (replace(kernel, kernel_ns=kernel.kernel_ns - of_layers[kernel.name]) for kernel in step.kernels)
    unattributed_ns = step.unattributed_ns or 0
    device_ns = sum(layer.kernel_ns for layer in step.modules) + unattributed_ns
    idle_ns = sum(part.ns for part in step.idle) if step.span_ns else 0
    span_ns = step.span_ns or 0
    return TraceSummary(
        file="",
        clock="host" if step.clock == "operator" else "device",
        events=0,
        device_events=sum(kernel.calls for kernel in kernels) if step.clock == "kernel" else 0,
        span_ns=span_ns,
        busy_ns=span_ns - idle_ns if span_ns else device_ns,
        idle_ns=idle_ns,
        sum_ns=device_ns,
        linked=0,
        unlinked_ns=0,
        aligned_ns=0,
        unattributed_ns=unattributed_ns,
        moduleless_ns=0,
        step_ns=None,
        host_step_ns=None,
        phases=tuple(_phase_times(step)),
        idle=step.idle,
        modules=tuple(_trace_module(layer) for layer in step.modules),
        kernels=tuple(trace_kernel(kernel) for kernel in kernels) if step.clock == "kernel" else (),
        operators=tuple(trace_operator(kernel) for kernel in kernels) if step.clock == "operator" else (),
        unattributed=tuple(kernel for kernel in rest if kernel.kernel_ns > 0),
        syncs=step.waits,
        queue=step.queue,
        activities=step.activities,
        untraced_step_ns=untraced_step_ns,
    )


def trace_kernel(kernel: KernelStat) -> TraceKernel:
    """Return `kernel` as a kernel of a trace. Its calls do not overlap."""
    return TraceKernel(
        name=kernel.name,
        family=kernel.family,
        op=kernel.op,
        math=kernel.math,
        calls=kernel.calls,
        kernel_ns=kernel.kernel_ns,
        sum_ns=kernel.kernel_ns,
    )


def trace_operator(operator: KernelStat) -> TraceOperator:
    """Return `operator`, on the clock of the host, as an operator of a trace."""
    return TraceOperator(
        name=operator.name,
        family=operator.family,
        calls=operator.calls,
        kernel_ns=operator.kernel_ns,
        host_self_ns=operator.kernel_ns,
    )


def _phase_times(step: MeanStep) -> Iterator[PhaseTime]:
    """Yield the phases of `step`, also those of which only the layers are known."""
    timings = {timing.phase: timing for timing in step.phases}
    kernel_ns, events = Counter[Phase](), Counter[Phase]()
    for layer in step.modules:
        kernel_ns[layer.phase] += layer.kernel_ns
        events[layer.phase] += sum(kernel.calls for kernel in layer.kernels)
    for phase in PHASES:
        if phase in timings or kernel_ns[phase]:
            timing = timings.get(phase, PhaseTiming(phase=phase))
            ns = timing.kernel_ns if timing.kernel_ns is not None else kernel_ns[phase]
            yield PhaseTime(
                phase=phase,
                host_ns=timing.host_ns,
                kernel_ns=ns,
                sum_ns=ns,
                idle_ns=0,
                wait_ns=timing.wait_ns or 0,
                events=events[phase],
            )


def _trace_module(layer: LayerTiming) -> TraceModule:
    is_collective = layer.path == COMMUNICATION_PATH
    return TraceModule(
        path=layer.path,
        class_name="",
        phase="communication" if is_collective else layer.phase,
        kernel_ns=layer.kernel_ns,
        events=sum(kernel.calls for kernel in layer.kernels),
        within=layer.phase if is_collective else "",
        kernels=layer.kernels,
    )


def _parts(traced: TraceSummary) -> Iterator[_Part]:
    for module in traced.modules:
        phase = run_phase(module)
        layer = (module.path, phase) if phase is not None else None
        yield from _kernel_parts(layer, module.kernels, module.kernel_ns)
    yield from _kernel_parts(None, traced.unattributed, traced.unattributed_ns)


def _kernel_parts(layer: tuple[str, Phase] | None, kernels: Sequence[KernelStat], total_ns: int) -> Iterator[_Part]:
    yield from (_Part(layer, kernel, kernel.kernel_ns) for kernel in kernels)
    if (rest_ns := total_ns - sum(kernel.kernel_ns for kernel in kernels)) or not kernels:
        yield _Part(layer, None, rest_ns)


def run_phase(module: TraceModule) -> Phase | None:
    """Return the phase of a run that launched the work of `module`; None for the phase "other", which is unattributed."""
    phase = module.within if module.phase == "communication" else module.phase
    return None if phase == "other" else next((name for name in PHASES if name == phase), None)


def _longest_first(kernels: Iterable[KernelStat]) -> tuple[KernelStat, ...]:
    return tuple(sorted(kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)))


def _phases(traced: TraceSummary, layers: Sequence[LayerTiming], steps: int) -> Iterator[PhaseTiming]:
    """Yield the phases with work or time on the host. That of "other" includes time without a phase, so it is unknown."""
    kernel_ns: dict[str, int] = {}
    for layer in layers:
        kernel_ns[layer.phase] = kernel_ns.get(layer.phase, 0) + layer.kernel_ns
    if not traced.steps:
        kernel_ns |= {timing.phase: timing.kernel_ns for timing in traced.phases}
    timings: dict[str, PhaseTime] = {timing.phase: timing for timing in traced.phases if timing.phase != "other"}
    has_waits = traced.clock == "device" and traced.span_ns > 0
    for phase in PHASES:
        host_ns, wait_ns = (t.host_ns, t.wait_ns) if (t := timings.get(phase)) is not None else (None, 0)
        if phase in kernel_ns or host_ns is not None:
            yield PhaseTiming(
                phase=phase,
                kernel_ns=kernel_ns.get(phase, 0),
                host_ns=divide_rounded(host_ns, steps) if host_ns is not None else None,
                wait_ns=divide_rounded(wait_ns, steps) if has_waits else None,
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
