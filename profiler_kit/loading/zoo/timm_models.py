"""``timm:NAME``: a model of timm's registry, without pretrained weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.zoo.recipe import Inputs, Recipe, import_package, unknown_model_error
from profiler_kit.meta.batch import Forward
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import define_missing_ops

# timm and torchvision without their dependencies, so that they do not replace the user's torch
INSTALL: Final = (("--no-deps", "timm", "torchvision"), ("huggingface_hub", "safetensors", "pyyaml"))


def recipe(spec: TargetSpec, name: str, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe of timm's model `name`. Raises TargetError."""
    define_missing_ops()  # timm imports torchvision
    timm = import_package("timm", spec.spec, INSTALL)
    if not timm.is_model(name):
        raise unknown_model_error(spec, "timm", name, timm.list_models())

    def inputs(model: nn.Module, forward: Forward, texts: tuple[InputText, ...]) -> Inputs:
        size = timm.data.resolve_model_data_config(model)["input_size"]
        return texts or (InputText(shape=(1, *size)),), {}

    return Recipe(
        name=name,
        factory=lambda: timm.create_model(name, pretrained=False, **arguments),
        where=spec.spec,
        source="timm's preprocessing",
        inputs=inputs,
    )
