"""The columns of every table. A column is one line here: it then stands in the tables, the CSV, the data frames and the docs.

`when` says for which reports a column makes sense; one that is empty for all rows is not shown either. ``place="data"``
columns are for programs alone (CSV, data frames), ``place="page"`` for people alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, Literal, TypeVar

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import (
    Cost,
    CrossCheck,
    CrossCheckLayer,
    CrossCheckRow,
    LibraryScratch,
    MemoryCategories,
    MemoryPoint,
    ModuleMemory,
    Phase,
    StaticCount,
    UncountedOp,
    WhatIf,
)
from profiler_kit.records.document import Head, Value
from profiler_kit.records.families import family_words, math_words
from profiler_kit.records.laboratory import ConvolutionTiming, ShapeSchedule
from profiler_kit.records.machine import Device, Package
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.roofline import Floor, PhaseBound
from profiler_kit.records.runs import ConfigRun, KernelStat, OpMemory, PhaseTiming
from profiler_kit.records.schedules import (
    ShapeTime,
    cycle_ns,
    last_batch,
    new_factor,
    new_ns,
    seen_ns,
    shape_text,
    shape_times,
    total_ns,
)
from profiler_kit.report.algorithm_rows import ChangeRow, ConvolutionRow, algorithm_words
from profiler_kit.report.rows import Counted, LayerRow
from profiler_kit.units import Unit

Row = TypeVar("Row")
Place = Literal["both", "page", "data"]
WorkUnit = Literal["flop", "mac"]

NEVER: Final = "never"
# A gain below this is not worth a tuning pass: it is within what one process differs from the next.
LEAST_GAIN: Final = 0.02


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table over `Row`: what it is called, its value in a row, and when it is shown.

    `rank`, `name`: as in `Head`. `aside`: on the page it stands in a second table, for detail, where there is one. `tree`: its
    rank in the tree of modules, whose rows hold their descendants' figures; None where it does not stand there.
    """

    key: str
    title: str
    unit: Unit
    value: Callable[[Row], Value]
    doc: str
    when: Callable[[Report], bool] = lambda report: True
    place: Place = "both"
    rank: int = 0
    name: bool = False
    aside: bool = False
    tree: int | None = None

    @property
    def head(self) -> Head:
        """The column's head in a table."""
        return Head(key=self.key, title=self.title, unit=self.unit, doc=self.doc, rank=self.rank, name=self.name)


def in_unit(of: Sequence[Column[Row]], unit: WorkUnit) -> tuple[Column[Row], ...]:
    """`of` with work on the page in `unit`: for ``mac`` each column of FLOPs gives its place to its counterpart in MACs.

    The counterpart of ``flops_x`` is called ``macs_x``.
    """
    if unit == "flop":
        return tuple(of)
    macs = {column.key: column for column in of if column.key.startswith("macs")}
    shown: list[Column[Row]] = []
    for column in of:
        twin = macs.get(column.key.replace("flops", "macs", 1)) if column.key.startswith("flops") else None
        if twin is not None and (column.place != "data" or column.tree is not None):
            tree = column.tree if column.tree is not None else twin.tree
            place: Place = "data" if column.place == "data" else "page"
            shown.append(replace(twin, place=place, when=column.when, rank=column.rank, aside=column.aside, tree=tree))
        elif twin is None and column.key not in macs:
            shown.append(column)
    return tuple(shown)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run beside the run it is compared with and, where it tunes, the same configuration without tuning."""

    run: ConfigRun
    baseline: ConfigRun | None
    untuned: ConfigRun | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of a run (or the sum of all), and the sum of all for the shares."""

    config: str
    label: str
    timing: PhaseTiming
    whole: PhaseTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel of a run (or several in one row), and the run's device time for its share."""

    config: str
    kernel: KernelStat
    device_ns: int | None


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingRow:
    """What one device reaches in one respect, beside its datasheet: FLOP/s of a matrix product, or bytes/s of a copy."""

    what: str
    rows: int | None = None
    copied_bytes: int | None = None
    flops_per_s: float | None = None
    sheet_flops_per_s: float | None = None
    bytes_per_s: float | None = None
    sheet_bytes_per_s: float | None = None
    spread_percent: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """A peak taken apart: the predicted one, or a run's. `parts` add up to it; a run's `temporaries` are what is in no other part."""

    source: str
    peak_bytes: int
    parts: MemoryCategories
    at: str
    rounding: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """A run's measured peak, and the one predicted by rules; that with measured scratch is the run's own."""

    run: ConfigRun
    rule_bytes: int | None

    @property
    def at(self) -> str | None:
        """Where the step peaks as it is predicted with measured scratch."""
        found = self.run.predicted
        return " ".join(word for word in (found.peak_phase, found.peak_path, found.peak_op) if word) if found else None

    @property
    def measured_at(self) -> str | None:
        """Where the probed step peaked."""
        found = self.run.memory
        return " ".join(word for word in (found.peak_phase, found.peak_path, found.peak_op) if word) if found else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """A row of a cross-check, or several in one, and the modules it is of."""

    check: CrossCheck
    row: CrossCheckRow
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLayerRow:
    """A module in a cross-check, and why the two differ."""

    layer: CrossCheckLayer
    reason: str


def _train(report: Report) -> bool:
    return report.target.mode == "train"


def _recomputes(report: Report) -> bool:
    return report.static is not None and report.static.recompute.flops > 0


def _on_operators(report: Report) -> bool:
    return any(run.clock == "operator" for run in report.runs)


def _tunes(report: Report) -> bool:
    return any(run.config.benchmark for run in report.runs)


def _failed(report: Report) -> bool:
    return any(run.failure is not None for run in report.runs)


def _share(part: float | None, whole: float | None) -> float | None:
    return 100 * part / whole if part is not None and whole else None


def _off(predicted: int | None, measured: int | None) -> float | None:
    return _share(predicted - measured, measured) if predicted is not None and measured is not None else None


def _counted(figure: Callable[[Counted], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.counted) if row.counted else None


def _counted_total(figure: Callable[[Counted], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.counted_total) if row.counted_total else None


def _peer(name: str) -> Callable[[LayerRow], Value]:
    return lambda row: dict(row.peers).get(name)


def _share_of_flops(row: LayerRow) -> float | None:
    return _share(row.counted.step.flops, row.whole_counted.step.flops) if row.counted and row.whole_counted else None


def _share_of_macs(row: LayerRow) -> float | None:
    return _share(row.counted.step.macs, row.whole_counted.step.macs) if row.counted and row.whole_counted else None


def _share_of_time(row: LayerRow) -> float | None:
    return _share(row.timed.step_ns, row.whole_timed.step_ns) if row.timed and row.whole_timed else None


def _time(*phases: Phase) -> Callable[[LayerRow], Value]:
    def time(row: LayerRow) -> Value:
        if row.timed is None or (row.timed.unattributed_ns and not any(row.timed.by_phase_ns)):
            return None  # time without an owner has no phase either
        return sum(row.timed.phase_ns(phase) for phase in phases)

    return time


def intensity(row: LayerRow) -> float | None:
    """Step FLOPs per byte of minimum traffic."""
    return cost_intensity(row.counted.step) if row.counted else None


def _floor(figure: Callable[[Floor], Value]) -> Callable[[LayerRow], Value]:
    return lambda row: figure(row.floor) if row.floor else None


def _share_of_floor(row: LayerRow | OpRow) -> float | None:
    return _share(row.floor.floor_ns, row.whole_floor.floor_ns) if row.floor and row.whole_floor else None


def _op(figure: Callable[[Cost], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.cost) if row.cost else None


def _op_floor(figure: Callable[[Floor], Value]) -> Callable[[OpRow], Value]:
    return lambda row: figure(row.floor) if row.floor else None


def _part(figure: Callable[[ConvolutionTiming], Value]) -> Callable[[ConvolutionRow], Value]:
    return lambda row: figure(row.timing) if row.timing else None


def _rate_share(row: ConvolutionRow) -> float | None:
    return _share(row.timing.flops_per_s, row.peak_flops_per_s) if row.timing else None


def cost_intensity(cost: Cost) -> float | None:
    """FLOPs per byte of minimum traffic; None where nothing moves."""
    return cost.flops / cost.bytes_moved if cost.bytes_moved else None


def achieved(row: LayerRow) -> float | None:
    """FLOP/s reached: two per MAC of the step, divided by its device time. None without contractions or time."""
    if row.counted is None or row.timed is None or not row.timed.step_ns or not row.counted.step.macs:
        return None
    return 2 * row.counted.step.macs / (row.timed.step_ns * 1e-9)


def break_even(row: RunRow) -> Value:
    """Steps until tuning is paid back, against the same configuration without it; ``never`` if that gains under 2 %."""
    run, off = row.run, row.untuned
    if run.tuning_ns is None or run.step_ns is None or off is None or off.step_ns is None:
        return None
    gain_ns = off.step_ns.median - run.step_ns.median
    if gain_ns < LEAST_GAIN * off.step_ns.median:
        return NEVER
    return max(0, -(-run.tuning_ns // gain_ns))


def phase_shares(run: ConfigRun) -> str | None:
    """Device time of forward / loss / backward / optimizer in whole percent: ``37/0/63/0``; None without a trace."""
    by_phase = {timing.phase: timing.kernel_ns for timing in run.phases}
    whole = sum(ns for ns in by_phase.values() if ns)
    if not whole:
        return None
    backward = (by_phase.get("backward") or 0) + (by_phase.get("recompute") or 0)
    parts = (by_phase.get("forward") or 0, by_phase.get("loss") or 0, backward, by_phase.get("optimizer") or 0)
    return "/".join(f"{100 * part / whole:.0f}" for part in parts)


def _kernel_share(phase: Phase) -> Callable[[RunRow], Value]:
    def share(row: RunRow) -> Value:
        by_phase = {timing.phase: timing.kernel_ns for timing in row.run.phases}
        return _share(by_phase.get(phase), sum(ns for ns in by_phase.values() if ns))

    return share


def _some_paths(paths: Sequence[str]) -> str:
    shown = ", ".join(path or "(root)" for path in paths[:3])
    return f"{shown} and {len(paths) - 3:,} more" if len(paths) > 3 else shown


def _ms(ns: int | None) -> float | None:
    """One unit for a whole column: configurations are compared by eye, and a unit in every cell costs a column its place."""
    return ns / 1e6 if ns is not None else None


def _mib(size_bytes: int | None) -> float | None:
    return size_bytes / 2**20 if size_bytes is not None else None


def _two_digits(error: float | None) -> str | None:
    """``5.0e-4``; shorter than 0.0005001188 and easier to compare with 1.1e-6."""
    if error is None or not math.isfinite(error):
        return None if error is None else str(error)
    number, _, power = f"{error:.1e}".partition("e")
    return f"{number}e{int(power)}" if error else "0"


def _spread(row: RunRow) -> float | None:
    interval = row.run.step_ns
    return 50.0 * (interval.high - interval.low) / interval.median if interval is not None and interval.median else None


def _ratio(row: RunRow) -> float | None:
    if (
        row.run.step_ns is None
        or row.baseline is None
        or row.baseline.step_ns is None
        or not row.baseline.step_ns.median
    ):
        return None
    return row.run.step_ns.median / row.baseline.step_ns.median


# fmt: off
# ruff: noqa: E501 - one column, one line
LAYER_COLUMNS: tuple[Column[LayerRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.label, "the module's path in the model; (root) is the model's own code, (loss) the loss function", place="page", name=True, tree=0),
    Column("path", "path", "text", lambda r: r.path, "the module's path as named_modules() gives it, the root's is empty; pseudo paths have brackets", place="data"),
    Column("depth", "depth", "count", lambda r: r.depth, "how many modules the module lies in", place="data"),
    Column("class", "class", "text", lambda r: r.class_name, "the module's class", rank=8, name=True, tree=9),
    Column("config", "config", "text", lambda r: r.config, "what the module was built with: channels, kernel, stride, padding, groups", rank=6, tree=11),
    Column("calls", "calls", "count", lambda r: r.calls, "calls in one step", place="data"),
    Column("convention", "convention", "text", lambda r: r.convention, "whose definition of MACs and FLOPs the figures follow", place="data"),
    Column("params", "params", "count", _counted(lambda c: c.params), "parameters, each counted once, at its first owner", rank=7, aside=True, tree=5),
    Column("param_bytes", "param bytes", "bytes", _counted(lambda c: c.param_bytes), "bytes of these parameters", place="data"),
    Column("macs_forward", "MACs fwd", "macs", _counted(lambda c: c.forward.macs), "multiply-accumulates of the forward pass", rank=10, aside=True, tree=6),
    Column("macs_backward", "MACs bwd", "macs", _counted(lambda c: c.backward.macs), "multiply-accumulates of the backward pass", place="data"),
    Column("macs_loss", "MACs loss", "macs", _counted(lambda c: c.loss.macs), "multiply-accumulates of the loss", place="data"),
    Column("macs_recompute", "MACs recomp", "macs", _counted(lambda c: c.recompute.macs), "multiply-accumulates of forward work done again inside backward", place="data"),
    Column("macs", "MACs step", "macs", _counted(lambda c: c.step.macs), "forward + loss + backward + recompute", place="data"),
    Column("macs_share_percent", "MACs %", "percent", _share_of_macs, "share of the whole step's MACs", place="data"),
    Column("flops_forward", "FLOPs fwd", "flops", _counted(lambda c: c.forward.flops), "floating-point operations of the forward pass, a MAC being two, pointwise work included", rank=7),
    Column("flops_loss", "FLOPs loss", "flops", _counted(lambda c: c.loss.flops), "floating-point operations of the loss", place="data"),
    Column("flops_backward", "FLOPs bwd", "flops", _counted(lambda c: c.backward.flops), "floating-point operations of the backward pass, recomputed forward work not included", when=_train, rank=7, aside=True),
    Column("flops_recompute", "FLOPs recomp", "flops", _counted(lambda c: c.recompute.flops), "forward work done again inside backward (activation checkpointing)", when=_recomputes, rank=9, aside=True),
    Column("flops", "FLOPs step", "flops", _counted(lambda c: c.step.flops), "forward + loss + backward + recompute", place="data", tree=1),
    Column("flops_share_percent", "FLOPs %", "percent", _share_of_flops, "share of the whole step's FLOPs", rank=1, tree=1),
    Column("output_bytes", "output", "bytes", lambda r: r.output_bytes, "bytes its calls returned; not a sum over layers, a container returns what its last child did", rank=12, aside=True),
    Column("saved_bytes", "saved", "bytes", _counted(lambda c: c.saved_bytes), "storages that its own ops were the first to keep for backward, parameters and inputs excluded; they add up, and show where storages begin, not who needs them", when=_train, rank=5, aside=True, tree=7),
    Column("held_bytes", "held", "bytes", lambda r: r.held_bytes, "all storages that its own ops keep for backward, whoever made them: what a change of the layer could free; shared ones count in each row, once in the total", when=_train, rank=3),
    Column("traffic_bytes", "min traffic", "bytes", _counted(lambda c: c.step.bytes_moved), "each operand of the step moved once: a lower bound on the bytes moved", rank=11, aside=True, tree=2),
    Column("intensity", "FLOP/B", "flops/byte", intensity, "arithmetic intensity: FLOPs of the step per byte of min traffic", rank=9, aside=True, tree=3),
    Column("bound", "bound", "text", _floor(lambda f: f.binds), "what its floor is for: compute, its arithmetic at the roof's peak, or memory, its min traffic at the roof's bandwidth", rank=6, aside=True, tree=1),
    Column("math", "math", "text", lambda r: r.math, "the arithmetic whose peak its contractions are held against", place="data"),
    Column("floor_ns", "floor", "ns", _floor(lambda f: f.floor_ns), "the least time its step's work can take under the roof: a lower bound, as bytes are", rank=6, aside=True, tree=1),
    Column("floor_share_percent", "floor %", "percent", _share_of_floor, "share of the sum of all floors", rank=8, aside=True, tree=2),
    Column("attained_percent", "roof %", "percent", _floor(lambda f: f.attained_percent), "its floor divided by its device time; over 100 where an algorithm does less than is counted (FFT, Winograd) or operands are still in a cache", rank=2, tree=1),
    Column("kernel_forward_ns", "time fwd", "ns", _time("forward"), "device time of forward kernels per step (on a CPU: self time of operators)", rank=4),
    Column("kernel_loss_ns", "time loss", "ns", _time("loss"), "device time of the loss per step", place="data"),
    Column("kernel_backward_ns", "time bwd", "ns", _time("backward", "recompute"), "device time of backward kernels per step, recomputed forward work included", when=_train, rank=4),
    Column("kernel_optimizer_ns", "time opt", "ns", _time("optimizer"), "device time of the optimizer's kernels per step", place="data"),
    Column("kernel_ns", "time step", "ns", lambda r: r.timed.step_ns if r.timed else None, "device time per step in all phases (on a CPU: self time of operators), from traced steps", tree=0),
    Column("kernel_share_percent", "time %", "percent", _share_of_time, "share of the whole step's device time", tree=0),
    Column("achieved_flops_per_s", "FLOP/s", "flops/s", achieved, "two FLOPs per MAC of the step, divided by its device time", rank=3),
    Column("family", "top kernel family", "text", lambda r: r.family, "the algorithm family of the kernels that take most of its time", place="data"),
    Column("algorithm", "most time by", "text", lambda r: family_words(r.family) if r.family else None, "the algorithm of the kernels that take most of its time (on a CPU: the kind of operator)", place="page", rank=5),
    Column("total_params", "total params", "count", _counted_total(lambda c: c.params), "parameters with descendants'", place="data"),
    Column("total_macs", "total MACs", "macs", _counted_total(lambda c: c.step.macs), "MACs of the step with descendants'", place="data"),
    Column("total_macs_forward", "total MACs fwd", "macs", _counted_total(lambda c: c.forward.macs), "MACs of the forward pass with descendants'", place="data"),
    Column("total_flops", "total FLOPs", "flops", _counted_total(lambda c: c.step.flops), "FLOPs of the step with descendants'", place="data"),
    Column("flop_counter_total_macs", "total MACs, FlopCounterMode", "macs", _peer("FlopCounterMode"), "what FlopCounterMode says of the module and its descendants, halved (`count --cross-check`)", place="data"),
    Column("fvcore_total_macs", "total MACs, fvcore", "macs", _peer("fvcore"), "what fvcore says of the module and its descendants (`count --cross-check`)", place="data"),
    Column("total_traffic_bytes", "total traffic", "bytes", _counted_total(lambda c: c.step.bytes_moved), "min traffic of the step with descendants'", place="data"),
    Column("total_saved_bytes", "total saved", "bytes", _counted_total(lambda c: c.saved_bytes), "saved bytes with descendants'", place="data"),
    Column("total_floor_ns", "total floor", "ns", lambda r: r.floor_total.floor_ns if r.floor_total else None, "sum of the floors with descendants'", place="data"),
    Column("total_kernel_ns", "total time", "ns", lambda r: r.timed_total.step_ns if r.timed_total else None, "device time per step with descendants'", place="data"),
)

OP_COLUMNS: tuple[Column[OpRow], ...] = (
    Column("op", "op", "text", lambda r: r.op, "the op as PyTorch's dispatcher names it", name=True),
    Column("phase", "phase", "text", lambda r: ", ".join(r.phases) or None, "the phases it ran in", rank=5),
    Column("calls", "calls", "count", lambda r: r.calls, "calls in one step", rank=2),
    Column("macs", "MACs", "macs", _op(lambda c: c.macs), "multiply-accumulates in all its calls", rank=4),
    Column("macs_share_percent", "MACs %", "percent", lambda r: _share(r.cost.macs, r.whole.macs) if r.cost else None, "share of the whole step's MACs", place="data"),
    Column("flops", "FLOPs", "flops", _op(lambda c: c.flops), "floating-point operations in all its calls; unknown without a formula"),
    Column("flops_share_percent", "FLOPs %", "percent", lambda r: _share(r.cost.flops, r.whole.flops) if r.cost else None, "share of the whole step's FLOPs", rank=1),
    Column("read_bytes", "read", "bytes", _op(lambda c: c.read_bytes), "operand bytes read, each operand once per call", place="data"),
    Column("write_bytes", "written", "bytes", _op(lambda c: c.write_bytes), "operand bytes written", place="data"),
    Column("traffic_bytes", "min traffic", "bytes", _op(lambda c: c.bytes_moved), "each operand of a call moved once: a lower bound on the bytes moved", rank=1),
    Column("intensity", "FLOP/B", "flops/byte", _op(cost_intensity), "arithmetic intensity: FLOPs per byte of min traffic", rank=2),
    Column("bound", "bound", "text", _op_floor(lambda f: f.binds), "what its floor is for: compute, arithmetic at the roof's peak, or memory, min traffic at the roof's bandwidth", rank=1),
    Column("floor_ns", "floor", "ns", _op_floor(lambda f: f.floor_ns), "the least time that all its calls can take under the roof", rank=1),
    Column("floor_share_percent", "floor %", "percent", _share_of_floor, "share of the sum of the ops' floors", rank=3),
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

RUN_COLUMNS: tuple[Column[RunRow], ...] = (
    Column("config", "config", "text", lambda r: r.run.config.name, "the cuDNN configuration, run in a process of its own", name=True),
    Column("failure", "failed", "text", lambda r: r.run.failure.kind.replace("_", " ") if r.run.failure else None, "why there are no samples; the message stands below the table", when=_failed, rank=12),
    Column("enabled", "enabled", "bool", lambda r: r.run.config.enabled, "cudnn.enabled", place="data"),
    Column("benchmark", "benchmark", "bool", lambda r: r.run.config.benchmark, "cudnn.benchmark", place="data"),
    Column("deterministic", "deterministic", "bool", lambda r: r.run.config.deterministic, "cudnn.deterministic", place="data"),
    Column("allow_tf32", "TF32", "bool", lambda r: r.run.config.allow_tf32, "whether convolutions may use TF32", place="data"),
    Column("repeat_of", "repeat of", "text", lambda r: r.run.config.repeat_of, "the configuration that this run repeats in a fresh process (the A/A run)", place="data"),
    Column("step_ms", "step ms", "count", lambda r: _ms(r.run.step_ns.median if r.run.step_ns else None), "median of the timed steps, without the profiler", place="page"),
    Column("step_ns", "step", "ns", lambda r: r.run.step_ns.median if r.run.step_ns else None, "median of the timed steps, without the profiler", place="data"),
    Column("step_low_ns", "low", "ns", lambda r: r.run.step_ns.low if r.run.step_ns else None, "lower end of the median's 95 % bootstrap interval", rank=8, aside=True),
    Column("step_high_ns", "high", "ns", lambda r: r.run.step_ns.high if r.run.step_ns else None, "upper end of the median's 95 % bootstrap interval", rank=8, aside=True),
    Column("step_spread", "CI ± %", "percent", _spread, "half the median's 95 % bootstrap interval, in percent of the median", place="page", rank=7),
    Column("steps", "timed steps", "count", lambda r: len(r.run.steps_ns) or None, "how many timed steps the median is of", rank=11, aside=True),
    Column("warmup_steps", "warm-up", "count", lambda r: r.run.warmup_steps if r.run.failure is None else None, "steps run and dropped before the timed ones", rank=12, aside=True),
    Column("traced_steps", "traced steps", "count", lambda r: r.run.traced_steps if r.run.failure is None else None, "further steps, under the profiler", rank=12, aside=True),
    Column("first_step_ms", "first ms", "count", lambda r: _ms(r.run.first_step_ns), "the first step of the process, tuning and lazy loading included", place="page", rank=8),
    Column("first_step_ns", "first step", "ns", lambda r: r.run.first_step_ns, "the first step of the process, tuning and lazy loading included", place="data"),
    Column("ratio", "vs first", "ratio", _ratio, "its median step divided by the baseline's, which is the first configuration that ran", when=lambda report: len(report.runs) > 1),
    Column("tuning_ns", "tuning", "ns", lambda r: r.run.tuning_ns, "what benchmark costs once: (first - steady step) minus the same with benchmark off", when=_tunes, rank=9, aside=True),
    Column("break_even_steps", "pays after", "count", break_even, "steps until the tuning is paid back; never, where it gains less than 2 %", when=_tunes, rank=3),
    Column("peak_mib", "peak MiB", "count", lambda r: _mib(r.run.peak_allocated_bytes), "most memory allocated by tensors and workspaces in the timed steps", place="page", rank=1),
    Column("peak_allocated_bytes", "peak", "bytes", lambda r: r.run.peak_allocated_bytes, "most bytes allocated by tensors and workspaces in the timed steps", place="data"),
    Column("first_step_peak_bytes", "first peak", "bytes", lambda r: r.run.first_step_peak_bytes, "most bytes allocated in the first step", rank=6, aside=True),
    Column("peak_reserved_bytes", "reserved", "bytes", lambda r: r.run.peak_reserved_bytes, "most bytes the caching allocator held in the timed steps", rank=10, aside=True),
    Column("peak_rss_bytes", "process peak", "bytes", lambda r: r.run.peak_rss_bytes, "most resident memory of the whole process, Python and libraries included", when=lambda report: all(run.peak_allocated_bytes is None for run in report.runs), rank=7),
    Column("workspace_mib", "scratch MiB", "count", lambda r: _mib(r.run.workspace_bytes), "workspace: the largest scratch memory that one op used", place="page", rank=4),
    Column("workspace_bytes", "workspace", "bytes", lambda r: r.run.workspace_bytes, "workspace: the largest scratch memory that one op used", place="data"),
    Column("kernel_shares", "time % f/l/b/o", "text", lambda r: phase_shares(r.run), "share of device time in forward / loss / backward / optimizer, in whole percent", place="page", rank=2),
    Column("forward_percent", "forward %", "percent", _kernel_share("forward"), "share of device time in forward", place="data"),
    Column("loss_percent", "loss %", "percent", _kernel_share("loss"), "share of device time in the loss", place="data"),
    Column("backward_percent", "backward %", "percent", _kernel_share("backward"), "share of device time in backward", place="data"),
    Column("optimizer_percent", "optimizer %", "percent", _kernel_share("optimizer"), "share of device time in the optimizer", place="data"),
    Column("kernel_ns", "device time", "ns", lambda r: r.run.device_ns, "device time per step, attributed or not", place="data"),
    Column("repeatable", "same bits", "bool", lambda r: r.run.repeatable, "whether two passes of one process gave the same bits, outputs and gradients", rank=5),
    Column("error", "error", "text", lambda r: _two_digits(r.run.max_relative_error), "largest output error against float64, relative to the largest output", place="page", rank=6),
    Column("max_relative_error", "error", "text", lambda r: r.run.max_relative_error, "largest output error against float64, relative to the largest output", place="data"),
    Column("trace", "trace", "text", lambda r: r.run.trace, "the Chrome trace of the traced steps", place="data"),
)

PHASE_COLUMNS: tuple[Column[PhaseRow], ...] = (
    Column("config", "config", "text", lambda r: r.config, "the configuration", place="data"),
    Column("phase", "phase", "text", lambda r: r.label, "data, transfer, forward, loss, backward, recompute, optimizer, other"),
    Column("stopwatch_ns", "stopwatch", "ns", lambda r: r.timing.stopwatch_ns, "median host time, as time.time() around the phase shows it, with no synchronisation; the loss ends in .item()"),
    Column("stopwatch_percent", "%", "percent", lambda r: _share(r.timing.stopwatch_ns, r.whole.stopwatch_ns), "share of the stopwatch's total"),
    Column("event_ns", "events", "ns", lambda r: r.timing.event_ns, "median time between CUDA events around the phase, launch gaps included"),
    Column("event_percent", "%", "percent", lambda r: _share(r.timing.event_ns, r.whole.event_ns), "share of the events' total"),
    Column("kernel_ns", "kernels", "ns", lambda r: r.timing.kernel_ns, "device time of the kernels that the phase launched, per traced step (on a CPU: self time of operators)", when=lambda report: not _on_operators(report)),
    Column("operator_ns", "operators", "ns", lambda r: r.timing.kernel_ns, "self time of the phase's operators, per traced step", when=_on_operators, place="page"),
    Column("kernel_percent", "%", "percent", lambda r: _share(r.timing.kernel_ns, r.whole.kernel_ns), "share of the kernel (or operator) time's total"),
)

KERNEL_COLUMNS: tuple[Column[KernelRow], ...] = (
    Column("config", "config", "text", lambda r: r.config, "the configuration", place="data"),
    Column("kernel_ns", "time", "ns", lambda r: r.kernel.kernel_ns, "device time per step"),
    Column("share_percent", "%", "percent", lambda r: _share(r.kernel.kernel_ns, r.device_ns), "share of the step's device time"),
    Column("calls", "calls", "count", lambda r: r.kernel.calls, "calls per step"),
    Column("family", "family", "text", lambda r: r.kernel.family or None, "its algorithm family", place="data"),
    Column("algorithm", "algorithm", "text", lambda r: family_words(r.kernel.family) if r.kernel.family else None, "its algorithm family, in words", place="page", rank=1),
    Column("op", "op", "text", lambda r: r.kernel.op, "fprop, dgrad (gradient of the input) or wgrad (gradient of the weight), where the name says", rank=3),
    Column("math", "math", "text", lambda r: r.kernel.math, "its arithmetic, where the name says", rank=2),
    Column("name", "kernel", "text", lambda r: r.kernel.name, "the kernel's (on a CPU: the operator's) name in the trace", name=True),
)

COST_COLUMNS: tuple[Column[StaticCount], ...] = (
    Column("params", "parameters", "count", lambda s: s.params, "parameters, each counted once"),
    Column("macs_forward", "MACs fwd", "macs", lambda s: s.forward.macs, "multiply-accumulates of the forward pass"),
    Column("macs_loss", "MACs loss", "macs", lambda s: s.loss.macs, "multiply-accumulates of the loss", place="data"),
    Column("macs_backward", "MACs bwd", "macs", lambda s: s.backward.macs, "multiply-accumulates of the backward pass", place="data"),
    Column("macs_recompute", "MACs recompute", "macs", lambda s: s.recompute.macs, "multiply-accumulates of forward work done again inside backward", place="data"),
    Column("macs", "MACs step", "macs", lambda s: s.step.macs, "forward + loss + backward + recompute", place="data"),
    Column("flops_forward", "FLOPs fwd", "flops", lambda s: s.forward.flops, "floating-point operations of the forward pass"),
    Column("flops_loss", "loss", "flops", lambda s: s.loss.flops, "floating-point operations of the loss", when=_train, rank=1),
    Column("flops_backward", "bwd", "flops", lambda s: s.backward.flops, "floating-point operations of the backward pass", when=_train),
    Column("flops_recompute", "recompute", "flops", lambda s: s.recompute.flops, "forward work done again inside backward", when=_recomputes),
    Column("flops", "step", "flops", lambda s: s.step.flops, "forward + loss + backward + recompute", when=_train),
    Column("traffic_bytes", "min traffic", "bytes", lambda s: s.step.bytes_moved, "each operand of the step moved once: a lower bound on the bytes moved", rank=2),
    Column("intensity", "FLOP/B", "flops/byte", lambda s: s.step.flops / s.step.bytes_moved if s.step.bytes_moved else None, "FLOPs of the step per byte of min traffic", rank=3),
    Column("saved_bytes", "saved for bwd", "bytes", lambda s: s.saved_bytes, "distinct storages kept for backward, parameters and inputs excluded", when=_train),
    Column("peak_bytes", "predicted peak", "bytes", lambda s: s.memory.peak_bytes if s.memory else None, "most tensor bytes held at once, from tensor lifetimes; without library workspaces"),
)

MEMORY_COLUMNS: tuple[Column[MemoryRow], ...] = (
    Column("source", "peak", "text", lambda m: m.source, "the tensors alone; with what a device of this kind adds; or measured in a probe step of this configuration", name=True),
    Column("peak_bytes", "bytes", "bytes", lambda m: m.peak_bytes, "most bytes held at once: the sum of the others"),
    Column("parameters", "params", "bytes", lambda m: m.parts.parameters, "parameters and buffers", rank=2),
    Column("gradients", "grads", "bytes", lambda m: m.parts.gradients, "gradients of parameters", rank=2),
    Column("optimizer_state", "optimizer", "bytes", lambda m: m.parts.optimizer_state, "the optimizer's state", rank=3),
    Column("inputs", "inputs", "bytes", lambda m: m.parts.inputs, "inputs and labels", rank=3),
    Column("saved_activations", "saved", "bytes", lambda m: m.parts.saved_activations, "activations kept for backward", rank=1),
    Column("temporaries", "others", "bytes", lambda m: m.parts.temporaries, "tensors of the moment, such as gradients of activations", rank=1),
    Column("workspace", "workspace", "bytes", lambda m: m.parts.workspace, "scratch memory of the op that peaks; unknown without a device", rank=1),
    Column("rounding", "rounding", "bytes", lambda m: m.rounding, "what the allocator adds: blocks are multiples of 512 bytes, and large ones are not always cut", rank=4),
    Column("at", "at", "text", lambda m: m.at, "where the step peaks: phase, layer, op", rank=4, name=True),
)

PEAK_COLUMNS: tuple[Column[PeakRow], ...] = (
    Column("config", "configuration", "text", lambda p: p.run.config.name, "the configuration's name", name=True),
    Column("rule_bytes", "by rules", "bytes", lambda p: p.rule_bytes, "the peak predicted without the device: scratch by rules"),
    Column("rule_off_percent", "off %", "percent", lambda p: _off(p.rule_bytes, p.run.peak_allocated_bytes), "that prediction less the measured peak, in percent of the measured"),
    Column("scratch_bytes", "with its scratch", "bytes", lambda p: p.run.predicted.allocated_bytes if p.run.predicted else None, "the peak predicted with the scratch that each op was seen to take in this configuration"),
    Column("scratch_off_percent", "off %", "percent", lambda p: _off(p.run.predicted.allocated_bytes if p.run.predicted else None, p.run.peak_allocated_bytes), "that prediction less the measured peak, in percent of the measured"),
    Column("measured_bytes", "measured", "bytes", lambda p: p.run.peak_allocated_bytes, "most bytes allocated in the timed steps"),
    Column("at", "predicted at", "text", lambda p: p.at, "where the step peaks by the last prediction: phase, layer, op", rank=1, name=True),
    Column("measured_at", "measured at", "text", lambda p: p.measured_at, "where the probed step peaked", rank=2, name=True),
)

KEPT_COLUMNS: tuple[Column[ModuleMemory], ...] = (
    Column("layer", "layer", "text", lambda m: m.path or "(root)", "the module whose op it is", name=True),
    Column("created_bytes", "made", "bytes", lambda m: m.created_bytes, "kept for backward and made by its own ops; sums to the total"),
    Column("saved_bytes", "kept first", "bytes", lambda m: m.saved_bytes, "kept for backward and kept first by its own ops; sums to the total"),
    Column("held_bytes", "kept", "bytes", lambda m: m.held_bytes, "all that its own ops keep, with what others keep too"),
    Column("inside_bytes", "within", "bytes", lambda m: m.inside_bytes, "made and kept within it and its parts alone: what checkpointing it lets go of", rank=1),
)

TIMELINE_COLUMNS: tuple[Column[MemoryPoint], ...] = (
    Column("at", "at", "text", lambda p: p.at or "(root)", "phase and layer, in the order of the step", name=True),
    Column("bytes", "held", "bytes", lambda p: p.bytes, "most bytes of tensors held there"),
)

WHAT_IF_COLUMNS: tuple[Column[WhatIf], ...] = (
    Column("change", "what if", "text", lambda w: w.change, "what is changed", name=True),
    Column("allocated_bytes", "peak", "bytes", lambda w: w.allocated_bytes, "most bytes allocated, with likely scratch"),
    Column("difference_bytes", "change", "bytes", lambda w: w.difference_bytes, "the peak beyond that of the step as it is: negative is less", rank=1),
    Column("allocated_low_bytes", "at least", "bytes", lambda w: w.allocated_low_bytes, "the peak with as little scratch as may be", rank=2),
    Column("allocated_high_bytes", "at most", "bytes", lambda w: w.allocated_high_bytes, "the peak with as much scratch as may be", rank=2),
    Column("total_bytes", "device holds", "bytes", lambda w: w.total_bytes, "what has to fit: reserved memory and context, with likely scratch"),
    Column("total_high_bytes", "at most holds", "bytes", lambda w: w.total_high_bytes, "the same with as much scratch as may be", rank=3),
    Column("saved_bytes", "kept for backward", "bytes", lambda w: w.saved_bytes, "kept for backward, parameters and inputs excluded", when=_train, rank=5),
    Column("recompute_flops", "FLOPs again", "flops", lambda w: w.recompute_flops, "FLOPs of forward that backward computes again", when=_train, rank=4),
    Column("recompute_percent", "FLOPs added %", "percent", lambda w: w.recompute_percent, "what is computed again, as a share of the step's FLOPs", when=_train),
    Column("recompute_ns", "time added", "ns", lambda w: w.recompute_ns, "the least time that computing again takes: computed from the roofline of --hardware, not measured", when=_train),
    Column("fits", "fits", "text", lambda w: w.fits, "into the memory asked for: surely, likely or not"),
)

SCRATCH_COLUMNS: tuple[Column[LibraryScratch], ...] = (
    Column("layer", "layer", "text", lambda s: s.path or "(root)", "the module whose op it is", name=True),
    Column("phase", "phase", "text", lambda s: s.phase, "the phase it runs in"),
    Column("op", "op", "text", lambda s: s.op, "the op", name=True),
    Column("low_bytes", "at least", "bytes", lambda s: s.low_bytes, "scratch that it takes at least"),
    Column("likely_bytes", "likely", "bytes", lambda s: s.likely_bytes, "scratch that the prediction takes"),
    Column("high_bytes", "at most", "bytes", lambda s: s.high_bytes, "scratch that it takes at most"),
    Column("source", "from", "text", lambda s: s.source, "where that is known from", rank=1, name=True),
)

WORKSPACE_COLUMNS: tuple[Column[OpMemory], ...] = (
    Column("layer", "layer", "text", lambda o: o.path or "(root)", "the module whose op it is", name=True),
    Column("phase", "phase", "text", lambda o: o.phase, "the phase it ran in"),
    Column("op", "op", "text", lambda o: o.op, "the op", name=True),
    Column("before_bytes", "live before", "bytes", lambda o: o.before_bytes, "bytes live when it began", rank=1),
    Column("growth_bytes", "returned", "bytes", lambda o: o.growth_bytes, "bytes more that were live when it had ended", rank=2),
    Column("workspace_bytes", "workspace", "bytes", lambda o: o.workspace_bytes, "its peak beyond both"),
)

CONVOLUTION_COLUMNS: tuple[Column[ConvolutionRow], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "the configuration's name", place="data"),
    Column("layer", "layer", "text", lambda r: r.label, "the module that the convolution is of", place="page", name=True),
    Column("path", "path", "text", _part(lambda t: t.path), "the module's path as named_modules() gives it, the root's is empty", place="data"),
    Column("part", "part", "text", _part(lambda t: t.part), "fprop: forward; dgrad: the gradient by the input; wgrad: by the weight"),
    Column("algorithm", "algorithm", "text", _part(lambda t: family_words(t.family)), "how it was done: the kernels that take most of the time beside layout conversion", place="page", rank=1),
    Column("arithmetic", "arithmetic", "text", _part(lambda t: math_words(t.math) if t.math else None), "what its kernels multiply in, by their names; not by the flags", place="page", rank=1),
    Column("family", "kernel family", "text", _part(lambda t: t.family), "the same algorithm, as `kernels` calls it", place="data"),
    Column("math", "math", "text", _part(lambda t: t.math), "the same arithmetic, as `kernels` calls it", place="data"),
    Column("tensor_core", "tensor cores", "bool", _part(lambda t: t.tensor_core), "a kernel's name says that it runs on tensor cores", place="data"),
    Column("kernel", "kernel", "text", _part(lambda t: t.kernel), "the longest of these kernels", place="data", name=True),
    Column("calls", "calls", "count", _part(lambda t: t.calls), "calls in one step, forward work done again included", place="data"),
    Column("kernel_ns", "time", "ns", lambda r: r.kernel_ns, "device time per step of all that the part launches"),
    Column("kernel_share_percent", "time %", "percent", lambda r: _share(r.kernel_ns, r.whole_ns), "share of the device time of all convolutions", rank=4),
    Column("layout_ns", "of it layout", "ns", lambda r: r.layout_ns, "the part of that time that only converts between NCHW and NHWC", rank=2),
    Column("macs", "MACs", "macs", _part(lambda t: t.macs), "multiply-accumulates that the part is asked for; unknown where its module has other products too", place="data"),
    Column("flops_per_s", "FLOP/s", "flops/s", _part(lambda t: t.flops_per_s), "two FLOPs per MAC asked for, divided by the time: the effective rate"),
    Column("peak_flops_per_s", "peak FLOP/s", "flops/s", lambda r: r.peak_flops_per_s, "what the device reaches in that arithmetic", place="data"),
    Column("peak_percent", "peak %", "percent", _rate_share, "the effective rate in percent of what the device reaches in that arithmetic: over 100 where an algorithm does less than is asked for (FFT, Winograd)", rank=1),
    Column("floor_ns", "floor", "ns", lambda r: r.floor_ns, "the least time under the roof: its MACs at that peak, or its operands, each moved once, at the bandwidth", place="data"),
    Column("attained_percent", "roof %", "percent", lambda r: _share(r.floor_ns, r.kernel_ns), "that floor divided by the time", rank=3),
    Column("workspace_bytes", "workspace", "bytes", _part(lambda t: t.workspace_bytes), "the most that a call took beyond its inputs and outputs while it ran", rank=2),
    Column("executed_ratio", "executed", "ratio", lambda r: r.executed_ratio, "operations that hardware counters saw executed, over two per MAC asked for: above 1 tiles pad, below 1 the algorithm saves (FFT, Winograd)", rank=1),
    Column("executed_flops", "executed FLOPs", "flops", _part(lambda t: t.counters.flops if t.counters else None), "operations executed, by hardware counters", place="data"),
    Column("dram_bytes", "DRAM", "bytes", _part(lambda t: t.counters.dram_bytes if t.counters else None), "bytes read from and written to the device's memory, by hardware counters", rank=2),
)

CHANGE_COLUMNS: tuple[Column[ChangeRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.label, "the module that the convolution is of", name=True),
    Column("part", "part", "text", lambda r: r.before.part, "fprop: forward; dgrad: the gradient by the input; wgrad: by the weight"),
    Column("from", "from", "text", lambda r: r.baseline, "the configuration that the others are compared with", rank=3),
    Column("to", "to", "text", lambda r: r.config, "the configuration compared with it", name=True),
    Column("differs", "differs", "text", lambda r: r.differs, "the first that differs of: algorithm, its arithmetic, the kernel (with its time), the time alone", rank=4),
    Column("before", "was", "text", lambda r: algorithm_words(r.before), "how the first configuration does it", rank=1),
    Column("before_ns", "took", "ns", lambda r: r.before.kernel_ns, "the device time there"),
    Column("after", "is", "text", lambda r: algorithm_words(r.after), "how the other does it", rank=1),
    Column("after_ns", "takes", "ns", lambda r: r.after.kernel_ns, "the device time there"),
    Column("ratio", "time x", "ratio", lambda r: r.after.kernel_ns / r.before.kernel_ns if r.before.kernel_ns else None, "the time there over the time before", rank=2),
    Column("before_workspace_bytes", "workspace was", "bytes", lambda r: r.before.workspace_bytes, "scratch in the first configuration", rank=5),
    Column("after_workspace_bytes", "workspace is", "bytes", lambda r: r.after.workspace_bytes, "scratch in the other", rank=5),
)

CEILING_COLUMNS: tuple[Column[CeilingRow], ...] = (
    Column("what", "what", "text", lambda r: r.what, "the arithmetic of a square matrix product, or a copy within the device's memory"),
    Column("rows", "matrix rows", "count", lambda r: r.rows, "rows and columns of the matrices: the size that was fastest", rank=1),
    Column("copied_bytes", "copied", "bytes", lambda r: r.copied_bytes, "bytes copied, far beyond any cache", rank=2),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.flops_per_s, "median FLOP/s reached"),
    Column("sheet_flops_per_s", "datasheet FLOP/s", "flops/s", lambda r: r.sheet_flops_per_s, "the datasheet's peak, dense"),
    Column("bytes_per_s", "bytes/s", "bytes/s", lambda r: r.bytes_per_s, "median of bytes read and written per second"),
    Column("sheet_bytes_per_s", "datasheet bytes/s", "bytes/s", lambda r: r.sheet_bytes_per_s, "the datasheet's memory bandwidth"),
    Column("reached_percent", "reached %", "percent", lambda r: _share(r.flops_per_s, r.sheet_flops_per_s) if r.bytes_per_s is None else _share(r.bytes_per_s, r.sheet_bytes_per_s), "measured in percent of the datasheet's"),
    Column("spread", "CI ± %", "percent", lambda r: r.spread_percent, "half the median's 95 % interval, in percent of it: the noise of this machine"),
)

DEVICE_COLUMNS: tuple[Column[Device], ...] = (
    Column("device", "--device", "text", lambda d: d.id, "what --device calls it"),
    Column("name", "name", "text", lambda d: d.name, "what torch calls it", name=True),
    Column("memory_bytes", "memory", "bytes", lambda d: d.memory_bytes, "its memory in all"),
    Column("capability", "capability", "text", lambda d: d.capability, "CUDA compute capability"),
)

CONFIG_COLUMNS: tuple[Column[RunConfig], ...] = (
    Column("config", "configuration", "text", lambda c: c.name, "its name for --configs", name=True),
    Column("enabled", "enabled", "bool", lambda c: c.enabled, "cudnn.enabled"),
    Column("benchmark", "benchmark", "bool", lambda c: c.benchmark, "cudnn.benchmark"),
    Column("deterministic", "deterministic", "bool", lambda c: c.deterministic, "cudnn.deterministic"),
    Column("allow_tf32", "TF32", "bool", lambda c: c.allow_tf32, "cudnn.allow_tf32"),
)

PACKAGE_COLUMNS: tuple[Column[Package], ...] = (
    Column("package", "package", "text", lambda p: p.name, "its name"),
    Column("version", "version", "text", lambda p: p.version, "the installed version; a dash where it is not installed"),
    Column("purpose", "needed for", "text", lambda p: p.purpose, "what the tool does with it"),
)

FINDING_COLUMNS: tuple[Column[Finding], ...] = (
    Column("rule", "rule", "text", lambda f: f.rule, "the rule that fired"),
    Column("severity", "severity", "text", lambda f: f.severity, "high, medium, low or info"),
    Column("title", "title", "text", lambda f: f.title, "what was found, in one line"),
    Column("explanation", "explanation", "text", lambda f: f.explanation, "why"),
    Column("advice", "advice", "text", lambda f: f.advice, "what to do"),
    Column("paths", "paths", "text", lambda f: " ".join(path or "(root)" for path in f.paths), "the layers it is about"),
    Column("config", "config", "text", lambda f: f.config, "the configuration that tries the advice"),
    Column("verdict", "verdict", "text", lambda f: f.trial.verdict if f.trial else None, "what came of trying the advice"),
    Column("evidence", "evidence", "text", lambda f: "; ".join(f"{e.name} = {e.value} {e.unit}" for e in f.evidence), "the numbers that fired it"),
)

UNCOUNTED_COLUMNS: tuple[Column[UncountedOp], ...] = (
    Column("op", "op", "text", lambda o: o.op, "the op for which no formula is known", name=True),
    Column("calls", "calls", "count", lambda o: o.calls, "calls in one step"),
    Column("paths", "in", "text", lambda o: ", ".join(path or "(root)" for path in o.paths), "the modules that call it", name=True),
)

CROSS_CHECK_COLUMNS: tuple[Column[PeerRow], ...] = (
    Column("peer", "peer", "text", lambda r: r.check.peer, "the other counter", place="data"),
    Column("peer_version", "version", "text", lambda r: r.check.version, "its version", place="data"),
    Column("op", "op", "text", lambda r: r.row.op, "the op, as the peer calls it; not explained: what the peer says beyond its own formulas", name=True),
    Column("phase", "phase", "text", lambda r: r.row.phase, "forward, loss, backward or recompute", rank=2),
    Column("path", "path", "text", lambda r: r.row.path, "the module it ran in", place="data"),
    Column("calls", "calls", "count", lambda r: r.row.calls or None, "calls in one step", rank=4),
    Column("kit_macs", "kit", "macs", lambda r: r.row.kit_macs, "multiply-accumulates by the kit's own convention"),
    Column("peer_macs", "peer", "macs", lambda r: r.row.peer_macs, "by the peer, whose FLOPs are halved where it takes two for a MAC"),
    Column("difference_macs", "difference", "macs", lambda r: r.row.peer_macs - r.row.kit_macs, "the peer's less the kit's"),
    Column("in", "in", "text", lambda r: _some_paths(r.paths), "the modules it ran in", place="page", rank=3, name=True),
    Column("reason", "why", "text", lambda r: r.row.reason or None, "why they differ", place="data"),
)

CROSS_CHECK_LAYER_COLUMNS: tuple[Column[PeerLayerRow], ...] = (
    Column("layer", "layer", "text", lambda r: r.layer.path or "(root)", "the module, its descendants included", name=True),
    Column("kit_macs", "kit", "macs", lambda r: r.layer.kit_macs, "multiply-accumulates by the kit's own convention"),
    Column("expected_macs", "its formulas", "macs", lambda r: r.layer.expected_macs, "what the peer's formulas give for the module's ops", rank=1),
    Column("peer_macs", "peer", "macs", lambda r: r.layer.peer_macs, "what the peer says of the module"),
    Column("reason", "why", "text", lambda r: r.reason, "why they differ"),
)

SCHEDULE_COLUMNS: tuple[Column[ShapeSchedule], ...] = (
    Column("config", "configuration", "text", lambda s: s.config, "the configuration it ran under", name=True),
    Column("source", "shapes from", "text", lambda s: s.source, "generated, given, or the name of a recorded file", place="data"),
    Column("shapes", "shapes", "count", lambda s: len([t for t in shape_times(s) if not t.last_batch]), "different shapes, smaller last batches aside", rank=4),
    Column("steps", "steps", "count", lambda s: len(s.steps), "steps that ran", rank=5),
    Column("cycle_1_ns", "cycle 1", "ns", lambda s: cycle_ns(s, 1), "all steps of the first pass over the shapes; a dash where it broke off"),
    Column("cycle_2_ns", "cycle 2", "ns", lambda s: cycle_ns(s, 2), "all steps of the second pass"),
    Column("cycle_3_ns", "cycle 3", "ns", lambda s: cycle_ns(s, 3), "all steps of the third pass"),
    Column("total_ns", "all steps", "ns", lambda s: total_ns(s) if s.steps else None, "all steps together", place="data"),
    Column("new_ns", "new shape", "ns", new_ns, "median step of a shape that had not come before"),
    Column("seen_ns", "seen shape", "ns", seen_ns, "median step of a shape that had come before"),
    Column("factor", "new / seen", "ratio", new_factor, "a shape's first step over its later ones, shape by shape: the median", rank=2),
    Column("last_batch_ns", "last batch new", "ns", lambda s: t.first_ns if (t := last_batch(s)) else None, "the first step of a batch smaller than the others, as a data set's last one is", rank=1),
    Column("last_batch_seen_ns", "last batch seen", "ns", lambda s: t.seen_ns if (t := last_batch(s)) else None, "the median of its later steps", rank=3),
    Column("failure", "failure", "text", lambda s: s.failure, "why it broke off", place="data"),
)

SHAPE_COLUMNS: tuple[Column[ShapeTime], ...] = (
    Column("shape", "shape", "text", lambda t: shape_text(t.shape), "the shape of the input that changes", name=True),
    Column("config", "configuration", "text", lambda t: t.config, "the configuration it ran under", name=True),
    Column("steps", "steps", "count", lambda t: t.steps, "how often it came", rank=2),
    Column("first_ns", "first step", "ns", lambda t: t.first_ns, "its first step"),
    Column("seen_ns", "later", "ns", lambda t: t.seen_ns, "the median of its later steps"),
    Column("factor", "first / later", "ratio", lambda t: t.factor, "how many times as long the first one took"),
    Column("peak_bytes", "peak", "bytes", lambda t: t.peak_bytes, "most bytes allocated in one of its steps", rank=1),
    Column("last_batch", "last batch", "bool", lambda t: t.last_batch, "whether it is a smaller last batch", place="data"),
)

# Every table with a page in the reference; those of `data_tables` are also data frames.
TABLES: dict[str, tuple[Column[Any], ...]] = {
    "layers": LAYER_COLUMNS,
    "ops": OP_COLUMNS,
    "runs": RUN_COLUMNS,
    "phases": PHASE_COLUMNS,
    "kernels": KERNEL_COLUMNS,
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
}
# fmt: on
