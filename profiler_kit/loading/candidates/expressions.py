"""Expressions that build a model, as syntax: the constructor call inside wrappers, dotted names and their values."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any, Final

from profiler_kit.foreign import attribute_of

_SAME_MODEL: Final = frozenset({
    "to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16", "type", "apply", "requires_grad_",
    "share_memory",
})  # fmt: skip
WRAPPERS: Final = frozenset({
    "DataParallel", "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "compile", "script",
    "convert_sync_batchnorm",
})  # fmt: skip


def spine(expression: ast.expr) -> ast.expr:
    """`expression` without methods that return the same module and without wrappers: ``Net()`` of ``DDP(Net().cuda())``."""
    while isinstance(expression, ast.Call):
        function = expression.func
        if isinstance(function, ast.Attribute) and function.attr in _SAME_MODEL and not _is_module_like(function.value):
            expression = function.value
        elif last_name(function) in WRAPPERS and expression.args:
            expression = expression.args[0]
        else:
            break
    return expression


def _is_module_like(value: ast.expr) -> bool:
    """Whether `value` names a module of Python in ``value.apply(...)``, so the call is a function's: ``torch``, ``nn``."""
    return isinstance(value, ast.Name) and value.id in ("torch", "nn", "F", "models", "np")


def constructor_call(expression: ast.expr) -> ast.Call | None:
    """The call in `expression` that creates the object, without wrappers; None if it creates none."""
    inner = spine(expression)
    return inner if isinstance(inner, ast.Call) else None


def last_name(function: ast.expr) -> str:
    """The last part of a dotted name; empty for other expressions."""
    return (
        function.attr if isinstance(function, ast.Attribute) else function.id if isinstance(function, ast.Name) else ""
    )


def dotted_name(node: ast.expr) -> str | None:
    """``a.b.c`` of a chain of attributes; None for other expressions."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return ".".join([node.id, *parts]) if isinstance(node, ast.Name) else None


def resolve_dotted(node: ast.expr, lookup: Callable[[str], Any]) -> Any:
    """The value of a name or of a chain of attributes; None without one. Runs no code of the expression itself."""
    name = dotted_name(node)
    if name is None:
        return None
    first, *attributes = name.split(".")
    value = lookup(first)
    for part in attributes:
        is_class = isinstance(value, type)
        value = inspect.getattr_static(value, part, None) if is_class else attribute_of(value, part, object)
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
    return value
