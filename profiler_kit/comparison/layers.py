"""Alignment of two models' layers, and the change of each layer with its contribution."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from profiler_kit.records.comparison import LayerChange, LayerFigures, LayerKind
from profiler_kit.records.counts import ModuleNode, StaticCount
from profiler_kit.records.paths import shown_path
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import shape_text

# A layer's device time comes from a few traced steps. A change counts only above both: a share of the layer's own time, and a
# share of all layers' time.
LAYER_TIME_NOISE_SHARE: Final = 0.05
MIN_TOTAL_TIME_SHARE: Final = 0.01

Pair = tuple[ModuleNode | None, ModuleNode | None]


def layer_changes(
    a: StaticCount, b: StaticCount, a_run: ConfigRun | None, b_run: ConfigRun | None
) -> tuple[LayerChange, ...]:
    """The change of every layer, largest contribution first. The runs give device times; None if these are not comparable.

    Counts: a layer is a module with figures of its own or without children. Ops in a module's own ``forward`` belong to it.
    """
    a_times, b_times = device_times(a_run), device_times(b_run)
    if a_times is None or b_times is None:
        a_times = b_times = None
    pairs = align(_layers(a, a_times), _layers(b, b_times))
    figures = [(_figures(a_node, a_times), _figures(b_node, b_times)) for a_node, b_node in pairs]
    totals = _totals(figures)
    changes = []
    for (a_node, b_node), (a_figures, b_figures) in zip(pairs, figures, strict=True):
        kind, description = _classify(a_node, b_node, a_figures, b_figures, totals[-1])
        node = b_node or a_node
        changes.append(
            LayerChange(
                kind=kind,
                a_path=a_node.path if a_node else None,
                b_path=b_node.path if b_node else None,
                class_name=node.class_name if node else "",
                change=description,
                a=a_figures,
                b=b_figures,
                contribution=_contribution(a_figures, b_figures, totals),
            )
        )
    return tuple(sorted(changes, key=lambda change: -change.contribution))  # stable: ties stay in model order


def align(a: Iterable[ModuleNode], b: Iterable[ModuleNode]) -> list[Pair]:
    """Pair each node of `a` and `b` with its counterpart, if any. Each node occurs once: b's nodes in order, then removed ones.

    The roots match whatever their types. The other nodes match by the first of these rules that applies:

    1. the same path, type and configuration;
    2. the same type and configuration, and paths that differ only in numbers, as after an insertion into a Sequential;
    3. the same path and type;
    4. the same type and configuration at any path: a rename.
    """
    a_nodes, b_nodes = list(a), list(b)
    roots = [node for node in a_nodes if not node.path] if any(not node.path for node in b_nodes) else []
    partners: dict[str, ModuleNode] = {node.path: node for node in roots}
    keys: tuple[Callable[[ModuleNode], Hashable], ...] = (
        lambda node: (node.path, node.class_name, node.config),
        lambda node: (re.sub(r"\d+", "#", node.path), node.class_name, node.config),
        lambda node: (node.path, node.class_name),
        lambda node: (node.class_name, node.config),
    )
    for key in keys:
        unmatched: dict[Hashable, deque[ModuleNode]] = defaultdict(deque)
        matched_paths = {node.path for node in partners.values()}
        for node in a_nodes:
            if node.path not in matched_paths:
                unmatched[key(node)].append(node)
        for node in b_nodes:
            if node.path not in partners and (queue := unmatched[key(node)]):
                partners[node.path] = queue.popleft()
    removed_paths = {node.path for node in a_nodes} - {node.path for node in partners.values()}
    pairs: list[Pair] = [(partners.get(node.path), node) for node in b_nodes]
    return pairs + [(node, None) for node in a_nodes if node.path in removed_paths]


def device_times(run: ConfigRun | None) -> dict[str, int] | None:
    """Device time in ns per step by module path, all phases together; None if the run has no trace."""
    if run is None or run.failure is not None or not run.modules:
        return None
    times: dict[str, int] = defaultdict(int)
    for layer in run.modules:
        times[layer.path] += layer.kernel_ns
    return dict(times)


def _layers(static: StaticCount, times: dict[str, int] | None) -> list[ModuleNode]:
    """The modules that are layers, and paths that only occur in times, as the optimizer, as modules without figures."""
    parents = {node.path.rpartition(".")[0] for node in static.modules if node.path}
    layers = [
        node
        for node in static.modules
        if node.path not in parents
        or node.step_cost.bytes_moved
        or node.step_cost.flops
        or node.params
        or node.saved_bytes
        or (times or {}).get(node.path)
    ]
    module_paths = {node.path for node in static.modules}
    return layers + [ModuleNode(path=path, class_name="") for path in (times or {}) if path not in module_paths]


def _figures(node: ModuleNode | None, times: dict[str, int] | None) -> LayerFigures:
    if node is None:
        return LayerFigures(device_ns=None if times is None else 0)
    cost = node.step_cost
    return LayerFigures(
        flops=cost.flops,
        macs=cost.macs,
        params=node.params,
        saved_bytes=node.saved_bytes,
        device_ns=None if times is None else times.get(node.path, 0),
    )


def _totals(figures: list[tuple[LayerFigures, LayerFigures]]) -> tuple[int, ...]:
    """The larger side's total of FLOPs, parameters, saved bytes and device time."""
    sides = [[_measures(pair[side]) for pair in figures] for side in (0, 1)]
    columns = zip(*(map(sum, zip(*rows, strict=True)) for rows in sides if rows), strict=True)
    return tuple(max(column) for column in columns)


def _measures(figures: LayerFigures) -> tuple[int, int, int, int]:
    return figures.flops, figures.params, figures.saved_bytes, figures.device_ns or 0


def _contribution(a: LayerFigures, b: LayerFigures, totals: tuple[int, ...]) -> float:
    changes = zip(_measures(a), _measures(b), totals, strict=True)
    return max((abs(after - before) / total for before, after, total in changes if total), default=0.0)


def _classify(
    a_node: ModuleNode | None, b_node: ModuleNode | None, a: LayerFigures, b: LayerFigures, total_ns: int
) -> tuple[LayerKind, str]:
    """The kind of the layer's change and its description."""
    if a_node is None and b_node is not None:
        return "added", _description(b_node)
    if b_node is None and a_node is not None:
        return "removed", _description(a_node)
    if a_node is None or b_node is None:
        raise ValueError("a pair has at least one side")
    difference = _difference(a_node, b_node, a, b, total_ns)
    if a_node.path != b_node.path:
        rename = f"was {shown_path(a_node.path)}"
        return "renamed", f"{rename}; {difference}" if difference else rename
    return ("changed", difference) if difference else ("same", "")


def _description(node: ModuleNode) -> str:
    if not node.class_name:
        return ""
    return f"{node.class_name}({node.config})" if node.config else node.class_name


def _difference(a_node: ModuleNode, b_node: ModuleNode, a: LayerFigures, b: LayerFigures, total_ns: int) -> str:
    """The difference of two matched layers, in words; empty without any."""
    if a_node.class_name != b_node.class_name:
        return f"{a_node.class_name} => {b_node.class_name}"
    if a_node.config != b_node.config:
        return config_difference(a_node.config, b_node.config)
    if a_node.output_shape != b_node.output_shape:
        return f"same layer, output {_shape(a_node)} => {_shape(b_node)}"
    if a_node.calls != b_node.calls:
        return f"same layer, {a_node.calls} => {b_node.calls} calls"
    if (a.flops, a.macs, a.params) != (b.flops, b.macs, b.params):
        return "same layer, different work"
    if a.saved_bytes != b.saved_bytes:
        return "same layer, different saved tensors"
    before_ns, after_ns = a.device_ns or 0, b.device_ns or 0
    if abs(after_ns - before_ns) > max(LAYER_TIME_NOISE_SHARE * before_ns, MIN_TOTAL_TIME_SHARE * total_ns):
        return "same work, different time"
    return ""


def _shape(node: ModuleNode) -> str:
    return "?" if node.output_shape is None else shape_text(node.output_shape)


def config_difference(before: str, after: str) -> str:
    """The difference of two module configurations: ``32 => 64; bias True => False``."""
    old_values, old_names = _parts(before)
    new_values, new_names = _parts(after)
    changes = []
    if len(old_values) == len(new_values):
        changes += [f"{old} => {new}" for old, new in zip(old_values, new_values, strict=True) if old != new]
    else:
        changes.append(f"{', '.join(old_values) or 'nothing'} => {', '.join(new_values) or 'nothing'}")
    for name in list(old_names) + [name for name in new_names if name not in old_names]:
        if old_names.get(name) != new_names.get(name):
            changes.append(f"{name} {old_names.get(name, 'default')} => {new_names.get(name, 'default')}")
    return "; ".join(changes) or "different spelling"


def _parts(config: str) -> tuple[list[str], dict[str, str]]:
    """The positional and named parts of ``3, 32, kernel_size=(3, 3)``, split at commas outside brackets."""
    parts, depth, start = [], 0, 0
    for index, character in enumerate(config):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(config[start:index].strip())
            start = index + 1
    parts.append(config[start:].strip())
    named = {name: value for name, equals, value in (part.partition("=") for part in parts) if equals}
    return [part for part in parts if part and "=" not in part], named
