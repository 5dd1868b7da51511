"""The columns of two reports beside each other. In titles `{a}` and `{b}` are the two sides, `{clock}` is what was timed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.comparison import Explanation, LayerChange, LayerEfficiency, MetricRow, TimeRatio
from profiler_kit.records.counts import Phase
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share
from profiler_kit.units import Unit, signed, text

CHANGE_CHARACTERS: Final = 160  # of the words about one layer, in tables for people; JSON and CSV hold them whole
ALONE_SHARE: Final = 0.9  # of a phase's time: an algorithm that takes as much needs no share beside its name


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakPart:
    """A part of both sides' peaks, or the whole peaks, in bytes; None is unknown."""

    title: str
    a: int | None
    b: int | None

    @property
    def change(self) -> int | None:
        """The second side's bytes less the first's."""
        return None if self.a is None or self.b is None else self.b - self.a


@dataclass(frozen=True, slots=True, kw_only=True)
class EfficiencyRow:
    """A layer's phase on one side, several layers, or the whole step. `beyond_ns`: as in `LayerEfficiency`."""

    side: str
    title: str
    phase: Phase | None = None
    device_ns: int
    step_ns: int
    flops_per_s: float | None = None
    beyond_ns: int
    layer: LayerEfficiency | None = None


def _signed(value: int | None, unit: Unit) -> str | None:
    return None if value is None else signed(value, unit)


def _change_words(row: LayerChange) -> str:
    return row.change if len(row.change) <= CHANGE_CHARACTERS else row.change[: CHANGE_CHARACTERS - 3] + "..."


def _algorithm(row: EfficiencyRow) -> str | None:
    """The algorithm that took most time, with its share where others took a good part: ``dgrad FFT in fp32 (61 %)``."""
    if row.layer is None or not row.layer.algorithms:
        return None
    first, whole = row.layer.algorithms[0], len(row.layer.algorithms)
    part = f"{first.part} " if first.part is not None and whole > 1 else ""
    beside = f" ({100 * row.layer.first_share:.0f} %)" if row.layer.first_share < ALONE_SHARE else ""
    return f"{part}{first.words}{beside}"


def _verdict(row: Explanation) -> str:
    if row.verdict != "off":
        return row.verdict
    return f"off by {text(row.off_by, 'ratio')}" if row.off_by is not None else "in part"


# fmt: off
# ruff: noqa: E501 - one column, one line
METRIC_COLUMNS: tuple[Column[MetricRow], ...] = (
    Column("title", "Metric", "text", lambda r: r.title, "what is compared", place="page"),
    Column("metric", "metric", "text", lambda r: r.metric, "what is compared, as --budget and JSON name it", place="data"),
    Column("config", "Configuration", "text", lambda r: r.config, "the configuration it was measured under; empty for what was counted"),
    Column("unit", "unit", "text", lambda r: r.unit, "the unit of both sides' values", place="data"),
    Column("a_text", "{a}", "text", lambda r: text(r.a, r.unit), "on the first side", place="page"),
    Column("a", "a", "count", lambda r: r.a, "on the first side, in the row's unit", place="data"),
    Column("b_text", "{b}", "text", lambda r: text(r.b, r.unit), "on the second side", place="page"),
    Column("b", "b", "count", lambda r: r.b, "on the second side, in the row's unit", place="data"),
    Column("ratio", "Ratio", "ratio", lambda r: r.ratio, "the second over the first; less is better"),
    Column("verdict_text", "{b} is", "text", lambda r: r.verdict.replace("_", " "), "better or worse; noise: not more than runs differ anyway", place="page", rank=1),
    Column("verdict", "verdict", "text", lambda r: r.verdict, "better, worse, same, noise, failed or not_comparable", place="data"),
    Column("reason", "reason", "text", lambda r: r.reason, "why it is noise, failed or does not compare", place="data"),
)

RATIO_COLUMNS: tuple[Column[TimeRatio], ...] = (
    Column("config", "Configuration", "text", lambda r: r.config, "the configuration, run on both sides"),
    Column("a_ns", "{a} step", "ns", lambda r: r.a_ns, "median step of the first side", rank=2),
    Column("b_ns", "{b} step", "ns", lambda r: r.b_ns, "median step of the second side", rank=2),
    Column("time_ratio", "Time", "ratio", lambda r: r.time_ratio, "the second's step over the first's: work divided by efficiency"),
    Column("work_ratio", "Work", "ratio", lambda r: r.work_ratio, "the second's counted FLOPs over the first's", rank=1),
    Column("efficiency_ratio", "Efficiency", "ratio", lambda r: r.efficiency_ratio, "the second's FLOP/s over the first's", rank=1),
    Column("a_flops_per_s", "{a} FLOP/s", "flops/s", lambda r: r.a_flops_per_s, "the first's counted FLOPs per second of its step", rank=3),
    Column("b_flops_per_s", "{b} FLOP/s", "flops/s", lambda r: r.b_flops_per_s, "the second's", rank=3),
)

PEAK_PART_COLUMNS: tuple[Column[PeakPart], ...] = (
    Column("part", "Part of the peak", "text", lambda r: r.title, "what the bytes are for; a side's known parts sum to its peak"),
    Column("a", "{a}", "text", lambda r: text(r.a, "bytes"), "bytes on the first side"),
    Column("b", "{b}", "text", lambda r: text(r.b, "bytes"), "bytes on the second side"),
    Column("change", "Difference", "text", lambda r: _signed(r.change, "bytes"), "the second's bytes less the first's"),
)

LAYER_CHANGE_COLUMNS: tuple[Column[LayerChange], ...] = (
    Column("kind", "Kind", "text", lambda r: r.kind, "changed, added, removed, renamed or same"),
    Column("layer", "Layer", "text", lambda r: shown_path(r.path), "the module's path in the second side, else in the first", place="page", name=True),
    Column("a_path", "path in a", "text", lambda r: r.a_path, "the module's path in the first side", place="data"),
    Column("b_path", "path in b", "text", lambda r: r.b_path, "the module's path in the second side", place="data"),
    Column("class_name", "class", "text", lambda r: r.class_name, "the module's class", place="data"),
    Column("change_text", "What changed", "text", _change_words, "what became of it", place="page", rank=1),
    Column("change", "change", "text", lambda r: r.change, "what became of it", place="data"),
    Column("flops_change", "FLOPs, step", "text", lambda r: signed(r.b.flops - r.a.flops, "flops"), "the second's FLOPs of a step less the first's", place="page"),
    Column("a_flops", "FLOPs in a", "flops", lambda r: r.a.flops, "FLOPs of a step, first side", place="data"),
    Column("b_flops", "FLOPs in b", "flops", lambda r: r.b.flops, "FLOPs of a step, second side", place="data"),
    Column("a_macs", "MACs in a", "macs", lambda r: r.a.macs, "multiply-accumulates of a step, first side", place="data"),
    Column("b_macs", "MACs in b", "macs", lambda r: r.b.macs, "multiply-accumulates of a step, second side", place="data"),
    Column("params_change", "Parameters", "text", lambda r: signed(r.b.params - r.a.params, "count"), "the second's parameters less the first's", place="page", rank=3),
    Column("a_params", "parameters in a", "count", lambda r: r.a.params, "parameters, first side", place="data"),
    Column("b_params", "parameters in b", "count", lambda r: r.b.params, "parameters, second side", place="data"),
    Column("saved_change", "Saved", "text", lambda r: signed(r.b.saved_bytes - r.a.saved_bytes, "bytes"), "bytes saved for backward, the second's less the first's", place="page", rank=2),
    Column("a_saved_bytes", "saved in a", "bytes", lambda r: r.a.saved_bytes, "saved for backward, first side", place="data"),
    Column("b_saved_bytes", "saved in b", "bytes", lambda r: r.b.saved_bytes, "saved for backward, second side", place="data"),
    Column("device_change", "{clock}", "text", lambda r: _signed(r.device_ns_change, "ns"), "device time per step (on a CPU: self time of operators), the second's less the first's", place="page"),
    Column("a_device_ns", "time in a", "ns", lambda r: r.a.device_ns, "device time per step (on a CPU: self time of operators), first side", place="data"),
    Column("b_device_ns", "time in b", "ns", lambda r: r.b.device_ns, "device time per step (on a CPU: self time of operators), second side", place="data"),
    Column("contribution", "contribution", "fraction", lambda r: r.contribution, "the largest share that its change has in a total", place="data"),
)

EFFICIENCY_COLUMNS: tuple[Column[EfficiencyRow], ...] = (
    Column("side", "Side", "text", lambda r: r.side, "the slower side first", name=True),
    Column("layer", "Layer", "text", lambda r: r.title, "the layer, several of them, what is in no layer, or the whole step", name=True),
    Column("phase", "Phase", "text", lambda r: r.phase, "the phase; recomputed forward work is backward's"),
    Column("device_ns", "{clock}", "ns", lambda r: r.device_ns, "device time per step (on a CPU: self time of operators)"),
    Column("share", "Share", "percent", lambda r: share(r.device_ns, r.step_ns), "share of the step", rank=2),
    Column("flops_per_s", "FLOP/s", "flops/s", lambda r: r.flops_per_s, "counted FLOPs over device time"),
    Column("algorithm", "Most of it by", "text", _algorithm, "the algorithm that took most of the time, and its arithmetic"),
    Column("beyond", "Beyond", "text", lambda r: signed(r.beyond_ns, "ns"), "time less what the FLOPs take at the faster side's rate"),
)

EXPLANATION_COLUMNS: tuple[Column[Explanation], ...] = (
    Column("explanation", "Explanation", "text", lambda r: r.explanation, "what people usually say of such a difference"),
    Column("predicts", "Predicts", "text", lambda r: r.predicts, "what it would predict", rank=1),
    Column("measured", "Found", "text", lambda r: r.measured, "what was measured or counted"),
    Column("verdict", "Verdict", "text", _verdict, "wrong: the opposite, or nothing of the kind; off: by this factor"),
)

TABLES = (
    ColumnTable("metrics", METRIC_COLUMNS, "`compare`: one row per metric and configuration."),
    ColumnTable("times", RATIO_COLUMNS, "`compare`: the ratio of two steps as work and efficiency, one row per configuration."),
    ColumnTable("peak_parts", PEAK_PART_COLUMNS, "`compare`: both peaks by what they are for, measured under a configuration or predicted."),
    ColumnTable("layer_changes", LAYER_CHANGE_COLUMNS, "`compare` and `check`: one row per layer of either side, own figures. `compare -o FILE.csv` writes it."),
    ColumnTable("efficiency", EFFICIENCY_COLUMNS, "`compare`: each side's step by layer, and what adds up to the difference."),
    ColumnTable("explanations", EXPLANATION_COLUMNS, "`compare`: usual explanations, put to the test."),
)
# fmt: on
