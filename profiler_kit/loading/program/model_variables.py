"""Which expressions of a document are the model: what builds it, a variable that holds it, and wrappers of both."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.loading.program.documents import Document
from profiler_kit.loading.program.imports import imported_files
from profiler_kit.loading.program.names import (
    FunctionNode,
    all_nodes,
    assignments,
    dotted_name,
    last_name,
    scope_assignments,
    walk_scope,
)
from profiler_kit.loading.program.repository import repository_root
from profiler_kit.loading.vocabulary import MODELS

CONVENTIONAL: Final = (*MODELS, "m", *(f"self.{name}" for name in MODELS))
# Methods of modules that return the module.
_CONVERSIONS: Final = frozenset({
    "to", "cuda", "cpu", "eval", "train", "half", "float", "double", "bfloat16", "type", "apply", "requires_grad_",
    "share_memory",
})  # fmt: skip
_LIBRARY_MODULES: Final = ("torch", "nn", "F", "models", "np")  # a function, not a method, in torch.type(...)
_USES: Final = ("parameters", "named_parameters", "no_sync")  # attributes that training code reads from its model


def inner_models(value: ast.expr, own_classes: frozenset[str] = frozenset()) -> Iterator[ast.expr]:
    """`value`, and what it may convert or wrap, from the outside to the inside: ``FSDP(Net().cuda())``, ..., ``Net()``.

    Whatever takes a model first, or by keyword, may be a wrapper of it, except a class of `own_classes`, which uses it as a part.
    """
    yield value
    if isinstance(value, ast.IfExp):
        yield from inner_models(value.body, own_classes)
        yield from inner_models(value.orelse, own_classes)
    elif isinstance(value, ast.Call) and is_conversion(value):
        yield from inner_models(value.func.value, own_classes)  # type: ignore[attr-defined]
    elif isinstance(value, ast.Call) and last_name(value.func) not in own_classes:
        for argument in (*value.args[:1], *(word.value for word in value.keywords)):
            yield from inner_models(argument, own_classes)


def is_conversion(call: ast.Call) -> bool:
    """Whether `call` is that of a method of a module that returns the module: ``net.to(device)``."""
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr not in _CONVERSIONS:
        return False
    return not (isinstance(function.value, ast.Name) and function.value.id in _LIBRARY_MODULES)


def takes_model(function: object) -> bool:
    """Whether the first parameter of a function or class of a library is a module, so that it wraps models."""
    try:
        first = next(iter(inspect.signature(function).parameters), "")  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return first in MODELS


def returns_model(function: FunctionNode, builds_model: Callable[[ast.expr], bool | None]) -> bool:
    """Whether a ``return`` of `function` is a model, directly, in a local variable, or in a conversion or wrapper.

    ``builds_model(callee)`` says whether calling an expression gives a model; None if only the arguments can tell.
    """
    values: dict[str, list[ast.expr]] = {}
    returned: list[ast.expr] = []
    seen: set[str] = set()
    for statement in function.body:
        for target, value in scope_assignments(statement):
            if isinstance(target, ast.Name):
                values.setdefault(target.id, []).append(value)
        returns = (node for node in walk_scope(statement) if isinstance(node, ast.Return))
        returned += [node.value for node in returns if node.value is not None]

    def aliases(callee: ast.expr) -> Iterator[ast.expr]:
        """The classes that a local name stands for: ``block = BasicBlock if small else Bottleneck``."""
        for value in values.get(callee.id, ()) if isinstance(callee, ast.Name) else ():
            yield from (value.body, value.orelse) if isinstance(value, ast.IfExp) else (value,)

    def is_model(expression: ast.expr) -> bool:
        for inner in inner_models(expression):
            if isinstance(inner, ast.Name):
                is_new = inner.id not in seen  # else its values were no models, or are being looked at
                seen.add(inner.id)
                return is_new and any(is_model(value) for value in values.get(inner.id, ()))
            if isinstance(inner, ast.Call):
                is_class = any(
                    isinstance(a, (ast.Name, ast.Attribute)) and builds_model(a) for a in aliases(inner.func)
                )
                answer = True if is_class else builds_model(inner.func)
                if answer is not None:
                    return answer
        return False

    return any(is_model(v.elts[0] if isinstance(v, ast.Tuple) and v.elts else v) for v in returned)


def own_classes(document: Document) -> frozenset[str]:
    """The names of classes that `document` defines or imports from files of its repository."""
    names = {node.name for node in all_nodes(document.tree) if isinstance(node, ast.ClassDef)}
    path = document.path
    root = repository_root(path) if path is not None else None
    for node in all_nodes(document.tree):
        if isinstance(node, ast.ImportFrom):
            imported = {name for name in (alias.asname or alias.name for alias in node.names) if name[:1].isupper()}
            if imported and (path is None or root is None or node.level or imported_files(node, path, root)):
                names |= imported
    return frozenset(names)


def model_names(
    document: Document, builders: frozenset[str], variables: frozenset[str] = frozenset()
) -> frozenset[str]:
    """The names in `document` that hold the model.

    `builders` are the names of its class and of the functions that build it; `variables` are known to hold it. Without an
    assignment from a builder, these are the conventional names that the document does not give to another class.
    """
    tree = document.tree
    classes = own_classes(document) - builders
    assignments = list(_assignments(tree))
    names = {*variables, *(a.name for a in assignments if a.position == 0 and builds(a.value, builders, classes))}
    if not names:
        return frozenset(CONVENTIONAL) - {a.name for a in assignments if _is_other_class(a.value, classes)}
    called = {dotted_name(node.func) for node in all_nodes(tree) if isinstance(node, ast.Call)}
    used = {dotted_name(n.value) for n in all_nodes(tree) if isinstance(n, ast.Attribute) and n.attr in _USES}
    if _returned_by_methods(tree) & names:  # a base class in another file keeps it
        names |= (set(CONVENTIONAL) & {n for n in called if n is not None and "." in n}) - {a.name for a in assignments}
    for _ in range(3):  # a wrapper of a wrapper, or a function that passes the model on
        before = len(names)
        for a in assignments:
            wrapped = a.wrapped(names, classes)
            is_model = wrapped is None or a.name in used or (a.name in called and wrapped not in called)
            if is_model and (wrapped is not None or a.is_alias(names)):
                names.add(a.name)
        names |= set(_parameters_that_receive(tree, names))
        makers = _functions_that_return(tree, names)
        names |= {a.name for a in assignments if a.position == 0 and makers and builds(a.value, makers, classes)}
        if len(names) == before:
            break
    return frozenset(names)


def _functions_that_return(tree: ast.Module, names: set[str]) -> frozenset[str]:
    """The functions and methods of `tree` that return a variable of `names`, also in conversions."""
    functions = (node for node in all_nodes(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(
        function.name
        for function in functions
        for node in all_nodes(function)
        if isinstance(node, ast.Return) and node.value is not None
        if any(dotted_name(inner) in names for inner in inner_models(node.value))
    )


def _returned_by_methods(tree: ast.Module) -> set[str]:
    """The local variables that methods return, also in conversions."""
    methods = (m for node in all_nodes(tree) if isinstance(node, ast.ClassDef) for m in node.body)
    values = (n.value for m in methods for n in all_nodes(m) if isinstance(n, ast.Return) and n.value is not None)
    return {name for value in values for inner in inner_models(value) if (name := dotted_name(inner)) is not None}


def builds(value: ast.expr, builders: frozenset[str], classes: frozenset[str]) -> bool:
    """Whether `value` calls one of `builders`, directly or inside conversions and wrappers, which are none of `classes`."""
    calls = (inner for inner in inner_models(value, classes) if isinstance(inner, ast.Call))
    return any(last_name(call.func) in builders for call in calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Assignment:
    """A name and the value that it is assigned; its `position` among the `count` names that share the value."""

    name: str
    value: ast.expr
    position: int = 0
    count: int = 1

    def is_alias(self, names: set[str]) -> bool:
        """Whether the value is one of `names` or a conversion of it."""
        value = self.value
        while isinstance(value, ast.Call) and is_conversion(value):
            value = value.func.value  # type: ignore[attr-defined]
        return self.position == 0 and dotted_name(value) in names

    def wrapped(self, names: set[str], classes: frozenset[str]) -> str | None:
        """The one of `names` that the value may be a wrapper of: of several results, that of the argument in its place.

        A function whose results are not those of its arguments returns the model first.
        """
        call = self.value
        if not isinstance(call, ast.Call) or is_conversion(call) or last_name(call.func) in classes:
            return None
        arguments = [*call.args, *(word.value for word in call.keywords)]
        if 1 < self.count == len(call.args):
            arguments = call.args[self.position : self.position + 1]
        elif self.position:
            return None
        inner = (dotted_name(model) for argument in arguments for model in inner_models(argument, classes))
        return next((name for name in inner if name in names), None)


def _assignments(tree: ast.AST) -> Iterator[_Assignment]:
    for target, value in assignments(tree):
        elements = target.elts if isinstance(target, ast.Tuple) else [target]
        for position, element in enumerate(elements):
            name = dotted_name(element)
            if name is not None:
                yield _Assignment(name=name, value=value, position=position, count=len(elements))


def _is_other_class(value: ast.expr, classes: frozenset[str]) -> bool:
    """Whether `value` creates objects of classes alone, and no result of a function, which may be the model."""
    calls = [
        inner for inner in inner_models(value, classes) if isinstance(inner, ast.Call) and not is_conversion(inner)
    ]
    is_wrapper = any(dotted_name(inner) in CONVENTIONAL for inner in inner_models(value, classes))
    return bool(calls) and not is_wrapper and all(last_name(call.func)[:1].isupper() for call in calls)


def _parameters_that_receive(tree: ast.Module, names: set[str]) -> Iterator[str]:
    functions = {node.name: node for node in all_nodes(tree) if isinstance(node, ast.FunctionDef)}
    for call in all_nodes(tree):
        function = functions.get(last_name(call.func)) if isinstance(call, ast.Call) else None
        if function is None or not isinstance(call, ast.Call):
            continue
        parameters = [p.arg for p in (*function.args.posonlyargs, *function.args.args)]
        if parameters[:1] == ["self"]:
            parameters = parameters[1:]
        for parameter, value in zip(parameters, call.args, strict=False):
            if dotted_name(value) in names:
                yield parameter
        for keyword in call.keywords:
            if keyword.arg and dotted_name(keyword.value) in names:
                yield keyword.arg
