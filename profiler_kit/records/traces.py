"""What `inspect` says of traces: where the device's time went, and what it waited for. Of several ranks, see `ranks`.

Every part sums to the whole: `busy_ns + idle_ns == span_ns`; the phases' `kernel_ns` and `unattributed_ns` sum to `busy_ns`; the
`idle` entries sum to `idle_ns`. Each busy instant is counted once: for the work that started first, and for a collective only
where no other work runs. So "communication" is what collectives cost, not how long they stood on a stream of their own beside
the work that goes on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, get_args

TracePhase = Literal[
    "data", "transfer", "forward", "loss", "backward", "recompute", "optimizer", "communication", "other"
]
TRACE_PHASES: Final[tuple[TracePhase, ...]] = get_args(TracePhase)

IdleCause = Literal[
    "waiting for data",
    "synchronisation",
    "op dispatch",
    "python",
    "launch latency",
    "another stream",
    "communication",
    "unknown",
]
IDLE_CAUSES: Final[tuple[IdleCause, ...]] = get_args(IdleCause)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTime:
    """One phase: the host's clock beside the device's.

    `host_ns`: the wall time of the host's part, what a stopwatch around it would show; None where the trace has none to show.
    `kernel_ns`: its share of the busy time, each instant once, a collective's only where nothing else runs; `sum_ns`: durations
    added up, more where streams overlap.
    `idle_ns`: the gaps that its work ended. `wait_ns`: of `host_ns`, what the host stood waiting for the device (`.item()`,
    synchronize, a full launch queue), for whatever phase's kernels. `events`: of the device.
    """

    phase: TracePhase
    host_ns: int | None
    kernel_ns: int
    sum_ns: int
    idle_ns: int
    wait_ns: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleTime:
    """Idle time of one cause before work of one phase ("" where that is unknown), in how many gaps."""

    cause: IdleCause
    phase: TracePhase | Literal[""] = ""
    ns: int
    gaps: int = 0


def idle_by_cause(idle: Iterable[IdleTime]) -> dict[IdleCause, int]:
    """The ns of each cause in `idle`, the most first."""
    causes: dict[IdleCause, int] = {}
    for part in idle:
        causes[part.cause] = causes.get(part.cause, 0) + part.ns
    return dict(sorted(causes.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceStep:
    """A step: `host_ns` the mark's duration, `device_ns` from its first kernel to that of the next step (None for the last).

    `kernel_ns`: busy time of the work launched in it; `idle_ns`: of `device_ns` what is not busy. `steady`: the launch queue did
    not grow any more and the step is followed by another.
    """

    number: int
    host_ns: int
    device_ns: int | None
    kernel_ns: int
    idle_ns: int | None
    steady: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTime:
    """One stream: union of its events, and how many. `communication`: it holds collectives alone."""

    device: str
    stream: str
    events: int
    busy_ns: int
    communication: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceModule:
    """Device time of one module's own work in one phase (each busy instant once). `path` is "" for work in no module, and
    COMMUNICATION_PATH for collectives, which are no module's.

    `class_name` is "" where the trace does not tell it. `events`: of the device.
    """

    path: str
    class_name: str
    phase: TracePhase
    kernel_ns: int
    events: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceOperator:
    """One operator: device time of what it launched itself, calls, and its own time on the host."""

    name: str
    family: str
    calls: int
    kernel_ns: int
    host_self_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapedOperator:
    """Device time of one operator called with inputs of the same shapes: of a layer, or of layers alike.

    `name`: the operator that the program called (`aten::conv2d`), whatever it called in turn. `shapes`: of its tensors, in order;
    those without a dimension are left out. `calls`: with device work in the trace. Backward's work is joined to the operator
    that made its node; `kernel_ns` is all of it (each busy instant once), the others are parts.
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
class TraceKernel:
    """Device work of one name: `family`, `op` and `math` are what the name says (op and math None where it does not).

    `kernel_ns`: each busy instant once, computation before communication; `sum_ns`: durations added up.
    """

    name: str
    family: str
    op: str | None
    math: str | None
    calls: int
    kernel_ns: int
    sum_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitedFor:
    """How much of a wait went by while kernels of `phase` ran ("" for none: the device was idle or the work is nobody's)."""

    phase: TracePhase | Literal[""]
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncWait:
    """Waits of the host for the device in calls of one kind: `name` the operator or Python call, `call` the runtime's.

    `phase`: in which the host stood there; "" for none. `waited_for`: split over the kernels that ran meanwhile.
    """

    name: str
    call: str
    phase: TracePhase | Literal[""]
    calls: int
    wait_ns: int
    waited_for: tuple[WaitedFor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """Launches that wait to run: the deepest, and whether the queue filled, so that the host's clock shows the device's time.

    `delay_ns`: median from a launch's end to its kernel's start. `full`: launches got slow with the queue at its deepest, so they
    waited for a free place; `growing`: the depth still rose at the end, so host times are too short for the work. `blocked_ns`:
    what launches took beyond an unhindered one's time.
    """

    max_depth: int
    median_depth: float
    delay_ns: int
    full: bool
    growing: bool
    blocked_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Collectives: durations added up, their union, and of that what no computing kernel covered (exposed).

    Copies and fills cover nothing here; the phase "communication" leaves out what they cover too.
    """

    events: int
    sum_ns: int
    union_ns: int
    exposed_ns: int
    by_kind: tuple[CollectiveTime, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Collectives of one kind ("all_reduce"); `bytes` is None where the trace does not tell."""

    kind: str
    events: int
    sum_ns: int
    bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSummary:
    """Where the time of one trace went; see the module for what sums to what.

    `span_ns`: from the first device event's start to the last one's end; 0 without device work, and then `clock` is "host": the
    phases' and modules' `kernel_ns` are self times of operators on the host, `busy_ns` is their sum and `span_ns` is from
    the first operator to the last.
    `step_ns`: the steady steps' median period on the device; `host_step_ns`: the marks' median.
    `steps_inferred`: the trace marks no steps; `steps` were inferred from the ends of Optimizer.step.
    `linked`: device events whose launch is in the trace; `unlinked_ns`: busy time of the others; `aligned_ns`: of that, what got
    its phase from another step's same kernel. `unattributed_ns`: busy time without a phase. `overlap_ns`: durations beyond the
    busy time. `moduleless_ns`: busy time outside communication that belongs to no module, of `linked` work.
    `shapes`: the operators with most device time by their inputs' shapes, at most twenty, where the trace has shapes.
    `loaders`: classes of the DataLoader's iterators, those that took longest first.
    """

    file: str
    clock: Literal["device", "host"]
    events: int
    device_events: int
    span_ns: int
    busy_ns: int
    idle_ns: int
    sum_ns: int
    linked: int
    unlinked_ns: int
    aligned_ns: int
    unattributed_ns: int
    moduleless_ns: int
    step_ns: int | None
    host_step_ns: int | None
    devices: tuple[str, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    steps: tuple[TraceStep, ...] = ()
    steps_inferred: bool = False
    phases: tuple[PhaseTime, ...] = ()
    idle: tuple[IdleTime, ...] = ()
    streams: tuple[StreamTime, ...] = ()
    modules: tuple[TraceModule, ...] = ()
    operators: tuple[TraceOperator, ...] = ()
    shapes: tuple[ShapedOperator, ...] = ()
    kernels: tuple[TraceKernel, ...] = ()
    syncs: tuple[SyncWait, ...] = ()
    queue: Queue | None = None
    communication: Communication | None = None
    peak_allocated_bytes: int | None = None
    has_modules: bool = False
    compiled: bool = False
    graph_launches: int = 0
    loaders: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def overlap_ns(self) -> int:
        """Durations beyond the busy time: work that ran beside other work."""
        return self.sum_ns - self.busy_ns

    def phase(self, name: TracePhase) -> PhaseTime | None:
        """The figures of one phase; None where the trace has nothing of it."""
        return next((timing for timing in self.phases if timing.phase == name), None)
