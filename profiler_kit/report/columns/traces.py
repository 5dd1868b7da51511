"""The columns of inspected traces. Every row knows its trace, for shares and for its file's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from profiler_kit.records.document import Value
from profiler_kit.records.families import family_words, math_words
from profiler_kit.records.sums import sum_known
from profiler_kit.records.traces import (
    IdleTime,
    ShapedOperator,
    StreamTime,
    SyncWait,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TracePhase,
    TraceStep,
    TraceSummary,
    idle_by_cause,
)
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share
from profiler_kit.units import shape_text

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Of(Generic[Item]):
    """Something in a trace. `name` is the trace's in a table of several traces, else None."""

    trace: TraceSummary
    item: Item
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """A line of the phases: `label` a phase, the sum, or what has no phase; the rest as in `PhaseTime`, None where unknown."""

    label: str
    host_ns: int | None = None
    wait_ns: int | None = None
    kernel_ns: int
    sum_ns: int | None
    idle_ns: int | None
    events: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLine:
    """Idle time of one cause, before the work of whichever phase: `before` names the phases, the most first."""

    cause: str
    ns: int
    gaps: int
    before: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLine:
    """A line of the tree of modules: `times` of the module and all below it by phase, `own_ns` of it alone."""

    label: str
    class_name: str
    times: Mapping[TracePhase, int]
    own_ns: int | None

    @property
    def kernel_ns(self) -> int:
        """The time of all phases together."""
        return sum(self.times.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLine:
    """All kernels of one family: their calls and time, and the longest one's name."""

    family: str
    math: str | None
    calls: int
    kernel_ns: int
    longest: str


def _clock(host: int | None, device: int) -> float | None:
    return host / device if host is not None and device > 0 else None


def _busy(row: Of[Item]) -> int:
    return row.trace.busy_ns


def _time(trace: TraceSummary, *phases: TracePhase) -> int | None:
    return sum_known(timing.kernel_ns for timing in trace.phases if timing.phase in phases)


def _by_device(row: Of[Item], ns: int) -> int | None:
    """`ns` where the trace's clock is the device's; people see the host's under another title."""
    return ns if row.trace.clock == "device" else None


def _times(doc: str) -> tuple[Column[Of[Any]], ...]:
    """The columns of the busy time of what `doc` names; people see times of operators on the host under another title."""
    return (
        Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, f"busy time of {doc}; in a trace without a device self time of operators", place="data"),
        Column("device_ns", "device", "ns", lambda r: _by_device(r, r.item.kernel_ns), f"busy time of {doc}", place="page"),
        Column("operator_ns", "operators", "ns", lambda r: r.item.kernel_ns if r.trace.clock == "host" else None, "self time of operators on the host", place="page"),
    )  # fmt: skip


def _most_idle(trace: TraceSummary) -> Value:
    return next((cause for cause, ns in idle_by_cause(trace.idle).items() if ns), None)


def _in_phase(line: ModuleLine, *phases: TracePhase) -> int | None:
    return sum_known(line.times.get(phase) for phase in phases)


def _other_phases(line: ModuleLine) -> int | None:
    return sum(ns for phase, ns in line.times.items() if phase not in ("forward", "backward", "recompute")) or None


# fmt: off
# ruff: noqa: E501 - one column, one line
TRACE_COLUMNS: tuple[Column[Of[None]], ...] = (
    Column("name", "trace", "text", lambda r: r.name, "the file's name", place="page", name=True),
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("rank", "rank", "count", lambda r: r.trace.rank, "the process's rank, where the trace says it"),
    Column("clock", "clock", "text", lambda r: r.trace.clock, "device, or host where the trace holds no work of a device", place="data"),
    Column("span_ns", "span", "ns", lambda r: r.trace.span_ns, "from the first device event's start to the last one's end"),
    Column("busy_ns", "busy", "ns", lambda r: r.trace.busy_ns, "time in which the device worked, each instant once", place="data"),
    Column("busy_percent", "busy %", "percent", lambda r: share(r.trace.busy_ns, r.trace.span_ns), "share of the span in which the device worked", place="page"),
    Column("idle_ns", "idle", "ns", lambda r: r.trace.idle_ns, "the rest of the span", rank=3),
    Column("idle_cause", "mostly for", "text", lambda r: _most_idle(r.trace), "the cause of most of the idle time", rank=4),
    Column("steps", "steps", "count", lambda r: len(r.trace.steps) or None, "marked steps", rank=5),
    Column("step_ns", "step", "ns", lambda r: r.trace.step_ns, "median period of the steady steps, by the device's clock"),
    Column("host_step_ns", "host step", "ns", lambda r: r.trace.host_step_ns, "median duration of the steps' marks on the host", rank=6),
    Column("forward_ns", "forward", "ns", lambda r: _time(r.trace, "forward"), "busy time of forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: _time(r.trace, "backward", "recompute"), "busy time of backward, recomputation included", rank=1),
    Column("optimizer_ns", "optimizer", "ns", lambda r: _time(r.trace, "optimizer"), "busy time of the optimizer", rank=2),
    Column("communication_ns", "communication", "ns", lambda r: r.trace.communication.union_ns if r.trace.communication else None, "time in which a collective ran", rank=2),
    Column("exposed_ns", "exposed", "ns", lambda r: r.trace.communication.exposed_ns if r.trace.communication else None, "of it, what no other work covered", rank=2),
    Column("unattributed_ns", "no phase", "ns", lambda r: r.trace.unattributed_ns, "busy time without a phase", rank=7),
    Column("unlinked_ns", "no launch", "ns", lambda r: r.trace.unlinked_ns, "busy time of work whose launch is not in the trace", rank=8),
    Column("events", "events", "count", lambda r: r.trace.events, "entries of the file's list", place="data"),
    Column("device_events", "device events", "count", lambda r: r.trace.device_events, "kernels, copies and fills", place="data"),
    Column("linked", "linked", "count", lambda r: r.trace.linked, "device events whose launch is in the trace", place="data"),
)

TRACE_PHASE_COLUMNS: tuple[Column[Of[PhaseLine]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("phase", "phase", "text", lambda r: r.item.label, "data, transfer, forward, loss, backward, recompute, optimizer, communication, other"),
    Column("host_ns", "host", "ns", lambda r: r.item.host_ns, "wall time of the host's part: what a stopwatch around it shows"),
    Column("wait_ns", "waits", "ns", lambda r: r.item.wait_ns, "of it, what the host stood waiting for the device, for whatever phase's kernels", place="data"),
    Column("waited_ns", "waits", "ns", lambda r: r.item.wait_ns or None, "of it, what the host stood waiting for the device, for whatever phase's kernels", place="page", rank=2),
    *_times("the work that the phase launched, each instant once (a collective's where nothing else runs)"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("clock_ratio", "host / device", "ratio", lambda r: _clock(r.item.host_ns, r.item.kernel_ns) if r.trace.clock == "device" else None, "far below 1: the host's clock shows launching; far above 1: it shows waiting, or the device waits for the host", rank=1),
    Column("sum_ns", "summed", "ns", lambda r: r.item.sum_ns, "durations added up: more than the busy time where streams overlap", place="data"),
    Column("idle_ns", "idle before", "ns", lambda r: r.item.idle_ns, "gaps that its work ended", place="data"),
    Column("gaps_ns", "idle before", "ns", lambda r: _by_device(r, r.item.idle_ns or 0) or None, "gaps that its work ended", place="page", rank=3),
    Column("events", "events", "count", lambda r: r.item.events, "of the device", rank=4),
)

TRACE_IDLE_COLUMNS: tuple[Column[Of[IdleLine]], ...] = (
    Column("cause", "waiting for", "text", lambda r: r.item.cause, "why it was idle"),
    Column("ns", "time", "ns", lambda r: r.item.ns, "idle time of that cause"),
    Column("span_percent", "% of span", "percent", lambda r: share(r.item.ns, r.trace.span_ns), "share of the whole span"),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps, "how many", rank=1),
    Column("before", "before", "text", lambda r: r.item.before or None, "the phases whose work ended the gaps", rank=2),
)

TRACE_GAP_COLUMNS: tuple[Column[Of[IdleTime]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given"),
    Column("cause", "cause", "text", lambda r: r.item.cause, "why the device was idle"),
    Column("phase", "phase", "text", lambda r: r.item.phase, "the phase whose work ended the gaps; empty where it has none"),
    Column("ns", "idle", "ns", lambda r: r.item.ns, "idle time"),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps, "how many"),
)

TRACE_TREE_COLUMNS: tuple[Column[Of[ModuleLine]], ...] = (
    Column("module", "module", "text", lambda r: r.item.label, "the module, below the one that calls it", name=True),
    Column("class_name", "class", "text", lambda r: r.item.class_name or None, "its class", rank=4),
    *_times("the module and all below it"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("forward_ns", "forward", "ns", lambda r: _in_phase(r.item, "forward"), "of it in forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: _in_phase(r.item, "backward"), "of it in backward", rank=1),
    Column("recompute_ns", "recompute", "ns", lambda r: _in_phase(r.item, "recompute"), "of it forward work done again in backward", rank=2),
    Column("other_ns", "other", "ns", lambda r: _other_phases(r.item), "of it in other phases: the loss, the optimizer", rank=2),
    Column("own_ns", "own", "ns", lambda r: r.item.own_ns or None, "the module's own, without those below it", rank=3),
)

TRACE_MODULE_COLUMNS: tuple[Column[Of[TraceModule]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given"),
    Column("path", "module", "text", lambda r: r.item.path, "the calls' names from the outermost down; empty for work in no module, (communication) for collectives", name=True),
    Column("class_name", "class", "text", lambda r: r.item.class_name, "its class, where the trace tells it"),
    Column("phase", "phase", "text", lambda r: r.item.phase, "the phase"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of the module's own work in that phase"),
    Column("events", "events", "count", lambda r: r.item.events, "of the device"),
)

TRACE_OPERATOR_COLUMNS: tuple[Column[Of[TraceOperator]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("name", "operator", "text", lambda r: r.item.name, "its name", name=True),
    Column("family", "family", "text", lambda r: r.item.family, "its family", place="data"),
    Column("kind", "what it does", "text", lambda r: family_words(r.item.family) if r.item.family else None, "its family, in words", place="page", rank=2),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in the trace"),
    *_times("what it launched itself"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("host_self_ns", "host, own", "ns", lambda r: r.item.host_self_ns, "its own time on the host, operators inside it left out", rank=1),
)

TRACE_SHAPE_COLUMNS: tuple[Column[Of[ShapedOperator]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("name", "operator", "text", lambda r: r.item.name, "the operator that the program called", name=True),
    Column("family", "family", "text", lambda r: r.item.family, "its family", place="data"),
    Column("shapes", "shapes of its tensors", "text", lambda r: ", ".join(map(shape_text, r.item.shapes)), "as the trace tells them, those without a dimension left out"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls with work on the device"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of its work, and of the work of the autograd nodes that it made"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("forward_ns", "forward", "ns", lambda r: r.item.forward_ns or None, "of it in forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: r.item.backward_ns or None, "of it in backward", rank=1),
    Column("recompute_ns", "recompute", "ns", lambda r: r.item.recompute_ns or None, "of it forward work done again in backward", rank=2),
)

TRACE_KERNEL_COLUMNS: tuple[Column[Of[TraceKernel]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time, each instant once"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("sum_ns", "summed", "ns", lambda r: r.item.sum_ns, "durations added up", place="data"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "in the trace"),
    Column("mean_ns", "each", "ns", lambda r: r.item.sum_ns / r.item.calls if r.item.calls else None, "mean duration", rank=4),
    Column("family", "family", "text", lambda r: r.item.family, "its algorithm family", place="data"),
    Column("algorithm", "algorithm", "text", lambda r: family_words(r.item.family) if r.item.family else None, "its algorithm family, in words", place="page", rank=1),
    Column("op", "op", "text", lambda r: r.item.op, "fprop, dgrad (gradient of the input) or wgrad (gradient of the weight), where the name says", rank=3),
    Column("math", "math", "text", lambda r: r.item.math, "its arithmetic, where the name says", rank=2),
    Column("name", "kernel", "text", lambda r: r.item.name, "its name in the trace", name=True),
)

TRACE_FAMILY_COLUMNS: tuple[Column[Of[FamilyLine]], ...] = (
    Column("family", "what it does", "text", lambda r: family_words(r.item.family), "what kernels of this kind compute, and how"),
    Column("math", "math", "text", lambda r: math_words(r.item.math) if r.item.math else None, "arithmetic of most of it, where names say", rank=2),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of these kernels"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "in the trace", rank=1),
    Column("longest", "most of it in", "text", lambda r: r.item.longest, "the kernel of this kind that takes most time", rank=3, name=True),
)

TRACE_STREAM_COLUMNS: tuple[Column[Of[StreamTime]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("device", "device", "text", lambda r: r.item.device, "the device's number"),
    Column("stream", "stream", "text", lambda r: r.item.stream, "the stream's number"),
    Column("events", "events", "count", lambda r: r.item.events, "kernels, copies and fills"),
    Column("busy_ns", "busy", "ns", lambda r: r.item.busy_ns, "time in which it worked"),
    Column("busy_percent", "% of span", "percent", lambda r: share(r.item.busy_ns, r.trace.span_ns), "share of the whole span"),
    Column("communication", "collectives alone", "bool", lambda r: r.item.communication, "whether it holds nothing but collectives"),
)

TRACE_STEP_COLUMNS: tuple[Column[Of[TraceStep]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("number", "step", "count", lambda r: r.item.number, "as in ProfilerStep#number"),
    Column("host_ns", "host", "ns", lambda r: r.item.host_ns, "duration of its mark on the host"),
    Column("device_ns", "period", "ns", lambda r: r.item.device_ns, "on the device, from its first kernel to that of the next step; a dash for the last"),
    Column("kernel_ns", "busy", "ns", lambda r: r.item.kernel_ns, "busy time of the work launched in it"),
    Column("idle_ns", "idle", "ns", lambda r: r.item.idle_ns, "of the period, what is not busy"),
    Column("steady", "steady", "bool", lambda r: r.item.steady, "whether the queue of launches did not grow any more: these make the step time"),
)

TRACE_SYNC_COLUMNS: tuple[Column[Of[SyncWait]], ...] = (
    Column("file", "file", "text", lambda r: r.trace.file, "the file, as given", place="data"),
    Column("name", "the host waits in", "text", lambda r: r.item.name, "the operator or Python call", name=True),
    Column("call", "call", "text", lambda r: r.item.call, "the runtime's call", rank=3, name=True),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "in which the host stood there"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "in the trace", rank=1),
    Column("wait_ns", "waited", "ns", lambda r: r.item.wait_ns, "how long"),
    Column("waited_for", "while the device ran", "text", lambda r: waited_for(r.item), "the phases whose kernels ran meanwhile, the most first", rank=2),
)

TABLES = (
    ColumnTable("traces", TRACE_COLUMNS, "`inspect`: one row per trace ([what it says](inspect.md))."),
    ColumnTable("trace_phases", TRACE_PHASE_COLUMNS, "`inspect`: one row per phase of a trace, and one for work without a phase. Times are of the whole trace; `kernel_ns` adds up to the busy time."),
    ColumnTable("trace_idle", TRACE_GAP_COLUMNS, "`inspect`: idle time of the device by cause and by the phase whose work ended it."),
    ColumnTable("trace_causes", TRACE_IDLE_COLUMNS, "`inspect`: the same by cause alone, on a page."),
    ColumnTable("trace_modules", TRACE_MODULE_COLUMNS, "`inspect`: one row per module and phase, the module's own work."),
    ColumnTable("trace_tree", TRACE_TREE_COLUMNS, "`inspect`: the modules as a tree, each with all below it, on a page."),
    ColumnTable("trace_operators", TRACE_OPERATOR_COLUMNS, "`inspect`: one row per operator; its time is that of the work it launched itself."),
    ColumnTable("trace_shapes", TRACE_SHAPE_COLUMNS, "`inspect`: one row per operator and its inputs' shapes, twenty a trace; backward with its forward."),
    ColumnTable("trace_kernels", TRACE_KERNEL_COLUMNS, "`inspect`: one row per kernel, copy or fill."),
    ColumnTable("trace_families", TRACE_FAMILY_COLUMNS, "`inspect`: kernels by what they do, on a page."),
    ColumnTable("trace_streams", TRACE_STREAM_COLUMNS, "`inspect`: one row per stream of a device."),
    ColumnTable("trace_steps", TRACE_STEP_COLUMNS, "`inspect`: one row per marked step."),
    ColumnTable("trace_syncs", TRACE_SYNC_COLUMNS, "`inspect`: where the host waited for the device, and whose kernels ran meanwhile."),
)
# fmt: on


def waited_for(wait: SyncWait) -> str | None:
    """``backward 71 %, forward 29 %``: whose kernels ran during a wait; None where nothing is known."""
    whole = sum(part.ns for part in wait.waited_for)
    if not whole:
        return None
    parts = sorted(wait.waited_for, key=lambda part: -part.ns)
    said = [
        f"{part.phase or 'nothing, or work of no phase,'} {100 * part.ns / whole:.0f} %"
        for part in parts
        if 100 * part.ns >= whole
    ]
    return ", ".join(said) or None
