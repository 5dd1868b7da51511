"""The charts of comparisons: what makes up the difference, and the aligned module trees of both sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from profiler_kit.records.comparison import Comparison, LayerKind, clock_name
from profiler_kit.records.document import Chart, ChartData
from profiler_kit.records.paths import parent_path, shown_path
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.units import Unit

# Key and title of a figure, and its unit.
Figure = tuple[str, str, str]
Figures = tuple[int | None, ...]

_COUNTED: Final[tuple[Figure, ...]] = (
    ("flops", "FLOPs", "flops"),
    ("saved_bytes", "saved for backward", "bytes"),
    ("params", "parameters", "count"),
)
_KINDS: Final[dict[str, LayerKind]] = {"only a": "removed", "only b": "added", "alike": "renamed", "same": "same"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    """A layer of either side with its figures excluding children. `a` or `b` is None where it does not exist."""

    path: str
    class_name: str
    status: LayerKind
    note: str
    a: Figures | None
    b: Figures | None


def layer_tree(comparison: Comparison) -> Iterator[Chart]:
    """The layers of two reports as one tree, in two charts; nothing without a difference."""
    if all(layer.kind == "same" and not layer.contribution for layer in comparison.layers):
        return
    figures = _COUNTED
    if comparison.config is not None and all(layer.device_ns_change is not None for layer in comparison.layers):
        figures = (("device_ns", clock_name(comparison.clock), "ns"), *_COUNTED)
    layers = [
        _Layer(
            path=layer.path,
            class_name=layer.class_name,
            status=layer.kind,
            note=layer.change if layer.kind != "same" else "",
            a=None if layer.a_path is None else tuple(getattr(layer.a, key) for key, _, _ in figures),
            b=None if layer.b_path is None else tuple(getattr(layer.b, key) for key, _, _ in figures),
        )
        for layer in comparison.layers
    ]
    yield from _charts((comparison.a.label, comparison.b.label), figures, layers, "per step")


def trace_module_tree(compared: TraceComparison) -> Iterator[Chart]:
    """The modules of two traces as one tree, in two charts; nothing for traces without modules."""
    phases: defaultdict[str, list[TimeChange]] = defaultdict(list)
    for change in compared.modules:
        phases[change.name].append(change)
    if len(phases) < 2:
        return
    layers = []
    for path, changes in phases.items():
        kinds = {_KINDS[change.alike] for change in changes}
        names = {
            f"{' + '.join(change.a_names)} -> {' + '.join(change.b_names)}" for change in changes if change.a_names
        }
        layers.append(
            _Layer(
                path=path,
                class_name="",
                status=kinds.pop() if len(kinds) == 1 else "changed",
                note="; ".join(sorted(names)),
                a=(sum(change.a_ns for change in changes),) if any(c.alike != "only b" for c in changes) else None,
                b=(sum(change.b_ns for change in changes),) if any(c.alike != "only a" for c in changes) else None,
            )
        )
    labels = (compared.a.label, compared.b.label)
    yield from _charts(labels, (("ns", "device time", "ns"),), layers, f"per {compared.per}")


def _charts(sides: tuple[str, str], figures: Sequence[Figure], layers: Sequence[_Layer], scope: str) -> Iterator[Chart]:
    """The modules as a tree of rows, and as boxes that are as wide as the larger side, colored by the change."""
    tree = Chart(
        kind="tree",
        name="tree",
        title="Aligned modules",
        text=f"Figures {scope}, including children. Modules with the largest difference come first. Unfold a module to see "
        f"which of its children differ.",
        data=ChartData(
            lambda: {
                "sides": list(sides),
                "figures": [{"key": key, "title": title, "unit": unit} for key, title, unit in figures],
                "nodes": [_node(node, figures) for node in _nodes(layers, len(figures))],
            }
        ),
    )
    yield tree
    yield Chart(
        kind="icicle",
        name="changes",
        title="Changes in the module tree",
        text=f"Each box is a module, as wide as its part of the larger side, with its children below. Orange ones are larger in "
        f"{sides[1]}, blue ones smaller, gray ones equal. Click a module to zoom in.",
        data=ChartData(lambda: _icicle_data(tree.data)),
    )


class _Node:
    """A module with sums over its subtree. `key`: its path; a layer that replaces another type has a key of its own."""

    def __init__(self, key: str, path: str, parent: str | None) -> None:
        self.key, self.path, self.parent_key = key, path, parent
        self.layer: _Layer | None = None
        self.children: list[_Node] = []
        self.parent = -1
        self.sums: list[list[int] | None] = [None, None]
        self.status: LayerKind = "same"


def _nodes(layers: Iterable[_Layer], width: int) -> list[_Node]:
    """All layers and their ancestors in pre-order, siblings in the order of `layers`."""
    nodes: dict[str, _Node] = {}

    def add(key: str, path: str) -> _Node:
        if key not in nodes:
            parent = None if not path or path.startswith("(") else parent_path(path)
            nodes[key] = _Node(key, path, parent)
            if parent is not None:
                add(parent, parent).children.append(nodes[key])
        return nodes[key]

    for layer in layers:
        node = add(layer.path, layer.path)
        if node.layer is not None:  # the two sides have modules of different types at this path
            node = add(f"{layer.path} ({layer.status})", layer.path)
        node.layer = layer
    roots = [node for node in nodes.values() if node.parent_key is None]
    ordered: list[_Node] = []
    pending = [(root, -1) for root in reversed(roots)]
    while pending:
        node, node.parent = pending.pop()
        pending += [(child, len(ordered)) for child in reversed(node.children)]
        ordered.append(node)
    for node in reversed(ordered):
        _add_up(node, width)
    return ordered


def _add_up(node: _Node, width: int) -> None:
    """Sum the figures of `node` and its children, and derive its status from theirs."""
    own = (node.layer.a, node.layer.b) if node.layer is not None else (None, None)
    for side in (0, 1):
        parts = [part for part in (own[side], *(child.sums[side] for child in node.children)) if part is not None]
        if parts:
            node.sums[side] = [sum(part[i] or 0 for part in parts) for i in range(width)]
    statuses = {child.status for child in node.children}
    if node.layer is not None and node.layer.status != "same":
        node.status = node.layer.status
    elif node.layer is None and len(statuses) == 1:
        node.status = statuses.pop()
    elif statuses - {"same"}:
        node.status = "changed"


def _node(node: _Node, figures: Sequence[Figure]) -> dict[str, Any]:
    a, b = node.sums
    layer = node.layer
    return {
        "name": node.path.rpartition(".")[2] or shown_path(node.path),
        "path": shown_path(node.path),
        "type": layer.class_name if layer is not None else "",
        "parent": node.parent,
        "status": node.status,
        "note": layer.note if layer is not None else "",
        **{key: [None if side is None else side[i] for side in (a, b)] for i, (key, _, _) in enumerate(figures)},
    }


def _icicle_data(tree: Mapping[str, Any]) -> dict[str, Any]:
    size = tree["figures"][0]
    nodes: list[dict[str, Any]] = []
    roots = sum(node["parent"] < 0 for node in tree["nodes"])
    if roots > 1:  # the model, the loss and the optimizer
        sums = [sum(node[size["key"]][side] or 0 for node in tree["nodes"] if node["parent"] < 0) for side in (0, 1)]
        nodes.append({"name": "(all)", "path": "(all)", "type": "", "parent": -1, **_sized(sums, size["key"])})
    shift = len(nodes)
    for node in tree["nodes"]:
        parent = node["parent"] + shift if node["parent"] >= 0 else shift - 1
        names = {key: node[key] for key in ("name", "path", "type")}
        nodes.append({**names, "parent": parent, **_sized(node[size["key"]], size["key"])})
    return {"sizes": [size], "nodes": nodes}


def _sized(sides: Sequence[int | None], key: str) -> dict[str, Any]:
    """The size and the relative change of a module with these figures."""
    a, b = (side or 0 for side in sides)
    most = max(a, b)
    return {"share": None, "change": (b - a) / most if most else 0.0, key: most}


# The largest changes have a bar each; the others share one.
MAX_CHANGES: Final = 14


def layer_waterfall(comparison: Comparison) -> Iterator[Chart]:
    """The difference of two reports by layer, in device time where both sides have it, else in FLOPs."""
    timed = all(layer.device_ns_change is not None for layer in comparison.layers) and comparison.config is not None
    changes = [
        (shown_path(layer.path), layer.device_ns_change or 0 if timed else layer.b.flops - layer.a.flops)
        for layer in comparison.layers
    ]
    start = sum((layer.a.device_ns or 0) if timed else layer.a.flops for layer in comparison.layers)
    yield from _waterfall(
        (comparison.a.label, comparison.b.label), start, changes, "ns" if timed else "flops", "Difference by layer"
    )


def trace_waterfall(compared: TraceComparison) -> Iterator[Chart]:
    """The difference of two traces by phase and cause of idle time."""
    changes = [(change.name, change.change_ns) for change in compared.phases]
    changes += [(f"idle: {change.name}", change.change_ns) for change in compared.causes]
    labels = (compared.a.label, compared.b.label)
    yield from _waterfall(
        labels, compared.span.a_ns, changes, "ns", f"Difference by phase and idle cause, per {compared.per}"
    )


def _waterfall(
    labels: tuple[str, str], start: int, changes: Sequence[tuple[str, int]], unit: Unit, title: str
) -> Iterator[Chart]:
    ordered = sorted((change for change in changes if change[1]), key=lambda change: -abs(change[1]))
    if not ordered:
        return
    largest, others = ordered[:MAX_CHANGES], ordered[MAX_CHANGES:]
    largest += [(f"({len(others)} more)", sum(change for _, change in others))] if others else []
    rows = [{"name": labels[0], "start": 0, "end": start, "total": True}]
    for name, change in largest:
        rows.append({"name": name, "start": start, "end": start + change, "total": False})
        start += change
    rows.append({"name": labels[1], "start": 0, "end": start, "total": True})
    yield Chart(
        kind="waterfall",
        name="waterfall",
        title=title,
        text=f"From {labels[0]} to {labels[1]}: each bar begins where the one above ends. Orange adds, blue saves.",
        data={"unit": unit, "rows": rows},
    )
