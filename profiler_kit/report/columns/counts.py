"""The columns of counted work: ops, the whole step, roofline bounds by phase, ops without a formula, the cross-check with fvcore."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiler_kit.records.counts import Cost, CrossCheckLayer, StaticCount, UncountedOp
from profiler_kit.records.document import Value
from profiler_kit.records.paths import shown_path
from profiler_kit.records.roofline import Floor, PhaseBound
from profiler_kit.report.columns.column import (
    Column,
    ColumnTable,
    cost_intensity,
    floor_share,
    recomputes,
    share,
    trains,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One op over its phases (or several ops in one row), and the step's totals for the shares."""

    op: str
    phases: tuple[str, ...] = ()
    calls: int
    cost: Cost | None
    floor: Floor | None
    total: Cost
    total_floor: Floor | None


def _op(figure: Callable[[Cost], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.cost) if row.cost else None


def _op_floor(figure: Callable[[Floor], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.floor) if row.floor else None


def difference_macs(layer: CrossCheckLayer) -> int:
    """fvcore's MACs minus profiler_kit's."""
    return (layer.peer_macs or 0) - layer.kit_macs


# fmt: off
# ruff: noqa: E501 - one column, one line
OP_COLUMNS: tuple[Column[OpRow], ...] = (
    Column("op", "op", "text", lambda r: r.op, "the op as PyTorch's dispatcher names it", name=True),
    Column("phase", "phase", "text", lambda r: ", ".join(r.phases) or None, "the phases that call the op", rank=5),
    Column("calls", "calls", "count", lambda r: r.calls, "calls per step", rank=2),
    Column("macs", "MACs", "macs", _op(lambda c: c.macs), "multiply-accumulates of all calls", rank=4),
    Column("macs_share_percent", "MACs %", "percent", lambda r: share(r.cost.macs, r.total.macs) if r.cost else None, "share of the step's MACs", place="data", share=True),
    Column("flops", "FLOPs", "flops", _op(lambda c: c.flops), "floating-point operations of all calls; empty for an op without a formula"),
    Column("flops_share_percent", "FLOPs %", "percent", lambda r: share(r.cost.flops, r.total.flops) if r.cost else None, "share of the step's FLOPs", rank=1, share=True),
    Column("read_bytes", "read", "bytes", _op(lambda c: c.read_bytes), "operand bytes read, each operand once per call", place="data"),
    Column("write_bytes", "written", "bytes", _op(lambda c: c.write_bytes), "operand bytes written", place="data"),
    Column("traffic_bytes", "min traffic", "bytes", _op(lambda c: c.bytes_moved), "lower bound on the bytes moved: each operand of a call moved once", rank=1),
    Column("intensity", "FLOP/B", "flops/byte", _op(cost_intensity), "arithmetic intensity: FLOPs per byte of min traffic", rank=2),
    Column("bound", "bound", "text", _op_floor(lambda f: f.binds), "compute or memory: the resource that takes longer at the roofline's peak and bandwidth", rank=1),
    Column("floor_ns", "floor", "ns", _op_floor(lambda f: f.floor_ns), "shortest possible time of all calls by the roofline", rank=1),
    Column("floor_share_percent", "floor %", "percent", lambda r: floor_share(r.floor, r.total_floor), "share of the sum of all floors", rank=3),
)

COST_COLUMNS: tuple[Column[StaticCount], ...] = (
    Column("params", "parameters", "count", lambda s: s.params, "parameter count; shared parameters count once"),
    Column("macs_forward", "MACs fwd", "macs", lambda s: s.forward.macs, "multiply-accumulates of the forward pass"),
    Column("macs_loss", "MACs loss", "macs", lambda s: s.loss.macs, "multiply-accumulates of the loss", place="data"),
    Column("macs_backward", "MACs bwd", "macs", lambda s: s.backward.macs, "multiply-accumulates of the backward pass", place="data"),
    Column("macs_recompute", "MACs recompute", "macs", lambda s: s.recompute.macs, "multiply-accumulates of forward work recomputed in backward", place="data"),
    Column("macs", "MACs step", "macs", lambda s: s.step.macs, "multiply-accumulates of the step: forward + loss + backward + recompute", place="data"),
    Column("flops_forward", "FLOPs fwd", "flops", lambda s: s.forward.flops, "floating-point operations of the forward pass"),
    Column("flops_loss", "loss", "flops", lambda s: s.loss.flops, "floating-point operations of the loss", when=trains, rank=1),
    Column("flops_backward", "bwd", "flops", lambda s: s.backward.flops, "floating-point operations of the backward pass", when=trains),
    Column("flops_recompute", "recompute", "flops", lambda s: s.recompute.flops, "floating-point operations of forward work recomputed in backward", when=recomputes),
    Column("flops", "step", "flops", lambda s: s.step.flops, "floating-point operations of the step: forward + loss + backward + recompute", when=trains),
    Column("traffic_bytes", "min traffic", "bytes", lambda s: s.step.bytes_moved, "lower bound on the bytes moved per step: each operand of an op moved once", rank=2),
    Column("intensity", "FLOP/B", "flops/byte", lambda s: cost_intensity(s.step), "arithmetic intensity: FLOPs of the step per byte of min traffic", rank=3),
    Column("saved_bytes", "saved for bwd", "bytes", lambda s: s.saved_bytes, "bytes saved for backward; each storage counts once, parameters and inputs excluded", when=trains),
    Column("peak_bytes", "predicted peak", "bytes", lambda s: s.memory.peak_bytes if s.memory else None, "predicted peak of tensor memory, from tensor lifetimes; library workspaces excluded"),
    Column("predicted_kernel_ns", "predicted kernels", "ns", lambda s: s.forecast.kernel_ns.median if s.forecast else None, "predicted kernel time of the step on the device of --gpu, from recorded calls of the same ops"),
)

ROOFLINE_COLUMNS: tuple[Column[PhaseBound], ...] = (
    Column("phase", "phase", "text", lambda p: p.phase, "the phase, or the whole step"),
    Column("compute_ns", "compute", "ns", lambda p: p.compute_ns, "time of the arithmetic alone, at the roofline's peaks", rank=1),
    Column("memory_ns", "memory", "ns", lambda p: p.memory_ns, "time of the min traffic alone, at the roofline's bandwidth", rank=1),
    Column("bound", "bound", "text", lambda p: p.binds, "compute or memory: the longer of the two"),
    Column("floor_ns", "full overlap", "ns", lambda p: p.floor_ns, "the longer of compute and memory: a lower bound for any order of the work", rank=2),
    Column("layers_ns", "layer by layer", "ns", lambda p: p.layers_ns, "sum of the layers' floors: a lower bound for layers that run one after another"),
    Column("time_ns", "device time", "ns", lambda p: p.time_ns, "device time of the layers with counted work, from traced steps"),
    Column("attained_percent", "% of roofline", "percent", lambda p: p.attained_percent, "floors of the layers with a device time, divided by that time"),
)

UNCOUNTED_COLUMNS: tuple[Column[UncountedOp], ...] = (
    Column("op", "op", "text", lambda o: o.op, "the op that no formula covers", name=True),
    Column("calls", "calls", "count", lambda o: o.calls, "calls per step"),
    Column("paths", "modules", "text", lambda o: ", ".join(shown_path(path) for path in o.paths), "the modules that call it", name=True),
)

CROSS_CHECK_COLUMNS: tuple[Column[CrossCheckLayer], ...] = (
    Column("layer", "layer", "text", lambda r: shown_path(r.path), "the module, descendants included", name=True),
    Column("kit_macs", "profiler_kit", "macs", lambda r: r.kit_macs, "multiply-accumulates of the forward pass by profiler_kit's own convention"),
    Column("peer_macs", "fvcore", "macs", lambda r: r.peer_macs, "multiply-accumulates that fvcore reports for the module"),
    Column("difference_macs", "difference", "macs", difference_macs, "fvcore's MACs minus profiler_kit's"),
)

TABLES = (
    ColumnTable("ops", OP_COLUMNS, "One row per op (in data: per op and phase). The totals equal those of the layers. `count --by op -o FILE.csv` writes this table."),
    ColumnTable("cost", COST_COLUMNS, "The counted work of one step."),
    ColumnTable("roofline", ROOFLINE_COLUMNS, "One row per phase: the shortest possible time of its counted work by the roofline ([explanation](counting.md#bytes-intensity-and-the-roofline))."),
    ColumnTable("uncounted", UNCOUNTED_COLUMNS, "Ops that no formula covers. With such ops, the FLOPs are a lower bound."),
    ColumnTable("cross_check", CROSS_CHECK_COLUMNS, "`count --cross-check`: one row per module with multiply-accumulates, descendants included."),
)
# fmt: on
