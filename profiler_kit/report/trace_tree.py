"""The modules of a trace as a tree: every module with the device time of all below it. The rows below a row add up to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.traces import TraceModule, TracePhase
from profiler_kit.report.columns.traces import ModuleLine

OWN: Final = "(own work)"
NO_MODULE: Final = "(in no module)"
DEEPEST: Final = 50  # levels that are drawn at most, whatever a trace nests; what is deeper stands in the totals


@dataclass(slots=True)
class _Node:
    """A module while the tree is built: what it is called below its parent, its own times, its children by name."""

    name: str
    class_name: str = ""
    own: Counter[TracePhase] = field(default_factory=Counter)
    below: dict[str, _Node] = field(default_factory=dict)
    times: Counter[TracePhase] = field(default_factory=Counter)

    @property
    def kernel_ns(self) -> int:
        return self.times.total()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTree:
    """Lines in pre-order, guides before their names; `levels` of `deepest` are shown."""

    lines: tuple[ModuleLine, ...]
    levels: int
    deepest: int


def names_modules(modules: Iterable[TraceModule]) -> bool:
    """Whether any of `modules` is one, and not what stands for none."""
    return any(module.path and module.path not in PSEUDO_PATHS for module in modules)


def module_tree(modules: Sequence[TraceModule], *, top: int | None, depth: int | None, most: int) -> ModuleTree:
    """The tree of `modules`, the longest first among siblings, those beyond `top` in one line.

    `depth`: levels shown, None for as many as make no more than `most` lines.
    """
    roots = _forest(modules)
    deepest = max(map(_height, roots), default=0)

    def drawn(levels: int) -> ModuleTree:
        lines: list[ModuleLine] = []
        _draw(roots, levels, top, "", lines)
        return ModuleTree(lines=tuple(lines), levels=min(levels, deepest), deepest=deepest)

    if depth is not None:
        return drawn(min(max(depth, 1), DEEPEST))
    found = drawn(1)
    for levels in range(2, min(deepest, DEEPEST) + 1):
        wider = drawn(levels)
        if len(wider.lines) > most:
            break
        found = wider
    return found


def _forest(modules: Iterable[TraceModule]) -> list[_Node]:
    """The outermost modules. One with a single child and no work of its own is one line with it, under both names."""
    top = _Node("")
    for module in modules:
        node = top
        for name in module.path.split(".") if module.path else (NO_MODULE,):
            node = node.below.setdefault(name, _Node(name))
        node.own[module.phase] += module.kernel_ns
        node.class_name = module.class_name or node.class_name
    _settle(top)
    return list(top.below.values())


def _settle(top: _Node) -> None:
    """Adds up the times from the leaves, without recursion: a trace may nest as deep as it likes."""
    order, stack = [], [top]
    while stack:
        node = stack.pop()
        order.append(node)
        stack.extend(node.below.values())
    for node in reversed(order):
        node.below = {name: _short(child) for name, child in node.below.items()}
        node.times = Counter(node.own)
        for child in node.below.values():
            node.times.update(child.times)


def _short(node: _Node) -> _Node:
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
    rest: list[_Node] = []
    if top is not None and len(by_time) > top + 1:  # one line more says more than "(1 more)"
        by_time, rest = by_time[:top], by_time[top:]
    below = guide.replace("├", "│") + "├ "
    for node in by_time:
        own = node.own.total()
        lines.append(
            ModuleLine(label=f"{guide}{node.name}", class_name=node.class_name, times=dict(node.times), own_ns=own)
        )
        children = list(node.below.values())
        if children and own and levels > 1:
            children.append(_Node(OWN, own=node.own, times=node.own))
        _draw(children, levels - 1, top, below, lines)
    if rest:
        times: Counter[TracePhase] = Counter()
        for node in rest:
            times.update(node.times)
        lines.append(ModuleLine(label=f"{guide}({len(rest)} more)", class_name="", times=dict(times), own_ns=None))
