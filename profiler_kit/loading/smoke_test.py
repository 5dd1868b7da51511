"""Input shapes from a file's smoke test, found in the syntax tree without running the code.

Searches ``if __name__ == "__main__":`` blocks and the functions that they call without arguments. An input is a literal
``torch.randn/rand/zeros/ones/empty/full/randint(...)`` that is passed to the model, directly or through a variable.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from profiler_kit.loading.inputs import DTYPES, InputText
from profiler_kit.loading.syntax import main_blocks

_MAKERS = ("randn", "rand", "zeros", "ones", "empty", "full", "randint")
_PASS_THROUGH = ("to", "cuda", "cpu", "float", "requires_grad_", "contiguous", "eval", "train", "clone", "detach")
_CASTS = ("long", "int", "bool", "half")
_DTYPE_WORDS = {"long": "int64", "int": "int32", "half": "float16", "float": "float32", "double": "float64"}
_MODEL_NAMES = ("model", "net", "network", "m")


@dataclass(frozen=True, slots=True, kw_only=True)
class SmokeTest:
    """The inputs that a smoke test passes to the model, and the line of the call. Keyword inputs have a name."""

    inputs: tuple[InputText, ...]
    line: int


def smoke_test(tree: ast.Module, factories: tuple[str, ...]) -> SmokeTest | None:
    """The inputs of the first model call with literal tensors; None without one.

    `factories` are the names of functions and classes that build the model.
    """
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    constants = dict(_integers(tree.body))
    for block in main_blocks(tree):
        bodies = [block]
        for call in _calls(block):
            name = call.func.id if isinstance(call.func, ast.Name) else ""
            if name in functions and name not in factories and not call.args:
                bodies.append(functions[name].body)
        for body in bodies:
            test = _find_in_body(body, constants, factories)
            if test is not None:
                return test
    return None


def _calls(body: list[ast.stmt]) -> list[ast.Call]:
    calls = [node for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def _integers(body: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    for statement in body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            target, value = statement.targets[0], statement.value
            pairs = [(target, value)]
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = list(zip(target.elts, value.elts, strict=False))
            for name, item in pairs:
                if isinstance(name, ast.Name) and isinstance(item, ast.Constant) and type(item.value) is int:
                    yield name.id, item.value


def _find_in_body(body: list[ast.stmt], constants: dict[str, int], factories: tuple[str, ...]) -> SmokeTest | None:
    sizes = constants | dict(_integers(body))
    tensors: dict[str, InputText] = {}
    models: set[str] = set()
    # in source order, so that each variable has its value at the time of the call
    for node in sorted(
        (n for s in body for n in ast.walk(s) if isinstance(n, (ast.Assign, ast.Call))),
        key=lambda n: (n.lineno, isinstance(n, ast.Assign), n.col_offset),
    ):
        if isinstance(node, ast.Call):
            inputs = _inputs(node, tensors, sizes) if _is_model(node.func, models, factories) else None
            if inputs:
                return SmokeTest(inputs=inputs, line=node.lineno)
            continue
        for target in node.targets:
            if isinstance(target, ast.Name):
                literal = _literal(node.value, sizes)
                if literal is not None:
                    tensors[target.id] = literal
                elif _builds_model(node.value, factories):
                    models.add(target.id)
    return None


def _is_model(called: ast.expr, models: set[str], factories: tuple[str, ...]) -> bool:
    if isinstance(called, ast.Attribute) and called.attr == "forward":
        called = called.value
    if isinstance(called, ast.Name):
        return called.id in models or called.id in _MODEL_NAMES
    return _builds_model(called, factories)


def _builds_model(value: ast.expr, factories: tuple[str, ...]) -> bool:
    value = _unwrapped(value)
    return isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id in factories


def _unwrapped(value: ast.expr) -> ast.expr:
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _PASS_THROUGH:
        value = value.func.value
    return value


def _inputs(call: ast.Call, tensors: dict[str, InputText], sizes: dict[str, int]) -> tuple[InputText, ...] | None:
    inputs = []
    for name, value in [*((None, arg) for arg in call.args), *((k.arg, k.value) for k in call.keywords)]:
        bare = _unwrapped(value)
        text = tensors.get(bare.id) if isinstance(bare, ast.Name) else _literal(value, sizes)
        if text is None:
            return None
        inputs.append(replace(text, name=name))
    return tuple(inputs)


def _literal(value: ast.expr, sizes: dict[str, int]) -> InputText | None:
    value = _unwrapped(value)
    cast = None
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _CASTS:
        cast = _DTYPE_WORDS.get(value.func.attr, value.func.attr)
        value = _unwrapped(value.func.value)
    if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
        return None
    if ast.unparse(value.func.value) != "torch" or value.func.attr not in _MAKERS:
        return None
    maker, args = value.func.attr, list(value.args)
    keywords = {k.arg: k.value for k in value.keywords}
    bounds = None
    if maker == "randint":
        size = keywords.get("size") or (args.pop() if args else None)
        ends = [_integer(a, sizes) for a in (*args, *(keywords[k] for k in ("low", "high") if k in keywords))]
        if size is None or not 1 <= len(ends) <= 2 or None in ends:
            return None
        bounds = (0, ends[0]) if len(ends) == 1 else (ends[0], ends[1])
        shape = _shape([size], sizes)
    else:
        size = keywords.get("size")
        if maker == "full":
            args = args[:1]
        shape = _shape([size] if size is not None else args, sizes)
    dtype = _dtype(keywords.get("dtype")) or cast or ("int64" if maker == "randint" else None)
    if shape is None:
        return None
    if bounds is None or dtype not in ("int64", "int32", "int16", "int8", "uint8"):
        return InputText(shape=shape, dtype=dtype)
    return InputText(shape=shape, dtype=dtype, low=bounds[0], high=bounds[1])


def _integer(value: ast.expr, sizes: dict[str, int]) -> int | None:
    if isinstance(value, ast.Constant) and type(value.value) is int:
        return value.value
    return sizes.get(value.id) if isinstance(value, ast.Name) else None


def _shape(args: list[ast.expr], sizes: dict[str, int]) -> tuple[int, ...] | None:
    if len(args) == 1 and isinstance(args[0], (ast.Tuple, ast.List)):
        args = list(args[0].elts)
    dims = [_integer(arg, sizes) for arg in args]
    positive_dims = [d for d in dims if d is not None and d > 0]
    return tuple(positive_dims) if positive_dims and len(positive_dims) == len(dims) else None


def _dtype(value: ast.expr | None) -> str | None:
    if not isinstance(value, ast.Attribute):
        return None
    name = _DTYPE_WORDS.get(value.attr, value.attr)
    return name if name in DTYPES else None
