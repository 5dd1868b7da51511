"""Comparisons and the gate's answer as Documents, the verdict first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from profiler_kit.comparison.metrics import shapes
from profiler_kit.comparison.ratios import PART_TITLES
from profiler_kit.comparison.timed import clock_words
from profiler_kit.comparison.words import percent_change, shown_path, signed
from profiler_kit.records.comparison import BudgetRow, CheckResult, Comparison, LayerChange, MemorySplit, MetricRow
from profiler_kit.records.document import Block, Document, Head, Paragraph, Section, Table, Value
from profiler_kit.records.serde import dumps
from profiler_kit.report.comparison_efficiency import efficiency_blocks, explanation_blocks
from profiler_kit.report.comparison_tables import plain_budgets, plain_layers, plain_metrics
from profiler_kit.units import Unit, bytes_text, text

TOP_LAYERS: Final = 20
# Forges drop a comment above 65,536 characters. The layer table is the only part that grows with the model, and the rest
# stays well below what this leaves.
LAYER_TABLE_CHARACTERS: Final = 45_000
CHANGE_CHARACTERS: Final = 160  # of the words about one layer, in tables for people; JSON and CSV hold them whole

VERDICTS: Final = {"not_comparable": "not comparable"}
OUTCOMES: Final = {"broken": "BROKEN", "warned": "warning", "not_comparable": "not comparable"}


def comparison_document(comparison: Comparison, *, top: int | None = TOP_LAYERS) -> Document:
    """A comparison for people and programs: what differs in sentences, then the tables. `top` layers at most; None for all."""
    a, b = comparison.a.label, comparison.b.label
    sections = [
        Section(title="Result", blocks=tuple(Paragraph(text=sentence) for sentence in comparison.sentences)),
        Section(title="Metrics", blocks=_metric_blocks(comparison)),
    ]
    told: tuple[str | None, ...] = (None, *comparison.telling)
    rest = tuple(row for row in comparison.metrics if row.config not in told)
    if any(split.config is not None for split in comparison.memory):
        told = comparison.telling  # beside measured peaks the predicted one is detail
    others = tuple(_memory_table(split, a, b) for split in comparison.memory if split.config not in told)
    if comparison.times:
        sections.append(Section(title="Time taken apart", blocks=(_time_table(comparison),)))
    if comparison.efficiencies:
        sections.append(Section(title="Efficiency by layer", blocks=efficiency_blocks(comparison)))
    if comparison.memory:
        tables = tuple(_memory_table(split, a, b) for split in comparison.memory if split.config in told)
        sections.append(Section(title="Peak memory taken apart", blocks=tables))
    if comparison.explanations:
        sections.append(Section(title="Usual explanations", blocks=explanation_blocks(comparison)))
    if comparison.layers:
        sections.append(Section(title="Layers", blocks=_layer_blocks(comparison, top)))
    if rest:
        blocks = (_metric_table(comparison, rest),)
        sections.append(Section(title="Metrics under the other configurations", blocks=blocks, detail=True))
    if others:
        sections.append(Section(title="Peak memory otherwise", blocks=others, detail=True))
    sections += _note_sections(comparison.notes)
    return Document(
        title=f"{a} and {b}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(comparison),
        full=(plain_layers(comparison), plain_metrics(comparison)),
    )


def check_document(result: CheckResult) -> Document:
    """The gate's answer, fit for a comment on a change: verdict, budgets, why, layers. As Markdown below 65,536 characters."""
    compared = result.comparison
    sections = [Section(title="Budgets", blocks=_budget_blocks(result))]
    if compared is not None:
        sections.append(Section(title="Why", blocks=tuple(Paragraph(text=told) for told in compared.sentences)))
        if compared.layers:
            sections.append(Section(title="Layers", blocks=_layer_blocks(compared, None)))
    sections += _note_sections((*result.notes, *(compared.notes if compared is not None else ())))
    return Document(
        title=f"{result.target}: {result.verdict}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(result),
        full=(
            plain_budgets(result.budgets),
            *(() if compared is None else (plain_layers(compared), plain_metrics(compared))),
        ),
    )


def _budget_blocks(result: CheckResult) -> tuple[Block, ...]:
    blocks: list[Block] = []
    compared = result.comparison
    if compared is not None:
        side = compared.b
        blocks.append(Paragraph(text=f"{side.spec}: {shapes(side.inputs)}, {side.mode}. A MAC is 2 FLOPs."))
    if result.budgets:
        blocks.append(_budget_table(result.budgets))
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


def _budget_table(rows: Sequence[BudgetRow]) -> Table:
    return Table(
        name="budgets",
        caption="Counted for one step; a metric that falls never breaks its budget",
        heads=(
            Head(key="metric", title="Budget", doc="what is limited"),
            Head(key="base", title="Base", doc="at the base", rank=2),
            Head(key="head", title="Now", doc="with this change"),
            Head(key="change", title="Change", doc="now over base, less one"),
            Head(key="limit", title="Limit", doc="as it was written", rank=1),
            Head(key="verdict", title="Verdict", doc="ok, BROKEN, warning, or not comparable"),
        ),
        rows=tuple(
            (
                row.title,
                text(row.base, row.unit),
                text(row.head, row.unit),
                percent_change(row.change),
                row.limit,
                OUTCOMES.get(row.outcome, row.outcome),
            )
            for row in rows
        ),
    )


def _metric_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The metrics, and why some are noise; what failed or does not compare stands in the notes."""
    noise = {row.reason: None for row in comparison.metrics if row.verdict == "noise"}
    told = tuple(row for row in comparison.metrics if row.config in (None, *comparison.telling))
    return (_metric_table(comparison, told), *(Paragraph(text=f"Noise: {reason}.", role="note") for reason in noise))


def _metric_table(comparison: Comparison, rows: Sequence[MetricRow]) -> Table:
    return Table(
        name="metrics",
        caption=f"Ratio: {comparison.b.label} over {comparison.a.label}; less is better; counted figures are exact",
        heads=(
            Head(key="metric", title="Metric"),
            Head(key="config", title="Configuration", doc="empty for what was counted"),
            Head(key="a", title=comparison.a.label),
            Head(key="b", title=comparison.b.label),
            Head(key="ratio", title="Ratio", unit="ratio"),
            Head(
                key="verdict", title=f"{comparison.b.label} is", doc="noise: not more than runs differ anyway", rank=1
            ),
        ),
        rows=tuple(
            (
                row.title,
                row.config,
                text(row.a, row.unit),
                text(row.b, row.unit),
                row.ratio,
                VERDICTS.get(row.verdict, row.verdict),
            )
            for row in rows
        ),
    )


def _time_table(comparison: Comparison) -> Table:
    a, b = comparison.a.label, comparison.b.label
    return Table(
        name="times",
        caption=f"Ratios: {b} over {a}; time = work / efficiency, work being the step's counted FLOPs",
        heads=(
            Head(key="config", title="Configuration"),
            Head(key="a_ns", title=f"{a} step", unit="ns", rank=2),
            Head(key="b_ns", title=f"{b} step", unit="ns", rank=2),
            Head(key="time_ratio", title="Time", unit="ratio"),
            Head(key="work_ratio", title="Work", unit="ratio", rank=1),
            Head(key="efficiency_ratio", title="Efficiency", unit="ratio", rank=1),
            Head(key="a_flops_per_s", title=f"{a} FLOP/s", unit="flops/s", rank=3),
            Head(key="b_flops_per_s", title=f"{b} FLOP/s", unit="flops/s", rank=3),
        ),
        rows=tuple(
            (
                one.config,
                one.a_ns,
                one.b_ns,
                one.time_ratio,
                one.work_ratio,
                one.efficiency_ratio,
                one.a_flops_per_s,
                one.b_flops_per_s,
            )
            for one in comparison.times
        ),
    )


def _memory_table(split: MemorySplit, a: str, b: str) -> Table:
    rows: list[tuple[Value, ...]] = []
    for part in split.parts:
        if not part.a and not part.b:
            continue
        change = None if part.a is None or part.b is None else signed(part.b - part.a, "bytes")
        rows.append((PART_TITLES[part.part], text(part.a, "bytes"), text(part.b, "bytes"), change))
    total = (
        "peak",
        bytes_text(split.a_peak_bytes),
        bytes_text(split.b_peak_bytes),
        signed(split.b_peak_bytes - split.a_peak_bytes, "bytes"),
    )
    measured = f"Measured under {split.config}, at the op where each peaks"
    predicted = "Predicted from tensor lifetimes; library workspace is not in it"
    return Table(
        name=f"memory_{split.config or 'predicted'}",
        caption=measured if split.config is not None else predicted,
        heads=(
            Head(key="part", title="Part of the peak"),
            Head(key="a", title=a),
            Head(key="b", title=b),
            Head(key="change", title="Difference"),
        ),
        rows=tuple(rows),
        totals=(total,),
    )


def _layer_blocks(comparison: Comparison, top: int | None) -> tuple[Block, ...]:
    """The changed layers that fit, and a word on what is left out."""
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
    columns: list[tuple[Head, Callable[[LayerChange], Value]]] = [
        (Head(key="kind", title="", doc="changed, added, removed, renamed or same"), lambda one: one.kind),
        (Head(key="path", title="Layer", name=True), lambda one: shown_path(one.path)),
        (Head(key="change", title="What changed", rank=1), _change_words),
        (Head(key="flops", title="FLOPs, step"), lambda one: _signed(one.b.flops - one.a.flops, "flops")),
        (Head(key="params", title="Parameters", rank=3), lambda one: _signed(one.b.params - one.a.params, "count")),
        (Head(key="saved", title="Saved", rank=2), lambda one: _signed(one.b.saved_bytes - one.a.saved_bytes, "bytes")),
    ]
    if timed:
        title = clock_words(comparison.clock)
        columns.append(
            (Head(key="device_ns", title=title.capitalize()), lambda one: _signed(one.device_ns_change, "ns"))
        )
    where = f", {title} under {comparison.config}" if timed else ""
    return Table(
        name="layers",
        caption=f"Own figures, {comparison.b.label} less {comparison.a.label}{where}; the largest change comes first",
        heads=tuple(head for head, _ in columns),
        rows=tuple(tuple(value(one) for _, value in columns) for one in layers),
    )


def _change_words(one: LayerChange) -> str:
    return one.change if len(one.change) <= CHANGE_CHARACTERS else one.change[: CHANGE_CHARACTERS - 3] + "..."


def _signed(value: int | None, unit: Unit) -> str | None:
    return None if value is None else signed(value, unit)


def _width(table: Table) -> int:
    """Characters of a row when every column is padded to its longest cell."""
    columns = zip(*table.rows, strict=True)
    return sum(max(len(str(cell)) for cell in column) + 3 for column in columns)


def _note_sections(notes: Sequence[str]) -> list[Section]:
    return [Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in notes))] if notes else []
