"""The variables of a document that hold the model: assigned from its class or factory, or passed on to functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator

# Names that training code commonly gives to the one model that it trains.
CONVENTIONAL = ("model", "net", "network", "self.model", "self.net", "self.network")
# Functions that return a model for the same parameters: wrappers for several devices, and compilers.
_WRAPPERS = (
    "DataParallel", "DistributedDataParallel", "DDP", "FSDP", "FullyShardedDataParallel", "compile", "fully_shard",
    "convert_sync_batchnorm", "prepare", "setup", "to",
)  # fmt: skip


def dotted_name(node: ast.expr) -> str | None:
    """The text of a name or of a chain of attributes: ``model``, ``self.model``; None for other expressions."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted_name(node.value)
        return None if owner is None else f"{owner}.{node.attr}"
    return None


def model_names(tree: ast.Module, builders: frozenset[str], variable: str | None = None) -> frozenset[str]:
    """The names in `tree` that hold the model.

    `builders` are the names of its class and of the functions that build it; `variable` is a variable that is known to hold it.
    Without an assignment from a builder, the conventional names are returned.
    """
    names = {variable} if variable else set()
    assignments = [(target, value) for target, value in _assignments(tree)]
    for target, value in assignments:
        if any(_last(call.func) in builders for call in _outer_calls(value)):
            names.add(target)
    if not names:
        return frozenset(CONVENTIONAL)
    for _ in range(3):  # a wrapper of a wrapper, or a function that passes the model on
        before = len(names)
        names |= {target for target, value in assignments if _wraps(value, names)}
        names |= set(_parameters_that_receive(tree, names))
        if len(names) == before:
            break
    return frozenset(names)


def _assignments(tree: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield from _pairs(node.target, node.value)


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for part, item in zip(target.elts, value.elts, strict=True):
            yield from _pairs(part, item)
    else:
        elements = target.elts if isinstance(target, ast.Tuple) else [target]
        for element in elements[:1]:  # prepare(model, optimizer) returns the model first
            name = dotted_name(element)
            if name is not None:
                yield name, value


def _outer_calls(value: ast.expr) -> Iterator[ast.Call]:
    """The call that `value` is, and the calls inside conversions and wrappers of its result: ``Net().to(device)``."""
    while isinstance(value, (ast.Call, ast.IfExp)):
        if isinstance(value, ast.IfExp):
            yield from _outer_calls(value.orelse)
            value = value.body
            continue
        yield value
        if isinstance(value.func, ast.Attribute) and isinstance(value.func.value, ast.Call):
            value = value.func.value
        elif _last(value.func) in _WRAPPERS and value.args:
            value = value.args[0]
        else:
            return


def _wraps(value: ast.expr, names: set[str]) -> bool:
    """Whether `value` is a variable of `names`, or a wrapper or conversion of it."""
    if dotted_name(value) in names:
        return True
    if not isinstance(value, ast.Call):
        return False
    if isinstance(value.func, ast.Attribute) and dotted_name(value.func.value) in names:
        return value.func.attr in ("to", "cuda", "cpu", "train", "eval", "float", "half")
    return _last(value.func) in _WRAPPERS and bool(value.args) and _wraps(value.args[0], names)


def _parameters_that_receive(tree: ast.Module, names: set[str]) -> Iterator[str]:
    functions = {node.name: node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    for call in ast.walk(tree):
        function = functions.get(_last(call.func) or "") if isinstance(call, ast.Call) else None
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


def _last(function: ast.expr) -> str | None:
    """The last part of a called name: ``resnet18`` of ``models.resnet18``."""
    return (
        function.attr
        if isinstance(function, ast.Attribute)
        else function.id
        if isinstance(function, ast.Name)
        else None
    )
