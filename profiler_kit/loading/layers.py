"""Inputs that torch.nn layers need: to guess a model's input from its first layer, and to explain shape mismatches.

A guess is always reported, and is never used by `check`.
"""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.conv import _ConvNd as ConvNd

from profiler_kit.loading.inputs import InputText

IMAGE_SIZE, CLIP_FRAMES, CLIP_SIZE, SIGNAL_LENGTH, SEQUENCE_LENGTH = 224, 16, 112, 256, 128


def guess_input(model: nn.Module) -> tuple[InputText, str, nn.Module] | None:
    """(input, path, layer) for the first layer with a known input; None without such a layer."""
    for path, module in model.named_modules():
        text = _input_of(module)
        if text is not None:
            return text, path, module
    return None


def _input_of(module: nn.Module) -> InputText | None:
    match module:
        case nn.Conv2d() | nn.ConvTranspose2d():
            return InputText(shape=(1, module.in_channels, IMAGE_SIZE, IMAGE_SIZE))
        case nn.Conv1d() | nn.ConvTranspose1d():
            return InputText(shape=(1, module.in_channels, SIGNAL_LENGTH))
        case nn.Conv3d() | nn.ConvTranspose3d():
            return InputText(shape=(1, module.in_channels, CLIP_FRAMES, CLIP_SIZE, CLIP_SIZE))
        case nn.Linear():
            return InputText(shape=(1, module.in_features))
        case nn.Embedding() | nn.EmbeddingBag():
            return InputText(shape=(1, SEQUENCE_LENGTH), dtype="int64", low=0, high=module.num_embeddings)
        case nn.RNNBase() | nn.MultiheadAttention():
            size = (1, SEQUENCE_LENGTH) if module.batch_first else (SEQUENCE_LENGTH, 1)
            width = module.input_size if isinstance(module, nn.RNNBase) else module.embed_dim
            return InputText(shape=(*size, width))
    return None


def describe_layer(module: nn.Module) -> str:
    """A layer with its input size: ``Conv2d(3, ...)``."""
    for name in ("in_channels", "in_features", "num_embeddings", "input_size", "embed_dim"):
        if hasattr(module, name):
            return f"{type(module).__name__}({getattr(module, name)}, ...)"
    return type(module).__name__


def first_embedding(model: nn.Module) -> tuple[str, int] | None:
    """(path, number of rows) of the first embedding; None without an embedding."""
    for path, module in model.named_modules():
        if isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            return path, module.num_embeddings
    return None


def dims_text(shape: tuple[int, ...]) -> str:
    """``8x3x32x32``; ``scalar`` for no dimensions."""
    return "x".join(map(str, shape)) or "scalar"


def needed_shape(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """`shape` with the sizes that `module` requires; None if `shape` fits or the requirements are unknown."""
    needed = _needed(module, shape)
    return None if needed == shape else needed


def _needed(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    match module:
        case ConvNd():
            spatial = len(module.kernel_size)
            if len(shape) not in (spatial + 1, spatial + 2):
                sizes = shape[-spatial:] if len(shape) >= spatial else (32,) * spatial
                return (1, module.in_channels, *sizes)
            return _with_size(shape, len(shape) - spatial - 1, module.in_channels)
        case nn.Linear():
            return _with_size(shape, -1, module.in_features)
        case NormBase():
            return _with_size(shape, 1, module.num_features)
        case nn.GroupNorm():
            return _with_size(shape, 1, module.num_channels)
        case nn.LayerNorm() | nn.RMSNorm():
            normalized = tuple(module.normalized_shape)
            return (*shape[: -len(normalized)], *normalized) if len(shape) >= len(normalized) else None
        case nn.RNNBase():
            return _with_size(shape, -1, module.input_size)
        case nn.MultiheadAttention():
            return _with_size(shape, -1, module.embed_dim)
    return None


def _with_size(shape: tuple[int, ...], index: int, size: int) -> tuple[int, ...] | None:
    if not -len(shape) <= index < len(shape):
        return None
    changed = list(shape)
    changed[index] = size
    return tuple(changed)
