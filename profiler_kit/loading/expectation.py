"""The input shape that a layer of torch.nn wants, next to the one it got."""

from __future__ import annotations

from torch import nn
from torch.nn.modules.batchnorm import _NormBase as NormBase
from torch.nn.modules.conv import _ConvNd as ConvNd


def dims_text(shape: tuple[int, ...]) -> str:
    """``8x3x32x32``; ``scalar`` for no dimensions."""
    return "x".join(map(str, shape)) or "scalar"


def needed_shape(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """`shape` with the sizes that `module` insists on; None when it has no such demand or `shape` meets it."""
    needed = _needed(module, shape)
    return None if needed == shape else needed


def _needed(module: nn.Module, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    match module:
        case ConvNd():
            spatial = len(module.kernel_size)
            if len(shape) not in (spatial + 1, spatial + 2):
                sizes = shape[-spatial:] if len(shape) >= spatial else (32,) * spatial
                return (1, module.in_channels, *sizes)
            return _with(shape, len(shape) - spatial - 1, module.in_channels)
        case nn.Linear():
            return _with(shape, -1, module.in_features)
        case NormBase():
            return _with(shape, 1, module.num_features)
        case nn.GroupNorm():
            return _with(shape, 1, module.num_channels)
        case nn.LayerNorm() | nn.RMSNorm():
            wanted = tuple(module.normalized_shape)
            return (*shape[: -len(wanted)], *wanted) if len(shape) >= len(wanted) else None
        case nn.RNNBase():
            return _with(shape, -1, module.input_size)
        case nn.MultiheadAttention():
            return _with(shape, -1, module.embed_dim)
    return None


def _with(shape: tuple[int, ...], index: int, size: int) -> tuple[int, ...] | None:
    if not -len(shape) <= index < len(shape):
        return None
    changed = list(shape)
    changed[index] = size
    return tuple(changed)
