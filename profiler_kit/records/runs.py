"""Measured results: one record per configuration, with samples or a failure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.counts import PHASES, DeviceMemory, Phase
from profiler_kit.records.experiments import ConvolutionTiming, DeviceState, HostLoad, NewThread, PartWorkspace, Repeat
from profiler_kit.records.mean_step import mean_step
from profiler_kit.records.parallel import RankRun
from profiler_kit.records.samples import Interval
from profiler_kit.records.saved import Saved
from profiler_kit.records.traces import IdleTime, PhaseTime, TraceKernel, TraceModule, TraceSummary

Clock = Literal["kernel", "operator"]
FailureKind = Literal["error", "out_of_memory", "crash", "timeout", "interrupted", "target"]
FailureCode = Literal["", "unused_parameters", "lost_peer", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpMemory:
    """The allocations of one op in the probe step.

    - `before_bytes`: live bytes at its start. `growth_bytes`: bytes that it left allocated.
    - `workspace_bytes`: its peak beyond these two; ``before_bytes + growth_bytes + workspace_bytes`` is its peak.
    - `call`: the types and shapes of its arguments.
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
    """The measured memory of a run by category, at the op where the probe step peaked.

    ``parameters + gradients + optimizer_state + inputs + saved_activations + workspace + rest`` = `peak_bytes`, exactly.

    - `ops`: the ops with the largest workspaces, largest first.
    - `calls`: every op that may use a workspace, in order, for the prediction with measured workspaces. Empty in a saved report.
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
    """The reason why a run has no samples. A failed run stays in the report.

    - `message`: what happened. `hint`: what to do; empty where unknown, and in files of earlier versions, whose message has it.
    - `code`: for decisions. ``unused_parameters``: DistributedDataParallel waited for gradients that no loss
      gives. ``lost_peer``: a collective lost its other side. ``stopped``: another rank failed.
    - `log_tail`: the last lines of the process's output.
    """

    kind: FailureKind
    message: str
    log_tail: str = ""
    hint: str = ""
    code: FailureCode = ""

    @property
    def first_line(self) -> str:
        """The first line of the message; the report's log has the others."""
        return next(iter(self.message.strip().splitlines()), "")

    @property
    def line(self) -> str:
        """What happened and what to do, in one line."""
        message = " ".join(self.message.split())
        return f"{message}; {self.hint}" if self.hint else message


SpanKind = Literal["phase", "idle", "work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A named interval on a lane of an annotated trace. Times are ns on the trace's clock.

    - `family`: what colors it: a phase, a cause of idle time, or a family of kernels or operators, as `kind` says.
    - `step`: the index of its step; None where it belongs to no step or to none alone.
    """

    lane: str
    name: str
    start_ns: int
    end_ns: int
    family: str | None = None
    kind: SpanKind = "phase"
    step: int | None = None


# The properties of `ConfigRun` that a file holds as well, for its readers. `traced` has the others.
MEAN_NAMES: Final = ("phases", "modules", "unattributed_ns", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """Evaluations of the model in a training loop, which are not part of its steps.

    - `count`: in how many of the `steps` that were seen. `ns`: what one adds to its step, the median.
    """

    count: int
    steps: int
    ns: int


@dataclass(frozen=True, kw_only=True)
class ConfigRun(Saved, kind="run"):
    """The result of one configuration in a fresh process: samples, or a failure.

    From timed steps, which run without the profiler:

    - `first_step_ns`: the first step. `warmup_steps`: the number of dropped steps.
      `evaluation`: those of a recorded loop. `steps_ns`: the durations of the timed steps.
      `step_ns`: their median with its interval. `round_ns`: as in `Repeat`.
    - `tuning_ns`: the cost of algorithm search: (first step - steady step) minus the same with benchmark off.
    - `samples`: examples per step, the leading size of the first input; None where that may be the length of a sequence.
    - `prepared_batches`: the number of batches that workers of the loader prepare while no step runs; None in older reports.

    - `timed_phases`: the clocks of each phase, without figures of the traced steps.

    From `traced_steps` separate steps, which run with the profiler:

    - `traced`: the summary of these steps alone, without the tool's own synchronization at the end of a step; None without a
      trace. Its span is the sum of the steps', each from the start of the step on the host to the end of its last device work
      (on a CPU: of its last operator). A summary without steps is the mean of the traced steps, as older files have it.
    - `profiler_scale`: the factor of the usual cost of the profiler with which the replay takes as long as `step_ns`.
    - `trace`: the file of the trace.

    The mean of these steps. A file holds `phases`, `modules`, `unattributed_ns` and `idle` for its readers; files of earlier
    versions have all of them:

    - `clock`: ``kernel`` for device time, ``operator`` for operator time on a CPU; None without a trace.
    - `phases`: the clocks of each phase; only `kernel_ns`, `host_ns` and `wait_ns` come from the traced steps.
    - `modules`, `kernels`: device time by path and phase, and by kernel. `unattributed_ns`: device time without a phase.
    - `span_ns`: the span. It equals the busy time plus the sum of `idle`, exactly; of several devices, it is their mean.
    - `idle`: idle time by cause.
    - `untraced_step_ns`: the time of a step without the profiler, as their replay estimates it.

    Memory, in bytes of the caching allocator:

    - `first_step_peak_bytes`: peak of the first step. `peak_allocated_bytes`, `peak_reserved_bytes`: peaks of the timed steps.
    - `peak_rss_bytes`: the peak of the host process.
    - `workspace_bytes`: the workspace at the peak of the probe step. `memory`: that peak by category.
    - `predicted`: the predicted memory of the step, using the workspaces that the probe measured.

    Numerics:

    - `repeatable`: True if three forward and backward passes in one process are bitwise equal. `repeatable_outputs`,
      `repeatable_loss`, `repeatable_gradients`: the same by part.
    - `output_digest`, `loss_digest`, `gradient_digest`: hashes of the results from the seeded start, to compare processes.
    - `nan_in`, `infinity_in`: which of ``outputs``, ``loss`` and ``gradients`` contain NaN, or infinity without NaN, in the first
      pass from the seeded start.
    - `max_relative_error`: the largest difference between outputs and float64 outputs, divided by the largest float64 output.
    - `l2_relative_error`: the norm of this difference divided by the norm of the float64 outputs.
    - `gradient_l2_relative_error`: the same for all gradients as one vector, where it was cheap to measure.

    Further measurements:

    - `convolutions`: the algorithm and time of each part of each convolution. `part_workspaces`: empty in a saved report.
    - `repeat`: the results of a second process. `further_repeats`: those of a third and later ones, without hashes.
    - `new_thread`: the forward pass in a new thread.
    - `device_state`: clock and temperature after the timed steps. `host_load`: the load of the host during them.
    - `ranks`: what each rank measured, in a run on several; the other fields are those of rank 0.
    - `flags_changed`: cuDNN flags that the model changed while it ran, as ``name: before -> after``.
    - `needed_ns`: the time for which the process needed the device, without loading the target.
    """

    config: RunConfig
    environment: Environment | None = None
    failure: Failure | None = None
    first_step_ns: int | None = None
    tuning_ns: int | None = None
    warmup_steps: int = 0
    evaluation: Evaluation | None = None
    steps_ns: tuple[int, ...] = ()
    step_ns: Interval | None = None
    round_ns: int | None = None
    timed_phases: tuple[PhaseTime, ...] = ()
    traced_steps: int = 0
    traced: TraceSummary | None = None
    profiler_scale: float | None = None
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
    nan_in: tuple[str, ...] = ()
    infinity_in: tuple[str, ...] = ()
    max_relative_error: float | None = None
    l2_relative_error: float | None = None
    gradient_l2_relative_error: float | None = None
    samples: int | None = None
    prepared_batches: int | None = None
    convolutions: tuple[ConvolutionTiming, ...] = ()
    part_workspaces: tuple[PartWorkspace, ...] = ()
    repeat: Repeat | None = None
    further_repeats: tuple[Repeat, ...] = ()
    new_thread: NewThread | None = None
    device_state: DeviceState | None = None
    host_load: HostLoad | None = None
    ranks: tuple[RankRun, ...] = ()
    flags_changed: tuple[str, ...] = ()
    needed_ns: int | None = None
    trace: str | None = None
    notes: tuple[str, ...] = ()
    error_note: str = ""

    @property
    def as_repeat(self) -> Repeat:
        """The steps and hashes of this process alone."""
        return Repeat(
            first_step_ns=self.first_step_ns,
            steps_ns=self.steps_ns,
            step_ns=self.step_ns,
            output_digest=self.output_digest,
            loss_digest=self.loss_digest,
            gradient_digest=self.gradient_digest,
            failure=self.failure.message if self.failure is not None else None,
            round_ns=self.round_ns,
            host_load=self.host_load,
        )

    @property
    def repeats(self) -> tuple[Repeat, ...]:
        """The results of all processes after the first one."""
        return (*((self.repeat,) if self.repeat is not None else ()), *self.further_repeats)

    @cached_property
    def mean_step(self) -> TraceSummary | None:
        """The mean of the traced steps, a summary without steps; None without a trace."""
        return mean_step(self.traced) if self.traced is not None else None

    @property
    def clock(self) -> Clock | None:
        """``kernel`` for device time, ``operator`` for operator time on a CPU; None without a trace."""
        if self.traced is None:
            return None
        return "kernel" if self.traced.clock == "device" else "operator"

    @property
    def phases(self) -> tuple[PhaseTime, ...]:
        """The phases that were timed or have device work, each with all of its clocks."""
        if self.mean_step is None:
            return self.timed_phases
        timed = {timing.phase: timing for timing in self.timed_phases}
        traced = {timing.phase: timing for timing in self.mean_step.phases}
        times = [
            (timed.get(phase, PhaseTime(phase=phase)), traced.get(phase, PhaseTime(phase=phase, kernel_ns=0)))
            for phase in PHASES
        ]
        return tuple(
            replace(device, stopwatch_ns=host.stopwatch_ns, event_ns=host.event_ns)
            for host, device in times
            if host.phase in timed or device.kernel_ns
        )

    @property
    def modules(self) -> tuple[TraceModule, ...]:
        """Device time by path and phase."""
        return self.mean_step.modules if self.mean_step is not None else ()

    @property
    def kernels(self) -> tuple[TraceKernel, ...]:
        """Device time by kernel, longest first."""
        return self.mean_step.kernels if self.mean_step is not None else ()

    @property
    def unattributed_ns(self) -> int | None:
        """Device time without a phase; None without a trace."""
        return self.mean_step.unattributed_ns if self.mean_step is not None else None

    @property
    def span_ns(self) -> int | None:
        """From the start of the step on the host to the end of its last work: the busy time plus the sum of `idle`, exactly.

        None without a trace, 0 in older files.
        """
        return self.mean_step.span_ns if self.mean_step is not None else None

    @property
    def idle(self) -> tuple[IdleTime, ...]:
        """Idle time by cause."""
        return self.mean_step.idle if self.mean_step is not None else ()

    @property
    def untraced_step_ns(self) -> Interval | None:
        """The time of a step without the profiler, as the replay of the traced steps estimates it."""
        return self.traced.untraced_step_ns if self.traced is not None else None

    @property
    def device_ns(self) -> int | None:
        """Device (or operator) time per step, attributed plus unattributed; None without a trace."""
        return self.mean_step.sum_ns if self.mean_step is not None else None

    @property
    def busy_ns(self) -> int | None:
        """The time of a traced step in which a device (on a CPU: any operator) runs, at most the step; None without a trace."""
        if self.span_ns:
            return max(0, self.span_ns - sum(part.ns for part in self.idle))
        if not self.device_ns or self.step_ns is None:
            return self.device_ns or None
        return min(self.device_ns, self.step_ns.median)

    @property
    def busy_share(self) -> float | None:
        """The share of a step in which any device (on a CPU: any operator) runs; None without a trace.

        The profiler lengthens the host's part of a step. So the idle time of a device is what is left of the timed step, at
        most the share of the traced one. On a CPU the profiler lengthens operators too, and shares are those of the traced
        step.
        """
        busy_ns, step_ns = self.busy_ns, self.step_ns.median if self.step_ns is not None else 0
        if not busy_ns:
            return None
        traced = busy_ns / self.span_ns if self.span_ns else 0.0
        timed = min(1.0, busy_ns / step_ns) if step_ns and (self.clock == "kernel" or not self.span_ns) else 0.0
        return max(traced, timed) or 1.0
