"""Records of `inspect`: device time, idle time and host waits of one trace. `ranks` has the records for several ranks.

All parts sum to a total: `busy_ns + idle_ns == span_ns`; the phases' `kernel_ns` and `unattributed_ns` sum to `busy_ns`; the
`idle` entries sum to `idle_ns`. Each busy instant counts once, for the work that started first. An instant counts for a
collective only if no other work runs. So the phase "communication" is the time that collectives cost, not their duration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

from profiler_kit.records.counts import Phase
from profiler_kit.records.samples import Interval

IdleCause = Literal[
    "waiting for data",
    "synchronization",
    "op dispatch",
    "python",
    "launch latency",
    "compilation",
    "cold start",
    "memory allocation",
    "another stream",
    "communication",
    "unknown",
]
IDLE_CAUSES: Final[tuple[IdleCause, ...]] = get_args(IdleCause)

FULL_QUEUE_NAME: Final = "(launch queue full)"  # the name of a wait for space in the launch queue
# With fewer kernels than this share of the launches, the idle time of the device is unknown.
MAX_UNRECORDED_SHARE: Final = 0.5
# A first step that is this many times as long as the others does work that the others do not.
FIRST_STEP_FACTOR: Final = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """The time of one phase: in a trace, or of a run in ns per step. None where a clock does not exist or was not read.

    From the timed steps of a run, which have no profiler:

    - `stopwatch_ns`: median host time without synchronization; the loss phase ends with ``.item()``.
    - `event_ns`: median time between CUDA events around the phase.

    From a trace. Without one, `sum_ns`, `idle_ns` and `events` are 0:

    - `kernel_ns`: its share of the busy time. Each instant counts once, for a collective only if nothing else runs. On a CPU:
      operator time. In a run, that of the kernels that the phase launched.
    - `host_ns`: wall time of the phase on the host.
    - `wait_ns`: the part of `host_ns` in which the host waits for the device (`.item()`, synchronize, a full launch queue),
      including waits for other phases' kernels. Waits on threads that `host_ns` leaves out do not count.
    - `sum_ns`: the sum of all durations; larger than `kernel_ns` where streams overlap.
    - `idle_ns`: the idle gaps that end with its work.
    - `events`: the number of device events.
    """

    phase: Phase
    stopwatch_ns: int | None = None
    event_ns: int | None = None
    kernel_ns: int | None = None
    host_ns: int | None = None
    wait_ns: int | None = None
    sum_ns: int = 0
    idle_ns: int = 0
    events: int = 0

    def without(self, part: PhaseTime | None) -> PhaseTime:
        """The rest of the phase's time after `part` of it is removed."""
        if part is None:
            return self
        return PhaseTime(
            phase=self.phase,
            host_ns=None if self.host_ns is None else self.host_ns - (part.host_ns or 0),
            kernel_ns=(self.kernel_ns or 0) - (part.kernel_ns or 0),
            wait_ns=(self.wait_ns or 0) - (part.wait_ns or 0),
            sum_ns=self.sum_ns - part.sum_ns,
            idle_ns=self.idle_ns - part.idle_ns,
            events=self.events - part.events,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """Idle time of one cause before work of one phase, and the number of gaps. `phase` is "" where unknown.

    `longest_ns`: the time in the longest gap; 0 in the mean of a run's steps.
    """

    cause: IdleCause
    phase: Phase | Literal[""] = ""
    ns: int
    gaps: int = 0
    longest_ns: int = 0


def idle_by_cause(idle: Iterable[IdleTime]) -> dict[IdleCause, int]:
    """The idle time of each cause, longest first."""
    causes: dict[IdleCause, int] = {}
    for part in idle:
        causes[part.cause] = causes.get(part.cause, 0) + part.ns
    return dict(sorted(causes.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """One marked step.

    - `host_ns`: the duration of the mark.
    - `device_ns`: from its first kernel to the first kernel of the next step; None for the last step, and for a step
      after which the recording paused.
    - `kernel_ns`: busy time of the work launched in it, which may run on after `device_ns`. In a trace without device
      work: of its operators.
    - `idle_ns`: the part of `device_ns` that is not busy. In a trace without device work: the part of `host_ns` in which
      no operator runs.
    - `steady`: True if the launch queue no longer grew, another step follows, and it is not a first step that is much longer
      than the others.
    """

    number: int
    host_ns: int
    device_ns: int | None
    kernel_ns: int
    idle_ns: int | None
    steady: bool

    @property
    def busy_ns(self) -> int:
        """The busy part of the step. Work of several steps may overlap, so this is not `kernel_ns` where idle time is known."""
        if self.idle_ns is None:
            return self.kernel_ns
        return max(0, (self.device_ns if self.device_ns is not None else self.host_ns) - self.idle_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTime:
    """One stream: its number of events, and its busy time as their union. `communication`: it holds only collectives."""

    device: str
    stream: str
    events: int
    busy_ns: int
    communication: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDevice:
    """One device: its number of events, and its busy and idle time in the span that all devices of the trace share."""

    device: str
    events: int
    busy_ns: int
    idle_ns: int


UntracedReason = Literal["", "no steps", "hardware counters", "device work is missing", "no operators"]
DeviceEvidence = Literal["", "launches", "lost events", "copies", "operators", "memory", "threads", "inputs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceRecord:
    """How much of the device's work a trace holds.

    - `launches`: calls that launch kernels. `unrecorded_launches`: those without work in the trace.
    - `lost_events`: kernels, copies and fills in the file that could not be read.
    - `evidence`: what shows that the program used a device: device events that could not be read, launches, copies, operators of
      a device's library, memory on a device, the threads of a device's backward pass, inputs; "" for nothing. `example`: the
      name of the first.
    """

    launches: int = 0
    unrecorded_launches: int = 0
    lost_events: int = 0
    evidence: DeviceEvidence = ""
    example: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadEvents:
    """Events of the file that could not be read, or not in whole, for one reason."""

    reason: str
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceKernel:
    """Device work with one name (on a CPU: one operator) in a trace, in one module of it, or in a mean step.

    - `calls`: its calls. In a mean step, those of all traced steps divided by the number of steps, rounded.
    - `kernel_ns`: its device time, each busy instant once; computation takes precedence over communication.
    - `op`: ``fprop``, ``dgrad`` or ``wgrad`` for kernels of convolutions; None where the name does not state it.
    - `math`: ``tf32``, ``fp32``, ``f16``, ``bf16`` …; None where the name does not state it.
    - `sum_ns`: the sum of all durations; None for a kernel of one module.
    """

    name: str
    family: str
    calls: int
    kernel_ns: int
    op: str | None = None
    math: str | None = None
    sum_ns: int | None = None

    @property
    def duration_ns(self) -> int:
        """The sum of all durations; where it is unknown, the device time."""
        return self.kernel_ns if self.sum_ns is None else self.sum_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceModule:
    """Device time of one module in one phase, excluding children. Each busy instant counts once.

    - `path`: "" for work outside all modules, ``(communication)`` for collectives. In a run, also other pseudo paths.
    - `phase`: of collectives, "communication"; in a mean step, the phase that launched them.
    - `class_name`: "" where the trace does not record it.
    - `events`: the number of device events.
    - `within`: of collectives, the phase that launched them, "" where unknown; "" for all other work.
    - `kernels`: its kernels (on the host's clock: operators), longest first; their times sum to `kernel_ns`. Empty in older
      files.
    """

    path: str
    class_name: str = ""
    phase: Phase
    kernel_ns: int
    events: int = 0
    within: Phase | Literal[""] = ""
    kernels: tuple[TraceKernel, ...] = ()

    @property
    def launched_in(self) -> Phase | Literal[""]:
        """The phase that launched the work; "" where it is unknown, and for the phase "other"."""
        phase = self.within if self.phase == "communication" else self.phase
        return "" if phase in ("other", "communication") else phase


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperator:
    """One operator.

    - `kernel_ns`: device time of the kernels that it launched itself.
    - `host_self_ns`: its host time, excluding operators that it calls.
    - `float64_ns`: the part of `kernel_ns` in calls whose first input is a float64 tensor; 0 where the trace has no types.
    - `longest_ns`: the part of `kernel_ns` in its longest calls, one for each step (one call in a trace without steps).
    - `dtypes`: the floating-point types of the first inputs of its calls, the one with the most of `kernel_ns` first; empty
      where the trace has no types.
    """

    name: str
    family: str
    calls: int
    kernel_ns: int
    host_self_ns: int
    float64_ns: int = 0
    longest_ns: int = 0
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedOperator:
    """Device time of one operator called with inputs of the same shapes. Layers with equal shapes share an entry.

    - `name`: the operator that the program called (`aten::conv2d`), including the operators that it calls.
    - `shapes`: the shapes of its tensors in order, without tensors that have no dimensions.
    - `calls`: the number of calls with device work.
    - `kernel_ns`: all of its device time, each busy instant once. Backward work counts for the operator that created its
      autograd node. `forward_ns`, `backward_ns` and `recompute_ns` are parts of it.
    """

    name: str
    family: str
    shapes: tuple[tuple[int, ...], ...]
    calls: int
    kernel_ns: int
    forward_ns: int
    backward_ns: int
    recompute_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitByPhase:
    """The part of a host wait in which kernels of `phase` ran ("" if the device was idle or the kernels are unattributed)."""

    phase: Phase | Literal[""]
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncWait:
    """Host waits for the device in calls of one kind.

    - `name`: the operator or Python call. `call`: the CUDA runtime call.
    - `phase`: the phase in which the host waited; "" for none.
    - `waited_for`: the wait split by the kernels that ran in the meantime.
    - `idle_ns`: the idle time that follows, until new work runs, at most as long as the wait: without it, the host would have
      launched that work meanwhile. Waiting for data, compilation and slow first calls do not count.
    - `source`: the user's own code around the longest wait (``train.py(12): step``); "" without Python calls in the trace.
    """

    name: str
    call: str
    phase: Phase | Literal[""]
    calls: int
    wait_ns: int
    waited_for: tuple[WaitByPhase, ...]
    idle_ns: int = 0
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostActivity:
    """Idle time in which the host was in one operator, call or range, as the innermost one.

    - `name`: its name; "" for time without a recorded event, or in the mark of a step alone. `after`, `before`: of such time, the
      names of the events between which most of it passes; "" at the ends of the trace.
    - `source`: the user's own code around its longest call (``train.py(12): augment``); "" where the trace does not show it.
    - `phase`: the phase of the host's work; "" for none. `module`: the module around its longest call; "" for none.
    - `calls`: its calls in idle time. `ns`: the idle time. `longest_ns`: the idle time in the longest call.
    - `long_ns`: the part of `ns` in gaps of at least a millisecond, which is longer than the usual time between launches.
    - `launched`: the work after the gaps was launched before them, so the host's activity is not their cause.
    """

    name: str
    phase: Phase | Literal[""]
    source: str
    calls: int
    ns: int
    longest_ns: int
    long_ns: int = 0
    launched: bool = False
    module: str = ""
    after: str = ""
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """The share of the step that a change saves, and its range. The step is that without the profiler."""

    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSite:
    """Work that one place of the program launches, and what a step would save without it.

    - `source`: the user's function (``train.py(12): augment``); "" for an operator wherever it is called, and for a phase.
      Work of backward belongs to the place of its forward operator.
    - `operator`: the outermost operator or the autograd node; "" for all work of a function, a module or a phase.
    - `module`: the path of a module, without its children; "" for other places.
    - `call`: the user's function that the loop of a training step calls, with all that it calls; "" for other places.
    - `loop`: the operators of one round of a loop, which call each other in a row; "" for other places. `within`: the user's
      function around it, "" where unknown.
    - `row`: operators in a row, between two products, in one place or in several, as in layers; "" for other places.
    - `rounds`: how often a step has a loop's round or a row; 0 for other places.
    - `repeated`: work that a step does in vain; "" for other places. "backward": backward of operators after their first one in
      the step. "unused": backward work whose gradients no optimizer step uses. "calls": calls of a module directly after another
      one. In a program that trains nothing, "weights": work on weights; "growing": work on inputs that grow from round to round.
    - `has_gradient`: False for all work of a training step, outside data loading and the optimizer, that has no backward pass.
    - `operators`: of a function, a module or a phase, its operators and nodes with the most host and device time, at most three.
    - `phase`: the phase of its longest work. `launches`: its device work per step. `launch_share`: its part of all device work.
    - `product_share`: the part of its time, on the host and on the device, in operators that launch convolutions, matrix
      products, attention or recurrent layers; in a training step, only in those with a backward pass. Of a call, all work with
      a backward pass.
    - `saving`: what a step would save without the work, its launches, and the host's waits there. Of a function, the host's
      work before each of its launches counts as well; of an operator, only the time in it.
    """

    source: str
    operator: str
    phase: Phase | Literal[""]
    launches: float
    launch_share: float
    product_share: float
    saving: Saving
    operators: tuple[str, ...] = ()
    module: str = ""
    call: str = ""
    loop: str = ""
    rounds: float = 0.0
    within: str = ""
    row: str = ""
    repeated: str = ""
    has_gradient: bool = True

    @property
    def place(self) -> str:
        """The function or the module, the loop, the operator or the phase."""
        return (
            self.source
            or self.call
            or self.module
            or self.loop
            or self.row
            or self.repeated
            or self.operator
            or self.phase
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """The launch queue: kernels that are launched and have not started.

    - `max_depth`, `median_depth`: its depth.
    - `delay_ns`: the median time from the end of a launch to the start of its kernel.
    - `full`: True if launches became slow at the largest depth, so they waited for a place. Host times then show device time.
    - `growing`: True if the depth still increased at the end of the trace. Host times are then too short for the work.
    - `blocked_ns`: the time of launches beyond the time of an unblocked launch.
    """

    max_depth: int
    median_depth: float
    delay_ns: int
    full: bool
    growing: bool
    blocked_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Collectives. Copies and fills do not count as overlapping work here; the phase "communication" counts them.

    - `sum_ns`: the sum of all durations. `union_ns`: the time in which any collective runs.
    - `exposed_ns`: the part of `union_ns` that no computing kernel overlaps.
    """

    events: int
    sum_ns: int
    union_ns: int
    exposed_ns: int
    by_kind: tuple[CollectiveTime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Collectives of one kind ("all_reduce").

    `bytes`: their size; None where the trace does not record that of each. `bytes_per_s`: the rate of those of at least 1 MiB,
    whose time is not mostly latency; None without any. Waiting for other ranks counts as time.
    """

    kind: str
    events: int
    sum_ns: int
    bytes: int | None
    bytes_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """The summary of one trace. The module's docstring lists the sums that hold.

    - `clock`: ``device``, or ``host`` for a trace without device work. With ``host``, the `kernel_ns` of phases and modules are
      self times of operators on the host, `busy_ns` is their sum, and `span_ns` is from the first operator or step to the end
      of the last.
    - `events`: all events. `device_events`: device events. `linked`: device events whose launch is in the trace.
    - `span_ns`: from the start of the first device event to the end of the last, once for each of `accounts`. `busy_ns`,
      `idle_ns`: its two parts.
    - `accounts`: the devices that take part; their times sum to those of the trace. Empty in older files.
    - `untraced_step_ns`: an estimate of the time of a step without the profiler, and its range; None if it cannot be said, with
      the reason in `untraced_reason`. Both are empty in older files.
    - `before`, `after`: the recorded time before the first device work and after the last, by cause. They are not part of the
      span. Empty for a trace without device work.
    - `device_record`: how much of the device's work the trace holds; None in older files.
    - `unread`: the events that could not be read, by reason, most first. `cut_off`: the file ends before its JSON does.
    - `sum_ns`: the sum of all durations of device events.
    - `unlinked_ns`: busy time of device events whose launch is missing. `aligned_ns`: the part of it that has a phase because
      the same kernel of another step has one.
    - `unattributed_ns`: busy time without a phase. `unattributed`: its kernels (on the host's clock: operators), longest first.
    - `modules`: in the order of their first work.
    - `moduleless_ns`: busy time of linked work outside communication without a module.
    - `step_ns`: the median period of the steady steps on the device. `host_step_ns`: the median duration of the
      marks of steps with work.
    - `outside_steps`: the part of `phases` that lies outside `steps`: work launched before, between or after them. Empty if
      `steps` is.
    - `shapes`: the operators with the most device time by the shapes of their inputs, at most twenty; empty if the trace has no
      shapes.
    - `syncs`: host waits. `queue`: the launch queue; None without launches.
    - `has_modules`: True if the trace names modules. `with_stack`: True if stacks were recorded. `compiled`: True if it has
      compiled regions.
    - `steps_inferred`: True if the trace marks no steps; `steps` are then inferred from the ends of `Optimizer.step`.
    - `graph_launches`: launches of CUDA graphs.
    - `loaders`: the classes of the DataLoader iterators, longest first. `optimizers`: those of the optimizers.
    - `median_kernel_ns`: the median duration of all kernels; copies and fills do not count.
    - `activities`: what the host did in idle time, longest first, at most twenty.
    - `compile_ns`: the time in which torch.compile compiled code. `compiled_frames`: the number of compilations of a frame.
    - `sites`: the places without which a step would save most, functions, operators, modules and phases, at most eight of each.
    - `hardware_counters`: True if the profiler replayed kernels one by one, so times are not those of the program.
    - `host_events`: operators and ranges on the host. `missing_events`: those that were recorded and removed from the file.
    """

    file: str
    clock: Literal["device", "host"]
    events: int = 0
    device_events: int = 0
    span_ns: int
    busy_ns: int
    idle_ns: int
    sum_ns: int
    linked: int = 0
    unlinked_ns: int = 0
    aligned_ns: int = 0
    unattributed_ns: int
    moduleless_ns: int = 0
    step_ns: int | None = None
    host_step_ns: int | None = None
    devices: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    steps: tuple[TraceStep, ...] = ()
    steps_inferred: bool = False
    phases: tuple[PhaseTime, ...] = ()
    outside_steps: tuple[PhaseTime, ...] = ()
    idle: tuple[IdleTime, ...] = ()
    streams: tuple[StreamTime, ...] = ()
    modules: tuple[TraceModule, ...] = ()
    unattributed: tuple[TraceKernel, ...] = ()
    operators: tuple[TraceOperator, ...] = ()
    shapes: tuple[ShapedOperator, ...] = ()
    kernels: tuple[TraceKernel, ...] = ()
    syncs: tuple[SyncWait, ...] = ()
    queue: Queue | None = None
    communication: Communication | None = None
    peak_allocated_bytes: int | None = None
    has_modules: bool = False
    with_stack: bool = False
    compiled: bool = False
    graph_launches: int = 0
    loaders: tuple[str, ...] = ()
    optimizers: tuple[str, ...] = ()
    median_kernel_ns: int | None = None
    activities: tuple[HostActivity, ...] = ()
    sites: tuple[WorkSite, ...] = ()
    compile_ns: int = 0
    compiled_frames: int = 0
    hardware_counters: bool = False
    host_events: int = 0
    missing_events: int = 0
    accounts: tuple[TraceDevice, ...] = ()
    before: tuple[IdleTime, ...] = ()
    after: tuple[IdleTime, ...] = ()
    device_record: DeviceRecord | None = None
    unread: tuple[UnreadEvents, ...] = ()
    cut_off: bool = False
    untraced_step_ns: Interval | None = None
    untraced_reason: UntracedReason = ""
    notes: tuple[str, ...] = ()

    @property
    def is_unrecorded(self) -> bool:
        """Whether the program used a device of which the trace holds no work, none with a duration, or the lesser part."""
        if self.clock == "device":
            return self.unrecorded_share >= MAX_UNRECORDED_SHARE or not self.busy_ns
        return self.device_record is not None and self.device_record.evidence != ""

    @property
    def unrecorded_share(self) -> float:
        """The share of the launches whose work the trace does not hold."""
        record = self.device_record
        return record.unrecorded_launches / record.launches if record is not None and record.launches else 0.0

    @property
    def busy_share(self) -> float | None:
        """The share of the span in which a device is busy (on the host: an operator runs), the mean of several devices."""
        return self.busy_ns / self.span_ns if self.span_ns else None

    @property
    def wall_ns(self) -> int:
        """The time from the first device work to the last (on the host: the span), once for all devices."""
        return self.span_ns // max(1, len(self.accounts))

    @property
    def before_ns(self) -> int:
        """The recorded time before the first device work."""
        return sum(part.ns for part in self.before)

    @property
    def after_ns(self) -> int:
        """The recorded time after the last device work."""
        return sum(part.ns for part in self.after)

    @property
    def recorded_ns(self) -> int:
        """The time that the trace covers: before, during and after the work of the device."""
        return self.before_ns + self.wall_ns + self.after_ns

    @property
    def missing_share(self) -> float:
        """The share of the recorded host events that the file lacks."""
        return self.missing_events / (self.missing_events + self.host_events) if self.missing_events else 0.0

    @property
    def working_steps(self) -> tuple[TraceStep, ...]:
        """The steps with work: all, or without the empty mark that the last call of ``profiler.step()`` begins."""
        return tuple(step for step in self.steps if step.kernel_ns) or self.steps

    @property
    def step_phases(self) -> tuple[PhaseTime, ...]:
        """The phases of the steps alone: `phases` without `outside_steps`."""
        outside = {timing.phase: timing for timing in self.outside_steps}
        parts = (timing.without(outside.get(timing.phase)) for timing in self.phases)
        return tuple(part for part in parts if part.host_ns or part.kernel_ns or part.events)

    @property
    def outside_ns(self) -> int:
        """The busy time of `outside_steps`."""
        return sum(timing.kernel_ns or 0 for timing in self.outside_steps)

    @property
    def overlap_ns(self) -> int:
        """The sum of durations minus the busy time: work that ran at the same time as other work."""
        return self.sum_ns - self.busy_ns

    def phase(self, name: Phase) -> PhaseTime | None:
        """The times of one phase; None if the trace has no work of it."""
        return next((timing for timing in self.phases if timing.phase == name), None)
