"""Targets that name a model of a model zoo: ``hf:...``, ``timm:NAME`` and ``torchvision:NAME``; weights are never loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from profiler_kit.errors import UsageError
from profiler_kit.loading.zoo import timm_models, torchvision_models, transformers_models
from profiler_kit.loading.zoo.recipe import Recipe
from profiler_kit.records.target import TargetSpec

__all__ = ["Recipe", "open_zoo"]

_ZOOS: Final[dict[str, Callable[[TargetSpec, str, Mapping[str, Any]], Recipe]]] = {
    "hf": transformers_models.recipe,
    "timm": timm_models.recipe,
    "torchvision": torchvision_models.recipe,
}
_EXAMPLES: Final = {"hf": "hf:LlamaConfig", "timm": "timm:resnet50", "torchvision": "torchvision:resnet50"}


def open_zoo(spec: TargetSpec, arguments: Mapping[str, Any]) -> Recipe | None:
    """The recipe of the model that `spec` names, with the ``--kw`` `arguments`; None when it names none of a zoo.

    Raises TargetError or UsageError for a name or an argument that the zoo does not have, or a zoo that is not installed.
    """
    zoo, colon, name = spec.spec.partition(":")
    if not colon or zoo not in _ZOOS:
        return None
    if not name:
        raise UsageError(f"{spec.spec} names no model", hint=f"name one: {_EXAMPLES[zoo]}")
    return _ZOOS[zoo](spec, name, arguments)
