"""The module tree as rows: every module including its children, repeated siblings in one row.

The rows below a row add up to it exactly: its children, its own ops, and one row for children beyond `top`.
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
MAX_ROWS: Final = 32  # without a depth; with the other sections of a count, a little more than a screen
_NUMBERED: Final = re.compile(r"(.*?)(0|[1-9][0-9]*)\Z", re.DOTALL)

Order = Callable[[LayerRow], tuple[int, float, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """A module, or `count` equal siblings: name within the parent, row including children, child branches.

    `kind` is the same for modules of the same structure: classes, configurations, parameters, calls and forward work.
    """

    name: str
    row: LayerRow
    kind: int
    own_row: LayerRow | None = None
    children: tuple[Branch, ...] = ()
    count: int = 1

    @property
    def own_branches(self) -> tuple[Branch, ...]:
        """The module's own ops as a branch next to its children; empty if it has no children."""
        return (Branch(name=OWN, row=self.own_row, kind=-1),) if self.own_row is not None and self.children else ()

    @property
    def label(self) -> str:
        """The name, the number of merged modules, and aliases of the module."""
        others = _other_names(self.row)
        also = f" (also {others[0]}{f' and {len(others) - 1} more' if len(others) > 1 else ''})" if others else ""
        times = f" ×{self.count}" if self.count > 1 else ""  # noqa: RUF001
        return f"{self.name if self.name.strip() else repr(self.name)}{times}{also}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Rows in pre-order with guide characters before the names, pseudo paths last. `levels` of `depth` levels are shown."""

    rows: tuple[LayerRow, ...]
    levels: int
    depth: int


def tree(layers: Layers, *, depth: int | None, top: int | None, order: Order | None, weight: Order) -> Tree:
    """The tree of `layers` as rows.

    `depth`: levels below the root, None for as many as fit a screen. `top`: children per module, the heaviest by `weight`; the
    others share one row. `order`: sort key of siblings, None for the model's order.
    """
    roots = _forest([row for row in layers.rows if row.path not in PSEUDO_PATHS])
    pseudo_rows = [row for row in layers.rows if row.path in PSEUDO_PATHS]
    pseudo_rows += [layers.unattributed] if layers.unattributed else []
    last_rows = [replace(row, held_bytes=None, families=()) for row in pseudo_rows if not row.is_empty]

    def draw(levels: int) -> Tree:
        rows: list[LayerRow] = []
        for root in roots:
            _draw(root, levels, top, order, weight, rows)
        return Tree(rows=(*rows, *last_rows), levels=min(levels, deepest), depth=deepest)

    deepest = max((_height(root) for root in roots), default=0)
    if depth is not None:
        return draw(depth)
    result = draw(1)
    for levels in range(2, deepest + 1):
        wider = draw(levels)
        if len(wider.rows) > MAX_ROWS:
            break
        result = wider
    return result


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
    """The own ops and the children of `branch`, which add up to it; those beyond `top` are merged."""
    parts = [part for part in (*branch.own_branches, *branch.children) if not part.row.is_empty]
    others: list[Branch] = []
    if top is not None and len(parts) > top + 1:  # a single further row says more than "(1 more)"
        by_weight = sorted(range(len(parts)), key=lambda i: weight(parts[i].row))
        heaviest = set(by_weight[:top])
        others = [part for i, part in enumerate(parts) if i not in heaviest]
        parts = [parts[i] for i in sorted(heaviest)]
    if order is not None:
        parts.sort(key=lambda part: order(part.row))
    if others:
        modules = sum(part.count for part in others)
        parts.append(Branch(name=f"({modules} more)", row=merge("", [part.row for part in others]), kind=-1))
    return parts


def _forest(rows: Sequence[LayerRow]) -> list[Branch]:
    """The trees of `rows`, which list parents first. A row without a parent row is the root of a tree."""
    paths = {row.path for row in rows}
    below: dict[str | None, list[LayerRow]] = {}
    for row in rows:
        below.setdefault(_parent(row.path, paths), []).append(row)
    kinds: dict[object, int] = {}

    def branch(row: LayerRow, above: str | None) -> Branch:
        children = _merge_repeated([branch(child, row.path) for child in below.get(row.path, ())])
        total = _with_descendants(row)
        subtree = tuple((child.name, child.kind) for child in children)
        work = (total.counted.params, total.counted.forward) if total.counted else None
        structure = (row.class_name, row.config, row.calls, row.is_empty, _other_names(row), work, subtree)
        return Branch(
            name=row.path[len(above) + 1 :] if above else row.label,
            row=total,
            own_row=replace(
                row, class_name=None, config=None, calls=None, aliases=(), output_bytes=None, held_bytes=None
            ),
            children=tuple(map(_skip_container, children)),
            kind=kinds.setdefault(structure, len(kinds)),
        )

    return [branch(row, None) for row in below.get(None, ())]


def _parent(path: str, paths: set[str]) -> str | None:
    """The nearest ancestor in `paths`; a module's name may contain dots, so this is not always one level up."""
    while path:
        path = path.rpartition(".")[0]
        if path in paths:
            return path
    return None


def _with_descendants(row: LayerRow) -> LayerRow:
    """`row` with figures including children; figures that do not add up are left out."""
    return replace(
        row,
        counted=row.counted_total,
        timed=row.timed_total,
        predicted=row.predicted_total,
        floor=row.floor_total,
        held_bytes=None,
        families=(),
        math=None,
    )


def _other_names(row: LayerRow) -> tuple[str, ...]:
    """Aliases of the module; those with the same parent without the parent's path."""
    parent = row.path.rpartition(".")[0]
    return tuple(alias.removeprefix(f"{parent}.") if parent else alias for alias in row.aliases)


def _merge_repeated(siblings: Sequence[Branch]) -> list[Branch]:
    """`siblings`, with runs of one kind and consecutive numbers (``0``, ``1``, ``2``; ``block1``, ``block2``) as one branch."""
    runs: list[list[Branch]] = []
    for branch in siblings:
        if runs and runs[-1][-1].kind == branch.kind and _follows(branch.name, runs[-1][-1].name):
            runs[-1].append(branch)
        else:
            runs.append([branch])
    return [_merge_run(run) if len(run) > 1 else run[0] for run in runs]


def _follows(name: str, before: str) -> bool:
    a, b = _NUMBERED.match(before), _NUMBERED.match(name)
    return a is not None and b is not None and a[1] == b[1] and int(b[2]) == int(a[2]) + 1


def _merge_run(run: Sequence[Branch]) -> Branch:
    number = _NUMBERED.match(run[-1].name)
    assert number is not None, "only numbered siblings are merged"
    return replace(_add_branches(run), name=f"{run[0].name}-{number[2]}", count=len(run))


def _add_branches(branches: Sequence[Branch]) -> Branch:
    """Branches of one kind as one: figures are summed, everything else is equal and taken from the first."""
    first = branches[0]
    pairs = zip(*(branch.children for branch in branches), strict=True)
    return replace(
        first,
        row=_add_rows(first.row, [branch.row for branch in branches]),
        own_row=_add_rows(first.own_row, [b.own_row for b in branches if b.own_row is not None])
        if first.own_row
        else None,
        children=tuple(_add_branches(children) for children in pairs),
    )


def _add_rows(first: LayerRow, rows: Sequence[LayerRow]) -> LayerRow:
    fields = ("counted", "timed", "predicted", "floor", "calls", "output_bytes")
    sums: dict[str, Any] = {field: sum_known(getattr(row, field) for row in rows) for field in fields}
    return replace(first, **sums)


def _skip_container(branch: Branch) -> Branch:
    """The only child of a `branch` without own ops, under both names (``layers.0-11``); otherwise `branch`."""
    if len(branch.children) != 1 or (branch.own_row is not None and not branch.own_row.is_empty):
        return branch
    (child,) = branch.children
    return replace(child, name=f"{branch.name}.{child.name}", count=branch.count * child.count)


def _height(branch: Branch) -> int:
    return 1 + max(map(_height, branch.children)) if branch.children else 0
