"""Parameters that a function or class accepts as ``**kwargs`` and passes on to the class that it builds."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.expressions import resolve_dotted
from profiler_kit.loading.program.reading import function_node


def forwarded_parameters(factory: Callable[..., Any], own: Mapping[str, inspect.Parameter]) -> list[inspect.Parameter]:
    """The required parameters of the class or function that `factory` calls with its own ``**kwargs``.

    `own` are the parameters of `factory`. Those that the call sets are left out.
    """
    node = function_node(factory)
    if node is None or node.args.kwarg is None:
        return []
    for call in _forwarding_calls(node, node.args.kwarg.arg):
        callee = _callee(call, factory)
        if callee is None:
            continue
        try:
            parameters = list(inspect.signature(callee).parameters.values())
        except (TypeError, ValueError):
            continue
        if callee is not factory and any(p.kind is p.VAR_KEYWORD for p in parameters):
            parameters += forwarded_parameters(callee, {p.name: p for p in parameters})
        passed = {word.arg for word in call.keywords} | own.keys()
        count = sum(not isinstance(argument, ast.Starred) for argument in call.args)
        return [
            p.replace(kind=p.KEYWORD_ONLY)
            for p in parameters[count:]
            if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) and p.name not in passed
        ]
    return []


def defining_callable(factory: Callable[..., Any], name: str) -> Callable[..., Any]:
    """The callable whose body uses the parameter `name`: `factory`, or the class that it passes its ``**kwargs`` to."""
    node = function_node(factory)
    if node is None or node.args.kwarg is None or name in (p.arg for p in (*node.args.args, *node.args.kwonlyargs)):
        return factory
    callees = (_callee(call, factory) for call in _forwarding_calls(node, node.args.kwarg.arg))
    callee = next((callee for callee in callees if callee is not None), None)
    return factory if callee is None or callee is factory else defining_callable(callee, name)


def _forwarding_calls(node: ast.FunctionDef, kwargs_name: str) -> Iterator[ast.Call]:
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and any(
            word.arg is None and isinstance(word.value, ast.Name) and word.value.id == kwargs_name
            for word in call.keywords
        ):
            yield call


def _callee(call: ast.Call, factory: Callable[..., Any]) -> Callable[..., Any] | None:
    if isinstance(factory, type):
        is_super = ast.unparse(call.func).startswith("super(") and ast.unparse(call.func).endswith(").__init__")
        return next((base for base in factory.__mro__[1:] if "__init__" in vars(base)), None) if is_super else None
    names = attribute_of(inspect.unwrap(factory), "__globals__", dict, {})
    callee = resolve_dotted(call.func, names.get)
    return callee if callable(callee) else None
