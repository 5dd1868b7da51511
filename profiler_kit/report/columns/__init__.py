"""The columns of every table, one file per family of tables. A column is one line there: it then stands in the tables, the
CSV, the data frames and the docs. A new table is also an entry of `TABLES`.

`when` says for which reports a column makes sense; one that is empty for all rows is not shown either. ``place="data"``
columns are for programs alone (CSV, data frames), ``place="page"`` for people alone.
"""

from __future__ import annotations

from typing import Any

from profiler_kit.report.columns.column import Column, Place, WorkUnit, in_unit
from profiler_kit.report.columns.convolutions import CHANGE_COLUMNS, CONVOLUTION_COLUMNS
from profiler_kit.report.columns.counts import COST_COLUMNS, OP_COLUMNS, ROOF_COLUMNS, UNCOUNTED_COLUMNS, OpRow
from profiler_kit.report.columns.cross_check import (
    CROSS_CHECK_COLUMNS,
    CROSS_CHECK_LAYER_COLUMNS,
    PeerLayerRow,
    PeerRow,
)
from profiler_kit.report.columns.findings import FINDING_COLUMNS
from profiler_kit.report.columns.layers import LAYER_COLUMNS, achieved, intensity
from profiler_kit.report.columns.machine import (
    CEILING_COLUMNS,
    CONFIG_COLUMNS,
    DEVICE_COLUMNS,
    PACKAGE_COLUMNS,
    CeilingRow,
)
from profiler_kit.report.columns.memory import (
    KEPT_COLUMNS,
    MEMORY_COLUMNS,
    PEAK_COLUMNS,
    SCRATCH_COLUMNS,
    TIMELINE_COLUMNS,
    WHAT_IF_COLUMNS,
    WORKSPACE_COLUMNS,
    MemoryRow,
    PeakRow,
)
from profiler_kit.report.columns.phases import KERNEL_COLUMNS, PHASE_COLUMNS, KernelRow, PhaseRow
from profiler_kit.report.columns.ranks import RANK_COLUMNS
from profiler_kit.report.columns.runs import NEVER, RUN_COLUMNS, RunRow, break_even, phase_shares
from profiler_kit.report.columns.schedules import SCHEDULE_COLUMNS, SHAPE_COLUMNS
from profiler_kit.report.columns.traces import (
    TRACE_COLUMNS,
    TRACE_FAMILY_COLUMNS,
    TRACE_GAP_COLUMNS,
    TRACE_IDLE_COLUMNS,
    TRACE_KERNEL_COLUMNS,
    TRACE_MODULE_COLUMNS,
    TRACE_OPERATOR_COLUMNS,
    TRACE_PHASE_COLUMNS,
    TRACE_SHAPE_COLUMNS,
    TRACE_STEP_COLUMNS,
    TRACE_STREAM_COLUMNS,
    TRACE_SYNC_COLUMNS,
    TRACE_TREE_COLUMNS,
    FamilyLine,
    IdleLine,
    ModuleLine,
    Of,
    PhaseLine,
    waited_for,
)
from profiler_kit.report.columns.waits import IDLE_COLUMNS, WAIT_COLUMNS, OfRun

# Every table with a page in the reference; those of `data_tables` are also data frames.
TABLES: dict[str, tuple[Column[Any], ...]] = {
    "layers": LAYER_COLUMNS,
    "ops": OP_COLUMNS,
    "runs": RUN_COLUMNS,
    "phases": PHASE_COLUMNS,
    "kernels": KERNEL_COLUMNS,
    "idle": IDLE_COLUMNS,
    "waits": WAIT_COLUMNS,
    "findings": FINDING_COLUMNS,
    "cross_check": CROSS_CHECK_COLUMNS,
    "convolutions": CONVOLUTION_COLUMNS,
    "convolution_changes": CHANGE_COLUMNS,
    "cost": COST_COLUMNS,
    "memory": MEMORY_COLUMNS,
    "peaks": PEAK_COLUMNS,
    "kept": KEPT_COLUMNS,
    "timeline": TIMELINE_COLUMNS,
    "scratch": SCRATCH_COLUMNS,
    "what_ifs": WHAT_IF_COLUMNS,
    "roofline": ROOF_COLUMNS,
    "ceilings": CEILING_COLUMNS,
    "devices": DEVICE_COLUMNS,
    "configurations": CONFIG_COLUMNS,
    "packages": PACKAGE_COLUMNS,
    "workspaces": WORKSPACE_COLUMNS,
    "uncounted": UNCOUNTED_COLUMNS,
    "cross_check_layers": CROSS_CHECK_LAYER_COLUMNS,
    "schedules": SCHEDULE_COLUMNS,
    "shapes": SHAPE_COLUMNS,
    "ranks": RANK_COLUMNS,
    "traces": TRACE_COLUMNS,
    "trace_phases": TRACE_PHASE_COLUMNS,
    "trace_idle": TRACE_GAP_COLUMNS,
    "trace_causes": TRACE_IDLE_COLUMNS,
    "trace_modules": TRACE_MODULE_COLUMNS,
    "trace_tree": TRACE_TREE_COLUMNS,
    "trace_operators": TRACE_OPERATOR_COLUMNS,
    "trace_shapes": TRACE_SHAPE_COLUMNS,
    "trace_kernels": TRACE_KERNEL_COLUMNS,
    "trace_families": TRACE_FAMILY_COLUMNS,
    "trace_streams": TRACE_STREAM_COLUMNS,
    "trace_steps": TRACE_STEP_COLUMNS,
    "trace_syncs": TRACE_SYNC_COLUMNS,
}

__all__ = [
    "CEILING_COLUMNS",
    "CHANGE_COLUMNS",
    "CONFIG_COLUMNS",
    "CONVOLUTION_COLUMNS",
    "COST_COLUMNS",
    "CROSS_CHECK_COLUMNS",
    "CROSS_CHECK_LAYER_COLUMNS",
    "DEVICE_COLUMNS",
    "FINDING_COLUMNS",
    "IDLE_COLUMNS",
    "KEPT_COLUMNS",
    "KERNEL_COLUMNS",
    "LAYER_COLUMNS",
    "MEMORY_COLUMNS",
    "NEVER",
    "OP_COLUMNS",
    "PACKAGE_COLUMNS",
    "PEAK_COLUMNS",
    "PHASE_COLUMNS",
    "RANK_COLUMNS",
    "ROOF_COLUMNS",
    "RUN_COLUMNS",
    "SCHEDULE_COLUMNS",
    "SCRATCH_COLUMNS",
    "SHAPE_COLUMNS",
    "TABLES",
    "TIMELINE_COLUMNS",
    "TRACE_COLUMNS",
    "TRACE_FAMILY_COLUMNS",
    "TRACE_GAP_COLUMNS",
    "TRACE_IDLE_COLUMNS",
    "TRACE_KERNEL_COLUMNS",
    "TRACE_MODULE_COLUMNS",
    "TRACE_OPERATOR_COLUMNS",
    "TRACE_PHASE_COLUMNS",
    "TRACE_SHAPE_COLUMNS",
    "TRACE_STEP_COLUMNS",
    "TRACE_STREAM_COLUMNS",
    "TRACE_SYNC_COLUMNS",
    "TRACE_TREE_COLUMNS",
    "UNCOUNTED_COLUMNS",
    "WAIT_COLUMNS",
    "WHAT_IF_COLUMNS",
    "WORKSPACE_COLUMNS",
    "CeilingRow",
    "Column",
    "FamilyLine",
    "IdleLine",
    "KernelRow",
    "MemoryRow",
    "ModuleLine",
    "Of",
    "OfRun",
    "OpRow",
    "PeakRow",
    "PeerLayerRow",
    "PeerRow",
    "PhaseLine",
    "PhaseRow",
    "Place",
    "RunRow",
    "WorkUnit",
    "achieved",
    "break_even",
    "in_unit",
    "intensity",
    "phase_shares",
    "waited_for",
]
