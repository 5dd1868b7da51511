"""Measured facts: one record per configuration, holding samples or a failure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.counts import DeviceMemory, Phase
from profiler_kit.records.laboratory import ConvolutionTiming, DeviceState, NewThread, PartWorkspace, Repeat
from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.traces import IdleTime, Queue, SyncWait

FailureKind = Literal["error", "out_of_memory", "crash", "timeout", "interrupted", "target"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTiming:
    """The clocks of one phase, ns per step.

    `stopwatch_ns`: median host time with no synchronisation, the loss ending in ``.item()``. `event_ns`: median between
    CUDA events around the phase. From traced steps: `kernel_ns`, device time of the kernels the phase launched (on a CPU:
    operator time); `host_ns`, the wall time of the phase on the host; `wait_ns`, what of it the host waited for the device.
    None where the clock does not exist or was not read.
    """

    phase: Phase
    stopwatch_ns: int | None = None
    event_ns: int | None = None
    kernel_ns: int | None = None
    host_ns: int | None = None
    wait_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelStat:
    """One kernel (on a CPU: one operator): its family, what it does, its arithmetic, calls and ns per step.

    `calls` is the number over all traced steps divided by their number, rounded; `op` is ``fprop``, ``dgrad``, ``wgrad``
    or None; `math` is ``tf32``, ``fp32``, ``f16``, ``bf16`` … or None where the name does not say.
    """

    name: str
    family: str
    calls: int
    kernel_ns: int
    op: str | None = None
    math: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTiming:
    """Device time one owner spent in one phase, ns per step, self. `path` is a module path or a pseudo path."""

    path: str
    phase: Phase
    kernel_ns: int
    kernels: tuple[KernelStat, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OpMemory:
    """What one op of a probe step allocated: `workspace_bytes` is its peak beyond what was live before it and what it returned.

    `before_bytes` were live when it began; ``before_bytes + growth_bytes + workspace_bytes`` is its peak. `call`: types and
    shapes it was called with.
    """

    path: str
    phase: Phase
    op: str
    before_bytes: int
    growth_bytes: int
    workspace_bytes: int
    call: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakMemory:
    """Measured memory of a run, taken apart at the op where the probe step peaked.

    ``parameters + gradients + optimizer_state + inputs + saved_activations + workspace + rest`` = the probe's peak.
    `ops` are the ops with the largest workspaces, largest first. `calls`: every op that may take a workspace, in order, for
    the prediction with measured scratch; a report keeps none.
    """

    peak_path: str
    peak_phase: Phase
    peak_op: str
    peak_bytes: int
    parameters: int
    gradients: int
    optimizer_state: int
    inputs: int
    saved_activations: int
    workspace: int
    rest: int
    ops: tuple[OpMemory, ...] = ()
    calls: tuple[OpMemory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a run has no samples. A failure is a result: it stands in the report with its reason."""

    kind: FailureKind
    message: str
    log_tail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of a named lane, for annotated traces. Times are ns on the trace's own clock."""

    lane: str
    name: str
    start_ns: int
    end_ns: int
    family: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRun(Saved, kind="run"):
    """One configuration, run in a fresh process: samples, or a failure. `failure` None means every figure that exists is real.

    `steps_ns` are the timed steps' durations, without the profiler; `phases`' kernel clock, `modules`, `kernels`,
    `unattributed_ns`, `span_ns`, `idle`, `waits` and `queue` come from `traced_steps` other steps, with it, and are per step.
    `span_ns`: from the beginning of the step's mark on the host to the end of the last device work launched in it (on a CPU:
    of its last operator). The time in which any device works and the causes in `idle` sum to it, exactly. `waits`: where the
    host waited for the device, without the tool's own wait at the end of a traced step. Peaks are bytes of the caching allocator:
    `first_step_peak_bytes` in the first step, `peak_allocated_bytes` and `peak_reserved_bytes` in the timed ones.
    `repeatable`: three forward and backward passes of one process gave the same bits. `*_digest`: hashes of outputs, loss and
    gradients from the seeded start, to compare across processes. `max_relative_error`: largest |out - out64| over the
    largest |out64|. `tuning_ns`: (first step - steady step) minus the same with benchmark off. `predicted`: the step's memory
    simulated with the scratch that `memory`'s probe saw.

    `samples`: examples in a step, the first input's leading size. `convolutions`: how each convolution was done
    (`part_workspaces` is on its way there: a report keeps none). `repeat`: the same in a second process. `needed_ns`: how
    long the process needed the device (loading the target aside).
    `max_relative_error` and `l2_relative_error` compare outputs with float64: the largest difference over the largest
    output, and the norm of the difference over the norm; `gradient_l2_relative_error` is the latter for all gradients as one
    vector, where it was cheap to measure. `flags_changed`: cuDNN flags that the model itself changed while it
    ran, as ``name: before -> after``.
    """

    config: RunConfig
    environment: Environment | None = None
    failure: Failure | None = None
    first_step_ns: int | None = None
    tuning_ns: int | None = None
    warmup_steps: int = 0
    steps_ns: tuple[int, ...] = ()
    step_ns: Interval | None = None
    traced_steps: int = 0
    clock: Literal["kernel", "operator"] | None = None
    phases: tuple[PhaseTiming, ...] = ()
    modules: tuple[LayerTiming, ...] = ()
    kernels: tuple[KernelStat, ...] = ()
    unattributed_ns: int | None = None
    span_ns: int | None = None
    idle: tuple[IdleTime, ...] = ()
    waits: tuple[SyncWait, ...] = ()
    queue: Queue | None = None
    first_step_peak_bytes: int | None = None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_rss_bytes: int | None = None
    workspace_bytes: int | None = None
    memory: PeakMemory | None = None
    predicted: DeviceMemory | None = None
    repeatable: bool | None = None
    repeatable_outputs: bool | None = None
    repeatable_gradients: bool | None = None
    output_digest: str | None = None
    gradient_digest: str | None = None
    repeatable_loss: bool | None = None
    loss_digest: str | None = None
    max_relative_error: float | None = None
    l2_relative_error: float | None = None
    gradient_l2_relative_error: float | None = None
    samples: int | None = None
    convolutions: tuple[ConvolutionTiming, ...] = ()
    part_workspaces: tuple[PartWorkspace, ...] = ()
    repeat: Repeat | None = None
    new_thread: NewThread | None = None
    device_state: DeviceState | None = None
    flags_changed: tuple[str, ...] = ()
    needed_ns: int | None = None
    trace: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def device_ns(self) -> int | None:
        """Device (or operator) time per step: attributed plus unattributed; None without a trace."""
        if self.unattributed_ns is None:
            return None
        return sum(layer.kernel_ns for layer in self.modules) + self.unattributed_ns
