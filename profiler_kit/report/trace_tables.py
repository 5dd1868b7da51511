"""Rows of inspected traces for pages, and complete tables for CSV and data frames."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.document import Table
from profiler_kit.records.families import kernels_by_family
from profiler_kit.records.inspect_options import TraceView
from profiler_kit.records.report import TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import sum_fields
from profiler_kit.records.traces import (
    IdleTime,
    PhaseTime,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceSummary,
    idle_by_cause,
)
from profiler_kit.report.columns.column import Column, data_table
from profiler_kit.report.columns.findings import FINDING_COLUMNS
from profiler_kit.report.columns.ranks import COLLECTIVE_COLUMNS, RANK_COLUMNS
from profiler_kit.report.columns.traces import (
    TRACE_COLUMNS,
    TRACE_DEVICE_COLUMNS,
    TRACE_GAP_COLUMNS,
    TRACE_HOST_COLUMNS,
    TRACE_IDLE_COLUMNS,
    TRACE_KERNEL_COLUMNS,
    TRACE_MODULE_COLUMNS,
    TRACE_MODULE_KERNEL_COLUMNS,
    TRACE_OPERATOR_COLUMNS,
    TRACE_PHASE_COLUMNS,
    TRACE_PLACE_COLUMNS,
    TRACE_SHAPE_COLUMNS,
    TRACE_STEP_COLUMNS,
    TRACE_STREAM_COLUMNS,
    TRACE_SYNC_COLUMNS,
    IdleLine,
    ModuleKernel,
    PhaseLine,
    TraceItem,
    of_runs,
)
from profiler_kit.report.rows import TOTAL, UNATTRIBUTED, limit_rows

OUTSIDE: Final = "(outside steps)"  # work launched before, between or after the steps
MIN_IDLE_SHARE: Final = 0.05  # of the span: less idle time is a detail
LARGE_IDLE_SHARE: Final = 0.2  # of the span: from here on, what the host does meanwhile is the first question
# The main table of each view, which CSV holds.
TABLE_OF_VIEW: Final[dict[TraceView, str]] = {
    "phase": "trace_phases",
    "module": "trace_modules",
    "operator": "trace_operators",
    "kernel": "trace_kernels",
    "idle": "trace_idle",
    "host": "trace_host",
    "place": "trace_places",
    "stream": "trace_streams",
    "step": "trace_steps",
    "sync": "trace_syncs",
    "rank": "traces",
}


def phase_lines(trace: TraceSummary) -> tuple[list[PhaseLine], PhaseLine]:
    """One row per phase of the steps, one for attributed work outside them, one for work without a phase, and the busy time."""
    # Without device work outside the steps, a row for it would be empty.
    timings = sorted(trace.step_phases if trace.outside_ns else trace.phases, key=lambda t: TRACE_PHASES.index(t.phase))
    lines = [_phase_line(timing) for timing in timings if timing.host_ns or timing.kernel_ns or timing.events]
    if trace.outside_ns:
        parts = [_phase_line(timing) for timing in trace.outside_steps]
        lines.append(
            sum_fields(parts, "wait_ns", "kernel_ns", "sum_ns", "idle_ns", "events", label=OUTSIDE, host_ns=None)
        )
    attributed_events = sum(line.events or 0 for line in lines)
    if trace.unattributed_ns:
        unattributed = PhaseLine(
            label=UNATTRIBUTED,
            kernel_ns=trace.unattributed_ns,
            sum_ns=trace.sum_ns - sum(t.sum_ns for t in trace.phases),
            idle_ns=sum(idle.ns for idle in trace.idle if not idle.phase),
            events=trace.device_events - attributed_events if trace.clock == "device" else None,
        )
        lines.append(unattributed)
    total = PhaseLine(
        label=TOTAL,  # no host time: times of several threads do not add up
        kernel_ns=sum(line.kernel_ns for line in lines),
        sum_ns=trace.sum_ns,
        idle_ns=trace.idle_ns,
        events=trace.device_events if trace.clock == "device" else None,
    )
    return lines, total


def _phase_line(timing: PhaseTime) -> PhaseLine:
    return PhaseLine(
        label=timing.phase,
        host_ns=timing.host_ns,
        wait_ns=timing.wait_ns,
        kernel_ns=timing.kernel_ns or 0,
        sum_ns=timing.sum_ns,
        idle_ns=timing.idle_ns,
        events=timing.events,
    )


def idle_lines(idle: Sequence[IdleTime]) -> tuple[list[IdleLine], IdleLine]:
    """Idle time by cause, longest first, and its sum."""
    causes: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for part in idle:
        causes[part.cause].append((part.ns, part.gaps, part.phase))
    lines = []
    for cause, parts in causes.items():
        ns = sum(part[0] for part in parts)
        phases = [phase for part_ns, _, phase in sorted(parts, reverse=True) if phase and 10 * part_ns >= ns]
        lines.append(IdleLine(cause=cause, ns=ns, gaps=sum(part[1] for part in parts), before=", ".join(phases[:3])))
    lines.sort(key=lambda line: -line.ns)
    total = IdleLine(cause=TOTAL, ns=sum(line.ns for line in lines), gaps=sum(line.gaps for line in lines), before="")
    return [line for line in lines if line.ns], total


def edge_lines(trace: TraceSummary) -> list[IdleLine]:
    """The recorded time before the first device work and after the last, where it is much of what the trace covers."""
    edges = (("before the first device work", trace.before), ("after the last device work", trace.after))
    lines = [
        IdleLine(
            cause=f"({name})",
            ns=sum(part.ns for part in parts),
            gaps=1,
            before=", ".join(itertools.islice(idle_by_cause(parts), 2)),
            is_in_span=False,
        )
        for name, parts in edges
    ]
    return [line for line in lines if line.ns >= max(1, MIN_IDLE_SHARE * trace.recorded_ns)]


def families_by_time(trace: TraceSummary, top: int | None) -> list[TraceKernel]:
    """The `top` kinds of kernels by time, each as one kernel, and one row for the others."""

    def merge_families(label: str, others: Sequence[TraceKernel]) -> TraceKernel:
        return sum_fields(others, "calls", "kernel_ns", family=label, math=None)

    return limit_rows(kernels_by_family(trace.kernels, with_stages=True), top, merge_families)


def kernels_by_time(trace: TraceSummary, top: int | None) -> list[TraceKernel]:
    """The `top` kernels by time, and one row for the others."""

    def merge_kernels(label: str, others: Sequence[TraceKernel]) -> TraceKernel:
        return sum_fields(others, "calls", "kernel_ns", "sum_ns", name=label, family="", op=None, math=None)

    by_time = sorted(trace.kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name))
    return limit_rows(by_time, top, merge_kernels)


def modules_by_time(trace: TraceSummary) -> list[TraceModule]:
    """The modules and phases, longest first."""
    return sorted(trace.modules, key=lambda module: -module.kernel_ns)


def _module_kernels(trace: TraceSummary) -> Iterator[ModuleKernel]:
    for module in modules_by_time(trace):
        yield from (ModuleKernel(module=module, kernel=kernel) for kernel in module.kernels)
    yield from (ModuleKernel(module=None, kernel=kernel) for kernel in trace.unattributed)


def operators_by_time(trace: TraceSummary, top: int | None) -> list[TraceOperator]:
    """The `top` operators by device time, then by host time, and one row for the others."""

    def merge_operators(label: str, others: Sequence[TraceOperator]) -> TraceOperator:
        return sum_fields(others, "calls", "kernel_ns", "host_self_ns", name=label, family="")

    by_time = sorted(trace.operators, key=lambda operator: (-operator.kernel_ns, -operator.host_self_ns, operator.name))
    return limit_rows(by_time, top, merge_operators)


def trace_data_tables(report: TraceReport, by: TraceView | None = None) -> tuple[Table, ...]:
    """Every complete table with the rows of all traces; the main table of the view `by` (None: phases) comes first."""
    main = "ranks" if by == "rank" and report.ranks is not None else TABLE_OF_VIEW[by or "phase"]
    return tuple(sorted(_data_tables(report), key=lambda table: table.name != main))


def _data_tables(report: TraceReport) -> Iterator[Table]:
    if report.ranks is not None:
        yield data_table("ranks", RANK_COLUMNS, report.ranks.ranks)
        yield data_table("collectives", COLLECTIVE_COLUMNS, report.ranks.collectives)
    yield data_table("findings", FINDING_COLUMNS, report.findings)
    for name, columns, items in _TABLES:
        yield data_table(name, columns, [TraceItem(trace, item) for trace in report.traces for item in items(trace)])


def run_data_tables(runs: Iterable[ConfigRun]) -> Iterator[Table]:
    """The complete tables of the mean traced steps of `runs`, with the columns of inspected traces."""
    shown = [(run, step) for run in runs if (step := run.mean_step) is not None]
    for name, columns, items in _TABLES_OF_STEPS:
        rows = [TraceItem(step, item, run.config.name) for run, step in shown for item in items(step)]
        yield data_table(run_table_name(name), of_runs(columns), rows)
    steps = [
        TraceItem(mean, step, run.config.name)
        for run, mean in shown
        if run.traced is not None
        for step in run.traced.steps
    ]
    yield data_table(run_table_name("trace_steps"), of_runs(TRACE_STEP_COLUMNS), steps)


def run_table_name(name: str) -> str:
    """The name of the table `name` of traces in a report on a target, which has its own table of phases."""
    plain = name.removeprefix("trace_")
    return {"phases": "traced_phases", "causes": "idle", "syncs": "waits"}.get(plain, plain)


_DataTable = tuple[str, Sequence[Column[TraceItem[Any]]], Callable[[TraceSummary], Iterable[Any]]]
_TABLES: Final[tuple[_DataTable, ...]] = (
    ("traces", TRACE_COLUMNS, lambda trace: [None]),
    ("trace_phases", TRACE_PHASE_COLUMNS, lambda trace: phase_lines(trace)[0]),
    ("trace_idle", TRACE_GAP_COLUMNS, lambda trace: trace.idle),
    ("trace_host", TRACE_HOST_COLUMNS, lambda trace: trace.activities),
    ("trace_places", TRACE_PLACE_COLUMNS, lambda trace: trace.sites),
    ("trace_modules", TRACE_MODULE_COLUMNS, modules_by_time),
    ("trace_module_kernels", TRACE_MODULE_KERNEL_COLUMNS, _module_kernels),
    ("trace_operators", TRACE_OPERATOR_COLUMNS, lambda trace: operators_by_time(trace, None)),
    ("trace_shapes", TRACE_SHAPE_COLUMNS, lambda trace: trace.shapes),
    ("trace_kernels", TRACE_KERNEL_COLUMNS, lambda trace: kernels_by_time(trace, None)),
    ("trace_devices", TRACE_DEVICE_COLUMNS, lambda trace: trace.accounts),
    ("trace_streams", TRACE_STREAM_COLUMNS, lambda trace: trace.streams),
    ("trace_steps", TRACE_STEP_COLUMNS, lambda trace: trace.steps),
    ("trace_syncs", TRACE_SYNC_COLUMNS, lambda trace: trace.syncs),
)
# A report on a target has its phases and its idle time by cause; ranks have their own tables.
_TABLES_OF_STEPS: Final[tuple[_DataTable, ...]] = (
    ("trace_causes", TRACE_IDLE_COLUMNS, lambda trace: idle_lines(trace.idle)[0]),
    *(
        table
        for table in _TABLES
        if table[0] not in ("traces", "trace_phases", "trace_idle", "trace_devices", "trace_steps")
    ),
)
