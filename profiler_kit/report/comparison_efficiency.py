"""Efficiency by layer, and the usual explanations, as tables."""

from __future__ import annotations

from typing import Final

from profiler_kit.comparison.efficiency import sides_of
from profiler_kit.comparison.layer_algorithms import algorithm_cell
from profiler_kit.comparison.ratios import factor
from profiler_kit.comparison.timed import clock_words
from profiler_kit.comparison.words import shown_path, signed
from profiler_kit.records.comparison import Comparison, EfficiencySplit, Explanation, LayerEfficiency, SideEfficiency
from profiler_kit.records.document import Block, Head, Paragraph, Table, Value
from profiler_kit.units import text

WORTH_SHARE: Final = 0.02  # of the step: a layer that takes less, and loses less, is one of the others
MOST_LAYERS: Final = 6  # of each side

Row = tuple[Value, ...]


def efficiency_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """A table for each telling configuration: both sides by layer, and what adds up to the difference."""
    return tuple(_table(split, comparison) for split in comparison.efficiencies)


def _table(split: EfficiencySplit, comparison: Comparison) -> Table:
    slow, fast = sides_of(split)
    slower, faster = (
        (comparison.b.label, comparison.a.label) if split.slower == "b" else (comparison.a.label, comparison.b.label)
    )
    between, work = text(slow.step_ns - fast.step_ns, "ns"), text(split.work_ns, "ns")
    sign = "-" if slow.beyond_ns < 0 else "+"
    caption = (
        f"Under {split.config}; beyond: the time less what the FLOPs take at {faster}'s "
        f"{text(split.reference_flops_per_s, 'flops/s')}. {between} between them = {work} of work {sign} "
        f"{text(abs(slow.beyond_ns), 'ns')} of efficiency"
    )
    return Table(
        name=f"efficiency_{split.config}",
        caption=caption,
        heads=(
            Head(key="side", title="", doc="the slower side first", name=True),
            Head(key="path", title="Layer", name=True),
            Head(key="phase", title="Phase"),
            Head(key="device_ns", title=clock_words(split.clock).capitalize(), unit="ns"),
            Head(key="share", title="Share", unit="percent", doc="of the step", rank=2),
            Head(key="flops_per_s", title="FLOP/s", unit="flops/s", doc="counted FLOPs over device time"),
            Head(
                key="algorithm",
                title="Most of it by",
                doc="the algorithm that took most of the time, and its arithmetic",
            ),
            Head(key="beyond", title="Beyond", doc="time less what the FLOPs take at the faster side's rate"),
        ),
        rows=(*_rows(slow, slower), *_rows(fast, faster)),
    )


def _rows(side: SideEfficiency, label: str) -> list[Row]:
    """A side's layers that matter, the others and the rest in one row each, and their sum."""
    worth = WORTH_SHARE * side.step_ns
    kept = [one for one in side.layers if max(one.device_ns, abs(one.beyond_ns)) >= worth][:MOST_LAYERS]
    others = [one for one in side.layers if one not in kept]
    rows: list[Row] = [
        _row(
            label,
            shown_path(one.path),
            one.phase,
            one.device_ns,
            one.flops_per_s,
            algorithm_cell(one),
            one.beyond_ns,
            side,
        )
        for one in kept
    ]
    if others:
        rows.append(_others(label, others, side))
    rows.append(_row(label, "the rest", "", side.rest_ns, None, None, side.rest_ns, side))
    whole_rate = side.flops / side.step_ns * 1e9
    rows.append(_row(label, "whole step", "", side.step_ns, whole_rate, None, side.beyond_ns, side))
    return rows


def _others(label: str, others: list[LayerEfficiency], side: SideEfficiency) -> Row:
    device_ns = sum(one.device_ns for one in others)
    flops = sum(one.flops for one in others)
    rate = flops / device_ns * 1e9 if flops and device_ns > 0 else None
    return _row(label, f"{len(others)} others", "", device_ns, rate, None, sum(one.beyond_ns for one in others), side)


def _row(
    label: str,
    name: str,
    phase: str,
    device_ns: int,
    rate: float | None,
    algorithm: str | None,
    beyond_ns: int,
    side: SideEfficiency,
) -> Row:
    share = 100 * device_ns / side.step_ns
    return (label, name, phase or None, device_ns, share, rate, algorithm, signed(beyond_ns, "ns"))


def explanation_blocks(comparison: Comparison) -> tuple[Block, ...]:
    """The usual explanations, tested: a table for each configuration, and every sentence for those who want detail."""
    configs = list(dict.fromkeys(one.config for one in comparison.explanations))
    tables = [
        _explanations(config, [one for one in comparison.explanations if one.config == config], comparison.a.label)
        for config in configs
    ]
    said = [
        Paragraph(text=(f"Under {one.config}: " if one.config is not None else "") + one.sentence, detail=True)
        for one in comparison.explanations
    ]
    return (*tables, *said)


def _explanations(config: str | None, tested: list[Explanation], label: str) -> Table:
    where = f"Tested under {config}" if config is not None else "Tested on what was counted"
    return Table(
        name=f"explanations_{config or 'predicted'}",
        caption=f"{where}; of two figures the first is {label}'s",
        heads=(
            Head(key="explanation", title="Explanation"),
            Head(key="predicts", title="Predicts", rank=1),
            Head(key="measured", title="Found"),
            Head(
                key="verdict", title="Verdict", doc="wrong: the opposite, or nothing of the kind; off: by this factor"
            ),
        ),
        rows=tuple((one.explanation, one.predicts, one.measured, _verdict(one)) for one in tested),
    )


def _verdict(one: Explanation) -> str:
    if one.verdict != "off":
        return one.verdict
    return f"off by {factor(one.off_by)}" if one.off_by is not None else "in part"
