"""Comparisons and the gate's answer as Documents, the verdict first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.comparison import (
    PART_TITLES,
    CheckResult,
    Comparison,
    EfficiencySplit,
    Explanation,
    LayerChange,
    MemorySplit,
    MetricRow,
    SideEfficiency,
    clock_words,
)
from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.paths import shown_path
from profiler_kit.records.serde import dumps
from profiler_kit.records.target import inputs_text
from profiler_kit.report.columns.budgets import BUDGET_COLUMNS
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.comparison import (
    EFFICIENCY_COLUMNS,
    EXPLANATION_COLUMNS,
    LAYER_CHANGE_COLUMNS,
    METRIC_COLUMNS,
    PEAK_PART_COLUMNS,
    RATIO_COLUMNS,
    EfficiencyRow,
    PeakPart,
)
from profiler_kit.units import text

TOP_LAYERS: Final = 20
# Forges drop a comment above 65,536 characters. The layer table is the only part that grows with the model, and the rest
# stays well below what this leaves.
LAYER_TABLE_CHARACTERS: Final = 45_000
WORTH_SHARE: Final = 0.02  # of the step: a layer that takes less, and loses less, is one of the others
EFFICIENCY_LAYERS: Final = 6  # of each side


def comparison_document(comparison: Comparison, *, top: int | None = TOP_LAYERS) -> Document:
    """A comparison for people and programs: what differs in sentences, then the tables. `top` layers at most; None for all."""
    shown: tuple[str | None, ...] = (None, *comparison.telling)
    other_metrics = tuple(row for row in comparison.metrics if row.config not in shown)
    if any(split.config is not None for split in comparison.memory):
        shown = comparison.telling  # beside measured peaks the predicted one is detail
    peaks, other_peaks = (
        tuple(_memory_table(split, comparison) for split in comparison.memory if (split.config in shown) is first)
        for first in (True, False)
    )
    sections = [
        Section(title="Result", blocks=tuple(Paragraph(text=sentence) for sentence in comparison.sentences)),
        Section(title="Metrics", blocks=_metric_blocks(comparison)),
        Section(title="Time taken apart", blocks=(_time_table(comparison),) if comparison.times else ()),
        Section(title="Efficiency by layer", blocks=_efficiency_blocks(comparison)),
        Section(title="Peak memory taken apart", blocks=peaks),
        Section(title="Usual explanations", blocks=_explanation_blocks(comparison)),
        Section(title="Layers", blocks=_layer_blocks(comparison, top)),
        Section(
            title="Metrics under the other configurations",
            blocks=(_metric_table(comparison, other_metrics),) if other_metrics else (),
            detail=True,
        ),
        Section(title="Peak memory otherwise", blocks=other_peaks, detail=True),
        *note_sections(comparison.notes),
    ]
    return Document(
        title=f"{comparison.a.label} and {comparison.b.label}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(comparison),
        full=_whole_tables(comparison),
    )


def check_document(result: CheckResult) -> Document:
    """The gate's answer, fit for a comment on a change: verdict, budgets, why, layers. As Markdown below 65,536 characters."""
    compared = result.comparison
    sections = [Section(title="Budgets", blocks=_budget_blocks(result))]
    if compared is not None:
        sections.append(Section(title="Why", blocks=tuple(Paragraph(text=told) for told in compared.sentences)))
        sections.append(Section(title="Layers", blocks=_layer_blocks(compared, None)))
    sections += note_sections((*result.notes, *(compared.notes if compared is not None else ())))
    return Document(
        title=f"{result.target}: {result.verdict}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(result),
        full=(
            data_table("budgets", BUDGET_COLUMNS, result.budgets),
            *(_whole_tables(compared) if compared is not None else ()),
        ),
    )


def _whole_tables(comparison: Comparison) -> tuple[Table, ...]:
    return (
        data_table("layers", LAYER_CHANGE_COLUMNS, comparison.layers),
        data_table("metrics", METRIC_COLUMNS, comparison.metrics),
    )


def _words(comparison: Comparison) -> dict[str, str]:
    """What titles of columns say for the two sides and the clock."""
    clock = clock_words(comparison.clock).capitalize()
    return {"a": comparison.a.label, "b": comparison.b.label, "clock": clock}


def _budget_blocks(result: CheckResult) -> tuple[Block, ...]:
    blocks: list[Block] = []
    compared = result.comparison
    if compared is not None:
        side = compared.b
        blocks.append(Paragraph(text=f"{side.spec}: {inputs_text(side.inputs)}, {side.mode}. A MAC is 2 FLOPs."))
    if result.budgets:
        caption = "Counted for one step; a metric that falls never breaks its budget"
        blocks.append(page_table("budgets", caption, BUDGET_COLUMNS, result.budgets))
    blocks += [
        Paragraph(text=f"{row.title}: {row.reason} ({row.where}).", role="warning")
        for row in result.budgets
        if row.reason
    ]
    if any(row.outcome == "broken" for row in result.budgets):
        blocks.append(
            Paragraph(text="Intended? Raise the budget under [tool.profiler-kit.budgets] in this change, and say why.")
        )
    return tuple(blocks)


def _metric_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The metrics, and why some are noise; what failed or does not compare stands in the notes."""
    noise = {row.reason: None for row in comparison.metrics if row.verdict == "noise"}
    told = tuple(row for row in comparison.metrics if row.config in (None, *comparison.telling))
    return (_metric_table(comparison, told), *(Paragraph(text=f"Noise: {reason}.", role="note") for reason in noise))


def _metric_table(comparison: Comparison, rows: Sequence[MetricRow]) -> Table:
    caption = f"Ratio: {comparison.b.label} over {comparison.a.label}; less is better; counted figures are exact"
    return page_table("metrics", caption, METRIC_COLUMNS, rows, words=_words(comparison))


def _time_table(comparison: Comparison) -> Table:
    over = f"{comparison.b.label} over {comparison.a.label}"
    caption = f"Ratios: {over}; time = work / efficiency, work being the step's counted FLOPs"
    return page_table("times", caption, RATIO_COLUMNS, comparison.times, words=_words(comparison))


def _efficiency_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """A table for each telling configuration: both sides by layer, and what adds up to the difference."""
    return tuple(_efficiency_table(split, comparison) for split in comparison.efficiencies)


def _efficiency_table(split: EfficiencySplit, comparison: Comparison) -> Table:
    slow, fast = split.slower_first
    labels = comparison.a.label, comparison.b.label
    slower, faster = labels[::-1] if split.slower == "b" else labels
    between, work = text(slow.step_ns - fast.step_ns, "ns"), text(split.work_ns, "ns")
    caption = (
        f"Under {split.config}; beyond: the time less what the FLOPs take at {faster}'s "
        f"{text(split.reference_flops_per_s, 'flops/s')}. {between} between them = {work} of work "
        f"{'-' if slow.beyond_ns < 0 else '+'} {text(abs(slow.beyond_ns), 'ns')} of efficiency"
    )
    return page_table(
        f"efficiency_{split.config}",
        caption,
        EFFICIENCY_COLUMNS,
        [*_efficiency_rows(slow, slower), *_efficiency_rows(fast, faster)],
        words={"clock": clock_words(split.clock).capitalize()},
    )


def _efficiency_rows(side: SideEfficiency, label: str) -> Iterator[EfficiencyRow]:
    """A side's layers that matter, the others and the rest in one row each, and their sum."""

    def row(title: str, device_ns: int, beyond_ns: int, rate: float | None = None) -> EfficiencyRow:
        return EfficiencyRow(
            side=label,
            title=title,
            device_ns=device_ns,
            step_ns=side.step_ns,
            flops_per_s=rate,
            beyond_ns=beyond_ns,
        )

    worth = WORTH_SHARE * side.step_ns
    shown = [layer for layer in side.layers if max(layer.device_ns, abs(layer.beyond_ns)) >= worth][:EFFICIENCY_LAYERS]
    for layer in shown:
        whole = row(shown_path(layer.path), layer.device_ns, layer.beyond_ns, layer.flops_per_s)
        yield replace(whole, phase=layer.phase, layer=layer)
    others = [layer for layer in side.layers if layer not in shown]
    if others:
        device_ns, flops = sum(layer.device_ns for layer in others), sum(layer.flops for layer in others)
        rate = flops / device_ns * 1e9 if flops and device_ns > 0 else None
        yield row(f"{len(others)} others", device_ns, sum(layer.beyond_ns for layer in others), rate)
    yield row("the rest", side.rest_ns, side.rest_ns)
    yield row("whole step", side.step_ns, side.beyond_ns, side.flops / side.step_ns * 1e9)


def _explanation_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The usual explanations, tested: a table for each configuration, and every sentence for those who want detail."""
    configs = list(dict.fromkeys(one.config for one in comparison.explanations))
    tables = [
        _explanations(config, [one for one in comparison.explanations if one.config == config], comparison.a.label)
        for config in configs
    ]
    sentences = [
        Paragraph(text=(f"Under {one.config}: " if one.config is not None else "") + one.sentence, detail=True)
        for one in comparison.explanations
    ]
    return (*tables, *sentences)


def _explanations(config: str | None, tested: list[Explanation], label: str) -> Table:
    where = f"Tested under {config}" if config is not None else "Tested on what was counted"
    caption = f"{where}; of two figures the first is {label}'s"
    return page_table(f"explanations_{config or 'predicted'}", caption, EXPLANATION_COLUMNS, tested)


def _memory_table(split: MemorySplit, comparison: Comparison) -> Table:
    measured = f"Measured under {split.config}, at the op where each peaks"
    predicted = "Predicted from tensor lifetimes; library workspace is not in it"
    return page_table(
        f"memory_{split.config or 'predicted'}",
        measured if split.config is not None else predicted,
        PEAK_PART_COLUMNS,
        [PeakPart(title=PART_TITLES[one.part], a=one.a, b=one.b) for one in split.parts if one.a or one.b],
        totals=[PeakPart(title="peak", a=split.a_peak_bytes, b=split.b_peak_bytes)],
        words=_words(comparison),
    )


def _layer_blocks(comparison: Comparison, top: int | None) -> tuple[Block, ...]:
    """The changed layers that fit, and a word on what is left out."""
    if not comparison.layers:
        return ()
    changed = [one for one in comparison.layers if one.kind != "same"]
    count = len(changed) if top is None else min(top, len(changed))
    while count > 1 and _width(_layer_table(comparison, changed[:count])) * count > LAYER_TABLE_CHARACTERS:
        count = count * 3 // 4
    kinds = {
        kind: sum(one.kind == kind for one in comparison.layers) for kind in ("changed", "added", "removed", "renamed")
    }
    told = ", ".join(f"{number} {kind}" for kind, number in kinds.items() if number) or "none changed"
    blocks: list[Block] = [Paragraph(text=f"{told}, {len(comparison.layers) - len(changed)} the same.")]
    if changed:
        blocks.append(_layer_table(comparison, changed[:count]))
    if count < len(changed):
        left = f"{len(changed) - count} layers that matter less are left out here; JSON and CSV have them all."
        blocks.append(Paragraph(text=left, role="note"))
    return tuple(blocks)


def _layer_table(comparison: Comparison, layers: Sequence[LayerChange]) -> Table:
    timed = comparison.config is not None
    where = f", {clock_words(comparison.clock)} under {comparison.config}" if timed else ""
    caption = f"Own figures, {comparison.b.label} less {comparison.a.label}{where}; the largest change comes first"
    return page_table("layers", caption, LAYER_CHANGE_COLUMNS, layers, words=_words(comparison))


def _width(table: Table) -> int:
    """Characters of a row when every column is padded to its longest cell."""
    columns = zip(*table.rows, strict=True)
    return sum(max(len(str(cell)) for cell in column) + 3 for column in columns)


def note_sections(notes: Sequence[str]) -> list[Section]:
    """A section of `notes`; none without any."""
    return [Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in notes))] if notes else []
