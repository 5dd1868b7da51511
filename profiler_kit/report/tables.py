"""Build the tables of a report: short ones for pages, complete ones for CSV and data frames."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final, Literal, TypeVar

from profiler_kit.errors import UsageError
from profiler_kit.records.counts import PHASES, DeviceMemory, MemoryCategories
from profiler_kit.records.document import Table
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import STEP, Roofline
from profiler_kit.records.runs import ConfigRun, PeakMemory
from profiler_kit.records.schedules import shape_times
from profiler_kit.records.sums import sum_known
from profiler_kit.records.traces import PhaseTime
from profiler_kit.report.columns.column import Column, WorkUnit, data_table, in_unit, page_table
from profiler_kit.report.columns.convolutions import CHANGE_COLUMNS, CONVOLUTION_COLUMNS
from profiler_kit.report.columns.counts import COST_COLUMNS, CROSS_CHECK_COLUMNS, OP_COLUMNS, ROOFLINE_COLUMNS
from profiler_kit.report.columns.findings import FINDING_COLUMNS
from profiler_kit.report.columns.layers import LAYER_COLUMNS
from profiler_kit.report.columns.memory import (
    COMMUNICATION_COLUMNS,
    MEMORY_COLUMNS,
    PARALLEL_COLUMNS,
    PEAK_COLUMNS,
    WHAT_IF_COLUMNS,
    MemoryRow,
    PeakRow,
    communication_rows,
    peak_place,
)
from profiler_kit.report.columns.phases import PHASE_COLUMNS, PhaseRow
from profiler_kit.report.columns.ranks import COLLECTIVE_COLUMNS, RANK_COLUMNS, RANK_RUN_COLUMNS, RankRunRow
from profiler_kit.report.columns.runs import RUN_COLUMNS, RunRow
from profiler_kit.report.columns.schedules import SCHEDULE_COLUMNS, SHAPE_COLUMNS
from profiler_kit.report.convolution_rows import change_rows, convolution_rows
from profiler_kit.report.ops import merge_ops, op_rows
from profiler_kit.report.rows import TOTAL, Layers, fold, layer_rows, limit_rows, merge
from profiler_kit.report.trace_tables import run_data_tables
from profiler_kit.report.tree import tree
from profiler_kit.statistics.noise import noise_of

Row = TypeVar("Row")
WorkTable = Literal["tree", "layer", "op", "what-if"]
MODEL_ORDER: Final = "model"
# Short names of columns for --sort.
SORT_ALIASES: Final = {
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
    """A report and the options of `report_document`. `run`: the run whose times are shown."""

    report: Report
    run: ConfigRun | None
    top: int | None
    depth: int | None
    sort: str | None
    unit: WorkUnit


def layer_table(view: View, layers: Layers, caption: str, *, aside: bool | None = None) -> Table:
    """The `top` layers by `sort`, one row for the others, and one for unattributed time. The rows add up to the total.

    `aside`: as in `page_table`.

    Raises: UsageError for an unknown `sort`.
    """
    depth = view.depth
    rows = [row for row in (fold(layers.rows, depth) if depth is not None else layers.rows) if not row.is_empty]
    rows = _sorted(LAYER_COLUMNS, rows, view.sort or _heaviest(view, layers), "layer")
    rows = limit_rows(rows, view.top, lambda label, others: replace(merge(label, others), families=()))
    if layers.unattributed is not None:
        rows.append(layers.unattributed)
    total = replace(layers.total, families=())
    name = "layers_counted" if aside else "layers"
    return page_table(name, caption, in_unit(LAYER_COLUMNS, view.unit), rows, view.report, totals=[total], aside=aside)


def tree_table(view: View, layers: Layers, caption: str) -> Table:
    """The modules as a tree, including children; siblings in the order of `sort`, None for the model's order.

    `top`: children of one module with their own row. `depth`: levels shown, None for as many as fit a screen.

    Raises: UsageError for an unknown `sort`.
    """
    order = None if view.sort in (None, MODEL_ORDER) else _order(LAYER_COLUMNS, str(view.sort), "layer")
    weight = order or _order(LAYER_COLUMNS, _heaviest(view, layers), "layer")
    modules = tree(layers, depth=view.depth, top=view.top, order=order, weight=weight)
    levels = f"; {modules.levels} of {modules.depth} levels" if modules.levels < modules.depth else ""
    columns = [
        replace(column, rank=column.tree, place="both", aside=False)
        for column in in_unit(LAYER_COLUMNS, view.unit)
        if column.tree is not None
    ]
    total = replace(layers.total, families=(), held_bytes=None)
    return page_table("tree", f"{caption}{levels}", columns, modules.rows, view.report, totals=[total])


def op_table(view: View) -> Table:
    """The `top` ops by `sort` (None: by work), and one row for the others. Raises: UsageError for an unknown `sort`."""
    ops, total = op_rows(view.report, view.run, by_phase=False)
    rows = _sorted(OP_COLUMNS, ops, view.sort or f"{view.unit}s", "op")
    rows = limit_rows(rows, view.top, lambda label, others: merge_ops(label, others, total.total, total.total_floor))
    columns = in_unit(OP_COLUMNS, view.unit)
    return page_table("ops", "per step, all calls together", columns, rows, view.report, totals=[total])


def check_sort(sort: str | None, by: WorkTable) -> None:
    """Check that the table of `by` has a column `sort`. Raises: UsageError if it has none."""
    if sort is None or sort == MODEL_ORDER:
        return
    if by == "op":
        _order(OP_COLUMNS, sort, "op")
    else:
        _order(LAYER_COLUMNS, sort, "layer")


def _heaviest(view: View, layers: Layers) -> str:
    return "kernel_ns" if layers.timed else f"{view.unit}s"


def _sorted(columns: Sequence[Column[Row]], rows: Sequence[Row], sort: str, kind: str) -> list[Row]:
    # the sort is stable: equal rows stay in the model's order
    return list(rows) if sort == MODEL_ORDER else sorted(rows, key=_order(columns, sort, kind))


def _order(columns: Sequence[Column[Row]], sort: str, kind: str) -> Callable[[Row], tuple[int, float, str]]:
    """A sort key for the column `sort`: large values first, text alphabetically, unknown values last."""
    aliases = SORT_ALIASES[kind]
    column = next((column for column in columns if column.key == aliases.get(sort, sort)), None)
    if column is None:
        keys = ", ".join([MODEL_ORDER, *aliases, *(column.key for column in columns)])
        raise UsageError(
            f"unknown sort key {sort!r}: the {kind} table has no such column", hint=f"choose one of: {keys}"
        )
    value_of = column.value

    def order(row: Row) -> tuple[int, float, str]:
        value = value_of(row)
        if value is None:
            return (1, 0.0, "")
        return (0, 0.0, value) if isinstance(value, str) else (0, -value, "")

    return order


def run_rows(report: Report) -> list[RunRow]:
    """Every run with its baseline, and with the same configuration without cudnn.benchmark."""
    noise = noise_of(report)
    return [
        RunRow(run=run, baseline=report.baseline(), without_benchmark=_without_benchmark(report, run), noise=noise)
        for run in report.runs
    ]


def _without_benchmark(report: Report, run: ConfigRun) -> ConfigRun | None:
    if not run.config.benchmark:
        return None
    config = replace(run.config, name="", benchmark=False, repeat_of=None)
    return next((r for r in report.runs if replace(r.config, name="") == config and r.failure is None), None)


def phase_rows(run: ConfigRun) -> tuple[list[PhaseRow], PhaseRow]:
    """One row per phase with a time on any clock, in the order of the step, and their sum."""
    timings = sorted(run.phases, key=lambda timing: PHASES.index(timing.phase))
    timings = [t for t in timings if any((t.stopwatch_ns, t.event_ns, t.kernel_ns))]
    total = PhaseTime(
        phase="other",
        stopwatch_ns=sum_known(t.stopwatch_ns for t in timings),
        event_ns=sum_known(t.event_ns for t in timings),
        kernel_ns=sum_known(t.kernel_ns for t in timings),
    )
    name = run.config.name
    rows = [PhaseRow(config=name, label=t.phase, timing=t, total=total) for t in timings]
    return rows, PhaseRow(config=name, label=TOTAL, timing=total, total=total)


def roofline_table(line: Roofline, report: Report) -> Table:
    """Roofline bounds of the step's phases, with device times where a run has them."""
    phases = [phase for phase in line.phases if phase.phase != STEP]
    totals = [phase for phase in line.phases if phase.phase == STEP]
    return page_table("roofline", "", ROOFLINE_COLUMNS, phases, report, totals=totals)


def cost_table(report: Report, unit: WorkUnit) -> Table | None:
    """One row: the counted work of one step, in `unit`. None if the model was not counted."""
    if report.static is None:
        return None
    return page_table("cost", "", in_unit(COST_COLUMNS, unit), [report.static], report)


def memory_rows(report: Report, runs: Sequence[ConfigRun]) -> list[MemoryRow]:
    """The peak by category: predicted from tensor lifetimes, and measured in each of `runs`."""
    rows = [row for run in runs for row in _run_memory(run)]
    estimate = report.static.memory if report.static else None
    if estimate is not None:
        predicted = MemoryRow(
            source="tensors", peak_bytes=estimate.peak_bytes, parts=estimate.categories, at=estimate.peak_at
        )  # fmt: skip
        rows.insert(0, predicted)
        if estimate.device is not None and not estimate.device.is_default:
            rows.insert(1, _device_memory(estimate.device.profile, estimate.device))
    return rows


def memory_table(report: Report, runs: Sequence[ConfigRun]) -> Table | None:
    """The rows of `memory_rows` as a table; None if there are none."""
    rows = memory_rows(report, runs)
    return page_table("memory", "", MEMORY_COLUMNS, rows, report) if rows else None


def default_device_table(report: Report) -> Table | None:
    """The predicted peak by category on the default device; None if the prediction is for a selected device, or for none."""
    estimate = report.static.memory if report.static else None
    device = estimate.device if estimate is not None else None
    if device is None or not device.is_default:
        return None
    return page_table("device_memory", "", MEMORY_COLUMNS, [_device_memory(device.profile, device)], report)


def peak_rows(report: Report) -> list[PeakRow]:
    """Each run's peak: predicted by rules, predicted with measured workspaces, and measured.

    Empty without a prediction for a device, or without a run on a device. The peak of one rank of several has its own table.
    """
    if report.target.parallel is not None:
        return []
    memory = report.static.memory if report.static is not None else None
    device = memory.device if memory is not None else None
    return [
        PeakRow(run=run, rule_bytes=device.allocated_bytes if device is not None else None)
        for run in report.runs
        if run.peak_allocated_bytes is not None and (device is not None or run.predicted is not None)
    ]


def peaks_table(report: Report) -> Table | None:
    """The rows of `peak_rows` as a table; None if there are none."""
    rows = peak_rows(report)
    return page_table("peaks", "", PEAK_COLUMNS, rows, report) if rows else None


def _run_memory(run: ConfigRun) -> Iterator[MemoryRow]:
    if run.predicted is not None:
        yield _device_memory(f"{run.config.name}, predicted", run.predicted)
    if run.memory is not None:
        yield _measured_memory(run.config.name, run.memory)


def _device_memory(source: str, device: DeviceMemory) -> MemoryRow:
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


def rank_run_rows(report: Report, run: ConfigRun) -> list[RankRunRow]:
    """A row for each rank of `run`, with the predicted peak of a rank; none for a run in one process."""
    memory = report.static.memory if report.static is not None else None
    estimates = memory.parallel if memory is not None else ()
    estimate = next((estimate for estimate in estimates if estimate.plan == report.target.parallel), None)
    predicted = (estimate.device_peak_bytes or estimate.peak_bytes) if estimate is not None else None
    return [RankRunRow(config=run.config.name, run=rank, predicted_bytes=predicted) for rank in run.ranks]


def data_tables(report: Report, run: ConfigRun | None) -> Iterator[Table]:
    """Every complete table, for CSV and data frames. ``layers`` has the times of `run`; the others cover all runs."""
    layers = layer_rows(report, run)
    rows = [*layers.rows, *([layers.unattributed] if layers.unattributed else [])]
    yield data_table("layers", LAYER_COLUMNS, rows)
    yield data_table("runs", RUN_COLUMNS, run_rows(report))
    yield data_table("phases", PHASE_COLUMNS, [row for r in report.runs for row in phase_rows(r)[0]])
    yield from run_data_tables(report.runs)
    yield data_table("findings", FINDING_COLUMNS, report.findings)
    yield data_table("memory", MEMORY_COLUMNS, memory_rows(report, report.runs))
    yield data_table("peaks", PEAK_COLUMNS, peak_rows(report))
    checks = report.static.cross_checks if report.static is not None else ()
    yield data_table("cross_check", CROSS_CHECK_COLUMNS, [layer for check in checks for layer in check.layers])
    yield data_table("ops", OP_COLUMNS, op_rows(report, run, by_phase=True)[0])
    convolutions = [row for r in report.runs for row in convolution_rows(report, r)]
    yield data_table("convolutions", CONVOLUTION_COLUMNS, convolutions)
    yield data_table("convolution_changes", CHANGE_COLUMNS, change_rows(report))
    estimate = report.static.memory if report.static is not None else None
    yield data_table("what_ifs", WHAT_IF_COLUMNS, estimate.what_ifs if estimate is not None else ())
    estimates = estimate.parallel if estimate is not None else ()
    yield data_table("parallel", PARALLEL_COLUMNS, estimates)
    yield data_table("communication", COMMUNICATION_COLUMNS, communication_rows(estimates))
    ranks = report.ranks.ranks if report.ranks is not None else None
    yield data_table("ranks", RANK_COLUMNS, ranks.ranks if ranks is not None else ())
    yield data_table("collectives", COLLECTIVE_COLUMNS, ranks.collectives if ranks is not None else ())
    yield data_table("rank_runs", RANK_RUN_COLUMNS, [row for r in report.runs for row in rank_run_rows(report, r)])
    yield data_table("schedules", SCHEDULE_COLUMNS, report.schedules)
    yield data_table("shapes", SHAPE_COLUMNS, [time for s in report.schedules for time in shape_times(s)])
