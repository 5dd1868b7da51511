"""Functions that return a model, recognized by their text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.classes import is_loss, is_module_class
from profiler_kit.loading.candidates.expressions import resolve_dotted
from profiler_kit.loading.program.model_variables import inner_models, takes_model
from profiler_kit.loading.program.names import assigned, walk_scope
from profiler_kit.loading.program.reading import function_node


class Factories:
    """Decides whether a function returns a model, from the ``return`` statements in its source text."""

    def __init__(self) -> None:
        self._results: dict[Any, bool] = {}

    def returns_model(self, function: object) -> bool:
        """Whether `function` is a Python function with a ``return`` of a model that it or another function builds."""
        plain = inspect.unwrap(function) if callable(function) else function
        code = attribute_of(plain, "__code__", CodeType)
        if code is None or inspect.iscoroutinefunction(plain):
            return False
        if code not in self._results:
            self._results[code] = False  # recursion proves nothing
            node = function_node(plain)
            names = attribute_of(plain, "__globals__", dict, {})
            owner = names.get(attribute_of(plain, "__qualname__", str, "").split(".")[0])
            self._results[code] = node is not None and self.node_returns_model(node, names.get, owner)
        return self._results[code]

    def node_returns_model(self, node: ast.FunctionDef, lookup: Callable[[str], Any], owner: Any = None) -> bool:
        """The same for the definition `node`; `lookup` returns the value of a global name, or None.

        `owner`: the class whose method it is.
        """
        values: dict[str, list[ast.expr]] = {}
        returned: list[ast.expr] = []
        for inner in (n for statement in node.body for n in walk_scope(statement)):
            for target, value in assigned(inner):
                if isinstance(target, ast.Name):
                    values.setdefault(target.id, []).append(value)
            if isinstance(inner, ast.Return) and inner.value is not None:
                returned.append(inner.value)

        def local_lookup(name: str) -> Any:
            """The value of a local name for a class, such as ``block = BasicBlock``, or of a global one."""
            for value in values.get(name, ()):
                for alias in (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,):
                    if isinstance(alias, (ast.Name, ast.Attribute)) and is_module_class(resolve_dotted(alias, lookup)):
                        return resolve_dotted(alias, lookup)
            return lookup(name)

        def is_model(expression: ast.expr, depth: int = 0) -> bool:
            for inner in inner_models(expression):
                if isinstance(inner, ast.Name):
                    return depth < 4 and any(is_model(value, depth + 1) for value in values.get(inner.id, ()))
                if not isinstance(inner, ast.Call):
                    continue
                if isinstance(inner.func, ast.Name) and inner.func.id == "cls" and "cls" not in values:
                    return is_module_class(owner)
                value = resolve_dotted(inner.func, local_lookup)
                if is_module_class(value):
                    return not is_loss(value)
                if value is not None and (self.is_factory(value) or not takes_model(value)):
                    return self.is_factory(value)
            return False

        return any(is_model(v.elts[0] if isinstance(v, ast.Tuple) and v.elts else v) for v in returned)

    def is_factory(self, value: object) -> bool:
        """Whether `value` is a function that returns a model: of torchvision or timm, or by its text."""
        if isinstance(value, type) or not callable(value):
            return False
        module = attribute_of(value, "__module__", str, "")
        if module.startswith(("torchvision.models", "timm.models")):
            return True
        return not module.startswith(("torch.", "torchvision.")) and self.returns_model(value)
