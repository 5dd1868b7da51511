"""The statements that a value depends on: a backward slice over the syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeVar

from profiler_kit.loading.program.effects import effect_of, functions_with_effects
from profiler_kit.loading.program.imports import imported_origins
from profiler_kit.loading.program.names import (
    STAR,
    FunctionNode,
    assigned,
    base_name,
    bound_names,
    free_names,
    mutated_names,
    reached,
    scope_assignments,
    target_names,
    unshadowed_builtins,
    used_names,
    walk_scope,
)
from profiler_kit.loading.program.places import Scope

REBINDS: Final = (ast.Assign, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NOT_RUN: Final = (ast.Return, ast.Raise, ast.Assert, ast.Global, ast.Nonlocal, ast.Break, ast.Continue, ast.Pass)


@dataclass(slots=True, eq=False)
class DocumentFacts:
    """What slicing needs to know about a document.

    `origins`: its imports. `effects`: the functions that must not run. `registrations`: the tables that functions add to.
    `builtins`: the built-in names that it does not bind itself.
    """

    origins: Mapping[str, str]
    functions: Mapping[str, FunctionNode]
    classes: Mapping[str, ast.ClassDef]
    effects: Mapping[str, str]
    registrations: Mapping[str, frozenset[str]]
    builtins: frozenset[str]

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
        builtins=unshadowed_builtins(tree),
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
        for target, value in assigned(statement)
        if isinstance(target, ast.Name) and _is_table(value)
    }
    return frozenset(stored & tables & free_names(function))


def _is_table(value: ast.expr) -> bool:
    """Whether `value` is a dict or a list in the text, or a call of ``dict`` or ``list``."""
    if isinstance(value, ast.Call):
        return isinstance(value.func, ast.Name) and value.func.id in ("dict", "list")
    return isinstance(value, (ast.Dict, ast.List))


class Slicer:
    """Backward slices of statement lists. `expanded` are functions and classes whose bodies' names are needed too.

    `fixed` are names whose values no statement makes or changes.
    """

    def __init__(
        self, facts: DocumentFacts, expanded: Mapping[str, ast.AST], fixed: frozenset[str] = frozenset()
    ) -> None:
        self.facts = facts
        self._expanded = expanded
        self._fixed = fixed
        self._aliases: dict[str, set[str]] = {}
        self._registers: dict[str, set[str]] = {}  # of imported modules: ``FLAGS = flags.FLAGS``

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
            for target, value in scope_assignments(statement):
                base = base_name(value)
                is_of_module = base is not None and base in self.facts.origins and isinstance(value, ast.Attribute)
                if base is not None and is_of_module and isinstance(target, ast.Name):
                    self._registers.setdefault(base, set()).add(target.id)
                is_call_of_name = isinstance(value, ast.Call) and isinstance(value.func, ast.Name)
                if base is None or base in self.facts.origins or is_call_of_name:
                    continue
                if isinstance(target, ast.Name) and target.id != base:
                    self._aliases.setdefault(target.id, set()).add(base)

    def _expand(self, needed: set[str]) -> None:
        nodes = self._expanded
        needed |= reached(needed, lambda name: used_names(nodes[name]) - self.facts.builtins if name in nodes else ())

    def _need(self, needed: set[str], names: Iterable[str]) -> None:
        added = set(names) - self.facts.builtins - self._fixed
        self._expand(added)
        needed |= added

    def _mutates(self, statement: ast.stmt) -> set[str]:
        names = {name for name in mutated_names(statement) if name not in self.facts.origins}
        if self.facts.registrations and not isinstance(statement, Scope):
            for node in walk_scope(statement):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    names |= self.facts.registrations.get(node.func.id, frozenset())
        if isinstance(statement, ast.Expr) and _is_definition_by_name(statement.value):
            module = base_name(statement.value) or ""
            names |= {module, *self._registers[module]} if module in self._registers else set()
        return reached(names, lambda name: self._aliases.get(name, ()))

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
            name
            for item in statement.items
            if item.optional_vars is not None
            for name in target_names(item.optional_vars)
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
        if self._decides(statement, needed):
            body, in_body = list(statement.body), set(in_else)
            self._need(in_body, {name for part in body for name in used_names(part)})
        else:
            body = self.slice(statement.body, in_body := set(in_else))
        if not (body or orelse or final):
            return None
        handlers, in_handlers = self._handlers(statement, after)
        needed |= in_handlers | in_body | in_else | after
        return _replaced(
            ast.Try(
                body=body or [ast.Pass()],
                handlers=handlers,
                orelse=orelse if handlers else [],
                finalbody=final or ([] if handlers else [ast.Pass()]),
            ),
            statement,
        )

    def _handlers(self, statement: ast.Try, after: set[str]) -> tuple[list[ast.ExceptHandler], set[str]]:
        """The parts of the handlers of `statement` that `after` depends on, and what must exist before them."""
        handlers: list[ast.ExceptHandler] = []
        before: set[str] = set()
        for handler in statement.handlers:
            body = self.slice(handler.body, names := set(after)) or [ast.Pass()]
            handlers.append(_replaced(ast.ExceptHandler(type=handler.type, name=handler.name, body=body), handler))
            before |= names - ({handler.name} if handler.name else set())
            if handler.type is not None:
                self._need(before, used_names(handler.type))
        return handlers, before

    def _decides(self, statement: ast.Try, needed: set[str]) -> bool:
        """Whether the body only decides if a handler runs: ``try: NAME`` / ``except NameError: def NAME``."""
        handled = [part for handler in statement.handlers for part in handler.body]
        return any(bound_names(part) & needed or self._keeps(part) for part in handled) and all(
            isinstance(part, ast.Expr) and self.facts.effect(part) is None for part in statement.body
        )


def _is_definition_by_name(value: ast.expr) -> bool:
    """Whether a call defines something by a text: ``flags.DEFINE_integer("size", 17, "width")``."""
    first = value.args[0] if isinstance(value, ast.Call) and value.args else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and first.value.isidentifier()


_Node = TypeVar("_Node", bound=ast.AST)


def _replaced(new: _Node, old: ast.AST) -> _Node:
    """`new` at the place of `old`."""
    return ast.fix_missing_locations(ast.copy_location(new, old))
