"""Values that the text of a constructor allows for a parameter, from its comparisons and assertions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from profiler_kit.loading.candidates.forwarding import defining_callable
from profiler_kit.loading.program.names import attributes_read
from profiler_kit.loading.program.reading import function_node
from profiler_kit.loading.vocabulary import is_concept

_ARITHMETIC: Final = (
    ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.Name, ast.Constant, ast.operator, ast.unaryop,
    ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip
_USUAL_DEPTHS: Final = (18, 20, 28, 34, 40, 50, 56, 101, 110, 121)  # of published residual and dense networks
_MAX_SIZE: Final = 512


def chosen_value(factory: Callable[..., Any], name: str, value: Any, bound: Mapping[str, Any]) -> Any:
    """`value` for the parameter `name`, changed to a value that the text of `factory` allows.

    - A function that compares the parameter with constants accepts one of them: ``assert depth in [18, 34]``.
    - An assertion about sizes excludes others: ``assert (depth - 4) % 6 == 0``. `bound` are the values of other parameters.
    """
    node = function_node(defining_callable(factory, name))
    if node is None:
        return value
    choices = _choices(node, name)
    if choices:
        return value if value in choices else choices[0]
    if type(value) is not int:
        return value
    conditions = list(_assertions(node, name, bound))
    tests = [compile(ast.Expression(body=condition), "<assertion>", "eval") for condition in conditions]
    # the depth of a network with stages: the smallest one that fits can have stages without blocks
    has_stages = is_concept(name, "layers") and any(
        isinstance(inner, ast.Mod) for condition in conditions for inner in ast.walk(condition)
    )
    if not has_stages and _holds(tests, name, value, bound):
        return value
    near = sorted(range(1, _MAX_SIZE + 1), key=lambda size: abs(size - value))
    candidates = [*(_USUAL_DEPTHS if has_stages else ()), *near]
    return next((size for size in candidates if _holds(tests, name, size, bound)), value)


def attribute_choices(factory: Callable[..., Any], parameter: str) -> dict[str, Any]:
    """The first value that the text of `factory` accepts for each attribute of `parameter` that it compares with constants."""
    node = function_node(factory)
    if node is None:
        return {}
    attributes = {
        inner.attr: ast.unparse(inner)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Attribute) and ast.unparse(inner.value) == parameter
    }
    choices = {attribute: _choices(node, text) for attribute, text in attributes.items()}
    return {attribute: values[0] for attribute, values in choices.items() if values}


def optional_attributes(factory: Callable[..., Any], parameter: str) -> set[str]:
    """The attributes of `parameter` that the text of `factory` compares with None."""
    node = function_node(factory)
    compared = [
        inner.left
        for inner in (ast.walk(node) if node is not None else ())
        if isinstance(inner, ast.Compare) and isinstance(inner.ops[0], (ast.Is, ast.IsNot))
    ]
    return {left.attr for left in compared if isinstance(left, ast.Attribute) and ast.unparse(left.value) == parameter}


def read_attributes(factory: Callable[..., Any], parameter: str) -> set[str]:
    """The attributes of `parameter` that the text of `factory` reads."""
    node = function_node(factory)
    return attributes_read(node, parameter) if node is not None else set()


def _choices(node: ast.FunctionDef, name: str) -> list[Any]:
    """The constants that the function compares `name` with: of one ``in``, or of at least two ``==``."""
    equal: list[Any] = []
    for compare in ast.walk(node):
        if not (isinstance(compare, ast.Compare) and ast.unparse(compare.left) == name):
            continue
        operator, right = compare.ops[0], compare.comparators[0]
        if isinstance(operator, ast.In) and isinstance(right, (ast.List, ast.Tuple, ast.Set)) and right.elts:
            values = [item.value for item in right.elts if isinstance(item, ast.Constant)]
            if len(values) == len(right.elts) and _is_asserted(node, compare):
                return values
        elif isinstance(operator, ast.Eq) and isinstance(right, ast.Constant) and right.value not in equal:
            equal.append(right.value)
    return equal if len(equal) > 1 else []


def _is_asserted(node: ast.FunctionDef, compare: ast.Compare) -> bool:
    return any(isinstance(s, ast.Assert) and s.test is compare for s in ast.walk(node))


def _assertions(node: ast.FunctionDef, name: str, bound: Mapping[str, Any]) -> Iterator[ast.expr]:
    """The arithmetic assertions about `name` and values in `bound`."""
    for statement in ast.walk(node):
        if not isinstance(statement, ast.Assert):
            continue
        names = {inner.id for inner in ast.walk(statement.test) if isinstance(inner, ast.Name)}
        is_arithmetic = all(isinstance(inner, _ARITHMETIC) for inner in ast.walk(statement.test))
        if is_arithmetic and name in names and names - {name} <= bound.keys():
            yield statement.test


def _holds(tests: list[Any], name: str, value: int, bound: Mapping[str, Any]) -> bool:
    try:
        return all(eval(test, {"__builtins__": {}}, {**bound, name: value}) for test in tests)  # noqa: S307
    except (ArithmeticError, TypeError, ValueError):
        return True  # the assertion is about something else than sizes
