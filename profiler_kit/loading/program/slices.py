"""The statements that a value depends on: a backward slice over the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.effects import effect_of, functions_with_effects, imported_origins
from profiler_kit.loading.program.names import (
    BUILTINS,
    STAR,
    FunctionNode,
    base_name,
    bound_names,
    free_names,
    mutated_names,
    used_names,
    walk_scope,
)

REBINDS: Final = (ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOT_RUN: Final = (ast.Return, ast.Raise, ast.Assert, ast.Global, ast.Nonlocal, ast.Break, ast.Continue, ast.Pass)
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


@lru_cache(maxsize=64)
def _parents(tree: ast.Module) -> dict[ast.AST, ast.AST]:
    return {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}


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
    nodes = list(ast.walk(statement.test)) if isinstance(statement, ast.If) else []
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


@dataclass(slots=True, eq=False)
class DocumentFacts:
    """What slicing needs to know about a document.

    `origins`: its imports. `effects`: the functions that must not run. `registrations`: the tables that functions add to.
    """

    origins: Mapping[str, str]
    functions: Mapping[str, FunctionNode]
    classes: Mapping[str, ast.ClassDef]
    effects: Mapping[str, str]
    registrations: Mapping[str, frozenset[str]]

    def effect(self, node: ast.AST) -> str | None:
        """Why `node` must not run; None if it may."""
        return effect_of(node, self.origins, self.effects)


@lru_cache(maxsize=64)
def facts_of(tree: ast.Module) -> DocumentFacts:
    """The facts of a syntax tree."""
    origins = imported_origins(tree)
    definitions = [node for statement in tree.body for node in walk_scope(statement)]
    functions = {node.name: node for node in definitions if isinstance(node, FunctionNode)}
    effects = functions_with_effects(functions, origins)
    registrations = {name: _registered(node, tree) for name, node in functions.items() if name not in effects}
    return DocumentFacts(
        origins=origins,
        functions=functions,
        classes={node.name: node for node in definitions if isinstance(node, ast.ClassDef)},
        effects=effects,
        registrations={name: names for name, names in registrations.items() if names},
    )


def _registered(function: FunctionNode, tree: ast.Module) -> frozenset[str]:
    """The dicts and lists of the file that `function` adds entries to: ``TABLE[key] = value``."""
    stored = {
        node.value.id
        for statement in function.body
        for node in walk_scope(statement)
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Name)
    }
    tables = {
        target.id
        for statement in tree.body
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and _is_table(statement.value)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
        if isinstance(target, ast.Name)
    }
    return frozenset(stored & tables & free_names(function))


def _is_table(value: ast.expr | None) -> bool:
    """Whether `value` is a dict or a list in the text, or a call of ``dict`` or ``list``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("dict", "list")
    return isinstance(value, (ast.Dict, ast.List))


class Slicer:
    """Backward slices of statement lists. `expanded` are functions and classes whose bodies' names are needed too."""

    def __init__(self, facts: DocumentFacts, expanded: Mapping[str, ast.AST]) -> None:
        self.facts = facts
        self._expanded = expanded
        self._aliases: dict[str, set[str]] = {}

    def slice(self, statements: Iterable[ast.stmt], needed: set[str]) -> list[ast.stmt]:
        """The parts of `statements` that `needed` depends on, in order. Changes `needed` to what must exist before them."""
        statements = list(statements)
        self._collect_aliases(statements)
        self._expand(needed)
        parts = [part for statement in reversed(statements) if (part := self._part(statement, needed)) is not None]
        return parts[::-1]

    def _collect_aliases(self, statements: list[ast.stmt]) -> None:
        """Note ``group = parser.add_argument_group()``: a change of `group` is a change of `parser`."""
        for statement in statements:
            for node in walk_scope(statement):
                if isinstance(node, ast.Assign) and isinstance(
                    node.value, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)
                ):
                    base = base_name(node.value)
                    is_call_of_name = isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
                    if base is None or base in self.facts.origins or is_call_of_name:
                        continue
                    for target in node.targets:
                        if isinstance(target, ast.Name) and target.id != base:
                            self._aliases.setdefault(target.id, set()).add(base)

    def _expand(self, needed: set[str]) -> None:
        pending = [name for name in needed if name in self._expanded]
        visited = set(pending)
        while pending:
            names = used_names(self._expanded[pending.pop()]) - BUILTINS
            needed |= names
            more = {name for name in names if name in self._expanded} - visited
            visited |= more
            pending += more

    def _need(self, needed: set[str], names: Iterable[str]) -> None:
        added = set(names) - BUILTINS
        self._expand(added)
        needed |= added

    def _mutates(self, statement: ast.stmt) -> set[str]:
        names = {name for name in mutated_names(statement) if name not in self.facts.origins}
        if self.facts.registrations and not isinstance(statement, Scope):
            for node in walk_scope(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    names |= self.facts.registrations.get(node.func.id, frozenset())
        pending = list(names)
        while pending:
            more = self._aliases.get(pending.pop(), set()) - names
            names |= more
            pending += more
        return names

    def _part(self, statement: ast.stmt, needed: set[str]) -> ast.stmt | None:
        if isinstance(statement, _NOT_RUN):
            return None
        if isinstance(statement, ast.If):
            return self._branches(statement, needed)
        if isinstance(statement, ast.With):
            return self._block(statement, needed)
        if isinstance(statement, ast.Try):
            return self._try(statement, needed)
        bound = bound_names(statement)
        is_needed = bool(bound & needed or self._mutates(statement) & needed)
        if not is_needed and not self._keeps(statement):
            return None
        if is_needed and isinstance(statement, (ast.For, ast.While)):
            return self._loop(statement, needed)
        if isinstance(statement, REBINDS) or (isinstance(statement, ast.AnnAssign) and statement.value is not None):
            needed -= bound - {STAR}
        if self.facts.effect(statement) is None or isinstance(statement, Scope):
            self._need(needed, self._names_of(statement))
        return statement

    def _keeps(self, statement: ast.stmt) -> bool:
        """Whether `statement` runs although nothing needs it."""
        return False

    def _names_of(self, statement: ast.stmt) -> frozenset[str]:
        """The names that must exist before `statement` runs."""
        return used_names(statement)

    def _branches(self, statement: ast.If, needed: set[str]) -> ast.stmt | None:
        in_body, in_else = set(needed), set(needed)
        body, orelse = self.slice(statement.body, in_body), self.slice(statement.orelse, in_else)
        if not body and not orelse:
            return None
        needed.clear()
        needed |= in_body | in_else
        self._need(needed, used_names(statement.test))
        return _replaced(ast.If(test=statement.test, body=body or [ast.Pass()], orelse=orelse), statement)

    def _loop(self, statement: ast.For | ast.While, needed: set[str]) -> ast.stmt | None:
        if self.facts.effect(statement) is not None:
            return statement  # does not run: its names are unavailable
        inner = set(needed)
        while True:
            before = len(inner)
            body = self.slice(statement.body, names := set(inner))
            inner |= names
            if len(inner) == before:
                break
        needed |= inner
        body = body or [ast.Pass()]
        if isinstance(statement, ast.For):
            self._need(needed, used_names(statement.iter))
            new: ast.stmt = ast.For(
                target=statement.target, iter=statement.iter, body=body, orelse=[], type_comment=None
            )
        else:
            self._need(needed, used_names(statement.test))
            exits = [s for s in statement.body if any(isinstance(n, ast.Break) for n in walk_scope(s))]
            if exits:  # without them the loop would never end
                body = list(statement.body)
                self._need(needed, {name for s in body for name in used_names(s)})
            new = ast.While(test=statement.test, body=body, orelse=[])
        return _replaced(new, statement)

    def _block(self, statement: ast.With, needed: set[str]) -> ast.stmt | None:
        targets = {
            name for item in statement.items if item.optional_vars is not None for name in _stored(item.optional_vars)
        }
        is_needed = bool(targets & needed)
        body = self.slice(statement.body, needed)
        if not body and not is_needed:
            return None
        for item in statement.items:
            self._need(needed, used_names(item.context_expr))
        return _replaced(ast.With(items=statement.items, body=body or [ast.Pass()], type_comment=None), statement)

    def _try(self, statement: ast.Try, needed: set[str]) -> ast.stmt | None:
        after = set(needed)
        final = self.slice(statement.finalbody, after)
        orelse = self.slice(statement.orelse, in_else := set(after))
        body = self.slice(statement.body, in_body := set(in_else))
        if not (body or orelse or final):
            return None
        handlers: list[ast.ExceptHandler] = []
        for handler in statement.handlers:
            in_handler = set(after)
            handler_body = self.slice(handler.body, in_handler)
            handlers.append(
                _replaced(
                    ast.ExceptHandler(type=handler.type, name=handler.name, body=handler_body or [ast.Pass()]), handler
                )
            )
            needed |= in_handler - ({handler.name} if handler.name else set())
            if handler.type is not None:
                self._need(needed, used_names(handler.type))
        needed |= in_body | in_else | after
        return _replaced(
            ast.Try(
                body=body or [ast.Pass()],
                handlers=handlers,
                orelse=orelse if handlers else [],
                finalbody=final or ([] if handlers else [ast.Pass()]),
            ),
            statement,
        )


def _stored(node: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)}


_Node = TypeVar("_Node", bound=ast.AST)


def _replaced(new: _Node, old: ast.AST) -> _Node:
    """`new` at the place of `old`."""
    return ast.fix_missing_locations(ast.copy_location(new, old))
