"""Names that a statement binds, mutates or reads in its scope, from the syntax tree."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable, Iterable, Iterator, Set
from functools import lru_cache
from typing import Final, TypeVar

T = TypeVar("T")
FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
COMPREHENSIONS: Final = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
STAR: Final = "*"  # bound by `from x import *`: names that the syntax tree does not show
BUILTINS: Final = frozenset(dir(builtins)) | {"__file__", "__name__", "__doc__", "__package__", "__spec__"}


def all_nodes(tree: ast.AST) -> tuple[ast.AST, ...]:
    """`tree` and all nodes below it, in the order of ``ast.walk``. Kept with the tree, which nobody changes."""
    return _kept(tree, "all_nodes", ast.walk)


def walk_scope(node: ast.AST) -> tuple[ast.AST, ...]:
    """`node` and the nodes below it that run in the same scope: not the bodies of functions, classes and lambdas."""
    return _kept(node, "scope_nodes", _scope_nodes)


def assignments(tree: ast.AST) -> tuple[tuple[ast.expr, ast.expr], ...]:
    """The targets and values of all assignments below `tree`, as `assigned` returns them."""
    return _kept(tree, "assignments", lambda node: _assignments(all_nodes(node)))


def scope_assignments(node: ast.AST) -> tuple[tuple[ast.expr, ast.expr], ...]:
    """Those of the same scope, as `walk_scope` has it."""
    return _kept(node, "scope_assignments", lambda inner: _assignments(walk_scope(inner)))


def _assignments(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.expr, ast.expr]]:
    return (pair for node in nodes for pair in assigned(node))


def _kept(node: ast.AST, name: str, items: Callable[[ast.AST], Iterable[T]]) -> tuple[T, ...]:
    kept: tuple[ast.AST, tuple[T, ...]] | None = vars(node).get(name)
    if kept is None or kept[0] is not node:  # a copy of a node has what was kept with the original
        kept = vars(node)[name] = node, tuple(items(node))
    return kept[1]


def _scope_nodes(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    pending = [*ast.iter_child_nodes(node)][::-1]
    while pending:
        child = pending.pop()
        if isinstance(child, ast.Lambda):
            continue
        yield child
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            pending += [*ast.iter_child_nodes(child)][::-1]


def base_name(node: ast.AST) -> str | None:
    """The name at the start of an expression: ``a`` of ``a.b[0].c()``. None for an expression without one."""
    while True:
        if isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred)):
            node = node.value
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return node.id if isinstance(node, ast.Name) else None


def dotted_name(node: ast.AST) -> str | None:
    """``a.b.c`` as text; None for another expression."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None


def dotted_names(node: ast.AST, context: type[ast.expr_context] = ast.Load) -> set[str]:
    """The names and chains of attributes that `node` reads, or with ``ast.Store`` assigns: ``a`` and ``a.b`` of ``a.b``."""
    nodes = (inner for inner in all_nodes(node) if isinstance(inner, (ast.Name, ast.Attribute)))
    return {name for inner in nodes if isinstance(inner.ctx, context) and (name := dotted_name(inner)) is not None}


def in_order(names: Set[str], nodes: Iterable[ast.AST]) -> tuple[str, ...]:
    """`names` in the order in which they stand in `nodes`, then those of definitions and imports."""
    found = dict.fromkeys(
        inner.id for node in nodes for inner in all_nodes(node) if isinstance(inner, ast.Name) and inner.id in names
    )
    return (*found, *sorted(names - found.keys()))


def last_name(node: ast.AST) -> str:
    """The last part of a dotted name, ``c`` of ``a.b.c`` and of ``a().c``; empty for other expressions."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls_in(tree: ast.AST) -> list[ast.Call]:
    """The calls below `tree` in the order of the text, a call before those of its arguments and of its function."""
    calls = (node for node in all_nodes(tree) if isinstance(node, ast.Call))
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def assigned(node: ast.AST) -> list[tuple[ast.expr, ast.expr]]:
    """The targets and values of an assignment, those of ``a, b = x, y`` in pairs; empty for another node."""
    if isinstance(node, ast.Assign):
        return [pair for target in node.targets for pair in _pairs(target, node.value)]
    return _pairs(node.target, node.value) if isinstance(node, ast.AnnAssign) and node.value is not None else []


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[ast.expr, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return [pair for part, item in zip(target.elts, value.elts, strict=True) for pair in _pairs(part, item)]
    return [(target, value)]


def argument(call: ast.Call, name: str, position: int | None = None) -> ast.expr | None:
    """The expression that `call` passes as `name` or at `position`; None if it passes none, or behind ``*args``."""
    by_name = next((word.value for word in call.keywords if word.arg == name), None)
    if by_name is not None or position is None or position >= len(call.args):
        return by_name
    is_known = not any(isinstance(value, ast.Starred) for value in call.args[: position + 1])
    return call.args[position] if is_known else None


def attributes_read(tree: ast.AST, name: str) -> set[str]:
    """The attributes of the variable `name` in `tree`."""
    nodes = (node for node in all_nodes(tree) if isinstance(node, ast.Attribute))
    return {node.attr for node in nodes if isinstance(node.value, ast.Name) and node.value.id == name}


def attribute_paths(tree: ast.AST, name: str) -> set[tuple[str, ...]]:
    """The attributes and items of the variable `name` that `tree` reads, and those of these: ``("model", "width")``. No methods.

    Also those of attributes that hold it: ``self.args = name``.
    """
    nodes = list(all_nodes(tree))
    called = {node.func for node in nodes if isinstance(node, ast.Call)}
    inner = {node.value for node in nodes if isinstance(node, (ast.Attribute, ast.Subscript)) and node not in called}
    outermost = (
        n for n in nodes if isinstance(n, (ast.Attribute, ast.Subscript)) and n not in called and n not in inner
    )
    paths = {path for node in outermost if (path := _item_path(node))}
    holders = {
        _item_path(target) for target, value in assignments(tree) if isinstance(value, ast.Name) and value.id == name
    }
    prefixes = {(name,), *(holder for holder in holders if holder)}
    return {
        path[len(prefix) :] for path in paths for prefix in prefixes if path[: len(prefix)] == prefix and path != prefix
    }


def _item_path(node: ast.AST) -> tuple[str, ...]:
    """``("a", "b", "c")`` of ``a.b["c"]``, up to the first index that is no text; empty for other expressions."""
    parts: list[str] = []
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        key = node.attr if isinstance(node, ast.Attribute) else getattr(node.slice, "value", None)
        parts = [*parts, key] if isinstance(key, str) else []
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def reached(names: Iterable[str], follow: Callable[[str], Iterable[str]]) -> set[str]:
    """`names`, and all names that `follow` leads to from them."""
    pending, visited = list(names), set[str]()
    while pending:
        name = pending.pop()
        if name not in visited:
            visited.add(name)
            pending += follow(name)
    return visited


@lru_cache(maxsize=8192)
def bound_names(statement: ast.stmt) -> frozenset[str]:
    """The names that `statement` binds or deletes in its scope. A star import binds `STAR`."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset({statement.name})
    names: set[str] = set()
    for node in walk_scope(statement):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            names.add(node.name)
    inside = {name for c in walk_scope(statement) if isinstance(c, COMPREHENSIONS) for name in _targets(c)}
    return frozenset(names - (inside - _outside_comprehensions(statement)) if inside else names)


def defined_names(tree: ast.Module) -> frozenset[str]:
    """The names that a file binds at its top level."""
    return frozenset(name for statement in tree.body for name in bound_names(statement))


def unshadowed_builtins(tree: ast.Module) -> frozenset[str]:
    """The names of `BUILTINS` that `tree` binds nowhere: a script's ``input`` is rarely the built-in function."""
    bound: set[str] = set()
    for node in all_nodes(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            bound.add(node.name)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
    return BUILTINS - bound


def _targets(comprehension: ast.AST) -> set[str]:
    return {name for generator in getattr(comprehension, "generators", ()) for name in target_names(generator.target)}


def target_names(target: ast.AST) -> set[str]:
    """The names that an assignment to `target` binds."""
    nodes = (node for node in all_nodes(target) if isinstance(node, ast.Name))
    return {node.id for node in nodes if isinstance(node.ctx, ast.Store)}


def _outside_comprehensions(statement: ast.stmt) -> set[str]:
    names: set[str] = set()
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        if isinstance(node, (*COMPREHENSIONS, ast.Lambda)):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        pending += ast.iter_child_nodes(node)
    return names


@lru_cache(maxsize=8192)
def used_names(node: ast.AST) -> frozenset[str]:
    """The names that `node` reads from its scope or an enclosing one, those in the bodies of its functions included."""
    return frozenset(_reads(node))


def _reads(node: ast.AST) -> set[str]:
    if isinstance(node, ast.Name):
        return {node.id} if isinstance(node.ctx, ast.Load) else set()
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return _reads_of_all(
            [*node.decorator_list, *_signature(node.args), *([node.returns] if node.returns else [])]
        ) | (free_names(node))
    if isinstance(node, ast.Lambda):
        return _reads_of_all(_defaults(node.args)) | (_reads(node.body) - set(parameter_names(node.args)))
    if isinstance(node, ast.ClassDef):
        names = _reads_of_all([*node.decorator_list, *node.bases, *(word.value for word in node.keywords)])
        bound: set[str] = set()
        for statement in node.body:
            names |= _reads(statement) - (
                set() if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) else bound
            )
            bound |= bound_names(statement)
        return names
    if isinstance(node, COMPREHENSIONS):
        return _reads_of_all(ast.iter_child_nodes(node)) - _targets(node)
    names = _reads_of_all(ast.iter_child_nodes(node))
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        names.add(node.target.id)
    return names


def _reads_of_all(nodes: Iterable[ast.AST]) -> set[str]:
    return {name for node in nodes for name in _reads(node)}


@lru_cache(maxsize=8192)
def free_names(function: FunctionNode) -> frozenset[str]:
    """The names that the body of `function` reads from outside."""
    bound = set(parameter_names(function.args)) | {name for s in function.body for name in bound_names(s)}
    shared = {
        name
        for s in function.body
        for node in walk_scope(s)
        if isinstance(node, (ast.Global, ast.Nonlocal))
        for name in node.names
    }
    return frozenset(_reads_of_all(function.body) - (bound - shared))


def parameters(arguments: ast.arguments) -> list[ast.arg]:
    """All parameters, in the order of a signature."""
    star = [arguments.vararg] if arguments.vararg else []
    keywords = [arguments.kwarg] if arguments.kwarg else []
    return [*arguments.posonlyargs, *arguments.args, *star, *arguments.kwonlyargs, *keywords]


def parameter_names(arguments: ast.arguments) -> list[str]:
    """The names of all parameters."""
    return [parameter.arg for parameter in parameters(arguments)]


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    return [*arguments.defaults, *(default for default in arguments.kw_defaults if default is not None)]


def _signature(arguments: ast.arguments) -> list[ast.expr]:
    return [*_defaults(arguments), *(p.annotation for p in parameters(arguments) if p.annotation is not None)]


def default_of(arguments: ast.arguments, name: str) -> ast.expr | None:
    """The default value of the parameter `name`; None without one."""
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs: list[tuple[ast.arg, ast.expr | None]] = list(
        zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True)
    )
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return next((default for parameter, default in pairs if parameter.arg == name), None)


@lru_cache(maxsize=8192)
def mutated_names(statement: ast.stmt) -> frozenset[str]:
    """The names whose objects `statement` changes: ``a`` of ``a.b = 1``, ``a[0] += 1``, ``a.append(1)`` and ``init_(a)``."""
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return frozenset()
    names: set[str | None] = set()
    for node in walk_scope(statement):
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(base_name(node))
        elif isinstance(node, ast.AugAssign):
            names.add(base_name(node.target))
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            call = node.value
            if isinstance(call.func, ast.Attribute):
                names.add(base_name(call.func))
            if isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr"):
                names.update(base_name(argument) for argument in call.args[:1])
            if (dotted_name(call.func) or "").endswith("_"):  # torch's convention for functions that work in place
                names.update(base_name(argument) for argument in call.args)
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            loop_names = target_names(node.target)
            if any(loop_names & mutated_names(inner) for inner in node.body):
                names |= {name for name in used_names(node.iter) if name not in BUILTINS}
    return frozenset(name for name in names if name is not None)
