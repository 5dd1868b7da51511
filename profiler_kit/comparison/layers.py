"""Aligns the layers of two models, and says of each what became of it and how much that matters."""

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

TIME_NOISE: Final = 0.05  # a layer's device time comes from a few traced steps: less than this of it is no change
TIME_WORTH: Final = 0.01  # nor is less than this of all layers' time

Pair = tuple[ModuleNode | None, ModuleNode | None]


def layer_changes(
    a: StaticCount, b: StaticCount, a_run: ConfigRun | None, b_run: ConfigRun | None
) -> tuple[LayerChange, ...]:
    """What became of every layer, largest contribution first. The runs give device times; None where they don't compare.

    Counts: a layer is what has figures of its own, or no children. Ops of a module's own ``forward`` are the module's.
    """
    a_times, b_times = device_times(a_run), device_times(b_run)
    if a_times is None or b_times is None:
        a_times = b_times = None
    pairs = align(_layers(a, a_times), _layers(b, b_times))
    figures = [(_figures(one, a_times), _figures(other, b_times)) for one, other in pairs]
    totals = _totals(figures)
    changes = []
    for (one, other), (a_figures, b_figures) in zip(pairs, figures, strict=True):
        kind, words = _kind(one, other, a_figures, b_figures, totals[-1])
        either = other or one
        changes.append(
            LayerChange(
                kind=kind,
                a_path=one.path if one else None,
                b_path=other.path if other else None,
                class_name=either.class_name if either else "",
                change=words,
                a=a_figures,
                b=b_figures,
                contribution=_contribution(a_figures, b_figures, totals),
            )
        )
    return tuple(sorted(changes, key=lambda change: -change.contribution))  # stable: ties stay in model order


def align(a: Iterable[ModuleNode], b: Iterable[ModuleNode]) -> list[Pair]:
    """Each node of `a` and `b` exactly once, paired with its counterpart where it has one; b's order, then what is gone.

    The roots are partners whatever their types. Then in this order: the same path, type and configuration; the same type
    and configuration at a path that differs in its numbers alone, for an insertion into a Sequential moves all that
    follow; the same path and type; the same type and configuration anywhere, a rename.
    """
    left, right = list(a), list(b)
    roots = [node for node in left if not node.path] if any(not node.path for node in right) else []
    partner: dict[str, ModuleNode] = {node.path: node for node in roots}
    keys: tuple[Callable[[ModuleNode], Hashable], ...] = (
        lambda node: (node.path, node.class_name, node.config),
        lambda node: (re.sub(r"\d+", "#", node.path), node.class_name, node.config),
        lambda node: (node.path, node.class_name),
        lambda node: (node.class_name, node.config),
    )
    for key in keys:
        waiting: dict[Hashable, deque[ModuleNode]] = defaultdict(deque)
        taken = {node.path for node in partner.values()}
        for node in left:
            if node.path not in taken:
                waiting[key(node)].append(node)
        for node in right:
            if node.path not in partner and (queue := waiting[key(node)]):
                partner[node.path] = queue.popleft()
    gone = {node.path for node in left} - {node.path for node in partner.values()}
    pairs: list[Pair] = [(partner.get(node.path), node) for node in right]
    return pairs + [(node, None) for node in left if node.path in gone]


def device_times(run: ConfigRun | None) -> dict[str, int] | None:
    """Device time per step by owner, all phases together; None where the run has no trace."""
    if run is None or run.failure is not None or not run.modules:
        return None
    times: dict[str, int] = defaultdict(int)
    for layer in run.modules:
        times[layer.path] += layer.kernel_ns
    return dict(times)


def _layers(static: StaticCount, times: dict[str, int] | None) -> list[ModuleNode]:
    """The modules that are layers, and owners known from times alone (the optimizer), as modules without figures."""
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
    known = {node.path for node in static.modules}
    return layers + [ModuleNode(path=path, class_name="") for path in (times or {}) if path not in known]


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


def _kind(
    one: ModuleNode | None, other: ModuleNode | None, a: LayerFigures, b: LayerFigures, total_ns: int
) -> tuple[LayerKind, str]:
    if one is None and other is not None:
        return "added", _described(other)
    if other is None and one is not None:
        return "removed", _described(one)
    if one is None or other is None:
        raise ValueError("a pair has at least one side")
    words = _difference(one, other, a, b, total_ns)
    if one.path != other.path:
        moved = f"was {shown_path(one.path)}"
        return "renamed", f"{moved}; {words}" if words else moved
    return ("changed", words) if words else ("same", "")


def _described(node: ModuleNode) -> str:
    if not node.class_name:
        return ""
    return f"{node.class_name}({node.config})" if node.config else node.class_name


def _difference(one: ModuleNode, other: ModuleNode, a: LayerFigures, b: LayerFigures, total_ns: int) -> str:
    """What differs between two partners, in words; empty where nothing does."""
    if one.class_name != other.class_name:
        return f"{one.class_name} => {other.class_name}"
    if one.config != other.config:
        return config_difference(one.config, other.config)
    if one.output_shape != other.output_shape:
        return f"same layer, output {_shape(one)} => {_shape(other)}"
    if one.calls != other.calls:
        return f"same layer, {one.calls} => {other.calls} calls"
    if (a.flops, a.macs, a.params) != (b.flops, b.macs, b.params):
        return "same layer, other work"
    if a.saved_bytes != b.saved_bytes:
        return "same layer, saves other tensors"
    before_ns, after_ns = a.device_ns or 0, b.device_ns or 0
    if abs(after_ns - before_ns) > max(TIME_NOISE * before_ns, TIME_WORTH * total_ns):
        return "same work, other time"
    return ""


def _shape(node: ModuleNode) -> str:
    return "?" if node.output_shape is None else shape_text(node.output_shape)


def config_difference(before: str, after: str) -> str:
    """What differs between two module configurations: ``32 => 64; bias True => False``."""
    old_values, old_names = _parts(before)
    new_values, new_names = _parts(after)
    words = []
    if len(old_values) == len(new_values):
        words += [f"{old} => {new}" for old, new in zip(old_values, new_values, strict=True) if old != new]
    else:
        words.append(f"{', '.join(old_values) or 'nothing'} => {', '.join(new_values) or 'nothing'}")
    for name in list(old_names) + [name for name in new_names if name not in old_names]:
        if old_names.get(name) != new_names.get(name):
            words.append(f"{name} {old_names.get(name, 'default')} => {new_names.get(name, 'default')}")
    return "; ".join(words) or "written otherwise"


def _parts(config: str) -> tuple[list[str], dict[str, str]]:
    """Positional and named parts of ``3, 32, kernel_size=(3, 3)``; commas inside brackets divide nothing."""
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
    named = {name: value for name, found, value in (part.partition("=") for part in parts) if found}
    return [part for part in parts if part and "=" not in part], named
