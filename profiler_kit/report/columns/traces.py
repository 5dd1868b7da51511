"""The columns of inspected traces. Every row holds its trace, for shares and for the file name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from profiler_kit.records.counts import Phase
from profiler_kit.records.document import Value
from profiler_kit.records.families import family_name, main_algorithm, math_name
from profiler_kit.records.marks import is_mark
from profiler_kit.records.sums import sum_known
from profiler_kit.records.traces import (
    HostActivity,
    IdleTime,
    ShapedOperator,
    StreamTime,
    SyncWait,
    TraceDevice,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceStep,
    TraceSummary,
    WorkSite,
    idle_by_cause,
)
from profiler_kit.report.columns.column import Column, ColumnTable, share
from profiler_kit.units import shape_text

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class TraceItem(Generic[Item]):
    """One row of a trace. `name`: the trace's name in a table of several traces, a run's configuration; else None."""

    trace: TraceSummary
    item: Item
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseLine:
    """A row of the phase table: a phase, the sum, or work without a phase. Figures as in `PhaseTime`; None is unknown."""

    label: str
    host_ns: int | None = None
    wait_ns: int | None = None
    kernel_ns: int
    sum_ns: int | None
    idle_ns: int | None
    events: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleLine:
    """Idle time of one cause. `before`: the phases of the work that ends the gaps, longest first.

    `is_in_span`: whether the time is part of the span.
    """

    cause: str
    ns: int
    gaps: int
    before: str
    is_in_span: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleLine:
    """A row of the module tree: `times` by phase including children, `own_ns` excluding children."""

    label: str
    class_name: str
    times: Mapping[Phase, int]
    own_ns: int | None

    @property
    def kernel_ns(self) -> int:
        """The time of all phases together."""
        return sum(self.times.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleKernel:
    """A kernel of a module in one phase; `module` is None for work without a phase."""

    module: TraceModule | None
    kernel: TraceKernel


def _clock_ratio(host: int | None, device: int) -> float | None:
    return host / device if host is not None and device > 0 else None


def _busy(row: TraceItem[Item]) -> int:
    return row.trace.busy_ns


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def _time(trace: TraceSummary, *phases: Phase) -> int | None:
    return sum_known(timing.kernel_ns for timing in trace.phases if timing.phase in phases)


def _by_device(row: TraceItem[Item], ns: int) -> int | None:
    """`ns` where the trace's clock is the device; pages show host times under another title."""
    return ns if row.trace.clock == "device" else None


def _time_columns(work: str) -> tuple[Column[TraceItem[Any]], ...]:
    """The columns of the busy time of `work`; pages show operator times on the host under another title."""
    return (
        Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, f"busy time of {work}; in a trace without device events: self time of operators", place="data"),
        Column("device_ns", "device", "ns", lambda r: _by_device(r, r.item.kernel_ns), f"busy time of {work}", place="page"),
        Column("operator_ns", "operators", "ns", lambda r: r.item.kernel_ns if r.trace.clock == "host" else None, "self time of operators on the host", place="page"),
    )  # fmt: skip


def _host_name(activity: HostActivity) -> str:
    """The name of what the host runs; in a mark of ours alone, it runs Python."""
    return activity.name if activity.name and not is_mark(activity.name) else "Python between operators"


def _most_idle(trace: TraceSummary) -> Value:
    return next((cause for cause, ns in idle_by_cause(trace.idle).items() if ns), None)


def _top_family(module: TraceModule) -> str | None:
    algorithm = main_algorithm(module.kernels)
    return algorithm.family if algorithm is not None else None


def _in_phase(line: ModuleLine, *phases: Phase) -> int | None:
    return sum_known(line.times.get(phase) for phase in phases)


def _other_phases(line: ModuleLine) -> int | None:
    return sum(ns for phase, ns in line.times.items() if phase not in ("forward", "backward", "recompute")) or None


def of_runs(columns: Sequence[Column[TraceItem[Item]]]) -> tuple[Column[TraceItem[Item]], ...]:
    """`columns` for the mean steps of runs: the configuration is in the place of the file."""
    return tuple(_CONFIG if column is _FILE else column for column in columns)


# fmt: off
# ruff: noqa: E501 - one column, one line
_CONFIG: Column[TraceItem[Any]] = Column("config", "config", "text", lambda r: r.name, "name of the configuration", place="data")
_FILE: Column[TraceItem[Any]] = Column("file", "file", "text", lambda r: r.trace.file, "the file, as passed on the command line", place="data")
_BUSY_SHARE: Column[TraceItem[Any]] = Column("kernel_percent", "%", "percent", lambda r: share(r.item.kernel_ns, _busy(r)), "share of the busy time", share=True)

TRACE_COLUMNS: tuple[Column[TraceItem[None]], ...] = (
    Column("name", "trace", "text", lambda r: r.name, "name of the file", place="page", name=True),
    _FILE,
    Column("rank", "rank", "count", lambda r: r.trace.rank, "rank of the process; empty where the trace does not say"),
    Column("clock", "clock", "text", lambda r: r.trace.clock, "device; or host for a trace without device events", place="data"),
    Column("span_ns", "span", "ns", lambda r: r.trace.span_ns, "time from the start of the first device event to the end of the last, once for each device"),
    Column("busy_ns", "busy", "ns", lambda r: r.trace.busy_ns, "time with at least one device event running", place="data"),
    Column("busy_percent", "busy %", "percent", lambda r: _percent(r.trace.busy_share), "busy time as a share of the span", place="page"),
    Column("idle_ns", "idle", "ns", lambda r: r.trace.idle_ns, "span minus busy time", rank=3),
    Column("recorded_ns", "recorded", "ns", lambda r: r.trace.recorded_ns, "time that the trace covers: from the first to the last operator, range, call or device event", place="data"),
    Column("before_ns", "before", "ns", lambda r: r.trace.before_ns, "recorded time before the first device work", place="data"),
    Column("after_ns", "after", "ns", lambda r: r.trace.after_ns, "recorded time after the last device work", place="data"),
    Column("idle_cause", "main idle cause", "text", lambda r: _most_idle(r.trace), "the cause of most of the idle time", rank=4),
    Column("steps", "steps", "count", lambda r: len(r.trace.steps) or None, "number of marked or inferred steps", rank=5),
    Column("step_ns", "step", "ns", lambda r: r.trace.step_ns, "median period of the steady steps by the device's clock"),
    Column("host_step_ns", "host step", "ns", lambda r: r.trace.host_step_ns, "median duration of the marked or inferred steps on the host", rank=6),
    Column("untraced_step_ns", "untraced step", "ns", lambda r: r.trace.untraced_step_ns.median if r.trace.untraced_step_ns is not None else None, "estimated duration of a step without the profiler", place="data"),
    Column("forward_ns", "forward", "ns", lambda r: _time(r.trace, "forward"), "busy time of forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: _time(r.trace, "backward", "recompute"), "busy time of backward, recomputation included", rank=1),
    Column("optimizer_ns", "optimizer", "ns", lambda r: _time(r.trace, "optimizer"), "busy time of the optimizer", rank=2),
    Column("communication_ns", "communication", "ns", lambda r: r.trace.communication.union_ns if r.trace.communication else None, "time with a collective running", rank=2),
    Column("exposed_ns", "exposed", "ns", lambda r: r.trace.communication.exposed_ns if r.trace.communication else None, "communication time that no other work overlaps", rank=2),
    Column("unattributed_ns", "unattributed", "ns", lambda r: r.trace.unattributed_ns, "busy time that is attributed to no phase", rank=7),
    Column("unlinked_ns", "no launch", "ns", lambda r: r.trace.unlinked_ns, "busy time of work whose launch is not in the trace", rank=8),
    Column("events", "events", "count", lambda r: r.trace.events, "number of entries in the file's event list", place="data"),
    Column("device_events", "device events", "count", lambda r: r.trace.device_events, "number of kernels, copies and fills", place="data"),
    Column("linked", "linked", "count", lambda r: r.trace.linked, "number of device events whose launch is in the trace", place="data"),
)

TRACE_PHASE_COLUMNS: tuple[Column[TraceItem[PhaseLine]], ...] = (
    _FILE,
    Column("phase", "phase", "text", lambda r: r.item.label, "data, transfer, forward, loss, backward, recompute, optimizer, communication or other; (outside steps) for attributed work before, between or after the steps"),
    Column("host_ns", "host", "ns", lambda r: r.item.host_ns, "wall time of the phase on the host, as a stopwatch shows it"),
    Column("wait_ns", "waits", "ns", lambda r: r.item.wait_ns, "part of the host time spent waiting for the device, for kernels of any phase", place="data"),
    Column("waited_ns", "waits", "ns", lambda r: r.item.wait_ns or None, "part of the host time spent waiting for the device, for kernels of any phase", place="page", rank=2),
    *_time_columns("the work that the phase launched; overlaps count once, collectives only where no other work runs"),
    _BUSY_SHARE,
    Column("clock_ratio", "host / device", "ratio", lambda r: _clock_ratio(r.item.host_ns, r.item.kernel_ns) if r.trace.clock == "device" else None, "host time divided by device time; far below 1: the host only launches; far above 1: the host waits for the device, or the device waits for the host", rank=1),
    Column("sum_ns", "summed", "ns", lambda r: r.item.sum_ns, "sum of durations; more than the busy time where streams overlap", place="data"),
    Column("idle_ns", "idle before", "ns", lambda r: r.item.idle_ns, "idle time that ends with work of this phase", place="data"),
    Column("gaps_ns", "idle before", "ns", lambda r: _by_device(r, r.item.idle_ns or 0) or None, "idle time that ends with work of this phase", place="page", rank=3),
    Column("events", "events", "count", lambda r: r.item.events, "number of device events", rank=4),
)

TRACE_IDLE_COLUMNS: tuple[Column[TraceItem[IdleLine]], ...] = (
    _FILE,
    Column("cause", "idle cause", "text", lambda r: r.item.cause, "why the device was idle; in a trace without device events, why no operator ran"),
    Column("ns", "time", "ns", lambda r: r.item.ns, "idle time of this cause"),
    Column("span_percent", "% of span", "percent", lambda r: share(r.item.ns, r.trace.span_ns) if r.item.is_in_span else None, "share of the span; empty for recorded time before the first device work and after the last", share=True),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps, "number of gaps", rank=1),
    Column("before", "before", "text", lambda r: r.item.before or None, "the phases of the work that ends the gaps, longest first; for time around the device work, what the host does", rank=2),
)

TRACE_GAP_COLUMNS: tuple[Column[TraceItem[IdleTime]], ...] = (
    _FILE,
    Column("cause", "cause", "text", lambda r: r.item.cause, "why the device was idle; in a trace without device events, why no operator ran"),
    Column("phase", "phase", "text", lambda r: r.item.phase, "the phase of the work that ends the gaps; empty where it has none"),
    Column("ns", "idle", "ns", lambda r: r.item.ns, "idle time"),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps, "number of gaps"),
)

TRACE_HOST_COLUMNS: tuple[Column[TraceItem[HostActivity]], ...] = (
    _FILE,
    Column("name", "host runs", "text", lambda r: _host_name(r.item), "the innermost operator, call or range that the host is in while the device is idle; in a trace without device events, while no operator runs", name=True),
    Column("ns", "idle", "ns", lambda r: r.item.ns, "idle time that passes meanwhile"),
    Column("idle_percent", "% of idle", "percent", lambda r: share(r.item.ns, r.trace.idle_ns), "share of the idle time", share=True),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in idle time", rank=1),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "the phase of the host's work", rank=2),
    Column("source", "code", "text", lambda r: r.item.source or None, "your own code around the longest call; empty without stacks", rank=1),
    Column("module", "module", "text", lambda r: r.item.module or None, "the module around the longest call", rank=3),
    Column("launched", "launched before", "bool", lambda r: r.item.launched, "whether the work after the gaps was launched before them, so that the host is not their cause", place="data"),
)

TRACE_PLACE_COLUMNS: tuple[Column[TraceItem[WorkSite]], ...] = (
    _FILE,
    Column("source", "code", "text", lambda r: r.item.source or None, "the function that launches the work; empty for an operator, wherever it is called, for a module and for a phase"),
    Column("module", "module", "text", lambda r: r.item.module or None, "the module that launches the work, without its children; empty for other places"),
    Column("operator", "operator", "text", lambda r: r.item.operator or ", ".join(r.item.operators) or None, "the operator; of a function, its operators with the most time", name=True),
    Column("saving_percent", "saves %", "percent", lambda r: 100.0 * r.item.saving.median, "what a step would save without this work, its launches and its waits, by a replay of the trace; places overlap"),
    Column("saving_low_percent", "low", "percent", lambda r: 100.0 * r.item.saving.low, "lower end of its range", place="data"),
    Column("saving_high_percent", "high", "percent", lambda r: 100.0 * r.item.saving.high, "upper end of its range", place="data"),
    Column("launches", "launches", "count", lambda r: r.item.launches, "kernels, copies and fills per step", rank=1),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "the phase of its longest work", rank=2),
)

TRACE_TREE_COLUMNS: tuple[Column[TraceItem[ModuleLine]], ...] = (
    Column("module", "module", "text", lambda r: r.item.label, "the module, indented below its caller", name=True),
    Column("class_name", "class", "text", lambda r: r.item.class_name or None, "class of the module", rank=4),
    *_time_columns("the module including children"),
    _BUSY_SHARE,
    Column("forward_ns", "forward", "ns", lambda r: _in_phase(r.item, "forward"), "part of the time in forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: _in_phase(r.item, "backward"), "part of the time in backward", rank=1),
    Column("recompute_ns", "recompute", "ns", lambda r: _in_phase(r.item, "recompute"), "part of the time in forward work recomputed in backward", rank=2),
    Column("other_ns", "other", "ns", lambda r: _other_phases(r.item), "part of the time in other phases, such as the loss and the optimizer", rank=2),
    Column("own_ns", "self", "ns", lambda r: r.item.own_ns or None, "time of the module excluding children", rank=3),
)

TRACE_MODULE_COLUMNS: tuple[Column[TraceItem[TraceModule]], ...] = (
    _FILE,
    Column("path", "module", "text", lambda r: r.item.path, "names of the nested calls from the outermost down; empty for work outside modules, (communication) for collectives", name=True),
    Column("class_name", "class", "text", lambda r: r.item.class_name, "class of the module; empty where the trace does not say"),
    Column("phase", "phase", "text", lambda r: r.item.phase, "the phase"),
    Column("within", "launched in", "text", lambda r: r.item.within or None, "phase that launched the collectives; empty for other work", place="data"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of the module in that phase, excluding children"),
    Column("events", "events", "count", lambda r: r.item.events, "number of device events"),
    Column("family", "top kernel family", "text", lambda r: _top_family(r.item), "algorithm family of the kernels with the most time", place="data"),
    Column("algorithm", "main algorithm", "text", lambda r: family_name(family) if (family := _top_family(r.item)) else None, "algorithm of the kernels with the most time (on a CPU: kind of operator)", place="page", rank=5),
)

TRACE_MODULE_KERNEL_COLUMNS: tuple[Column[TraceItem[ModuleKernel]], ...] = (
    _FILE,
    Column("path", "module", "text", lambda r: r.item.module.path if r.item.module is not None else None, "names of the nested calls from the outermost down; empty for work outside modules, (communication) for collectives", name=True),
    Column("phase", "phase", "text", lambda r: r.item.module.phase if r.item.module is not None else None, "the phase; empty for unattributed work"),
    Column("name", "kernel", "text", lambda r: r.item.kernel.name, "name of the kernel (on a CPU: of the operator)"),
    Column("family", "family", "text", lambda r: r.item.kernel.family, "algorithm family"),
    Column("op", "op", "text", lambda r: r.item.kernel.op, "convolution part that the kernel computes; empty where unknown"),
    Column("math", "math", "text", lambda r: r.item.kernel.math, "arithmetic that the name states"),
    Column("calls", "calls", "count", lambda r: r.item.kernel.calls, "calls in the trace"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel.kernel_ns, "busy time of the kernel in that module and phase"),
)

TRACE_OPERATOR_COLUMNS: tuple[Column[TraceItem[TraceOperator]], ...] = (
    _FILE,
    Column("name", "operator", "text", lambda r: r.item.name, "name of the operator", name=True),
    Column("family", "family", "text", lambda r: r.item.family, "kind of operation", place="data"),
    Column("kind", "kind", "text", lambda r: family_name(r.item.family) if r.item.family else None, "kind of operation, in words", place="page", rank=2),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in the trace"),
    *_time_columns("the work that the operator itself launched"),
    _BUSY_SHARE,
    Column("host_self_ns", "host self", "ns", lambda r: r.item.host_self_ns, "time of the operator on the host, nested operators excluded", rank=1),
)

TRACE_SHAPE_COLUMNS: tuple[Column[TraceItem[ShapedOperator]], ...] = (
    _FILE,
    Column("name", "operator", "text", lambda r: r.item.name, "the operator that the program called", name=True),
    Column("family", "family", "text", lambda r: r.item.family, "kind of operation", place="data"),
    Column("shapes", "input shapes", "text", lambda r: ", ".join(map(shape_text, r.item.shapes)), "shapes of the input tensors; scalars are left out"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls with device work"),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of the operator's work and of its backward work"),
    _BUSY_SHARE,
    Column("forward_ns", "forward", "ns", lambda r: r.item.forward_ns or None, "part of the time in forward", rank=1),
    Column("backward_ns", "backward", "ns", lambda r: r.item.backward_ns or None, "part of the time in backward", rank=1),
    Column("recompute_ns", "recompute", "ns", lambda r: r.item.recompute_ns or None, "part of the time in forward work recomputed in backward", rank=2),
)

TRACE_KERNEL_COLUMNS: tuple[Column[TraceItem[TraceKernel]], ...] = (
    _FILE,
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time; overlapping calls count once"),
    _BUSY_SHARE,
    Column("sum_ns", "summed", "ns", lambda r: r.item.duration_ns, "sum of durations", place="data"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in the trace"),
    Column("mean_ns", "mean", "ns", lambda r: r.item.duration_ns / r.item.calls if r.item.calls else None, "mean duration of a call", rank=4),
    Column("family", "family", "text", lambda r: r.item.family, "algorithm family", place="data"),
    Column("algorithm", "algorithm", "text", lambda r: family_name(r.item.family) if r.item.family else None, "algorithm family in words", place="page", rank=1),
    Column("op", "op", "text", lambda r: r.item.op, "fprop, dgrad (gradient of the input) or wgrad (gradient of the weight); empty where the name does not say", rank=3),
    Column("math", "math", "text", lambda r: r.item.math, "arithmetic; empty where the name does not say", rank=2),
    Column("name", "kernel", "text", lambda r: r.item.name, "name of the kernel in the trace", name=True),
)

TRACE_FAMILY_COLUMNS: tuple[Column[TraceItem[TraceKernel]], ...] = (
    Column("family", "kind", "text", lambda r: family_name(r.item.family), "what kernels of this kind compute, and by which algorithm"),
    Column("math", "math", "text", lambda r: math_name(r.item.math) if r.item.math else None, "arithmetic with the most time; empty where the names do not say", rank=2),
    Column("kernel_ns", "device", "ns", lambda r: r.item.kernel_ns, "busy time of these kernels"),
    _BUSY_SHARE,
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in the trace", rank=1),
    Column("longest", "longest kernel", "text", lambda r: r.item.name, "name of the kernel with the most time", rank=3, name=True),
)

TRACE_STREAM_COLUMNS: tuple[Column[TraceItem[StreamTime]], ...] = (
    _FILE,
    Column("device", "device", "text", lambda r: r.item.device, "number of the device"),
    Column("stream", "stream", "text", lambda r: r.item.stream, "number of the stream"),
    Column("events", "events", "count", lambda r: r.item.events, "number of kernels, copies and fills"),
    Column("busy_ns", "busy", "ns", lambda r: r.item.busy_ns, "time with work running on the stream"),
    Column("busy_percent", "% of span", "percent", lambda r: share(r.item.busy_ns, r.trace.wall_ns), "share of the span"),
    Column("communication", "collectives alone", "bool", lambda r: r.item.communication, "whether the stream runs collectives only"),
)

TRACE_DEVICE_COLUMNS: tuple[Column[TraceItem[TraceDevice]], ...] = (
    _FILE,
    Column("device", "device", "text", lambda r: r.item.device, "number of the device"),
    Column("events", "events", "count", lambda r: r.item.events, "number of kernels, copies and fills"),
    Column("busy_ns", "busy", "ns", lambda r: r.item.busy_ns, "time with work running on the device"),
    Column("busy_percent", "busy %", "percent", lambda r: share(r.item.busy_ns, r.item.busy_ns + r.item.idle_ns), "busy time as a share of the span", share=True),
    Column("idle_ns", "idle", "ns", lambda r: r.item.idle_ns, "rest of the span, which all devices share"),
)

TRACE_STEP_COLUMNS: tuple[Column[TraceItem[TraceStep]], ...] = (
    _FILE,
    Column("number", "step", "count", lambda r: r.item.number, "number of the step, as in ProfilerStep#number where the trace marks steps"),
    Column("host_ns", "host", "ns", lambda r: r.item.host_ns, "duration of the step on the host: of its mark, or inferred"),
    Column("device_ns", "period", "ns", lambda r: r.item.device_ns, "device time from the step's first kernel to the next step's first kernel; empty for the last step, and where the recording paused"),
    Column("kernel_ns", "work", "ns", lambda r: r.item.kernel_ns, "busy time of the work launched in the step; it may run on after the period", place="data"),
    Column("busy_ns", "busy", "ns", lambda r: r.item.busy_ns, "busy part of the period; without a period, busy time of the work launched in the step", place="page"),
    Column("idle_ns", "idle", "ns", lambda r: r.item.idle_ns, "part of the period without work; in a trace without device events, part of the host time without an operator"),
    Column("steady", "steady", "bool", lambda r: r.item.steady if r.trace.clock == "device" else None, "whether the launch queue no longer grew; the step time is the median over steady steps"),
)

TRACE_SYNC_COLUMNS: tuple[Column[TraceItem[SyncWait]], ...] = (
    _FILE,
    Column("name", "host waits in", "text", lambda r: r.item.name, "the operator or Python call that waits", name=True),
    Column("call", "call", "text", lambda r: r.item.call, "the call of the CUDA runtime", rank=3, name=True),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "the phase of the host during the wait"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls in the trace", rank=1),
    Column("wait_ns", "waited", "ns", lambda r: r.item.wait_ns, "total time of the waits"),
    Column("waited_for", "while the device ran", "text", lambda r: waited_for(r.item), "the phases whose kernels ran during the wait, longest first", rank=2),
)

TABLES = (
    ColumnTable("traces", TRACE_COLUMNS, "`inspect`: one row per trace ([how to read it](inspect.md))."),
    ColumnTable("trace_phases", TRACE_PHASE_COLUMNS, "`inspect`: one row per phase of the steps, one for work outside the steps, and one for work without a phase. Without such work, the rows cover the whole trace. `kernel_ns` adds up to the busy time."),
    ColumnTable("trace_idle", TRACE_GAP_COLUMNS, "`inspect`: idle time of the device by cause and by the phase of the work that ends it."),
    ColumnTable("trace_causes", TRACE_IDLE_COLUMNS, "`inspect`: idle time of the device by cause, in pages."),
    ColumnTable("trace_host", TRACE_HOST_COLUMNS, "`inspect`: what the host did while the device was idle, longest first, at most twenty rows."),
    ColumnTable("trace_places", TRACE_PLACE_COLUMNS, "`inspect`: the places of the program without which a step would be much shorter: functions, operators, modules and phases, at most eight of each."),
    ColumnTable("trace_modules", TRACE_MODULE_COLUMNS, "`inspect`: one row per module and phase, excluding children."),
    ColumnTable("trace_module_kernels", TRACE_MODULE_KERNEL_COLUMNS, "`inspect`: one row per kernel (on a CPU: per operator) of each module and phase."),
    ColumnTable("trace_tree", TRACE_TREE_COLUMNS, "`inspect`: the modules as a tree, including children, in pages."),
    ColumnTable("trace_operators", TRACE_OPERATOR_COLUMNS, "`inspect`: one row per operator, with the work that the operator itself launched."),
    ColumnTable("trace_shapes", TRACE_SHAPE_COLUMNS, "`inspect`: one row per operator and input shapes, up to twenty per trace; backward work is joined to its forward operator."),
    ColumnTable("trace_kernels", TRACE_KERNEL_COLUMNS, "`inspect`: one row per kernel, copy or fill."),
    ColumnTable("trace_families", TRACE_FAMILY_COLUMNS, "`inspect`: kernels by kind, in pages."),
    ColumnTable("trace_devices", TRACE_DEVICE_COLUMNS, "`inspect`: one row per device that takes part. The times add up to those of the trace."),
    ColumnTable("trace_streams", TRACE_STREAM_COLUMNS, "`inspect`: one row per stream of a device."),
    ColumnTable("trace_steps", TRACE_STEP_COLUMNS, "`inspect`: one row per step, marked or inferred."),
    ColumnTable("trace_syncs", TRACE_SYNC_COLUMNS, "`inspect`: the calls in which the host waited for the device, and the phases whose kernels ran meanwhile."),
)
# fmt: on


def waited_for(wait: SyncWait) -> str | None:
    """``backward (71 %), forward (29 %)``: the phases whose kernels ran during a wait; None where unknown."""
    total_ns = sum(part.ns for part in wait.waited_for)
    if not total_ns:
        return None
    parts = sorted(wait.waited_for, key=lambda part: -part.ns)
    shares = [
        f"{part.phase or 'nothing or unattributed work'} ({100 * part.ns / total_ns:.0f} %)"
        for part in parts
        if 100 * part.ns >= total_ns
    ]
    return ", ".join(shares) or None
