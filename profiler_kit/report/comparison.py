"""Comparisons and results of the gate as documents, the verdict first."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.comparison import (
    PART_TITLES,
    Comparison,
    EfficiencySplit,
    Explanation,
    LayerChange,
    LayerKind,
    MemorySplit,
    MetricRow,
    SideEfficiency,
    clock_name,
)
from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.paths import shown_path
from profiler_kit.records.serde import dumps
from profiler_kit.report.charts.comparisons import layer_tree, layer_waterfall
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.comparison import (
    CHECKPOINT_COLUMNS,
    EDIT_COLUMNS,
    EFFICIENCY_COLUMNS,
    EXPLANATION_COLUMNS,
    LAYER_CHANGE_COLUMNS,
    LAYER_GROUP_COLUMNS,
    METRIC_COLUMNS,
    PEAK_PART_COLUMNS,
    RATIO_COLUMNS,
    REASON_COLUMNS,
    EfficiencyRow,
    PeakPart,
    ReasonRow,
)
from profiler_kit.report.origin import origin_of_sides
from profiler_kit.report.trace_comparison import change_tables, note_sections, step_sections
from profiler_kit.units import plural, text

TOP_LAYERS: Final = 20
# GitHub rejects a comment above 65,536 characters. Only the layer table grows with the model; 45,000 leaves space for the
# other sections.
LAYER_TABLE_CHARACTERS: Final = 45_000
MIN_STEP_SHARE: Final = 0.02  # of the step: layers with less time and less excess time share one row
EFFICIENCY_LAYERS: Final = 6  # per side


def comparison_document(comparison: Comparison, *, top: int | None = TOP_LAYERS) -> Document:
    """A comparison as a document: the result in sentences, then the tables. `top`: layers at most, None for all."""
    main_configs: tuple[str | None, ...] = (None, *comparison.telling)
    other_metrics = tuple(row for row in comparison.metrics if row.config not in main_configs)
    if any(split.config is not None for split in comparison.memory):
        main_configs = comparison.telling  # with measured peaks, the predicted peak is a detail
    peaks, other_peaks = (
        tuple(
            _memory_table(split, comparison) for split in comparison.memory if (split.config in main_configs) is is_main
        )
        for is_main in (True, False)
    )
    sections = [
        Section(title="Result", blocks=tuple(Paragraph(text=sentence) for sentence in comparison.sentences)),
        Section(title="Metrics", blocks=_metric_blocks(comparison)),
        Section(title="Step time: work and efficiency", blocks=(_time_table(comparison),) if comparison.times else ()),
        Section(title="Efficiency by layer", blocks=_efficiency_blocks(comparison)),
        Section(title="Peak memory by category", blocks=peaks),
        Section(title="Usual explanations", blocks=_explanation_blocks(comparison)),
        Section(title="Edits and affected layers", blocks=group_blocks(comparison, top)),
        Section(title="Checkpoints", blocks=checkpoint_blocks(comparison)),
        Section(title="Layers", blocks=layer_blocks(comparison, top), detail=bool(comparison.groups)),
        Section(
            title="Metrics under the other configurations",
            blocks=(_metric_table(comparison, other_metrics),) if other_metrics else (),
            detail=True,
        ),
        Section(title="Peak memory under the other configurations", blocks=other_peaks, detail=True),
        *(step_sections(comparison.steps, top) if comparison.steps is not None else ()),
        *note_sections(comparison.notes),
    ]
    return Document(
        title=f"{comparison.a.label} and {comparison.b.label}",
        origin=origin_of_sides(comparison),
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(comparison),
        full=complete_tables(comparison),
    )


def complete_tables(comparison: Comparison) -> tuple[Table, ...]:
    """All tables of `comparison` with all their rows."""
    return (
        data_table("layers", LAYER_CHANGE_COLUMNS, comparison.layers),
        data_table("metrics", METRIC_COLUMNS, comparison.metrics),
        data_table("times", RATIO_COLUMNS, comparison.times),
        data_table("peak_parts", PEAK_PART_COLUMNS, [row for split in comparison.memory for row in _peak_parts(split)]),
        data_table("explanations", EXPLANATION_COLUMNS, comparison.explanations),
        data_table("layer_groups", LAYER_GROUP_COLUMNS, comparison.groups),
        data_table("edits", EDIT_COLUMNS, comparison.edits),
        data_table("reasons", REASON_COLUMNS, tuple(_reason_rows(comparison))),
        data_table(
            "checkpoint", CHECKPOINT_COLUMNS, comparison.checkpoint.groups if comparison.checkpoint is not None else ()
        ),
        *itertools.islice(change_tables(comparison.steps) if comparison.steps is not None else (), 1),
    )


def _reason_rows(comparison: Comparison) -> Iterator[ReasonRow]:
    units = {(row.metric, row.config): row.unit for row in comparison.metrics}
    for reason in comparison.reasons:
        for part in reason.parts:
            yield ReasonRow(
                metric=reason.metric,
                config=reason.config,
                unit=units[reason.metric, reason.config],
                role=part.role,
                title=part.title,
                edits="; ".join(comparison.edits[number].title for number in part.edits),
                change=part.change,
                layers=part.layers,
            )


def _labels(comparison: Comparison) -> dict[str, str]:
    """The labels of the two sides and of the clock in column titles."""
    clock = clock_name(comparison.clock).capitalize()
    return {"a": comparison.a.label, "b": comparison.b.label, "clock": clock}


def _metric_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The metrics, and reasons for noise and unknown. The notes have the reasons for failed and not_comparable."""
    reasons = {
        f"{row.verdict.capitalize()}: {row.reason}.": None
        for row in comparison.metrics
        if row.verdict in ("noise", "unknown")
    }
    main_rows = tuple(row for row in comparison.metrics if row.config in (None, *comparison.telling))
    return (
        _metric_table(comparison, main_rows),
        *(Paragraph(text=reason, role="note") for reason in reasons),
    )


def _metric_table(comparison: Comparison, rows: Sequence[MetricRow]) -> Table:
    exact = "; counted figures are exact" if comparison.exact else ""
    caption = f"Ratio: {comparison.b.label} / {comparison.a.label}, below 1 is better{exact}"
    return page_table("metrics", caption, METRIC_COLUMNS, rows, labels=_labels(comparison))


def _time_table(comparison: Comparison) -> Table:
    ratio = f"{comparison.b.label} / {comparison.a.label}"
    caption = f"Ratios: {ratio}; time = work / efficiency, where work is the counted FLOPs of a step"
    return page_table("times", caption, RATIO_COLUMNS, comparison.times, labels=_labels(comparison))


def _efficiency_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """One table per main configuration: both sides by layer. The excess times explain the difference in efficiency."""
    return tuple(_efficiency_table(split, comparison) for split in comparison.efficiencies)


def _efficiency_table(split: EfficiencySplit, comparison: Comparison) -> Table:
    slow, fast = split.slower_first
    labels = comparison.a.label, comparison.b.label
    slower, faster = labels[::-1] if split.slower == "b" else labels
    between, work = text(slow.step_ns - fast.step_ns, "ns"), text(split.work_ns, "ns")
    caption = (
        f"Under {split.config}; excess time: time minus the time of the FLOPs at {faster}'s "
        f"{text(split.reference_flops_per_s, 'flops/s')}. Difference {between} = {work} of work "
        f"{'-' if slow.beyond_ns < 0 else '+'} {text(abs(slow.beyond_ns), 'ns')} of efficiency"
    )
    excess = [name for name, side in ((slower, slow), (faster, fast)) if side.rest_ns < -MIN_STEP_SHARE * side.step_ns]
    if excess:
        caption += (
            f". Other time of {' and '.join(excess)} is negative: the profiler makes short operators longer, and their times "
            "add up to more than a step without it. Read the layers as shares"
        )
    return page_table(
        f"efficiency_{split.config}",
        caption,
        EFFICIENCY_COLUMNS,
        [*_efficiency_rows(slow, slower), *_efficiency_rows(fast, faster)],
        labels={"clock": clock_name(split.clock).capitalize()},
    )


def _efficiency_rows(side: SideEfficiency, label: str) -> Iterator[EfficiencyRow]:
    """A side's main layers, one row for the other layers, one for time outside layers, and the sum."""

    def row(title: str, device_ns: int, beyond_ns: int, rate: float | None = None) -> EfficiencyRow:
        return EfficiencyRow(
            side=label,
            title=title,
            device_ns=device_ns,
            step_ns=side.step_ns,
            flops_per_s=rate,
            beyond_ns=beyond_ns,
        )

    min_ns = MIN_STEP_SHARE * side.step_ns
    main_layers = [layer for layer in side.layers if max(layer.device_ns, abs(layer.beyond_ns)) >= min_ns]
    main_layers = main_layers[:EFFICIENCY_LAYERS]
    for layer in main_layers:
        layer_row = row(shown_path(layer.path), layer.device_ns, layer.beyond_ns, layer.flops_per_s)
        yield replace(layer_row, phase=layer.phase, layer=layer)
    others = [layer for layer in side.layers if layer not in main_layers]
    if others:
        device_ns, flops = sum(layer.device_ns for layer in others), sum(layer.flops for layer in others)
        rate = flops / device_ns * 1e9 if flops and device_ns > 0 else None
        yield row(f"{len(others)} others", device_ns, sum(layer.beyond_ns for layer in others), rate)
    yield row("other time", side.rest_ns, side.rest_ns)
    yield row("whole step", side.step_ns, side.beyond_ns, side.flops / side.step_ns * 1e9)


def _explanation_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The usual explanations, tested: one table per configuration, and sentences as details."""
    explanations = comparison.explanations
    configs = list(dict.fromkeys(explanation.config for explanation in explanations))
    tables = [
        _explanations(config, [entry for entry in explanations if entry.config == config], comparison.a.label)
        for config in configs
    ]
    sentences = [
        Paragraph(text=(f"Under {entry.config}: " if entry.config is not None else "") + entry.sentence, detail=True)
        for entry in explanations
    ]
    return (*tables, *sentences)


def _explanations(config: str | None, tested: list[Explanation], label: str) -> Table:
    where = f"Tested under {config}" if config is not None else "Tested on counted figures"
    caption = f"{where}; {label}'s figure comes first"
    return page_table(f"explanations_{config or 'predicted'}", caption, EXPLANATION_COLUMNS, tested)


def _memory_table(split: MemorySplit, comparison: Comparison) -> Table:
    measured = f"Measured under {split.config}, at the op of each side's peak"
    predicted = "Predicted from tensor lifetimes, without library workspaces"
    return page_table(
        f"memory_{split.config or 'predicted'}",
        measured if split.config is not None else predicted,
        PEAK_PART_COLUMNS,
        _peak_parts(split),
        totals=[PeakPart(title="peak", a=split.a_peak_bytes, b=split.b_peak_bytes)],
        labels=_labels(comparison),
    )


def _peak_parts(split: MemorySplit) -> list[PeakPart]:
    """The categories that one of the sides has."""
    return [
        PeakPart(title=PART_TITLES[part.part], a=part.a, b=part.b, config=split.config)
        for part in split.parts
        if part.a or part.b
    ]


def group_blocks(comparison: Comparison, top: int | None) -> tuple[Block, ...]:
    """The edits, then the affected layers by subtree; empty for files from before edits were recorded."""
    groups = comparison.groups if top is None else comparison.groups[:top]
    if not groups:
        return ()
    timed = comparison.config is not None
    where = f", {clock_name(comparison.clock)} under {comparison.config}" if timed else ""
    caption = f"Excluding children, {comparison.b.label} minus {comparison.a.label}{where}; edits first"
    blocks: list[Block] = [
        page_table("layer_groups", caption, LAYER_GROUP_COLUMNS, groups, labels=_labels(comparison)),
    ]
    left_out = len(comparison.groups) - len(groups)
    if left_out:
        blocks.append(Paragraph(text=f"{plural(left_out, 'further row')}: see JSON and CSV.", role="note"))
    return tuple(blocks)


def checkpoint_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """Keys that do not load, by module; empty where all load."""
    checkpoint = comparison.checkpoint
    if checkpoint is None or checkpoint.is_compatible:
        return ()
    caption = f"Loading a checkpoint of {comparison.a.label} into {comparison.b.label}"
    groups = checkpoint.groups[:TOP_LAYERS]
    return (page_table("checkpoint", caption, CHECKPOINT_COLUMNS, groups),)


def layer_blocks(comparison: Comparison, top: int | None) -> tuple[Block, ...]:
    """Counts by kind of change, the changed layers that fit, and a note on the others."""
    if not comparison.layers:
        return ()
    changed = [layer for layer in comparison.layers if layer.kind != "same"]
    count = len(changed) if top is None else min(top, len(changed))
    while count > 1 and _width(_layer_table(comparison, changed[:count])) * count > LAYER_TABLE_CHARACTERS:
        count = count * 3 // 4
    kinds = Counter(layer.kind for layer in comparison.layers)
    order: tuple[LayerKind, ...] = ("changed", "added", "removed", "renamed")
    counts = ", ".join(f"{kinds[kind]} {kind}" for kind in order if kinds[kind]) or "0 changed"
    blocks: list[Block] = [Paragraph(text=f"{counts}, {kinds['same']} the same.")]
    blocks += (*layer_waterfall(comparison), *layer_tree(comparison))
    if changed:
        blocks.append(_layer_table(comparison, changed[:count]))
    if count < len(changed):
        note = f"{len(changed) - count} layers with smaller changes are not shown. JSON and CSV have all layers."
        blocks.append(Paragraph(text=note, role="note"))
    return tuple(blocks)


def _layer_table(comparison: Comparison, layers: Sequence[LayerChange]) -> Table:
    timed = comparison.config is not None
    where = f", {clock_name(comparison.clock)} under {comparison.config}" if timed else ""
    caption = f"Excluding children, {comparison.b.label} minus {comparison.a.label}{where}; largest change first"
    return page_table("layers", caption, LAYER_CHANGE_COLUMNS, layers, labels=_labels(comparison))


def _width(table: Table) -> int:
    """Characters of a row with every column padded to its longest cell."""
    columns = zip(*table.rows, strict=True)
    return sum(max(len(str(cell)) for cell in column) + 3 for column in columns)
