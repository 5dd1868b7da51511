"""Memory layouts, by shape and strides alone: which layout torch would suggest for the result of an op."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

import torch

_RANKS: Final = (4, 5)  # of images and volumes, with batch and channels


def is_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether torch treats a tensor as channels last. Ambiguous strides, as of one channel, are contiguous.

    Source: c10/core/MemoryFormat.h, ``is_channels_last_strides_2d_s4`` and ``is_channels_last_strides_3d_s5``.
    """
    rank = len(shape)
    if rank not in _RANKS or strides[1] == 0:
        return False
    expected = 0
    for dim in (1, *range(rank - 1, 1, -1), 0):
        if shape[dim] == 0 or strides[dim] < expected:
            return False
        if dim == 0 and expected == strides[1]:  # one channel at one position
            return False
        expected = strides[dim] * shape[dim]
    return True


def is_dense(shape: Sequence[int], strides: Sequence[int], *, channels_last: bool) -> bool:
    """Whether a tensor fills its memory in this order, as ``is_contiguous(memory_format=...)``."""
    rank = len(shape)
    order = (1, *range(rank - 1, 1, -1), 0) if channels_last else range(rank - 1, -1, -1)
    expected = 1
    for dim in order:
        if shape[dim] != 1 and strides[dim] != expected:
            return False
        expected *= shape[dim]
    return True


def stored_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """The strided tensor with the elements of `tensor`: itself, or the values of a jagged one; None for other layouts."""
    if tensor.layout is torch.jagged:
        values: Any = tensor._values  # `values()` would be an op
        return cast(torch.Tensor, values)
    return tensor if tensor.layout is torch.strided else None
