"""The module tree as rows: every module with its descendants' figures, repeated siblings in one row.

The children of a row, its own ops and what was left out among them, each a row below it, add up to it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.sums import sum_known
from profiler_kit.report.rows import LayerRow, Layers, merge

OWN: Final = "(own ops)"
MOST_ROWS: Final = 32  # where no depth is asked for: with the other sections of a count, a screen and a bit
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)\Z", re.DOTALL)

Order = Callable[[LayerRow], tuple[int, float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A module, or `count` alike siblings: its name below its parent, its row with descendants' figures, its children.

    `kind` is equal for modules of the same structure: classes, configurations, parameters, calls and forward work.
    """

    name: str
    row: LayerRow
    kind: int
    own_row: LayerRow | None = None
    children: tuple[Branch, ...] = ()
    count: int = 1

    @property
    def own(self) -> tuple[Branch, ...]:
        """Its own ops as a branch beside its children; none where it has no children, and so no other ops."""
        return (Branch(name=OWN, row=self.own_row, kind=-1),) if self.own_row is not None and self.children else ()

    @property
    def label(self) -> str:
        """The name, how many modules there are of it, and another name of the same module."""
        others = _other_names(self.row)
        also = f" (also {others[0]}{f' and {len(others) - 1} more' if len(others) > 1 else ''})" if others else ""
        times = f" ×{self.count}" if self.count > 1 else ""  # noqa: RUF001
        return f"{self.name if self.name.strip() else repr(self.name)}{times}{also}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Rows in pre-order, guides before their names, the pseudo paths last; `levels` of `deepest` below the root are shown."""

    rows: tuple[LayerRow, ...]
    levels: int
    deepest: int


def tree(layers: Layers, *, depth: int | None, top: int | None, order: Order | None, weight: Order) -> Tree:
    """The tree of `layers` as rows.

    `depth`: levels below the root, None for as many as fit a screen. `top`: children of one module, the heaviest by
    `weight`; the others are one row. `order` sorts siblings; None keeps the model's order.
    """
    roots = _forest([row for row in layers.rows if row.path not in PSEUDO_PATHS])
    beside = [row for row in layers.rows if row.path in PSEUDO_PATHS]
    beside += [layers.unattributed] if layers.unattributed else []
    others = [replace(row, held_bytes=None, families=()) for row in beside if not row.is_empty]

    def drawn(levels: int) -> Tree:
        rows: list[LayerRow] = []
        for root in roots:
            _draw(root, levels, top, order, weight, rows)
        return Tree(rows=(*rows, *others), levels=min(levels, deepest), deepest=deepest)

    deepest = max((_height(root) for root in roots), default=0)
    if depth is not None:
        return drawn(depth)
    found = drawn(1)
    for levels in range(2, deepest + 1):
        wider = drawn(levels)
        if len(wider.rows) > MOST_ROWS:
            break
        found = wider
    return found


def _draw(
    branch: Branch,
    levels: int,
    top: int | None,
    order: Order | None,
    weight: Order,
    rows: list[LayerRow],
    guide: str = "",
) -> None:
    rows.append(replace(branch.row, title=f"{guide}{branch.label}"))
    if levels == 0 or not branch.children:
        return
    below = guide.replace("├", "│") + "├ "
    for part in _parts(branch, top, order, weight):
        _draw(part, levels - 1, top, order, weight, rows, below)


def _parts(branch: Branch, top: int | None, order: Order | None, weight: Order) -> list[Branch]:
    """What adds up to `branch`: its own ops and its children, those beyond `top` in one."""
    parts = [part for part in (*branch.own, *branch.children) if not part.row.is_empty]
    rest: list[Branch] = []
    if top is not None and len(parts) > top + 1:  # one row more says more than "(1 more)"
        by_weight = sorted(range(len(parts)), key=lambda i: weight(parts[i].row))
        kept = set(by_weight[:top])
        rest = [part for i, part in enumerate(parts) if i not in kept]
        parts = [parts[i] for i in sorted(kept)]
    if order is not None:
        parts.sort(key=lambda part: order(part.row))
    if rest:
        modules = sum(part.count for part in rest)
        parts.append(Branch(name=f"({modules} more)", row=merge("", [part.row for part in rest]), kind=-1))
    return parts


def _forest(rows: Sequence[LayerRow]) -> list[Branch]:
    """The trees of `rows`, which come parents first; a row without a parent's row is a tree of its own."""
    known = {row.path for row in rows}
    below: dict[str | None, list[LayerRow]] = {}
    for row in rows:
        below.setdefault(_parent(row.path, known), []).append(row)
    kinds: dict[object, int] = {}

    def branch(row: LayerRow, above: str | None) -> Branch:
        children = _folded([branch(child, row.path) for child in below.get(row.path, ())])
        whole = _with_descendants(row)
        shape = tuple((child.name, child.kind) for child in children)
        work = (whole.counted.params, whole.counted.forward) if whole.counted else None
        same = (row.class_name, row.config, row.calls, row.is_empty, _other_names(row), work, shape)
        return Branch(
            name=row.path[len(above) + 1 :] if above else row.label,
            row=whole,
            own_row=replace(
                row, class_name=None, config=None, calls=None, aliases=(), output_bytes=None, held_bytes=None
            ),
            children=tuple(map(_short, children)),
            kind=kinds.setdefault(same, len(kinds)),
        )

    return [branch(row, None) for row in below.get(None, ())]


def _parent(path: str, known: set[str]) -> str | None:
    """The nearest ancestor that has a row: a module's name may hold a dot, where somebody forced it in."""
    while path:
        path = path.rpartition(".")[0]
        if path in known:
            return path
    return None


def _with_descendants(row: LayerRow) -> LayerRow:
    """`row` with its descendants' figures for its own; what does not add up is left out."""
    return replace(
        row,
        counted=row.counted_total,
        timed=row.timed_total,
        floor=row.floor_total,
        held_bytes=None,
        families=(),
        math=None,
    )


def _other_names(row: LayerRow) -> tuple[str, ...]:
    """Further names of the module, those below the same parent without its path."""
    parent = row.path.rpartition(".")[0]
    return tuple(alias.removeprefix(f"{parent}.") if parent else alias for alias in row.aliases)


def _folded(siblings: Sequence[Branch]) -> list[Branch]:
    """`siblings` with those of one kind whose names count up (``0``, ``1``, ``2``; ``block1``, ``block2``) as one branch."""
    runs: list[list[Branch]] = []
    for branch in siblings:
        if runs and runs[-1][-1].kind == branch.kind and _follows(branch.name, runs[-1][-1].name):
            runs[-1].append(branch)
        else:
            runs.append([branch])
    return [_merged(run) if len(run) > 1 else run[0] for run in runs]


def _follows(name: str, before: str) -> bool:
    a, b = _NUMBERED.match(before), _NUMBERED.match(name)
    return a is not None and b is not None and a[1] == b[1] and int(b[2]) == int(a[2]) + 1


def _merged(alike: Sequence[Branch]) -> Branch:
    number = _NUMBERED.match(alike[-1].name)
    assert number is not None, "only numbered siblings are folded"
    return replace(_summed(alike), name=f"{alike[0].name}-{number[2]}", count=len(alike))


def _summed(alike: Sequence[Branch]) -> Branch:
    """Branches of one kind as one whose figures are the sum; what else they are is the first one's, as all are the same."""
    first = alike[0]
    pairs = zip(*(branch.children for branch in alike), strict=True)
    return replace(
        first,
        row=_sum(first.row, [branch.row for branch in alike]),
        own_row=_sum(first.own_row, [b.own_row for b in alike if b.own_row is not None]) if first.own_row else None,
        children=tuple(_summed(same) for same in pairs),
    )


def _sum(first: LayerRow, rows: Sequence[LayerRow]) -> LayerRow:
    fields = ("counted", "timed", "floor", "calls", "output_bytes")
    sums: dict[str, Any] = {field: sum_known(getattr(row, field) for row in rows) for field in fields}
    return replace(first, **sums)


def _short(branch: Branch) -> Branch:
    """`branch`, or its only child under both names where it has no ops of its own, as ``layers.0-11``."""
    if len(branch.children) != 1 or (branch.own_row is not None and not branch.own_row.is_empty):
        return branch
    (child,) = branch.children
    return replace(child, name=f"{branch.name}.{child.name}", count=branch.count * child.count)


def _height(branch: Branch) -> int:
    return 1 + max(map(_height, branch.children)) if branch.children else 0
