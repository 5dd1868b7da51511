"""The columns of what is counted: ops, the whole step, phases under the roof, ops without a formula."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from profiler_kit.records.counts import Cost, StaticCount, UncountedOp
from profiler_kit.records.document import Value
from profiler_kit.records.paths import shown_path
from profiler_kit.records.roofline import Floor, PhaseBound
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import cost_intensity, floor_share, recomputes, share, trains


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRow:
    """One op over the phases it ran in (or several ops in one row), and the step's figures for the shares."""

    op: str
    phases: tuple[str, ...] = ()
    calls: int
    cost: Cost | None
    floor: Floor | None
    whole: Cost
    whole_floor: Floor | None


def _op(figure: Callable[[Cost], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.cost) if row.cost else None


def _op_floor(figure: Callable[[Floor], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.floor) if row.floor else None


# fmt: off
# ruff: noqa: E501 - one column, one line
OP_COLUMNS: tuple[Column[OpRow], ...] = (
    Column("op", "op", "text", lambda r: r.op, "the op as PyTorch's dispatcher names it", name=True),
    Column("phase", "phase", "text", lambda r: ", ".join(r.phases) or None, "the phases it ran in", rank=5),
    Column("calls", "calls", "count", lambda r: r.calls, "calls in one step", rank=2),
    Column("macs", "MACs", "macs", _op(lambda c: c.macs), "multiply-accumulates in all its calls", rank=4),
    Column("macs_share_percent", "MACs %", "percent", lambda r: share(r.cost.macs, r.whole.macs) if r.cost else None, "share of the whole step's MACs", place="data"),
    Column("flops", "FLOPs", "flops", _op(lambda c: c.flops), "floating-point operations in all its calls; unknown without a formula"),
    Column("flops_share_percent", "FLOPs %", "percent", lambda r: share(r.cost.flops, r.whole.flops) if r.cost else None, "share of the whole step's FLOPs", rank=1),
    Column("read_bytes", "read", "bytes", _op(lambda c: c.read_bytes), "operand bytes read, each operand once per call", place="data"),
    Column("write_bytes", "written", "bytes", _op(lambda c: c.write_bytes), "operand bytes written", place="data"),
    Column("traffic_bytes", "min traffic", "bytes", _op(lambda c: c.bytes_moved), "each operand of a call moved once: a lower bound on the bytes moved", rank=1),
    Column("intensity", "FLOP/B", "flops/byte", _op(cost_intensity), "arithmetic intensity: FLOPs per byte of min traffic", rank=2),
    Column("bound", "bound", "text", _op_floor(lambda f: f.binds), "what its floor is for: compute, arithmetic at the roof's peak, or memory, min traffic at the roof's bandwidth", rank=1),
    Column("floor_ns", "floor", "ns", _op_floor(lambda f: f.floor_ns), "the least time that all its calls can take under the roof", rank=1),
    Column("floor_share_percent", "floor %", "percent", lambda r: floor_share(r.floor, r.whole_floor), "share of the sum of the ops' floors", rank=3),
)

COST_COLUMNS: tuple[Column[StaticCount], ...] = (
    Column("params", "parameters", "count", lambda s: s.params, "parameters, each counted once"),
    Column("macs_forward", "MACs fwd", "macs", lambda s: s.forward.macs, "multiply-accumulates of the forward pass"),
    Column("macs_loss", "MACs loss", "macs", lambda s: s.loss.macs, "multiply-accumulates of the loss", place="data"),
    Column("macs_backward", "MACs bwd", "macs", lambda s: s.backward.macs, "multiply-accumulates of the backward pass", place="data"),
    Column("macs_recompute", "MACs recompute", "macs", lambda s: s.recompute.macs, "multiply-accumulates of forward work done again inside backward", place="data"),
    Column("macs", "MACs step", "macs", lambda s: s.step.macs, "forward + loss + backward + recompute", place="data"),
    Column("flops_forward", "FLOPs fwd", "flops", lambda s: s.forward.flops, "floating-point operations of the forward pass"),
    Column("flops_loss", "loss", "flops", lambda s: s.loss.flops, "floating-point operations of the loss", when=trains, rank=1),
    Column("flops_backward", "bwd", "flops", lambda s: s.backward.flops, "floating-point operations of the backward pass", when=trains),
    Column("flops_recompute", "recompute", "flops", lambda s: s.recompute.flops, "forward work done again inside backward", when=recomputes),
    Column("flops", "step", "flops", lambda s: s.step.flops, "forward + loss + backward + recompute", when=trains),
    Column("traffic_bytes", "min traffic", "bytes", lambda s: s.step.bytes_moved, "each operand of the step moved once: a lower bound on the bytes moved", rank=2),
    Column("intensity", "FLOP/B", "flops/byte", lambda s: cost_intensity(s.step), "FLOPs of the step per byte of min traffic", rank=3),
    Column("saved_bytes", "saved for bwd", "bytes", lambda s: s.saved_bytes, "distinct storages kept for backward, parameters and inputs excluded", when=trains),
    Column("peak_bytes", "predicted peak", "bytes", lambda s: s.memory.peak_bytes if s.memory else None, "most tensor bytes held at once, from tensor lifetimes; without library workspaces"),
)

ROOF_COLUMNS: tuple[Column[PhaseBound], ...] = (
    Column("phase", "phase", "text", lambda p: p.phase, "the phase, or the whole step"),
    Column("compute_ns", "compute", "ns", lambda p: p.compute_ns, "what its arithmetic needs alone, at the roof's peaks", rank=1),
    Column("memory_ns", "memory", "ns", lambda p: p.memory_ns, "what its min traffic needs alone, at the roof's bandwidth", rank=1),
    Column("bound", "bound", "text", lambda p: p.binds, "the longer of the two"),
    Column("floor_ns", "if all overlapped", "ns", lambda p: p.floor_ns, "the longer of the two: no order of the work is faster", rank=2),
    Column("layers_ns", "layer by layer", "ns", lambda p: p.layers_ns, "the sum of the layers' floors: the bound where they run one after another"),
    Column("time_ns", "device time", "ns", lambda p: p.time_ns, "device time of the layers with counted work, from traced steps"),
    Column("attained_percent", "roof %", "percent", lambda p: p.attained_percent, "floors of the layers that have a device time, divided by that time"),
)

UNCOUNTED_COLUMNS: tuple[Column[UncountedOp], ...] = (
    Column("op", "op", "text", lambda o: o.op, "the op for which no formula is known", name=True),
    Column("calls", "calls", "count", lambda o: o.calls, "calls in one step"),
    Column("paths", "in", "text", lambda o: ", ".join(shown_path(path) for path in o.paths), "the modules that call it", name=True),
)

TABLES = (
    ColumnTable("ops", OP_COLUMNS, "One row per op (in data: per op and phase); the same total as the layers', cut the other way. `count --by op -o FILE.csv` writes it."),
    ColumnTable("cost", COST_COLUMNS, "What one step asks for, counted."),
    ColumnTable("roofline", ROOF_COLUMNS, "One row per phase: the least time that its counted work can take under a roof ([what that means](counting.md#bytes-intensity-and-the-roofline))."),
    ColumnTable("uncounted", UNCOUNTED_COLUMNS, "Ops that no formula covers: the FLOPs are a lower bound by them."),
)
# fmt: on
