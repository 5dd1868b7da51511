"""The modules of a trace as a tree, with device time including children. The rows below a row add up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler_kit.records.counts import PSEUDO_PATHS, Phase
from profiler_kit.records.traces import TraceModule
from profiler_kit.report.columns.traces import ModuleLine

SELF: Final = "(self)"
NO_MODULE: Final = "(outside modules)"
MAX_LEVELS: Final = 50  # deeper modules are only in the totals of their ancestors


@dataclass(slots=True)
class _Node:
    """A module under construction. `own`: times by phase excluding children; `times`: including children."""

    name: str
    class_name: str = ""
    own: Counter[Phase] = field(default_factory=Counter)
    below: dict[str, _Node] = field(default_factory=dict)
    times: Counter[Phase] = field(default_factory=Counter)

    @property
    def kernel_ns(self) -> int:
        return self.times.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTree:
    """Lines in pre-order with guide characters before the names. `levels` of `depth` levels are shown."""

    lines: tuple[ModuleLine, ...]
    levels: int
    depth: int


def names_modules(modules: Iterable[TraceModule]) -> bool:
    """Whether `modules` has a real module, not only pseudo paths."""
    return any(module.path and module.path not in PSEUDO_PATHS for module in modules)


def module_tree(modules: Sequence[TraceModule], *, top: int | None, depth: int | None, max_lines: int) -> ModuleTree:
    """The tree of `modules`; siblings longest first, those beyond `top` in one line.

    `depth`: levels shown, None for as many as give no more than `max_lines` lines.
    """
    roots = _forest(modules)
    deepest = max(map(_height, roots), default=0)

    def draw(levels: int) -> ModuleTree:
        lines: list[ModuleLine] = []
        _draw(roots, levels, top, "", lines)
        return ModuleTree(lines=tuple(lines), levels=min(levels, deepest), depth=deepest)

    if depth is not None:
        return draw(min(max(depth, 1), MAX_LEVELS))
    result = draw(1)
    for levels in range(2, min(deepest, MAX_LEVELS) + 1):
        wider = draw(levels)
        if len(wider.lines) > max_lines:
            break
        result = wider
    return result


def _forest(modules: Iterable[TraceModule]) -> list[_Node]:
    """The outermost modules. A module without own work and with a single child shares a line with the child."""
    top = _Node("")
    for module in modules:
        node = top
        for name in module.path.split(".") if module.path else (NO_MODULE,):
            node = node.below.setdefault(name, _Node(name))
        node.own[module.phase] += module.kernel_ns
        node.class_name = module.class_name or node.class_name
    _add_up(top)
    return list(top.below.values())


def _add_up(top: _Node) -> None:
    """Add up the times from the leaves. Not recursive, because a trace may nest to any depth."""
    order, stack = [], [top]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.below.values())
    for node in reversed(order):
        node.below = {name: _skip_container(child) for name, child in node.below.items()}
        node.times = Counter(node.own)
        for child in node.below.values():
            node.times.update(child.times)


def _skip_container(node: _Node) -> _Node:
    if len(node.below) != 1 or node.own.total():
        return node
    (child,) = node.below.values()
    child.name = f"{node.name}.{child.name}"
    return child


def _height(root: _Node) -> int:
    height, level = 0, [root]
    while level:
        height += 1
        level = [child for node in level for child in node.below.values()]
    return height


def _draw(nodes: Sequence[_Node], levels: int, top: int | None, guide: str, lines: list[ModuleLine]) -> None:
    if levels == 0:
        return
    by_time = sorted((node for node in nodes if node.kernel_ns), key=lambda node: -node.kernel_ns)
    others: list[_Node] = []
    if top is not None and len(by_time) > top + 1:  # a single further line says more than "(1 more)"
        by_time, others = by_time[:top], by_time[top:]
    below = guide.replace("├", "│") + "├ "
    for node in by_time:
        own = node.own.total()
        lines.append(
            ModuleLine(label=f"{guide}{node.name}", class_name=node.class_name, times=dict(node.times), own_ns=own)
        )
        children = list(node.below.values())
        if children and own and levels > 1:
            children.append(_Node(SELF, own=node.own, times=node.own))
        _draw(children, levels - 1, top, below, lines)
    if others:
        times: Counter[Phase] = Counter()
        for node in others:
            times.update(node.times)
        lines.append(ModuleLine(label=f"{guide}({len(others)} more)", class_name="", times=dict(times), own_ns=None))
