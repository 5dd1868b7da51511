"""Targets from model zoos: ``hf:...``, ``timm:NAME`` and ``torchvision:NAME``. Pretrained weights are never loaded."""

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
    """The recipe of the zoo model of `spec`, with the ``--kw`` `arguments`; None if `spec` is not a zoo model.

    Raises:
        TargetError, UsageError: an unknown name or argument, or a zoo that is not installed.
    """
    zoo, colon, name = spec.spec.partition(":")
    if not colon or zoo not in _ZOOS:
        return None
    if not name:
        raise UsageError(f"{spec.spec} contains no model name", hint=f"use for example {_EXAMPLES[zoo]}")
    return _ZOOS[zoo](spec, name, arguments)
