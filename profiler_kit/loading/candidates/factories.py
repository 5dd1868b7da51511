"""Functions that return a model, recognized by their text."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from types import CodeType
from typing import Any

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.classes import is_loss, is_module_class
from profiler_kit.loading.candidates.signatures import resolve_dotted
from profiler_kit.loading.program.model_variables import returns_model, takes_model
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

        def builds_model(callee: ast.expr) -> bool | None:
            if isinstance(callee, ast.Name) and callee.id == "cls":
                return is_module_class(owner)
            value = resolve_dotted(callee, lookup)
            if is_module_class(value):
                return not is_loss(value)
            is_known = value is not None and (self.is_factory(value) or not takes_model(value))
            return self.is_factory(value) if is_known else None

        return returns_model(node, builds_model)

    def is_factory(self, value: object) -> bool:
        """Whether `value` is a function that returns a model: of torchvision or timm, or by its text."""
        if isinstance(value, type) or not callable(value):
            return False
        module = attribute_of(value, "__module__", str, "")
        if module.startswith(("torchvision.models", "timm.models")):
            return True
        return not module.startswith(("torch.", "torchvision.")) and self.returns_model(value)
