"""Inputs that torch.nn layers need, to search inputs and to explain shape mismatches."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.conv import _ConvNd as ConvNd


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
        case nn.RNNBase() | nn.RNNCellBase():
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
