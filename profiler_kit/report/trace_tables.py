"""Rows of inspected traces: lines for people, whole tables for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeVar

from profiler_kit.records.document import Table
from profiler_kit.records.report import TraceReport
from profiler_kit.records.trace_asks import TraceView
from profiler_kit.records.traces import TRACE_PHASES, IdleTime, TraceKernel, TraceOperator, TraceSummary
from profiler_kit.report import columns
from profiler_kit.report.columns import FamilyLine, IdleLine, Of, PhaseLine
from profiler_kit.report.plain import plain_table
from profiler_kit.report.traces_ranks import ranks_table

Item = TypeVar("Item")
TOTAL: Final = "(all)"
LITTLE_IDLE: Final = 0.05  # of the span: not worth a table on the first page
# The table that a view is about: what CSV holds.
TABLE_OF_VIEW: Final[dict[TraceView, str]] = {
    "phase": "trace_phases",
    "module": "trace_modules",
    "operator": "trace_operators",
    "kernel": "trace_kernels",
    "idle": "trace_idle",
    "stream": "trace_streams",
    "step": "trace_steps",
    "sync": "trace_syncs",
    "rank": "traces",
}


def phase_lines(trace: TraceSummary) -> tuple[list[PhaseLine], PhaseLine]:
    """A line per phase of which the trace holds anything, one for work without a phase, and their sum: the busy time."""
    timings = sorted(trace.phases, key=lambda timing: TRACE_PHASES.index(timing.phase))
    lines = [
        PhaseLine(
            label=t.phase,
            host_ns=t.host_ns,
            wait_ns=t.wait_ns,
            kernel_ns=t.kernel_ns,
            sum_ns=t.sum_ns,
            idle_ns=t.idle_ns,
            events=t.events,
        )
        for t in timings
        if t.host_ns or t.kernel_ns or t.events
    ]
    known = sum(line.events or 0 for line in lines)
    if trace.unattributed_ns:
        nobody = PhaseLine(
            label="(no phase)",
            host_ns=None,
            wait_ns=None,
            kernel_ns=trace.unattributed_ns,
            sum_ns=trace.sum_ns - sum(t.sum_ns for t in trace.phases),
            idle_ns=_idle_before(trace, ""),
            events=trace.device_events - known if trace.clock == "device" else None,
        )
        lines.append(nobody)
    whole = PhaseLine(
        label=TOTAL,
        host_ns=None,  # phases of several threads: their host times are no parts of one whole
        wait_ns=None,
        kernel_ns=sum(line.kernel_ns for line in lines),
        sum_ns=trace.sum_ns,
        idle_ns=trace.idle_ns,
        events=trace.device_events if trace.clock == "device" else None,
    )
    return lines, whole


def _idle_before(trace: TraceSummary, phase: str) -> int:
    return sum(idle.ns for idle in trace.idle if idle.phase == phase)


def idle_lines(idle: Sequence[IdleTime]) -> tuple[list[IdleLine], IdleLine]:
    """The idle time by cause, the most first, and its sum."""
    causes: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for part in idle:
        causes[part.cause].append((part.ns, part.gaps, part.phase))
    lines = []
    for cause, parts in causes.items():
        ns = sum(part[0] for part in parts)
        most = [phase for part_ns, _, phase in sorted(parts, reverse=True) if phase and 10 * part_ns >= ns]
        lines.append(IdleLine(cause=cause, ns=ns, gaps=sum(part[1] for part in parts), before=", ".join(most[:3])))
    lines.sort(key=lambda line: -line.ns)
    whole = IdleLine(cause=TOTAL, ns=sum(line.ns for line in lines), gaps=sum(line.gaps for line in lines), before="")
    return [line for line in lines if line.ns], whole


def family_lines(trace: TraceSummary, top: int | None) -> list[FamilyLine]:
    """The kernels by what they compute, the most time first; those beyond `top` in one line."""
    families: defaultdict[str, list[TraceKernel]] = defaultdict(list)
    for kernel in trace.kernels:
        families[kernel.family].append(kernel)
    lines = []
    for family, kernels in families.items():
        stated = [kernel for kernel in kernels if kernel.math is not None]
        lines.append(
            FamilyLine(
                family=family,
                math=max(stated, key=lambda kernel: kernel.kernel_ns).math if stated else None,
                calls=sum(kernel.calls for kernel in kernels),
                kernel_ns=sum(kernel.kernel_ns for kernel in kernels),
                longest=max(kernels, key=lambda kernel: kernel.kernel_ns).name,
            )
        )
    lines.sort(key=lambda line: (-line.kernel_ns, line.family))
    return _topped(lines, top, _more_families)


def _more_families(rest: Sequence[FamilyLine]) -> FamilyLine:
    return FamilyLine(
        family=f"({len(rest)} more)",
        math=None,
        calls=sum(line.calls for line in rest),
        kernel_ns=sum(line.kernel_ns for line in rest),
        longest=rest[0].longest,
    )


def kernels_by_time(trace: TraceSummary, top: int | None) -> list[TraceKernel]:
    """The kernels that take most time; those beyond `top` are one."""
    return _topped(sorted(trace.kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)), top, _more_kernels)


def _more_kernels(rest: Sequence[TraceKernel]) -> TraceKernel:
    return TraceKernel(
        name=f"({len(rest)} more)",
        family="",
        op=None,
        math=None,
        calls=sum(kernel.calls for kernel in rest),
        kernel_ns=sum(kernel.kernel_ns for kernel in rest),
        sum_ns=sum(kernel.sum_ns for kernel in rest),
    )


def operators_by_time(trace: TraceSummary, top: int | None) -> list[TraceOperator]:
    """The operators that take most device time, then most of the host's; those beyond `top` are one."""
    order = sorted(trace.operators, key=lambda one: (-one.kernel_ns, -one.host_self_ns, one.name))
    return _topped(order, top, _more_operators)


def _more_operators(rest: Sequence[TraceOperator]) -> TraceOperator:
    return TraceOperator(
        name=f"({len(rest)} more)",
        family="",
        calls=sum(one.calls for one in rest),
        kernel_ns=sum(one.kernel_ns for one in rest),
        host_self_ns=sum(one.host_self_ns for one in rest),
    )


def _topped(items: list[Item], top: int | None, more: Callable[[Sequence[Item]], Item]) -> list[Item]:
    """`items`, those beyond `top` as one: unless that one is a single item, which says more under its own name."""
    return [*items[:top], more(items[top:])] if top is not None and len(items) > top + 1 else items


def trace_data_tables(report: TraceReport, by: TraceView | None = None) -> tuple[Table, ...]:
    """Every table whole, all traces below each other, first the one that the view `by` (None: phases) is about."""
    main = "ranks" if by == "rank" and report.ranks is not None else TABLE_OF_VIEW[by or "phase"]
    return tuple(sorted(_data_tables(report), key=lambda table: table.name != main))


def _data_tables(report: TraceReport) -> Iterator[Table]:
    traces = report.traces
    yield plain_table("traces", "", columns.TRACE_COLUMNS, [Of(t, None) for t in traces], whole=True)
    if report.ranks is not None:
        yield ranks_table(report.ranks)
    phases = [Of(t, line) for t in traces for line in phase_lines(t)[0]]
    yield plain_table("trace_phases", "", columns.TRACE_PHASE_COLUMNS, phases, whole=True)
    gaps = [Of(t, idle) for t in traces for idle in t.idle]
    yield plain_table("trace_idle", "", columns.TRACE_GAP_COLUMNS, gaps, whole=True)
    modules = [Of(t, module) for t in traces for module in t.modules]
    yield plain_table("trace_modules", "", columns.TRACE_MODULE_COLUMNS, modules, whole=True)
    operators = [Of(t, one) for t in traces for one in operators_by_time(t, None)]
    yield plain_table("trace_operators", "", columns.TRACE_OPERATOR_COLUMNS, operators, whole=True)
    shapes = [Of(t, one) for t in traces for one in t.shapes]
    yield plain_table("trace_shapes", "", columns.TRACE_SHAPE_COLUMNS, shapes, whole=True)
    kernels = [Of(t, kernel) for t in traces for kernel in kernels_by_time(t, None)]
    yield plain_table("trace_kernels", "", columns.TRACE_KERNEL_COLUMNS, kernels, whole=True)
    streams = [Of(t, stream) for t in traces for stream in t.streams]
    yield plain_table("trace_streams", "", columns.TRACE_STREAM_COLUMNS, streams, whole=True)
    steps = [Of(t, step) for t in traces for step in t.steps]
    yield plain_table("trace_steps", "", columns.TRACE_STEP_COLUMNS, steps, whole=True)
    syncs = [Of(t, wait) for t in traces for wait in t.syncs]
    yield plain_table("trace_syncs", "", columns.TRACE_SYNC_COLUMNS, syncs, whole=True)
    yield plain_table("findings", "", columns.FINDING_COLUMNS, report.findings, whole=True)
