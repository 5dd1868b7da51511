"""How the text of a function reads one of its parameters: by key, by attribute, by number, or unpacked."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from profiler_kit.loading.program.names import all_nodes, assigned, calls_in, dotted_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Reads:
    """The reads of a parameter `p`, in the order of the text where order matters.

    - `keys` of ``p["image"]``, `attributes` of ``p.image``, and `unpacked`, the targets of ``x, y = p``.
    - `count`: the number of items that ``p[0]`` and ``p[1]`` read. `is_numbered`: nothing else reads it, or it first becomes such
      an item, as in ``p = p[0]``.
    - `is_keywords`: ``f(**p)``. `passed_to`: the functions that get it whole, with the position.
    - `texts` that it is compared with: ``p == "train"``, ``p in ("train", "test")``.
    """

    keys: tuple[str, ...]
    attributes: tuple[str, ...]
    unpacked: tuple[ast.expr, ...]
    count: int
    is_numbered: bool
    is_keywords: bool
    passed_to: tuple[tuple[str, int], ...]
    texts: tuple[str, ...] = ()


def reads_of(tree: ast.AST, name: str) -> Reads:
    """How the code in `tree` reads the parameter `name`."""

    def is_it(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id == name

    nodes = list(all_nodes(tree))
    items = [node for node in nodes if isinstance(node, ast.Subscript) and is_it(node.value)]
    constants = {node.value: node.slice.value for node in items if isinstance(node.slice, ast.Constant)}
    numbers = {node: value for node, value in constants.items() if type(value) is int}
    uses = sorted(
        (n for n in nodes if isinstance(n, ast.Name) and n.id == name), key=lambda n: (n.lineno, n.col_offset)
    )
    becomes_item = len(uses) > 1 and isinstance(uses[0].ctx, ast.Store) and uses[0].lineno == uses[1].lineno
    reads = uses[1:2] if becomes_item else uses
    is_numbered = bool(reads) and all(node in numbers for node in reads)
    counted = [numbers[node] for node in reads] if is_numbered else list(numbers.values())
    targets = (target for node in nodes for target, value in assigned(node) if is_it(value))
    return Reads(
        keys=tuple(dict.fromkeys(value for value in constants.values() if isinstance(value, str))),
        attributes=tuple(dict.fromkeys(n.attr for n in nodes if isinstance(n, ast.Attribute) and is_it(n.value))),
        unpacked=next((tuple(t.elts) for t in targets if isinstance(t, (ast.Tuple, ast.List))), ()),
        count=max(counted, default=-1) + 1,
        is_numbered=is_numbered,
        is_keywords=any(isinstance(n, ast.keyword) and n.arg is None and is_it(n.value) for n in nodes),
        passed_to=tuple(_passed_to(tree, name)),
        texts=tuple(dict.fromkeys(_texts(n for n in nodes if isinstance(n, ast.Compare) and is_it(n.left)))),
    )


def _texts(comparisons: Iterable[ast.Compare]) -> Iterator[str]:
    for comparison in comparisons:
        other = comparison.comparators[0]
        for item in other.elts if isinstance(other, (ast.Tuple, ast.List, ast.Set)) else (other,):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                yield item.value


def _passed_to(tree: ast.AST, name: str) -> Iterator[tuple[str, int]]:
    for call in calls_in(tree):
        function = dotted_name(call.func)
        for position, value in enumerate(call.args if function is not None else ()):
            if isinstance(value, ast.Name) and value.id == name:
                yield function or "", position
