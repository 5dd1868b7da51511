"""Values of constructor parameters that nothing in the repository gives: from the usual names, annotations and each other."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from profiler_kit.foreign import attribute_of
from profiler_kit.loading.vocabulary import concept_of, is_concept

UNKNOWN: Final = inspect.Parameter.empty
_GENERIC_SIZE: Final = 64
_SHORTEST_PREFIX: Final = 3
_COUNTS: Final = frozenset({"num", "max", "min", "use", "with", "has"})  # words that change the meaning of the next one
# Inputs of building blocks, which are feature maps.
_BLOCK_INPUTS: Final = ("image channels", "filters", "width")


def plausible_value(
    name: str, bound: Mapping[str, Any], *, annotation: Any = UNKNOWN, is_part: bool = False, generic: bool = False
) -> Any:
    """A usual value for the parameter `name` that agrees with the arguments in `bound`; `UNKNOWN` if there is none.

    `is_part`: the class is a building block; its inputs are feature maps, not images. With `generic`, a parameter without a usual
    name is a size.
    """
    lowered = name.lower().strip("_")
    text = annotation if isinstance(annotation, str) else attribute_of(annotation, "__name__", str) or str(annotation)
    if is_part and any(is_concept(name, concept) for concept in _BLOCK_INPUTS):
        return _GENERIC_SIZE
    value = _by_name(name.strip("_"), bound)
    return _by_annotation(lowered, text, generic=generic) if value is UNKNOWN else _as_annotated(value, text)


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


def _as_annotated(value: Any, annotation: str) -> Any:
    """`value` in the annotated form: a pair of sizes for ``tuple[int, int]``, equal sizes for ``list[int]``."""
    if isinstance(value, bool) or not isinstance(value, int):
        return value
    if re.match(r"(typing\.)?[Tt]uple\[int, int, int\]", annotation):
        return (value,) * 3
    if re.match(r"(typing\.)?[Tt]uple\[", annotation):
        return (value,) * 2
    if re.match(r"(typing\.)?([Ll]ist|Sequence)\[int\]", annotation):
        return [value] * 2
    return value


def _by_annotation(name: str, annotation: str, *, generic: bool) -> Any:
    values: tuple[tuple[str, Any], ...] = (
        (r"(typing\.)?Optional\[.*\]|.*\| ?None", None),
        (r"bool", False),
        (r"int", _GENERIC_SIZE),
        (r"float", 0.1),
        (r"(typing\.)?[Tt]uple\[int, int, int\]", (3, 224, 224)),
        (r"(typing\.)?[Tt]uple\[int, int\]|[Tt]uple", (2, 2)),
        (r"(typing\.)?([Ll]ist|Sequence)(\[int\])?", [_GENERIC_SIZE, _GENERIC_SIZE]),
    )
    for pattern, value in values:
        if re.fullmatch(pattern, annotation):
            return value
    if re.search(r"_(dim|dims|size|channels?|features|units|width|ch|nc)$|^(hidden|emb|n_|num_|d_|dim_|size_)", name):
        return (
            2
            if name.startswith(("n_", "num_")) and not name.endswith(("dim", "size", "channels", "features"))
            else _GENERIC_SIZE
        )
    return _GENERIC_SIZE if generic and annotation == "_empty" else UNKNOWN
