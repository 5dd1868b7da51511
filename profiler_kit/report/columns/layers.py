"""The columns of layers: one row per module or pseudo path."""

from __future__ import annotations

from collections.abc import Callable

from profiler_kit.records.counts import Phase
from profiler_kit.records.document import Value
from profiler_kit.records.families import family_name
from profiler_kit.records.roofline import Floor
from profiler_kit.report.columns.column import (
    Column,
    ColumnTable,
    cost_intensity,
    floor_share,
    recomputes,
    share,
    trains,
)
from profiler_kit.report.rows import Counted, LayerRow


def _counted(figure: Callable[[Counted], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.counted) if row.counted else None


def _counted_total(figure: Callable[[Counted], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.counted_total) if row.counted_total else None


def _share_of_flops(row: LayerRow) -> float | None:
    return share(row.counted.step.flops, row.counted_step.step.flops) if row.counted and row.counted_step else None


def _share_of_macs(row: LayerRow) -> float | None:
    return share(row.counted.step.macs, row.counted_step.step.macs) if row.counted and row.counted_step else None


def _share_of_time(row: LayerRow) -> float | None:
    return share(row.timed.step_ns, row.timed_step.step_ns) if row.timed and row.timed_step else None


def _time(*phases: Phase) -> Callable[[LayerRow], Value]:
    def time(row: LayerRow) -> Value:
        if row.timed is None or (row.timed.unattributed_ns and not any(row.timed.by_phase_ns)):
            return None  # unattributed time has no phase either
        return sum(row.timed.phase_ns(phase) for phase in phases)

    return time


def step_intensity(row: LayerRow) -> float | None:
    """FLOPs of the step per byte of min traffic; None where no bytes move."""
    return cost_intensity(row.counted.step) if row.counted else None


def achieved_flops_per_s(row: LayerRow) -> float | None:
    """Measured FLOP/s: 2 FLOPs per MAC of the step, divided by its device time. None without MACs or device time."""
    if row.counted is None or row.timed is None or not row.timed.step_ns or not row.counted.step.macs:
        return None
    return 2 * row.counted.step.macs / (row.timed.step_ns * 1e-9)


def _floor(figure: Callable[[Floor], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.floor) if row.floor else None


# fmt: off
# ruff: noqa: E501 - one column, one line
LAYER_COLUMNS: tuple[Column[LayerRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.label, "the module's path; (root) is the model's own code, (loss) the loss function", place="page", name=True, tree=0),
    Column("path", "path", "text", lambda r: r.path, "the module's path as in named_modules(), empty for the root; pseudo paths such as (loss) are in brackets", place="data"),
    Column("depth", "depth", "count", lambda r: r.depth, "number of modules that contain the module", place="data"),
    Column("class", "class", "text", lambda r: r.class_name, "the module's class", rank=8, name=True, tree=9),
    Column("config", "config", "text", lambda r: r.config, "constructor settings: channels, kernel, stride, padding, groups", rank=6, tree=11),
    Column("calls", "calls", "count", lambda r: r.calls, "calls per step", place="data"),
    Column("convention", "convention", "text", lambda r: r.convention, "the counting convention of MACs and FLOPs", place="data"),
    Column("params", "params", "count", _counted(lambda c: c.params), "parameter count; a shared parameter counts once, at the first module that has it", rank=7, aside=True, tree=5),
    Column("param_bytes", "param bytes", "bytes", _counted(lambda c: c.param_bytes), "bytes of these parameters", place="data"),
    Column("macs_forward", "MACs fwd", "macs", _counted(lambda c: c.forward.macs), "multiply-accumulates of the forward pass", rank=10, aside=True, tree=6),
    Column("macs_backward", "MACs bwd", "macs", _counted(lambda c: c.backward.macs), "multiply-accumulates of the backward pass", place="data"),
    Column("macs_loss", "MACs loss", "macs", _counted(lambda c: c.loss.macs), "multiply-accumulates of the loss", place="data"),
    Column("macs_recompute", "MACs recomp", "macs", _counted(lambda c: c.recompute.macs), "multiply-accumulates of forward work recomputed in backward", place="data"),
    Column("macs", "MACs step", "macs", _counted(lambda c: c.step.macs), "multiply-accumulates of the step: forward + loss + backward + recompute", place="data"),
    Column("macs_share_percent", "MACs %", "percent", _share_of_macs, "share of the step's MACs", place="data", share=True),
    Column("flops_forward", "FLOPs fwd", "flops", _counted(lambda c: c.forward.flops), "floating-point operations of the forward pass; 1 MAC = 2 FLOPs; pointwise work included", rank=7),
    Column("flops_loss", "FLOPs loss", "flops", _counted(lambda c: c.loss.flops), "floating-point operations of the loss", place="data"),
    Column("flops_backward", "FLOPs bwd", "flops", _counted(lambda c: c.backward.flops), "floating-point operations of the backward pass, recomputed forward work excluded", when=trains, rank=7, aside=True),
    Column("flops_recompute", "FLOPs recomp", "flops", _counted(lambda c: c.recompute.flops), "floating-point operations of forward work recomputed in backward (activation checkpointing)", when=recomputes, rank=9, aside=True),
    Column("flops", "FLOPs step", "flops", _counted(lambda c: c.step.flops), "floating-point operations of the step: forward + loss + backward + recompute", place="data", tree=1),
    Column("flops_share_percent", "FLOPs %", "percent", _share_of_flops, "share of the step's FLOPs", rank=1, tree=1, share=True),
    Column("output_bytes", "output", "bytes", lambda r: r.output_bytes, "bytes returned by the module's calls; does not sum over layers, because a container returns its last child's output", rank=12, aside=True),
    Column("saved_bytes", "newly saved", "bytes", _counted(lambda c: c.saved_bytes), "bytes saved for backward that no earlier layer had saved; sums to the total; parameters and inputs excluded", when=trains, rank=5, aside=True, tree=7),
    Column("held_bytes", "saved", "bytes", lambda r: r.held_bytes, "bytes saved for backward by the layer's own ops, shared storages included: an upper bound on the savings from changing the layer; shared storages count in each row and once in the total", when=trains, rank=3),
    Column("traffic_bytes", "min traffic", "bytes", _counted(lambda c: c.step.bytes_moved), "lower bound on the bytes moved per step: each operand of an op moved once", rank=11, aside=True, tree=2),
    Column("intensity", "FLOP/B", "flops/byte", step_intensity, "arithmetic intensity: FLOPs of the step per byte of min traffic", rank=9, aside=True, tree=3),
    Column("bound", "bound", "text", _floor(lambda f: f.binds), "compute or memory: the resource that sets the floor, arithmetic at the roofline's peak or min traffic at its bandwidth", rank=6, aside=True, tree=1),
    Column("math", "math", "text", lambda r: r.math, "the arithmetic whose peak applies to the layer's matrix products and convolutions", place="data"),
    Column("floor_ns", "floor", "ns", _floor(lambda f: f.floor_ns), "shortest possible time of the layer's step by the roofline; a lower bound, because min traffic is one", rank=6, aside=True, tree=1),
    Column("floor_share_percent", "floor %", "percent", lambda r: floor_share(r.floor, r.floor_step), "share of the sum of all floors", rank=8, aside=True, tree=2),
    Column("predicted_ns", "predicted", "ns", lambda r: r.predicted.step_ns if r.predicted else None, "predicted kernel time per step on the device of --gpu, from recorded calls of the same ops", rank=2, tree=0),
    Column("attained_percent", "% of roofline", "percent", _floor(lambda f: f.attained_percent), "floor divided by device time; over 100 where an algorithm does fewer operations than counted (FFT, Winograd) or operands are still in a cache", rank=2, tree=1),
    Column("kernel_forward_ns", "time fwd", "ns", _time("forward"), "device time of forward kernels per step (on a CPU: self time of operators)", rank=4),
    Column("kernel_loss_ns", "time loss", "ns", _time("loss"), "device time of the loss per step", place="data"),
    Column("kernel_backward_ns", "time bwd", "ns", _time("backward", "recompute"), "device time of backward kernels per step, recomputed forward work included (on a CPU: self time of operators)", when=trains, rank=4),
    Column("kernel_optimizer_ns", "time opt", "ns", _time("optimizer"), "device time of the optimizer's kernels per step", place="data"),
    Column("kernel_ns", "time step", "ns", lambda r: r.timed.step_ns if r.timed else None, "device time per step in all phases (on a CPU: self time of operators), from traced steps", tree=0),
    Column("kernel_share_percent", "time %", "percent", _share_of_time, "share of the step's device time", tree=0, share=True),
    Column("achieved_flops_per_s", "FLOP/s", "flops/s", achieved_flops_per_s, "rate of matrix products and convolutions: 2 FLOPs per MAC of the step, divided by the device time", rank=3),
    Column("family", "top kernel family", "text", lambda r: r.family, "algorithm family of the kernels with the most time", place="data"),
    Column("algorithm", "main algorithm", "text", lambda r: family_name(r.family) if r.family else None, "algorithm of the kernels with the most time (on a CPU: kind of operator)", place="page", rank=5),
    Column("total_params", "total params", "count", _counted_total(lambda c: c.params), "parameter count, descendants included", place="data"),
    Column("total_macs", "total MACs", "macs", _counted_total(lambda c: c.step.macs), "multiply-accumulates of the step, descendants included", place="data"),
    Column("total_macs_forward", "total MACs fwd", "macs", _counted_total(lambda c: c.forward.macs), "multiply-accumulates of the forward pass, descendants included", place="data"),
    Column("total_flops", "total FLOPs", "flops", _counted_total(lambda c: c.step.flops), "floating-point operations of the step, descendants included", place="data"),
    Column("fvcore_total_macs", "total MACs, fvcore", "macs", lambda r: r.fvcore_macs, "multiply-accumulates that fvcore reports for the module and its descendants (`count --cross-check`)", place="data"),
    Column("total_traffic_bytes", "total traffic", "bytes", _counted_total(lambda c: c.step.bytes_moved), "min traffic of the step, descendants included", place="data"),
    Column("total_saved_bytes", "total saved", "bytes", _counted_total(lambda c: c.saved_bytes), "newly saved bytes, descendants included", place="data"),
    Column("total_floor_ns", "total floor", "ns", lambda r: r.floor_total.floor_ns if r.floor_total else None, "sum of the floors, descendants included", place="data"),
    Column("total_predicted_ns", "total predicted", "ns", lambda r: r.predicted_total.step_ns if r.predicted_total else None, "predicted kernel time per step, descendants included", place="data"),
    Column("total_kernel_ns", "total time", "ns", lambda r: r.timed_total.step_ns if r.timed_total else None, "device time per step, descendants included", place="data"),
)

TABLES = (
    ColumnTable("layers", LAYER_COLUMNS, "One row per module, plus `(loss)`, `(optimizer)` and `(unattributed)` device time. Figures exclude children, so the rows add up; `total_*` columns include descendants. `layers.csv` holds this table."),
)
# fmt: on
