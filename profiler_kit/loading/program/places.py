"""Where a node is in a document: what is around it, what runs before it, and whether a script reaches it."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import FunctionNode, all_nodes

Scope = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """The place of a node: its document, the functions and classes around it (the outermost first), and its statement."""

    document: Document
    scopes: tuple[Scope, ...]
    statement: ast.stmt

    @property
    def where(self) -> str:
        """The location of the statement, as ``train.py:41``."""
        return self.document.at(self.statement.lineno)


def method_around(scopes: Sequence[Scope]) -> tuple[ast.ClassDef, FunctionNode] | None:
    """The innermost method of a class among nested `scopes`, and its class; None outside of methods with an instance."""
    for owner, function in reversed(list(pairwise(scopes))):
        decorators = {name.id for name in getattr(function, "decorator_list", ()) if isinstance(name, ast.Name)}
        is_method = isinstance(owner, ast.ClassDef) and isinstance(function, FunctionNode) and function.args.args
        if is_method and not decorators & {"staticmethod", "classmethod"}:
            return owner, function  # type: ignore[return-value]
    return None


def scopes_around(tree: ast.Module, node: ast.AST) -> tuple[Scope, ...]:
    """The functions and classes of `tree` around `node`, the outermost first."""
    return tuple(parent for parent in ancestors(tree, node) if isinstance(parent, Scope))[::-1]


@lru_cache(maxsize=64)
def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in all_nodes(tree) for child in ast.iter_child_nodes(node)}


def ancestors(tree: ast.Module, node: ast.AST) -> Iterator[ast.AST]:
    """The nodes of `tree` around `node`, the innermost first. Raises KeyError if `node` is not part of it."""
    parents = _parents(tree)
    while not isinstance(node, ast.Module):
        node = parents[node]
        yield node


def conditions(tree: ast.Module, statement: ast.stmt) -> Iterator[tuple[ast.If, bool]]:
    """The ``if`` statements around `statement` in its scope, the innermost first, and the value of the test that reaches it."""
    current: ast.AST = statement
    for parent in ancestors(tree, statement):
        if isinstance(parent, Scope):
            return
        if isinstance(parent, ast.If) and not is_main_guard(parent):
            yield parent, current in parent.body
        current = parent


def place_of(document: Document, node: ast.AST) -> Place:
    """The place of `node`, which is part of the document's tree. Raises KeyError for another node."""
    statement: ast.stmt | None = node if isinstance(node, ast.stmt) else None
    scopes: list[Scope] = []
    for parent in ancestors(document.tree, node):
        if statement is None and isinstance(parent, ast.stmt):
            statement = parent
        elif isinstance(parent, Scope):
            scopes.insert(0, parent)
    if statement is None:
        raise KeyError(node)
    return Place(document=document, scopes=tuple(scopes), statement=statement)


def is_main_guard(statement: ast.AST) -> bool:
    """Whether `statement` is ``if __name__ == "__main__":``, alone or with further conditions."""
    nodes = list(all_nodes(statement.test)) if isinstance(statement, ast.If) else []
    return any(isinstance(node, ast.Name) and node.id == "__name__" for node in nodes) and any(
        isinstance(node, ast.Constant) and node.value == "__main__" for node in nodes
    )


def script_statements(body: list[ast.stmt]) -> list[ast.stmt]:
    """The statements that run when the file runs as a script: those of ``if __name__ == "__main__":`` in its place."""
    return [inner for s in body for inner in (script_statements(s.body) if is_main_guard(s) else [s])]  # type: ignore[attr-defined]


def leaves(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of `body`, with the blocks of ``if``, ``try`` and ``with`` in their place, except the main guard."""
    for statement in body:
        if isinstance(statement, (ast.If, ast.Try, ast.With)) and not is_main_guard(statement):
            yield from leaves(statement.body)
            yield from leaves([*getattr(statement, "orelse", ()), *getattr(statement, "finalbody", ())])
            for handler in getattr(statement, "handlers", ()):
                yield from leaves(handler.body)
        else:
            yield statement


def preceding(body: list[ast.stmt], statement: ast.stmt) -> list[ast.stmt]:
    """The statements of `body` that run before `statement`, which is in `body` or in a compound statement of it.

    Where `statement` is inside a loop, the loop variable gets the first item. Branches around it count as taken.
    """
    result = _preceding(body, statement)
    return script_statements(body) if result is None else result


def _preceding(body: list[ast.stmt], statement: ast.stmt) -> list[ast.stmt] | None:
    """`preceding`, or None if `statement` is not in `body`."""
    earlier: list[ast.stmt] = []
    for current in body:
        if current is statement:
            return earlier
        if not isinstance(current, Scope):
            for entry, block in _blocks(current):
                inner = _preceding(block, statement)
                if inner is not None:
                    return earlier + entry + inner
        earlier += script_statements([current])
    return None


def _blocks(statement: ast.stmt) -> Iterator[tuple[list[ast.stmt], list[ast.stmt]]]:
    """(statements that run on entry, block) of each block of a compound statement."""
    if isinstance(statement, (ast.For, ast.AsyncFor)):
        yield [_first_item(statement)], statement.body
        yield [], statement.orelse
    elif isinstance(statement, (ast.With, ast.AsyncWith)):
        yield [_enter(item, statement) for item in statement.items if item.optional_vars is not None], statement.body
    elif isinstance(statement, ast.Try):
        yield [], statement.body
        yield from (([], handler.body) for handler in statement.handlers)
        yield list(statement.body), statement.orelse
        yield [*statement.body, *statement.orelse], statement.finalbody
    elif isinstance(statement, (ast.If, ast.While)):
        yield [], statement.body
        yield [], statement.orelse
    elif isinstance(statement, ast.Match):
        yield from (([], case.body) for case in statement.cases)


def _first_item(loop: ast.For | ast.AsyncFor) -> ast.stmt:
    """``target = next(iter(...))`` for a loop. The text of its iterable still decides whether it may run."""
    value = _call("next", _call("iter", loop.iter))
    return ast.fix_missing_locations(ast.copy_location(ast.Assign(targets=[loop.target], value=value), loop))


def _enter(item: ast.withitem, statement: ast.stmt) -> ast.stmt:
    target = item.optional_vars
    assert target is not None
    value = ast.Call(
        func=ast.Attribute(value=item.context_expr, attr="__enter__", ctx=ast.Load()), args=[], keywords=[]
    )
    return ast.fix_missing_locations(ast.copy_location(ast.Assign(targets=[target], value=value), statement))


def _call(name: str, argument: ast.expr) -> ast.Call:
    return ast.Call(func=ast.Name(id=name, ctx=ast.Load()), args=[argument], keywords=[])
