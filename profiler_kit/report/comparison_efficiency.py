"""Efficiency by layer, and the usual explanations, as tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from profiler_kit.records.comparison import Comparison, EfficiencySplit, Explanation, SideEfficiency, clock_words
from profiler_kit.records.document import Block, Paragraph, Table
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.comparison import EFFICIENCY_COLUMNS, EXPLANATION_COLUMNS, EfficiencyRow
from profiler_kit.units import text

WORTH_SHARE: Final = 0.02  # of the step: a layer that takes less, and loses less, is one of the others
MOST_LAYERS: Final = 6  # of each side


def efficiency_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """A table for each telling configuration: both sides by layer, and what adds up to the difference."""
    return tuple(_table(split, comparison) for split in comparison.efficiencies)


def _table(split: EfficiencySplit, comparison: Comparison) -> Table:
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
        [*_rows(slow, slower), *_rows(fast, faster)],
        words={"clock": clock_words(split.clock).capitalize()},
    )


def _rows(side: SideEfficiency, label: str) -> Iterator[EfficiencyRow]:
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
    shown = [layer for layer in side.layers if max(layer.device_ns, abs(layer.beyond_ns)) >= worth][:MOST_LAYERS]
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


def explanation_blocks(comparison: Comparison) -> tuple[Block, ...]:
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
