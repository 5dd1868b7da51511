"""Columns over rows -> neutral tables: those for people, short and without empty columns, and those for programs, whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, TypeVar

from profiler_kit.errors import UsageError
from profiler_kit.records.counts import PHASES, DeviceMemory, MemoryCategories
from profiler_kit.records.document import Table
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import STEP, Roofline
from profiler_kit.records.runs import ConfigRun, KernelStat, PeakMemory, PhaseTiming
from profiler_kit.records.schedules import shape_times
from profiler_kit.records.sums import added, sum_known
from profiler_kit.records.traces import SyncWait
from profiler_kit.report.columns.column import Column, WorkUnit, data_table, in_unit, page_table
from profiler_kit.report.columns.convolutions import CHANGE_COLUMNS, CONVOLUTION_COLUMNS
from profiler_kit.report.columns.counts import COST_COLUMNS, OP_COLUMNS, ROOF_COLUMNS
from profiler_kit.report.columns.cross_check import CROSS_CHECK_COLUMNS, PeerRow
from profiler_kit.report.columns.findings import FINDING_COLUMNS
from profiler_kit.report.columns.layers import LAYER_COLUMNS
from profiler_kit.report.columns.memory import (
    MEMORY_COLUMNS,
    PEAK_COLUMNS,
    WHAT_IF_COLUMNS,
    MemoryRow,
    PeakRow,
    peak_place,
)
from profiler_kit.report.columns.phases import KERNEL_COLUMNS, PHASE_COLUMNS, KernelRow, PhaseRow
from profiler_kit.report.columns.runs import RUN_COLUMNS, RunRow
from profiler_kit.report.columns.schedules import SCHEDULE_COLUMNS, SHAPE_COLUMNS
from profiler_kit.report.columns.traces import IdleLine
from profiler_kit.report.columns.waits import IDLE_COLUMNS, WAIT_COLUMNS, OfRun
from profiler_kit.report.convolution_rows import change_rows, convolution_rows
from profiler_kit.report.ops import merged, op_rows
from profiler_kit.report.rows import TOTAL, Layers, fold, layer_rows, merge, topped
from profiler_kit.report.trace_tables import idle_lines
from profiler_kit.report.tree import tree

Row = TypeVar("Row")
By = Literal["tree", "layer", "op", "what-if"]
MODEL_ORDER: Final = "model"
# What people call some columns.
SORT_WORDS: Final = {
    "layer": {
        "macs": "macs_forward",
        "bytes": "traffic_bytes",
        "memory": "saved_bytes",
        "time": "kernel_ns",
        "floor": "floor_ns",
    },
    "op": {"bytes": "traffic_bytes", "floor": "floor_ns"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A report, and how `report_document` was asked to show its work: see there. `run`: the one whose times are shown."""

    report: Report
    run: ConfigRun | None
    top: int | None
    depth: int | None
    sort: str | None
    unit: WorkUnit


def layer_table(view: View, layers: Layers, caption: str, *, aside: bool | None = None) -> Table:
    """The `top` layers by `sort`, the others in one row, device time without an owner in another: the rows add up to the total.

    `aside`: as in `page_table`.

    Raises UsageError for an unknown `sort`.
    """
    depth = view.depth
    rows = [row for row in (fold(layers.rows, depth) if depth is not None else layers.rows) if not row.is_empty]
    rows = _sorted(LAYER_COLUMNS, rows, view.sort or _heaviest(view, layers), "layer")
    rows = topped(rows, view.top, lambda more, rest: replace(merge(more, rest), families=()))
    if layers.unattributed is not None:
        rows.append(layers.unattributed)
    total = replace(layers.total, families=())
    name = "layers_counted" if aside else "layers"
    return page_table(name, caption, in_unit(LAYER_COLUMNS, view.unit), rows, view.report, totals=[total], aside=aside)


def tree_table(view: View, layers: Layers, caption: str) -> Table:
    """The modules as a tree, each with its descendants' figures; siblings by `sort`, None for the model's order.

    `top`: children of one module that have a row of their own; `depth`: levels shown, None for as many as fit a screen.

    Raises UsageError for an unknown `sort`.
    """
    order = None if view.sort in (None, MODEL_ORDER) else _order(LAYER_COLUMNS, str(view.sort), "layer")
    weight = order or _order(LAYER_COLUMNS, _heaviest(view, layers), "layer")
    found = tree(layers, depth=view.depth, top=view.top, order=order, weight=weight)
    more = f"; {found.levels} of {found.deepest} levels" if found.levels < found.deepest else ""
    shown = [
        replace(column, rank=column.tree, place="both", aside=False)
        for column in in_unit(LAYER_COLUMNS, view.unit)
        if column.tree is not None
    ]
    total = replace(layers.total, families=(), held_bytes=None)
    return page_table("tree", f"{caption}{more}", shown, found.rows, view.report, totals=[total])


def op_table(view: View) -> Table:
    """The `top` ops by `sort` (None: by the work in `unit`), the others in one row. Raises UsageError for an unknown `sort`."""
    ops, total = op_rows(view.report, view.run, by_phase=False)
    rows = _sorted(OP_COLUMNS, ops, view.sort or f"{view.unit}s", "op")
    rows = topped(rows, view.top, lambda more, rest: merged(more, rest, total.whole, total.whole_floor))
    columns = in_unit(OP_COLUMNS, view.unit)
    return page_table("ops", "per step, all calls together", columns, rows, view.report, totals=[total])


def check_sort(sort: str | None, by: By) -> None:
    """Raises UsageError where no column of the table by `by` is called `sort`."""
    if sort is None or sort == MODEL_ORDER:
        return
    if by == "op":
        _order(OP_COLUMNS, sort, "op")
    else:
        _order(LAYER_COLUMNS, sort, "layer")


def _heaviest(view: View, layers: Layers) -> str:
    return "kernel_ns" if layers.timed else f"{view.unit}s"


def _sorted(of: Sequence[Column[Row]], rows: Sequence[Row], sort: str, what: str) -> list[Row]:
    # stable: equals stay in the model's order
    return list(rows) if sort == MODEL_ORDER else sorted(rows, key=_order(of, sort, what))


def _order(of: Sequence[Column[Row]], sort: str, what: str) -> Callable[[Row], tuple[int, float, str]]:
    """A key that puts large values first, text in its own order, and what is unknown last."""
    words = SORT_WORDS[what]
    column = next((column for column in of if column.key == words.get(sort, sort)), None)
    if column is None:
        keys = ", ".join([MODEL_ORDER, *words, *(column.key for column in of)])
        raise UsageError(f"no {what} column {sort!r} to sort by", hint=f"one of: {keys}")
    value_of = column.value

    def order(row: Row) -> tuple[int, float, str]:
        value = value_of(row)
        if value is None:
            return (1, 0.0, "")
        return (0, 0.0, value) if isinstance(value, str) else (0, -value, "")

    return order


def run_rows(report: Report) -> list[RunRow]:
    """Every run beside the baseline and its own configuration without tuning."""
    return [RunRow(run=run, baseline=report.baseline(), untuned=_untuned(report, run)) for run in report.runs]


def _untuned(report: Report, run: ConfigRun) -> ConfigRun | None:
    if not run.config.benchmark:
        return None
    wanted = replace(run.config, name="", benchmark=False, repeat_of=None)
    return next((r for r in report.runs if replace(r.config, name="") == wanted and r.failure is None), None)


def phase_rows(run: ConfigRun) -> tuple[list[PhaseRow], PhaseRow]:
    """A row per phase that any clock saw, in the order of the step, and their sum."""
    timings = sorted(run.phases, key=lambda timing: PHASES.index(timing.phase))
    timings = [t for t in timings if any((t.stopwatch_ns, t.event_ns, t.kernel_ns))]
    whole = PhaseTiming(
        phase="other",
        stopwatch_ns=sum_known(t.stopwatch_ns for t in timings),
        event_ns=sum_known(t.event_ns for t in timings),
        kernel_ns=sum_known(t.kernel_ns for t in timings),
    )
    name = run.config.name
    rows = [PhaseRow(config=name, label=t.phase, timing=t, whole=whole) for t in timings]
    return rows, PhaseRow(config=name, label=TOTAL, timing=whole, whole=whole)


def idle_rows(run: ConfigRun) -> tuple[list[OfRun[IdleLine]], OfRun[IdleLine]]:
    """A row per cause of idle time in the traced steps, the most first, and their sum."""
    lines, whole = idle_lines(run.idle)
    rows = [OfRun(run.config.name, line, run.span_ns) for line in lines]
    return rows, OfRun(run.config.name, replace(whole, cause=TOTAL), run.span_ns)


def wait_rows(run: ConfigRun, top: int | None = None) -> list[OfRun[SyncWait]]:
    """Where the host waits for the device in the traced steps, the `top` longest first."""
    longest = sorted(run.waits, key=lambda wait: -wait.wait_ns)[:top]
    return [OfRun(run.config.name, wait, run.span_ns) for wait in longest]


def kernel_rows(run: ConfigRun, top: int | None = None) -> list[KernelRow]:
    """The kernels that take most time; those beyond `top` are one row."""

    def together(more: str, rest: Sequence[KernelStat]) -> KernelStat:
        return added(rest, "calls", "kernel_ns", name=more, family="", op=None, math=None)

    kernels = topped(sorted(run.kernels, key=lambda kernel: (-kernel.kernel_ns, kernel.name)), top, together)
    return [KernelRow(config=run.config.name, kernel=kernel, device_ns=run.device_ns) for kernel in kernels]


def roof_table(line: Roofline, report: Report) -> Table:
    """The floors of the step's phases under a roof, beside their device times where a run has them."""
    phases = [phase for phase in line.phases if phase.phase != STEP]
    totals = [phase for phase in line.phases if phase.phase == STEP]
    return page_table("roofline", "", ROOF_COLUMNS, phases, report, totals=totals)


def cost_table(report: Report, unit: WorkUnit) -> Table | None:
    """One row: what one step asks for, work as `unit` says. None where the model was not counted."""
    if report.static is None:
        return None
    return page_table("cost", "", in_unit(COST_COLUMNS, unit), [report.static], report)


def cross_check_rows(report: Report) -> list[PeerRow]:
    """Every row of every cross-check, with the module it is of."""
    checks = report.static.cross_checks if report.static is not None else ()
    return [PeerRow(check=check, row=row, paths=(row.path,)) for check in checks for row in check.rows]


def memory_table(report: Report, runs: Sequence[ConfigRun]) -> Table | None:
    """The peak by what it is for: predicted from tensor lifetimes, and measured in each of `runs`; None without either."""
    rows = [row for run in runs for row in _of_run(run)]
    estimate = report.static.memory if report.static else None
    if estimate is not None:
        predicted = MemoryRow(
            source="tensors", peak_bytes=estimate.peak_bytes, parts=estimate.categories, at=estimate.peak_at
        )  # fmt: skip
        rows.insert(0, predicted)
        if estimate.device is not None:
            rows.insert(1, _on_device(estimate.device.profile, estimate.device))
    return page_table("memory", "", MEMORY_COLUMNS, rows, report) if rows else None


def peaks_table(report: Report) -> Table | None:
    """Each run's peak as predicted, by rules and with the scratch that was measured, and as measured.

    None where nothing was predicted for a device, or no device was measured.
    """
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    rows = [
        PeakRow(run=run, rule_bytes=device.allocated_bytes if device is not None else None)
        for run in report.runs
        if run.peak_allocated_bytes is not None and (device is not None or run.predicted is not None)
    ]
    return page_table("peaks", "predicted and measured", PEAK_COLUMNS, rows, report) if rows else None


def _of_run(run: ConfigRun) -> Iterator[MemoryRow]:
    if run.predicted is not None:
        yield _on_device(f"{run.config.name}, predicted", run.predicted)
    if run.memory is not None:
        yield _measured_memory(run.config.name, run.memory)


def _on_device(source: str, device: DeviceMemory) -> MemoryRow:
    return MemoryRow(
        source=source,
        peak_bytes=device.allocated_bytes,
        parts=device.categories,
        at=peak_place(device),
        rounding=device.rounding_bytes,
    )


def _measured_memory(config: str, peak: PeakMemory) -> MemoryRow:
    parts = {field.name: getattr(peak, field.name) for field in fields(MemoryCategories) if field.name != "temporaries"}
    return MemoryRow(
        source=config,
        peak_bytes=peak.peak_bytes,
        parts=MemoryCategories(**parts, temporaries=peak.rest),
        at=peak_place(peak),
    )


def data_tables(report: Report, run: ConfigRun | None) -> Iterator[Table]:
    """Every table whole, for CSV and data frames: layers (times of `run`); runs, phases and kernels of all; and the others."""
    layers = layer_rows(report, run)
    rows = [*layers.rows, *([layers.unattributed] if layers.unattributed else [])]
    yield data_table("layers", LAYER_COLUMNS, rows)
    yield data_table("runs", RUN_COLUMNS, run_rows(report))
    yield data_table("phases", PHASE_COLUMNS, [row for r in report.runs for row in phase_rows(r)[0]])
    yield data_table("kernels", KERNEL_COLUMNS, [row for r in report.runs for row in kernel_rows(r)])
    yield data_table("idle", IDLE_COLUMNS, [row for r in report.runs for row in idle_rows(r)[0]])
    yield data_table("waits", WAIT_COLUMNS, [row for r in report.runs for row in wait_rows(r)])
    yield data_table("findings", FINDING_COLUMNS, report.findings)
    yield data_table("cross_check", CROSS_CHECK_COLUMNS, cross_check_rows(report))
    yield data_table("ops", OP_COLUMNS, op_rows(report, run, by_phase=True)[0])
    rows_of_parts = [row for r in report.runs for row in convolution_rows(report, r)]
    yield data_table("convolutions", CONVOLUTION_COLUMNS, rows_of_parts)
    yield data_table("convolution_changes", CHANGE_COLUMNS, change_rows(report))
    estimate = report.static.memory if report.static is not None else None
    yield data_table("what_ifs", WHAT_IF_COLUMNS, estimate.what_ifs if estimate is not None else ())
    yield data_table("schedules", SCHEDULE_COLUMNS, report.schedules)
    yield data_table("shapes", SHAPE_COLUMNS, [time for s in report.schedules for time in shape_times(s)])
