"""The value of a dotted name in an expression, without running code of the expression."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.program.names import dotted_name


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
