"""The table of changed layers in few rows: one per edit, then the affected layers by subtree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from profiler_kit.records.comparison import LayerChange
from profiler_kit.records.edits import FIGURES, Consequence, Edit, FigureChanges, LayerGroup
from profiler_kit.records.paths import shown_path
from profiler_kit.units import plural

MAX_SUBTREES: Final = 8  # rows of affected layers for one set of edits; the others share one row
MIN_ROW_SHARE: Final = 0.01  # of the group's own change: smaller subtrees share one row


def layer_groups(
    layers: Sequence[LayerChange], edits: Sequence[Edit], consequences: Sequence[Consequence]
) -> tuple[LayerGroup, ...]:
    """The changed `layers` in groups: every changed layer is in exactly one, so their figures sum to the same totals."""
    edited: dict[int, list[LayerChange]] = defaultdict(list)
    affected: dict[tuple[int, ...], list[LayerChange]] = defaultdict(list)
    for layer in layers:
        if layer.role == "edited" and layer.edits:
            edited[layer.edits[0]].append(layer)
        elif layer.role == "affected":
            affected[layer.edits].append(layer)
    groups = [
        LayerGroup(
            role="edited",
            subject=edit.subject,
            change=edit.change,
            layers=len(edited[number]),
            figures=_figures(edited[number]),
            device_ns=_device_ns(edited[number]),
            edits=(number,),
        )
        for number, edit in enumerate(edits)
    ]
    words = {consequence.edits: consequence.change for consequence in consequences}
    for numbers, members in sorted(affected.items()):
        groups += _subtrees(members, words.get(numbers, ""), numbers)
    return tuple(groups)


def _subtrees(members: Sequence[LayerChange], words: str, numbers: tuple[int, ...]) -> list[LayerGroup]:
    """The affected layers by the children of their innermost common module, the largest first."""
    by_name: dict[str, list[LayerChange]] = defaultdict(list)
    depth = _common_depth([layer.path for layer in members])
    for layer in members:
        by_name[".".join(layer.path.split(".")[: depth + 1])].append(layer)
    sums = {name: _figures(layers) for name, layers in by_name.items()}
    totals = {key: sum(abs(getattr(change, key)) for change in sums.values()) for key in FIGURES}

    def share(name: str) -> float:
        return max((abs(getattr(sums[name], key)) / totals[key] for key in FIGURES if totals[key]), default=0.0)

    names = sorted(by_name, key=lambda name: -share(name))
    shown = [name for name in names[:MAX_SUBTREES] if share(name) >= MIN_ROW_SHARE] or names[:1]
    others = [layer for name in names if name not in shown for layer in by_name[name]]
    rows = [(shown_path(name), by_name[name]) for name in shown]
    if others:
        rows.append((plural(len(others), "other layer"), others))
    return [
        LayerGroup(
            role="affected",
            subject=subject,
            change=words or (layers[0].change if len(layers) == 1 else "") or "other figures",
            layers=len(layers),
            figures=_figures(layers),
            device_ns=_device_ns(layers),
            edits=numbers,
        )
        for subject, layers in rows
    ]


def _common_depth(paths: Sequence[str]) -> int:
    """How many leading names all `paths` share, at most one less than the shortest has."""
    parts = [path.split(".") for path in paths]
    depth = 0
    while all(len(names) > depth + 1 and names[depth] == parts[0][depth] for names in parts):
        depth += 1
    return depth


def _figures(layers: Iterable[LayerChange]) -> FigureChanges:
    return sum((layer.figures for layer in layers), FigureChanges())


def _device_ns(layers: Sequence[LayerChange]) -> int | None:
    times = [layer.device_ns_change for layer in layers]
    known = [time_ns for time_ns in times if time_ns is not None]
    return sum(known) if known and len(known) == len(times) else None
