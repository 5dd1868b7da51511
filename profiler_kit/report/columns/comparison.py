"""The columns of a comparison of two reports. In titles, `{a}` and `{b}` are the two sides and `{clock}` is the clock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.comparison import Explanation, LayerChange, LayerEfficiency, MetricRow, TimeRatio
from profiler_kit.records.counts import Phase
from profiler_kit.records.edits import CheckpointGroup, Edit, LayerGroup
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import Column, ColumnTable, share
from profiler_kit.units import Unit, signed, text

CHANGE_CHARACTERS: Final = 160  # longest description of a change in a page; JSON and CSV have all of it
DOMINANT_SHARE: Final = 0.9  # of a phase's time: from here on an algorithm's share is not shown


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakPart:
    """One category of both sides' peaks, or both peaks, in bytes; None is unknown. `config`: as in `MemorySplit`."""

    title: str
    a: int | None
    b: int | None
    config: str | None = None

    @property
    def change(self) -> int | None:
        """The second side's bytes minus the first's; None where one is unknown."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasonRow:
    """One part of the difference of one metric: the fields of `ReasonPart`, with the metric's name and unit."""

    metric: str
    config: str | None
    unit: Unit
    role: str
    title: str
    edits: str
    change: int
    layers: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRow:
    """One layer and phase of a side, several layers, or the whole step. `beyond_ns`: as in `LayerEfficiency`."""

    side: str
    title: str
    phase: Phase | None = None
    device_ns: int
    step_ns: int
    flops_per_s: float | None = None
    beyond_ns: int
    layer: LayerEfficiency | None = None


def _shortened_change(row: LayerChange | LayerGroup | CheckpointGroup) -> str:
    return row.change if len(row.change) <= CHANGE_CHARACTERS else row.change[: CHANGE_CHARACTERS - 3] + "..."


def _algorithm(row: EfficiencyRow) -> str | None:
    """The algorithm with the most time, with its share unless it dominates: ``dgrad FFT in fp32 (61 %)``."""
    if row.layer is None or not row.layer.algorithms:
        return None
    longest, count = row.layer.algorithms[0], len(row.layer.algorithms)
    part = f"{longest.part} " if longest.part is not None and count > 1 else ""
    percent = f" ({100 * row.layer.first_share:.0f} %)" if row.layer.first_share < DOMINANT_SHARE else ""
    return f"{part}{longest.words}{percent}"


def _verdict(row: Explanation) -> str:
    if row.verdict != "off":
        return row.verdict
    return f"off by {text(row.off_by, 'ratio')}" if row.off_by is not None else "in part"


# fmt: off
# ruff: noqa: E501 - one column, one line
METRIC_COLUMNS: tuple[Column[MetricRow], ...] = (
    Column("title", "Metric", "text", lambda r: r.title, "the compared metric", place="page"),
    Column("metric", "metric", "text", lambda r: r.metric, "the compared metric, as `--budget` and JSON name it", place="data"),
    Column("config", "Configuration", "text", lambda r: r.config, "the configuration of the measurement; empty for counted metrics"),
    Column("unit", "unit", "text", lambda r: r.unit, "the unit of both values", place="data"),
    Column("a_text", "{a}", "text", lambda r: text(r.a, r.unit), "the value of the first side", place="page"),
    Column("a", "a", "count", lambda r: r.a, "the value of the first side, in the row's unit", place="data"),
    Column("b_text", "{b}", "text", lambda r: text(r.b, r.unit), "the value of the second side", place="page"),
    Column("b", "b", "count", lambda r: r.b, "the value of the second side, in the row's unit", place="data"),
    Column("ratio", "Ratio", "ratio", lambda r: r.ratio, "second value divided by the first; below 1 is better"),
    Column("verdict_text", "{b} is", "text", lambda r: r.verdict.replace("_", " "), "better or worse; noise: the difference is not larger than the difference between repeated runs", place="page", rank=1),
    Column("verdict", "verdict", "text", lambda r: r.verdict, "better, worse, same, noise, failed or not_comparable", place="data"),
    Column("reason", "reason", "text", lambda r: r.reason, "the reason for noise, failed or not_comparable", place="data"),
)

RATIO_COLUMNS: tuple[Column[TimeRatio], ...] = (
    Column("config", "Configuration", "text", lambda r: r.config, "the configuration, measured on both sides"),
    Column("a_ns", "{a} step", "ns", lambda r: r.a_ns, "median step time of the first side", rank=2),
    Column("b_ns", "{b} step", "ns", lambda r: r.b_ns, "median step time of the second side", rank=2),
    Column("time_ratio", "Time", "ratio", lambda r: r.time_ratio, "second step time divided by the first: work ratio divided by efficiency ratio"),
    Column("work_ratio", "Work", "ratio", lambda r: r.work_ratio, "second side's counted FLOPs per step divided by the first side's", rank=1),
    Column("efficiency_ratio", "Efficiency", "ratio", lambda r: r.efficiency_ratio, "second side's FLOP/s divided by the first side's", rank=1),
    Column("a_flops_per_s", "{a} FLOP/s", "flops/s", lambda r: r.a_flops_per_s, "first side's counted FLOPs per second of its step", rank=3),
    Column("b_flops_per_s", "{b} FLOP/s", "flops/s", lambda r: r.b_flops_per_s, "second side's counted FLOPs per second of its step", rank=3),
)

PEAK_PART_COLUMNS: tuple[Column[PeakPart], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "the configuration of the measurement; empty for predicted peaks", place="data"),
    Column("part", "Part of the peak", "text", lambda r: r.title, "the category of memory; the known parts of a side sum to its peak"),
    Column("a_bytes", "{a}", "bytes", lambda r: r.a, "bytes on the first side"),
    Column("b_bytes", "{b}", "bytes", lambda r: r.b, "bytes on the second side"),
    Column("change", "Difference", "bytes", lambda r: r.change, "second side's bytes minus the first side's", place="page", signed=True),
    Column("change_bytes", "difference", "bytes", lambda r: r.change, "second side's bytes minus the first side's", place="data"),
)

LAYER_CHANGE_COLUMNS: tuple[Column[LayerChange], ...] = (
    Column("role", "Role", "text", lambda r: r.role, "edited: the layer itself was changed; affected: only its figures changed"),
    Column("kind", "Kind", "text", lambda r: r.kind, "changed, added, removed, renamed or same"),
    Column("layer", "Layer", "text", lambda r: shown_path(r.path), "the module's path in the second side, or in the first where the second lacks it", place="page", name=True),
    Column("a_path", "path in a", "text", lambda r: r.a_path, "the module's path in the first side", place="data"),
    Column("b_path", "path in b", "text", lambda r: r.b_path, "the module's path in the second side", place="data"),
    Column("class_name", "class", "text", lambda r: r.class_name, "the module's class", place="data"),
    Column("change_text", "What changed", "text", _shortened_change, "the difference between the two versions of the layer, shortened", place="page", rank=1),
    Column("change", "change", "text", lambda r: r.change, "the difference between the two versions of the layer", place="data"),
    Column("flops_change", "FLOPs, step", "flops", lambda r: r.b.flops - r.a.flops, "second side's FLOPs per step minus the first side's", place="page", signed=True),
    Column("a_flops", "FLOPs in a", "flops", lambda r: r.a.flops, "FLOPs per step, first side", place="data"),
    Column("b_flops", "FLOPs in b", "flops", lambda r: r.b.flops, "FLOPs per step, second side", place="data"),
    Column("a_macs", "MACs in a", "macs", lambda r: r.a.macs, "multiply-accumulates per step, first side", place="data"),
    Column("b_macs", "MACs in b", "macs", lambda r: r.b.macs, "multiply-accumulates per step, second side", place="data"),
    Column("params_change", "Parameters", "count", lambda r: r.b.params - r.a.params, "second side's parameter count minus the first side's", place="page", rank=3, signed=True),
    Column("a_forward_flops", "forward FLOPs in a", "flops", lambda r: r.a.forward_flops, "FLOPs of the forward pass, first side", place="data"),
    Column("b_forward_flops", "forward FLOPs in b", "flops", lambda r: r.b.forward_flops, "FLOPs of the forward pass, second side", place="data"),
    Column("a_backward_flops", "backward FLOPs in a", "flops", lambda r: r.a.backward_flops, "FLOPs of the backward pass with recomputation, first side", place="data"),
    Column("b_backward_flops", "backward FLOPs in b", "flops", lambda r: r.b.backward_flops, "FLOPs of the backward pass with recomputation, second side", place="data"),
    Column("a_params", "parameters in a", "count", lambda r: r.a.params, "parameter count, first side", place="data"),
    Column("b_params", "parameters in b", "count", lambda r: r.b.params, "parameter count, second side", place="data"),
    Column("saved_change", "Saved", "bytes", lambda r: r.b.saved_bytes - r.a.saved_bytes, "bytes saved for backward, second side minus first side", place="page", rank=2, signed=True),
    Column("a_saved_bytes", "saved in a", "bytes", lambda r: r.a.saved_bytes, "bytes saved for backward, first side", place="data"),
    Column("b_saved_bytes", "saved in b", "bytes", lambda r: r.b.saved_bytes, "bytes saved for backward, second side", place="data"),
    Column("device_change", "{clock}", "ns", lambda r: r.device_ns_change, "device time per step (on a CPU: self time of operators), second side minus first side", place="page", signed=True),
    Column("a_device_ns", "time in a", "ns", lambda r: r.a.device_ns, "device time per step (on a CPU: self time of operators), first side", place="data"),
    Column("b_device_ns", "time in b", "ns", lambda r: r.b.device_ns, "device time per step (on a CPU: self time of operators), second side", place="data"),
    Column("contribution", "contribution", "fraction", lambda r: r.contribution, "the layer's largest share of any total change (FLOPs, parameters, saved bytes or time)", place="data"),
)

LAYER_GROUP_COLUMNS: tuple[Column[LayerGroup], ...] = (
    Column("role", "Role", "text", lambda r: r.role, "edited: the layers themselves were changed; affected: only their figures changed"),
    Column("subject", "What", "text", lambda r: r.subject, "the edited modules or setting, or the subtree of affected layers; a star stands for different numbers", name=True),
    Column("change_text", "Change", "text", _shortened_change, "the edit, or its effect on these layers, shortened", place="page", rank=1),
    Column("change", "change", "text", lambda r: r.change, "the edit, or its effect on these layers", place="data"),
    Column("layers", "Layers", "count", lambda r: r.layers, "the number of layers in the row"),
    Column("flops_change", "FLOPs, step", "flops", lambda r: r.figures.flops, "second side's FLOPs per step minus the first side's", place="page", signed=True),
    Column("flops", "FLOPs", "flops", lambda r: r.figures.flops, "FLOPs per step, second side minus first side", place="data"),
    Column("params_change", "Parameters", "count", lambda r: r.figures.params, "second side's parameter count minus the first side's", place="page", rank=3, signed=True),
    Column("params", "parameters", "count", lambda r: r.figures.params, "parameter count, second side minus first side", place="data"),
    Column("saved_change", "Saved", "bytes", lambda r: r.figures.saved, "bytes saved for backward, second side minus first side", place="page", rank=2, signed=True),
    Column("saved_bytes", "saved", "bytes", lambda r: r.figures.saved, "bytes saved for backward, second side minus first side", place="data"),
    Column("device_change", "{clock}", "ns", lambda r: r.device_ns, "device time per step (on a CPU: self time of operators), second side minus first side", place="page", signed=True),
    Column("device_ns", "time", "ns", lambda r: r.device_ns, "device time per step (on a CPU: self time of operators), second side minus first side", place="data"),
)

EDIT_COLUMNS: tuple[Column[Edit], ...] = (
    Column("kind", "Kind", "text", lambda r: r.kind, "target, settings, added, removed, replaced, class_renamed, renamed, repeated, forward or shared"),
    Column("subject", "What", "text", lambda r: r.subject, "what was edited", name=True),
    Column("change", "Change", "text", lambda r: r.change, "the edit"),
    Column("a_path", "path in a", "text", lambda r: r.a_path, "the edited module in the first side, or the innermost that contains all", place="data"),
    Column("b_path", "path in b", "text", lambda r: r.b_path, "the edited module in the second side, or the innermost that contains all", place="data"),
    Column("modules", "Modules", "count", lambda r: r.modules, "the number of edited modules"),
    Column("flops", "FLOPs", "flops", lambda r: r.figures.flops, "FLOPs per step of the edited layers themselves, second side minus first side", place="data"),
    Column("params", "parameters", "count", lambda r: r.figures.params, "parameters of the edited layers themselves, second side minus first side", place="data"),
    Column("saved_bytes", "saved", "bytes", lambda r: r.figures.saved, "bytes that the edited layers themselves save for backward, second side minus first side", place="data"),
)

REASON_COLUMNS: tuple[Column[ReasonRow], ...] = (
    Column("metric", "Metric", "text", lambda r: r.metric, "the metric that differs"),
    Column("config", "configuration", "text", lambda r: r.config, "the configuration of the measurement; empty for counted metrics", place="data"),
    Column("role", "Role", "text", lambda r: r.role, "edit (the edited layers), consequence (affected layers), memory (a category of the peak), ops (an uncounted op), time, or remainder"),
    Column("part", "Part", "text", lambda r: r.title, "the part of the difference"),
    Column("edits", "edits", "text", lambda r: r.edits, "the edits that cause it; with several, their effects cannot be separated", place="data"),
    Column("layers", "Layers", "count", lambda r: r.layers or None, "the number of layers"),
    Column("change_text", "Difference", "text", lambda r: signed(r.change, r.unit), "second side minus first side; the parts of a metric sum to its difference exactly", place="page"),
    Column("change", "difference", "count", lambda r: r.change, "second side minus first side, in the metric's unit; the parts of a metric sum to its difference exactly", place="data"),
)

CHECKPOINT_COLUMNS: tuple[Column[CheckpointGroup], ...] = (
    Column("kind", "Keys", "text", lambda r: r.kind, "missing (only the second model has the key), unexpected (only the first has it), reshaped, or renamed (both of these)"),
    Column("path", "Module", "text", lambda r: shown_path(r.path), "the module in the second model, or in the first where the second lacks it", name=True),
    Column("a_path", "path in a", "text", lambda r: r.a_path, "the module in the first model", place="data"),
    Column("keys", "Number", "count", lambda r: r.keys, "the number of keys"),
    Column("change_text", "Example", "text", _shortened_change, "one key with its shape, or the renaming", place="page", rank=1),
    Column("change", "example", "text", lambda r: r.change, "one key with its shape, or the renaming", place="data"),
)

EFFICIENCY_COLUMNS: tuple[Column[EfficiencyRow], ...] = (
    Column("side", "Side", "text", lambda r: r.side, "the report; the slower side comes first", name=True),
    Column("layer", "Layer", "text", lambda r: r.title, "the layer; other layers in one row; other time (outside layers); or the whole step", name=True),
    Column("phase", "Phase", "text", lambda r: r.phase, "the phase; recomputed forward work counts as backward"),
    Column("device_ns", "{clock}", "ns", lambda r: r.device_ns, "device time per step (on a CPU: self time of operators)"),
    Column("share", "Share", "percent", lambda r: share(r.device_ns, r.step_ns), "share of the step's device time", rank=3, share=True),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.flops_per_s, "counted FLOPs divided by device time"),
    Column("algorithm", "Main algorithm", "text", _algorithm, "the algorithm with the most time, with its arithmetic", rank=1),
    Column("beyond", "Excess time", "ns", lambda r: r.beyond_ns, "device time minus the time that the FLOPs take at the faster side's rate", signed=True),
)

EXPLANATION_COLUMNS: tuple[Column[Explanation], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "the configuration of the test; empty where counts alone decide", place="data"),
    Column("explanation", "Explanation", "text", lambda r: r.explanation, "a common explanation of such a difference"),
    Column("predicts", "Predicts", "text", lambda r: r.predicts, "the figure that the explanation predicts", rank=1),
    Column("measured", "Measured", "text", lambda r: r.measured, "the measured or counted figure"),
    Column("verdict", "Verdict", "text", _verdict, "right, in part, wrong (the opposite, or no effect), or off by this factor"),
)

TABLES = (
    ColumnTable("metrics", METRIC_COLUMNS, "`compare`: one row per metric and configuration."),
    ColumnTable("times", RATIO_COLUMNS, "`compare`: the step-time ratio split into work and efficiency, one row per configuration."),
    ColumnTable("peak_parts", PEAK_PART_COLUMNS, "`compare`: both memory peaks by category, measured under a configuration or predicted."),
    ColumnTable("layer_groups", LAYER_GROUP_COLUMNS, "`compare` and `check`: the changed layers in few rows, by edit and by affected subtree."),
    ColumnTable("edits", EDIT_COLUMNS, "`compare` and `check`: what was edited between the two sides."),
    ColumnTable("reasons", REASON_COLUMNS, "`compare` and `check`: the parts of each metric's difference."),
    ColumnTable("checkpoint", CHECKPOINT_COLUMNS, "`compare` and `check`: state-dict keys that a checkpoint of the first side lacks or has in excess, by module."),
    ColumnTable("layer_changes", LAYER_CHANGE_COLUMNS, "`compare` and `check`: one row per layer of either side, excluding children. `compare -o FILE.csv` writes this table."),
    ColumnTable("efficiency", EFFICIENCY_COLUMNS, "`compare`: each side's step by layer. The excess times add up to the efficiency part of the difference."),
    ColumnTable("explanations", EXPLANATION_COLUMNS, "`compare`: common explanations, tested against the measurements."),
)
# fmt: on
