"""Sizes that a model states: in its constructor's arguments, its attributes, its config, and its layers."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from torch import nn
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd

from profiler_kit.foreign import attribute_of, has_class
from profiler_kit.loading.candidates.configs import AssumedConfig, fields_of
from profiler_kit.loading.vocabulary import is_concept, spelling_rank
from profiler_kit.meta.batch import reads_sequence_first

_IMAGE_SHAPE: Final = re.compile(r"[(\[]\s*[A-Za-z]\w*\s*[,x]\s*[134]\s*[,x]\s*(\d{2,4})\s*[,x]\s*(\d{2,4})\s*[)\]]")

IMAGE_CHANNELS: Final = 3
IMAGE_SIZE: Final = 224  # the crop of ImageNet models
SMALL_IMAGE_SIZE: Final = 32  # CIFAR
GRAY_IMAGE_SIZE: Final = 28  # MNIST
DENSE_IMAGE_SIZE: Final = 256  # for outputs of the size of the input: segmentation, translation, restoration
CLIP_FRAMES: Final = 16  # of the clips that 3-D networks are trained on
CLIP_SIZE: Final = 112
SIGNAL_LENGTH: Final = 256
SEQUENCE_LENGTH: Final = 128
MAX_LENGTH: Final = 1024  # a longer context of the model is not used unless the user asks for it
MAX_SMALL_CLASSES: Final = 200  # data sets of small images have 10, 100 or 200 classes

_SIZE_WORDS: Final = frozenset({
    "dim", "dimension", "size", "num", "number", "n", "d", "nb", "in", "input", "feature", "feat", "channel", "ch", "width",
    "len", "length", "max", "min", "unit", "count",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The sizes that a model states. None is unknown.

    `image` is (height, width). `layers` are the modules without children that take tensors, in order of definition. `named` are
    the sizes among the constructor's arguments, with the words of their names that say whose size it is: ``state_dim``.
    """

    layers: tuple[tuple[str, nn.Module], ...]
    image: tuple[int, int] | None = None
    image_name: str | None = None
    length: int | None = None
    length_name: str | None = None
    latent: int | None = None
    channels: int | None = None
    features: int | None = None
    frames: int | None = None
    classes: int | None = None
    named: tuple[tuple[frozenset[str], int], ...] = ()

    def size_of(self, name: str) -> int | None:
        """The size that an argument gives by the name of the input `name`: 17 for ``obs`` and ``observation_dim=17``."""
        words = _owners(name)
        sizes = {
            size
            for owners, size in self.named
            if owners and all(any(a.startswith(b) or b.startswith(a) for b in words) for a in owners)
        }
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def stem_stride(self) -> int:
        """The stride of the first two-dimensional convolution; 1 without one."""
        conv = self.first(nn.Conv2d)
        stride = conv.stride if conv is not None else 1
        return max(stride) if isinstance(stride, tuple) else int(stride)

    def first(self, *kinds: type[nn.Module]) -> Any:
        """The first layer of one of `kinds`; None without one."""
        return next((layer for _, layer in self.layers if isinstance(layer, kinds)), None)

    @property
    def rows(self) -> int | None:
        """The rows of the first embedding; None without an embedding."""
        embedding = self.first(nn.Embedding, nn.EmbeddingBag)
        return embedding.num_embeddings if embedding is not None else None

    def image_size(self, channels: int | None) -> tuple[int, int]:
        """The usual image for a model with these layers and classes.

        The size that the model states, else 28 for one channel, 32 for up to 200 classes behind a convolution with stride 1,
        256 for a model whose last layer is a convolution, else 224.
        """
        if self.image is not None:
            return self.image
        if channels == 1 and self.classes is not None and self.classes <= MAX_SMALL_CLASSES:
            return (GRAY_IMAGE_SIZE, GRAY_IMAGE_SIZE)
        if self.classes is None:
            return (DENSE_IMAGE_SIZE, DENSE_IMAGE_SIZE)
        if self.classes <= MAX_SMALL_CLASSES and self.stem_stride == 1 and channels in (None, 1, 3):
            return (SMALL_IMAGE_SIZE, SMALL_IMAGE_SIZE)
        return (IMAGE_SIZE, IMAGE_SIZE)

    @property
    def is_sequence_first(self) -> bool:
        """Whether the first recurrent or attention layer expects (sequence, batch, features)."""
        return reads_sequence_first(layer for _, layer in self.layers)

    @property
    def is_time_series(self) -> bool:
        """Whether the model states a length and a number of variables, and no layer takes tokens or images."""
        if self.length is None or self.features is None:
            return False
        return self.first(nn.RNNBase, nn.Embedding, nn.Conv2d, nn.Conv3d, nn.MultiheadAttention) is None

    @property
    def sequence_length(self) -> int:
        """The model's context length up to 1,024, else 128."""
        if self.length is not None:
            return min(self.length, MAX_LENGTH)
        return SEQUENCE_LENGTH


def facts_of(model: nn.Module, arguments: Mapping[str, Any], options: Mapping[str, Any] | None = None) -> Facts:
    """The facts about `model`; `arguments` are those of its constructor, by name, and `options` those of its programs."""
    layers = tuple(
        (path, module)
        for path, module in model.named_modules()
        if not any(True for _ in module.children()) or isinstance(module, (nn.MultiheadAttention, nn.RNNBase))
    )
    image_name, image = _first_value(model, arguments, "image size", _image, options)
    if image is None:
        image_name, image = _documented_image(model)
    length_name, length = _first_value(model, arguments, "length", _positive)
    if image_name in ("input_size", "in_size", "--input_size") and not any(isinstance(m, ConvNd) for _, m in layers):
        image_name, image = None, None  # the width of a linear or recurrent layer
    return Facts(
        image=image,
        image_name=image_name,
        length=length if length is not None and length > 1 else None,
        length_name=length_name,
        latent=_first_value(model, arguments, "noise", _positive)[1],
        channels=_first_value(model, arguments, "image channels", _positive)[1],
        features=_first_value(model, arguments, "variables", _positive)[1],
        frames=_first_value(model, arguments, "frames", _positive)[1],
        classes=_classes(layers),
        layers=layers,
        named=tuple((_owners(name), size) for name, size in arguments.items() if type(size) is int and size > 1),
    )


def _owners(name: str) -> frozenset[str]:
    """The words of `name` without those that only say that it is a size: ``action`` of ``num_actions`` and ``action_dim``."""
    words = (word.lower().rstrip("s") for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))
    return frozenset(word for word in words if word and word not in _SIZE_WORDS)


def _documented_image(model: nn.Module) -> tuple[str | None, tuple[int, int] | None]:
    """(name, size) of the first image shape in the docstring of forward: ``a tensor of shape (N, 3, 300, 300)``."""
    shape = _IMAGE_SHAPE.search(inspect.getdoc(getattr(type(model), "forward", None)) or "")
    return ("the docstring's image", (int(shape[1]), int(shape[2]))) if shape is not None else (None, None)


def _classes(layers: tuple[tuple[str, nn.Module], ...]) -> int | None:
    """The width of the last layer with weights; None if it is a convolution with a kernel larger than 1x1 or upsampling."""
    upsamples = any(isinstance(layer, (ConvTransposeNd, nn.Upsample, nn.PixelShuffle)) for _, layer in layers)
    for _, layer in reversed(layers):
        if isinstance(layer, nn.Linear):
            return layer.out_features
        if isinstance(layer, ConvNd):
            # fully convolutional classifiers end in a 1x1 convolution and a pooling layer
            is_classifier = set(layer.kernel_size) == {1} and not upsamples and layer.out_channels >= 10
            return layer.out_channels if is_classifier else None
    return None


def _first_value(
    model: nn.Module, arguments: Mapping[str, Any], concept: str, read: Any, options: Mapping[str, Any] | None = None
) -> tuple[Any, Any]:
    """(name, value) of the first name for `concept` among the constructor's arguments, the model, its config and `options`."""
    for space in (*_namespaces(model, arguments), options or {}):
        ranks = {name: spelling_rank(name, concept) for name in space if isinstance(name, str)}
        for name in sorted((n for n, rank in ranks.items() if rank is not None), key=lambda n: (ranks[n], n)):
            value = read(space[name])
            if value is not None:
                return (f"--{name}" if space is options else name), value
    return None, None


def _namespaces(model: nn.Module, arguments: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield arguments
    yield from _configs(arguments)
    for _, module in zip(range(200), model.modules(), strict=False):
        if type(module).__module__.startswith("torch.nn."):
            continue
        space = {name: value for name, value in vars(module).items() if not name.startswith("_")}
        yield space
        yield from _configs(space)
    # options that a script reads into global variables: ``opt = parser.parse_args()``
    forward = attribute_of(type(model), "forward", object)  # TorchScript classes refuse it
    script = attribute_of(forward, "__globals__", dict, {})
    if not str(script.get("__name__", "")).startswith("torch."):
        yield {name: value for name, value in script.items() if type(value) in (int, tuple, list)}
        yield from _configs(script)


def _configs(space: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name, value in space.items():
        if not has_class(value):
            continue
        if isinstance(value, AssumedConfig):
            yield fields_of(value)
        elif not is_concept(name, "configuration"):
            continue
        elif not isinstance(value, (nn.Module, type, ModuleType)):
            yield fields_of(value)


def _positive(value: object) -> int | None:
    return value if type(value) is int and value > 0 else None


def _image(value: object) -> tuple[int, int] | None:
    """(height, width) of an image size: a number, (height, width), or (channels, height, width)."""
    if type(value) is int and value > 3:
        return (value, value)
    if isinstance(value, (tuple, list)) and len(value) in (2, 3) and all(type(size) is int for size in value):
        height, width = value[-2:]
        return (height, width) if height > 3 and width > 3 else None
    return None
