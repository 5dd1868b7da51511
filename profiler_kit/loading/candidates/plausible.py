"""Values of constructor parameters that nothing in the repository gives: usual ones, which the text or an error may change."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import torch

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.candidates.signatures import defining_callable
from profiler_kit.loading.candidates.unknown import GENERIC_SIZE, Unknown
from profiler_kit.loading.messages import reports
from profiler_kit.loading.program.names import all_nodes, attribute_paths, attributes_read
from profiler_kit.loading.program.reading import function_node
from profiler_kit.loading.vocabulary import concept_of, is_concept, number_of
from profiler_kit.user_code.boundary import error_text
from profiler_kit.user_code.locations import user_source

UNKNOWN: Final = inspect.Parameter.empty
_SHORTEST_PREFIX: Final = 3
_COUNTS: Final = frozenset({"num", "max", "min", "use", "with", "has"})  # words that change the meaning of the next one
# Inputs of building blocks, which are feature maps.
_BLOCK_INPUTS: Final = ("image channels", "filters", "width")


def plausible_value(
    name: str, bound: Mapping[str, Any], *, annotation: Any = UNKNOWN, is_part: bool = False, generic: bool = False
) -> Any:
    """A usual value for the parameter `name` that agrees with the arguments in `bound`; `UNKNOWN` if there is none.

    `is_part`: the class is a building block; its inputs are feature maps, not images. With `generic`, a parameter without a usual
    name is an `Unknown`.
    """
    lowered = name.lower().strip("_")
    text = annotation if isinstance(annotation, str) else attribute_of(annotation, "__name__", str) or str(annotation)
    if is_part and any(is_concept(name, concept) for concept in _BLOCK_INPUTS):
        return GENERIC_SIZE
    value = _by_name(name.strip("_"), bound)
    value = _by_annotation(lowered, text) if value is UNKNOWN else value
    return Unknown((name,), "argument") if generic and value is UNKNOWN and annotation is UNKNOWN else value


def _by_name(name: str, bound: Mapping[str, Any]) -> Any:
    """The usual value of `name`, or of the name without the part of the model before it: ``vision_width``."""
    concept = concept_of(name)
    if concept is not None and concept.usual is not None:
        return concept.usual(bound) if callable(concept.usual) else concept.usual
    prefix, underscore, tail = name.partition("_")
    if not underscore or len(prefix) < _SHORTEST_PREFIX or prefix in _COUNTS:
        return UNKNOWN
    same_part = {key.removeprefix(f"{prefix}_"): value for key, value in bound.items() if key.startswith(f"{prefix}_")}
    return _by_name(tail, same_part | {key: value for key, value in bound.items() if key not in same_part})


def _by_annotation(name: str, annotation: str) -> Any:
    values: tuple[tuple[str, Any], ...] = (
        (r"(typing\.)?Optional\[.*\]|.*\| ?None", None),
        (r"bool", False),
        (r"int", GENERIC_SIZE),
        (r"float", 0.1),
        (r"(typing\.)?[Tt]uple\[int, int, int\]", (3, 224, 224)),
        (r"(typing\.)?[Tt]uple\[int, int\]|[Tt]uple", (2, 2)),
        (r"(typing\.)?([Ll]ist|Sequence)(\[int\])?", [GENERIC_SIZE, GENERIC_SIZE]),
    )
    for pattern, value in values:
        if re.fullmatch(pattern, annotation):
            return value
    if re.search(r"_(dim|dims|size|channels?|features|units|width|ch|nc)$|^(hidden|emb|n_|num_|d_|dim_|size_)", name):
        return GENERIC_SIZE
    return UNKNOWN


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
        isinstance(inner, ast.Mod) for condition in conditions for inner in all_nodes(condition)
    )
    if not has_stages and _holds(tests, name, value, bound):
        return value
    near = sorted(range(1, _MAX_SIZE + 1), key=lambda size: abs(size - value))
    candidates = [*(_USUAL_DEPTHS if has_stages else ()), *near]
    return next((size for size in candidates if _holds(tests, name, size, bound)), value)


def optional_attributes(factory: Callable[..., Any], parameter: str) -> set[str]:
    """The attributes of `parameter` that the text of `factory` compares with None."""
    node = function_node(factory)
    compared = [
        inner.left
        for inner in (all_nodes(node) if node is not None else ())
        if isinstance(inner, ast.Compare) and isinstance(inner.ops[0], (ast.Is, ast.IsNot))
    ]
    return {left.attr for left in compared if isinstance(left, ast.Attribute) and ast.unparse(left.value) == parameter}


def read_attributes(factory: Callable[..., Any], parameter: str) -> set[str]:
    """The attributes of `parameter` that the text of `factory` reads."""
    node = function_node(factory)
    return attributes_read(node, parameter) if node is not None else set()


def paths_read(factory: Callable[..., Any], parameter: str) -> set[tuple[str, ...]]:
    """The attributes of `parameter`, and those of its attributes, that the text of `factory` reads (`attribute_paths`)."""
    node = function_node(factory)
    return attribute_paths(node, parameter) if node is not None else set()


def _choices(node: ast.FunctionDef, name: str) -> list[Any]:
    """The constants that the function compares `name` with: of one ``in``, or of at least two ``==``."""
    equal: list[Any] = []
    for compare in all_nodes(node):
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
    return any(isinstance(s, ast.Assert) and s.test is compare for s in all_nodes(node))


def _assertions(node: ast.FunctionDef, name: str, bound: Mapping[str, Any]) -> Iterator[ast.expr]:
    """The arithmetic assertions about `name` and values in `bound`."""
    for statement in all_nodes(node):
        if not isinstance(statement, ast.Assert):
            continue
        names = {inner.id for inner in all_nodes(statement.test) if isinstance(inner, ast.Name)}
        is_arithmetic = all(isinstance(inner, _ARITHMETIC) for inner in all_nodes(statement.test))
        if is_arithmetic and name in names and names - {name} <= bound.keys():
            yield statement.test


def _holds(tests: list[Any], name: str, value: int, bound: Mapping[str, Any]) -> bool:
    try:
        return all(eval(test, {"__builtins__": {}}, {**bound, name: value}) for test in tests)  # noqa: S307
    except (ArithmeticError, TypeError, ValueError):
        return True  # the assertion is about something else than sizes


_USUAL_STAGES: Final = 4  # of hierarchical networks, such as ResNet and Swin
_USUAL_LENGTH: Final = 2
_LAYER_CHANNELS: Final = 64
_ROWS: Final = 10_000  # of an embedding
_WIDTH: Final = 256


def alternatives(
    error: BaseException, assumed: Mapping[str, Any], bound: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """(parameter, value of another kind) for the `assumed` numbers that may have raised `error`: a sequence, or a table.

    The parameter is the one that the message or the failing line names, or the only one. A sequence is as long as those in
    `bound`, or has one item for each of the usual stages. A table holds an embedding for each token.
    """
    if not isinstance(error, (TypeError, AssertionError, ValueError, AttributeError, IndexError)):
        return
    sizes = [name for name, value in assumed.items() if type(value) is int]
    context = f"{error_text(error)} {user_source(error)}"
    if not isinstance(error, (AttributeError, IndexError)) and reports(error, "needs_sequence"):
        for name in _named(sizes, context) or (sizes if len(sizes) == 1 else []):
            items = _sequence(name, assumed[name], bound)
            yield name, tuple(items) if reports(error, "needs_tuple") else items
            break
    if isinstance(error, (AttributeError, AssertionError)):
        for name in _named([name for name, value in assumed.items() if isinstance(value, (int, float))], context):
            yield name, torch.zeros(number_of(bound, "tokens") or _ROWS, number_of(bound, "width") or _WIDTH)


def _named(names: Iterable[str], text: str) -> list[str]:
    return [name for name in names if re.search(rf"\b{re.escape(name)}\b", text)]


def _sequence(name: str, size: int, bound: Mapping[str, Any]) -> list[int]:
    lengths = [len(value) for key, value in bound.items() if key != name and isinstance(value, (list, tuple)) and value]
    length = lengths[0] if lengths else _USUAL_STAGES if is_concept(name, "layers") else _USUAL_LENGTH
    # a sequence of channels describes layers, not an image
    return [max(size, _LAYER_CHANNELS) if "channel" in name.lower() else size] * length
