"""Why each metric differs: the edits, their consequences, and the parts of a peak. The parts sum to the difference exactly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.comparison.layers import ModelChanges
from profiler_kit.records.comparison import PART_TITLES, MemorySplit, MetricRow, TimeRatio
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.edits import FIGURES, Edit, MetricReason, ReasonPart
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.units import Unit, plural, signed, text

MAX_PARTS_NAMED: Final = 5
MAX_NAMED: Final = 3  # edits named in a sentence; the parts have all
MIN_NAMED_SHARE: Final = 0.02  # of the largest part: a smaller one is not named
_FIGURE_OF_PART: Final = {
    "parameters": "param_bytes",
    "gradients": "trainable_params",
    "optimizer_state": "trainable_params",
    "saved_activations": "saved",
}


def metric_reasons(
    a: Report,
    b: Report,
    rows: Sequence[MetricRow],
    changes: ModelChanges,
    splits: Sequence[MemorySplit],
    times: Sequence[TimeRatio],
) -> tuple[MetricReason, ...]:
    """The reasons of all `rows` that differ, are comparable and are not noise, in their order."""
    reasons = []
    for row in rows:
        if row.change and row.verdict in ("better", "worse"):
            parts = _parts(row, a, b, changes, splits, times)
            remainder = row.change - sum(part.change for part in parts)
            if remainder:
                parts.append(ReasonPart(role="remainder", title="other", change=remainder))
            reasons.append(
                MetricReason(
                    metric=row.metric,
                    config=row.config,
                    change=row.change,
                    parts=tuple(parts),
                    sentence=_sentence(row, parts, changes, (a, b)),
                )
            )
    return tuple(reasons)


def _parts(
    row: MetricRow,
    a: Report,
    b: Report,
    changes: ModelChanges,
    splits: Sequence[MemorySplit],
    times: Sequence[TimeRatio],
) -> list[ReasonPart]:
    if row.metric in FIGURES:
        return _layer_parts(row.metric, changes)
    if row.metric in ("peak", "peak_allocated_bytes"):
        split = next((split for split in splits if split.config == row.config), None)
        return _memory_parts(split, changes) if split is not None else []
    if row.metric == "uncounted" and a.static is not None and b.static is not None:
        return _op_parts(a.static, b.static)
    if row.metric == "step_ns":
        time = next((time for time in times if time.config == row.config), None)
        return _time_parts(time) if time is not None else []
    return []


def _layer_parts(figure: str, changes: ModelChanges) -> list[ReasonPart]:
    """One part per edit and per group of affected layers, the edits with the largest effect first."""
    parts = [
        ReasonPart(role="edit", title=edit.title, change=value, layers=edit.layers, edits=(number,))
        for number, edit in enumerate(changes.edits)
        if (value := getattr(edit.figures, figure))
    ]
    parts += [
        ReasonPart(
            role="consequence",
            title=each.change or "affected layers",
            change=value,
            layers=each.layers,
            edits=each.edits,
        )
        for each in changes.consequences
        if (value := getattr(each.figures, figure))
    ]
    effects: dict[int, int] = {}
    for part in parts:
        for number in part.edits:
            effects[number] = effects.get(number, 0) + part.change
    return sorted(
        parts,
        key=lambda part: (-max((abs(effects[n]) for n in part.edits), default=0), part.edits[:1], part.role != "edit"),
    )


def _memory_parts(split: MemorySplit, changes: ModelChanges) -> list[ReasonPart]:
    """The categories of the peak that differ, the largest difference first, each with the edit that changes it most."""
    parts = []
    for part in split.parts:
        change = (part.b or 0) - (part.a or 0)
        if change:
            number = _main_edit(part.part, changes, change)
            parts.append(
                ReasonPart(
                    role="memory",
                    title=PART_TITLES[part.part],
                    change=change,
                    edits=() if number is None else (number,),
                )
            )
    return sorted(parts, key=lambda part: -abs(part.change))


def _main_edit(part: str, changes: ModelChanges, change: int) -> int | None:
    """The edit that changes a category of the peak most, in the direction of `change`; None if none does."""
    subjects = {edit.subject: number for number, edit in enumerate(changes.edits) if edit.kind == "target"}
    if part in ("optimizer_state", "inputs"):
        subject = "optimizer" if part == "optimizer_state" else "inputs"
        if subject in subjects:
            return subjects[subject]
    figure = _FIGURE_OF_PART.get(part, "saved")
    effects: dict[int, int] = {}
    for number, edit in enumerate(changes.edits):
        effects[number] = getattr(edit.figures, figure)
    for each in changes.consequences:
        for number in each.edits:
            effects[number] += getattr(each.figures, figure)
    matching = {number: effect for number, effect in effects.items() if effect * change > 0}
    if matching:
        return max(matching, key=lambda number: abs(matching[number]))
    for subject in ("dtype", "autocast", "mode", "optimizer", "loss", "inputs"):
        if subject in subjects:
            return subjects[subject]
    return 0 if len(changes.edits) == 1 else None


def _op_parts(a: StaticCount, b: StaticCount) -> list[ReasonPart]:
    """The uncounted ops whose number of calls differs, with a module that calls them."""
    before, after = ({op.op: op for op in static.uncounted} for static in (a, b))
    parts = []
    for name in dict.fromkeys((*after, *before)):
        change = (after[name].calls if name in after else 0) - (before[name].calls if name in before else 0)
        paths = (after.get(name) or before[name]).paths
        if change:
            where = f" in {shown_path(paths[0])}" if paths else ""
            parts.append(ReasonPart(role="ops", title=f"{name}{where}", change=change))
    return sorted(parts, key=lambda part: -abs(part.change))


def _time_parts(time: TimeRatio) -> list[ReasonPart]:
    """The step-time difference as work at a's efficiency, and the change of efficiency."""
    if time.work_ratio is None or time.efficiency_ratio is None:
        return []
    work_ns = round(time.a_ns * time.work_ratio) - time.a_ns
    return [
        ReasonPart(role="time", title=f"work ({text(time.work_ratio, 'ratio')} the FLOPs)", change=work_ns),
        ReasonPart(
            role="time",
            title=f"efficiency ({text(time.efficiency_ratio, 'ratio')} the FLOP/s)",
            change=time.b_ns - time.a_ns - work_ns,
        ),
    ]


def _sentence(
    row: MetricRow, parts: Sequence[ReasonPart], changes: ModelChanges, reports: tuple[Report, Report]
) -> str:
    where = f" under {row.config}" if row.config is not None else ""
    lead = f"{row.title}{where} {_signed(row.change or 0, row.unit)}"
    if row.metric == "largest_layer":
        return f"{lead}: {_largest_layers(reports)}."
    if row.metric in FIGURES:
        words = _edit_words(parts, changes, row.unit)
    else:
        words = _part_words(parts, changes.edits, row.unit)
        if row.metric == "step_ns" and changes.edits:
            words.append(f"edited: {', '.join(edit.title for edit in changes.edits[:MAX_NAMED])}")
    return f"{lead}: {'; '.join(words)}." if words else f"{lead}."


def _edit_words(parts: Sequence[ReasonPart], changes: ModelChanges, unit: Unit) -> list[str]:
    """One text per edit: the edit, its own change, and its consequence. Small edits are summed up."""
    words: list[str] = []
    texts: dict[tuple[int, ...], list[str]] = {}
    sums: dict[tuple[int, ...], int] = {}
    for part in parts:
        sums[part.edits] = sums.get(part.edits, 0) + part.change
        if part.role == "consequence":
            effect = f"{part.title}, " if part.title != "affected layers" else ""
            layers = f"{plural(part.layers, 'layer')} {'below' if effect else 'affected'}"
            texts.setdefault(part.edits, []).append(f"{effect}{_signed(part.change, unit)} in {layers}")
        elif part.role == "remainder":
            texts.setdefault(part.edits, []).append(f"{part.title} {_signed(part.change, unit)}")
        else:
            texts.setdefault(part.edits, []).insert(0, _signed(part.change, unit))
    largest = max((abs(change) for change in sums.values()), default=0)
    named = [key for key in sums if abs(sums[key]) >= MIN_NAMED_SHARE * largest][:MAX_NAMED]
    for key in named:
        titles = " together with ".join(changes.edits[number].title for number in key)
        lead = f"{titles}: " if key else ""
        own = texts[key]
        words.append(f"{lead}{', '.join(own)}" if key else f"no single edit: {', '.join(own)}")
    others = [key for key in sums if key not in named]
    if others:
        words.append(f"{plural(len(others), 'smaller part')} {_signed(sum(sums[key] for key in others), unit)}")
    return words


def _part_words(parts: Sequence[ReasonPart], edits: Sequence[Edit], unit: Unit) -> list[str]:
    """The parts by the edit that causes them, the edit first: ``optimizer SGD -> AdamW: optimizer state +8.75 MiB``."""
    named = parts[:MAX_PARTS_NAMED]
    texts: dict[tuple[int, ...], list[str]] = {}
    for part in named:
        texts.setdefault(part.edits, []).append(f"{part.title} {_signed(part.change, unit)}")
    words = [
        f"{' and '.join(edits[number].title for number in key)}: {', '.join(items)}" if key else ", ".join(items)
        for key, items in texts.items()
    ]
    others = sum(part.change for part in parts[MAX_PARTS_NAMED:])
    return [*words, f"others {_signed(others, unit)}"] if others else words


def _largest_layers(reports: tuple[Report, Report]) -> str:
    """The layer with the most FLOPs on each side."""
    names = []
    for report in reports:
        if report.static is not None and report.static.modules:
            node = max(report.static.modules, key=lambda node: node.step_cost.flops)
            names.append(f"{shown_path(node.path)} ({text(node.step_cost.flops, 'flops')})")
    return " -> ".join(names)


def _signed(value: int, unit: Unit) -> str:
    words = signed(value, unit)
    if unit != "flops":
        return words
    return f"{words}FLOPs" if words[-1].isalpha() else f"{words} FLOPs"
