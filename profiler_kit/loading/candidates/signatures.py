"""Parameters of classes and functions that build models, also those that they pass on to the class that they build."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.program.names import all_nodes, dotted_name
from profiler_kit.loading.program.reading import function_node


class MissingArgumentsError(Exception):
    """Some required parameters have no value. `reason` and `error`: why an expression in a document has none, if there is one."""

    def __init__(self, names: tuple[str, ...], reason: str | None = None, error: BaseException | None = None) -> None:
        super().__init__(", ".join(names))
        self.names, self.reason, self.error = names, reason, error
        self.__cause__ = error


def parameters(factory: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters of `factory`, with those that it needs for its ``**kwargs``; empty if its signature is unknown."""
    try:
        own = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return []
    last = [p for p in own.values() if p.kind is p.VAR_KEYWORD]
    forwarded = forwarded_parameters(factory, own) if last else []
    return [*(p for p in own.values() if p not in last), *forwarded, *last]


def missing_arguments(factory: Callable[..., Any], arguments: Mapping[str, Any]) -> tuple[str, ...]:
    """The parameters of `factory` without a default that are missing from `arguments`."""
    return tuple(
        p.name
        for p in parameters(factory)
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in arguments
    )


def named_parameters(factory: Callable[..., Any]) -> tuple[list[str], bool]:
    """(names that can be passed as keywords, whether any keyword is accepted)."""
    signature = parameters(factory)
    names = [p.name for p in signature if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    return names, not signature or any(p.kind is p.VAR_KEYWORD for p in signature)


def accepts(factory: Callable[..., Any] | None, arguments: Mapping[str, Any]) -> bool:
    """Whether `factory` has a parameter for each of `arguments`. A factory that is not known yet accepts them."""
    if factory is None or not arguments:
        return True
    names, takes_any = named_parameters(factory)
    return takes_any or set(arguments) <= set(names)


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
    for call in all_nodes(node):
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
