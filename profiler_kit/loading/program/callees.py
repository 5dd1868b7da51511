"""Calls whose callee is not written as a name: from a table, by ``getattr``, or handed over with its arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import lru_cache

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.names import all_nodes, argument, assignments, calls_in, dotted_name, last_name
from profiler_kit.loading.program.slices import facts_of


@lru_cache(maxsize=256)
def calls_of(name: str, document: Document, module: str | None) -> tuple[tuple[ast.Call, ast.Call], ...]:
    """The calls in `document` that may call `name`, a class or function of the file with the stem `module`.

    Each comes with the call that passes its arguments: another one for ``Process(target=name, args=(...))``.
    """
    derived, aliases = _calls_of_derived(name, document.tree), _aliases(name, document.tree)

    def is_call(call: ast.Call) -> bool:
        is_alias = isinstance(call.func, ast.Name) and call.func.id in aliases
        return (
            is_alias
            or call in derived
            or _is_named(call.func, name, document)
            or _is_listed(call.func, name, module, document.tree)
        )

    found = ((call, call if is_call(call) else _handed_over(call, name)) for call in calls_in(document.tree))
    return tuple((call, passing) for call, passing in found if passing is not None)


def _aliases(name: str, tree: ast.Module) -> set[str]:
    """The variables that hold `name`: ``Exp = Informer``, ``Exp = A if full else B``."""
    aliases: set[str] = set()
    for target, value in assignments(tree):
        choices = (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)
        if isinstance(target, ast.Name) and any(last_name(choice) == name for choice in choices):
            aliases.add(target.id)
    return aliases - {name}


def _calls_of_derived(name: str, tree: ast.Module) -> set[ast.Call]:
    """The calls of the constructor of the class `name` by classes that inherit from it: ``super().__init__(options)``."""
    classes = (node for node in all_nodes(tree) if isinstance(node, ast.ClassDef))
    derived = (node for node in classes if any(last_name(base) == name for base in node.bases))
    calls = (call for node in derived for call in calls_in(node) if last_name(call.func) == "__init__")
    return {call for call in calls if isinstance(call.func, ast.Attribute) and isinstance(call.func.value, ast.Call)}


def computed_callees(tree: ast.Module) -> list[ast.Call]:
    """The calls in `tree` whose callee is an item of a table or what ``getattr`` returns, also by a variable for it."""
    variables = {
        target.id for target, value in assignments(tree) if isinstance(target, ast.Name) and _is_computed(value)
    }
    return [call for call in calls_in(tree) if _is_computed(call.func) or getattr(call.func, "id", "") in variables]


def listed_name(function: ast.expr, names: Iterable[str], document: Document, module: str) -> str | None:
    """The one of `names`, of the file with the stem `module`, that a table lists from which a callee comes; None without one."""
    return next((name for name in names if _is_listed(function, name, module, document.tree)), None)


def _is_computed(function: ast.expr) -> bool:
    while isinstance(function, ast.Attribute):
        function = function.value
    if isinstance(function, ast.Call):
        return last_name(function.func) in ("getattr", "eval", "get")
    return isinstance(function, ast.Subscript)


def _is_named(function: ast.expr, name: str, document: Document) -> bool:
    """Whether `function` is `name`, or an attribute `name` of an imported module."""
    if last_name(function) != name:
        return False
    if isinstance(function, ast.Attribute):
        return isinstance(function.value, ast.Name) and function.value.id in facts_of(document.tree).origins
    return isinstance(function, ast.Name)


def _is_listed(function: ast.expr, name: str, module: str | None, tree: ast.Module) -> bool:
    """Whether `function` is an item of a table of `tree` that contains `name`, or the attribute `name` of an item `module`."""
    tables = _tables(tree)
    if isinstance(function, ast.Attribute) and function.attr == name and isinstance(function.value, ast.Subscript):
        return module in tables.get(dotted_name(function.value.value) or "", ())
    return isinstance(function, ast.Subscript) and name in tables.get(dotted_name(function.value) or "", ())


@lru_cache(maxsize=64)
def _tables(tree: ast.Module) -> dict[str, set[str]]:
    """The dicts of the document, by the name that they are assigned to, with the names of their values."""
    tables: dict[str, set[str]] = {}
    for target, value in assignments(tree):
        label = dotted_name(target)
        if label is not None and isinstance(value, ast.Dict):
            tables.setdefault(label, set()).update(filter(None, map(last_name, value.values)))
    return tables


def _handed_over(call: ast.Call, name: str) -> ast.Call | None:
    """The call of `name` that another function makes: ``Process(target=name, args=(a, b))``, ``spawn(name, args=(a,))``.

    spawn passes the rank first.
    """
    function = argument(call, "target") or argument(call, "fn", 0)
    passed = argument(call, "args")
    if function is None or dotted_name(function) != name or not isinstance(passed, (ast.Tuple, ast.List)):
        return None
    first: list[ast.expr] = [ast.Constant(value=0)] if last_name(call.func) == "spawn" else []
    made = ast.Call(func=function, args=[*first, *passed.elts], keywords=[])
    return ast.fix_missing_locations(ast.copy_location(made, call))
