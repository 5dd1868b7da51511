"""``torchvision:NAME``: a model of torchvision's registry, without pretrained weights."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from profiler_kit.loading.candidates.building import check_arguments
from profiler_kit.loading.inputs import InputText
from profiler_kit.loading.zoo.recipe import Inputs, Recipe, import_package, unknown_model_error
from profiler_kit.meta.batch import Forward
from profiler_kit.records.target import TargetSpec
from profiler_kit.user_code.environment import define_missing_ops

INSTALL: Final = (("--no-deps", "torchvision"),)
VIDEO_FRAMES: Final = 16
DETECTION_SIZE: Final = 800
FLOW_SIZE: Final = (512, 512)


def recipe(spec: TargetSpec, name: str, arguments: Mapping[str, Any]) -> Recipe:
    """The recipe of torchvision's model `name`. Raises TargetError or UsageError."""
    define_missing_ops()
    models = import_package("torchvision", spec.spec, INSTALL).models
    try:
        builder = models.get_model_builder(name)
    except ValueError:
        raise unknown_model_error(spec, "torchvision", name, models.list_models()) from None
    check_arguments(spec, name, builder, arguments, spec.spec)
    parameters = inspect.signature(builder).parameters
    # by default, segmentation and detection builder_functions download their backbone's weights
    no_weights = {key: None for key in ("weights", "weights_backbone") if key in parameters and key not in arguments}
    weights = next(iter(models.get_model_weights(name)), None)
    shape, count = input_shape(weights)

    def inputs(model: nn.Module, _: Forward, texts: tuple[InputText, ...]) -> Inputs:
        size = getattr(
            model, "image_size", shape[-1]
        )  # a vision transformer needs the image size that it was built for
        built_for = (*shape[:-2], size, size) if size != shape[-1] else shape
        return texts or (InputText(shape=built_for),) * count, {}

    return Recipe(
        name=name,
        factory=lambda: builder(**{**no_weights, **arguments}),
        where=spec.spec,
        source="torchvision's preprocessing" if weights is not None else "the usual image size",
        inputs=inputs,
        takes_list=_kind(weights) == "ObjectDetection",
    )


def input_shape(weights: Any) -> tuple[tuple[int, ...], int]:
    """(shape, number) of the inputs that the preprocessing of `weights` returns for a batch of one."""
    if weights is None:
        return (1, 3, 224, 224), 1
    transforms = weights.transforms()
    kind = _kind(weights)
    if kind == "ObjectDetection":
        return (3, DETECTION_SIZE, DETECTION_SIZE), 1
    if kind == "OpticalFlow":
        return (1, 3, *FLOW_SIZE), 2
    if kind == "SemanticSegmentation":
        size = transforms.resize_size[0]
        return (1, 3, size, size), 1
    height, width = (*transforms.crop_size, *transforms.crop_size)[:2]
    if kind == "VideoClassification":
        return (1, 3, VIDEO_FRAMES, height, width), 1
    return (1, 3, height, width), 1


def _kind(weights: Any) -> str:
    """The name of the preprocessing: ``ImageClassification``, ``SemanticSegmentation`` ..."""
    return "" if weights is None else type(weights.transforms()).__name__
