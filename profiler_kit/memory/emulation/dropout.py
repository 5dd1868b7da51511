"""Dropout: one fused op on CUDA, which keeps a mask of one byte per element.

Elsewhere it is a product with a mask of the input's own type.

Source: ATen/native/Dropout.cpp, ``is_fused_kernel_acceptable``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from profiler_kit.memory.emulation import Args, Call, Emulation, Kwargs, emulates


@emulates("dropout")
def dropout(emulation: Emulation, func: Call, args: Args, kwargs: Kwargs) -> object:
    """The result of the fused op, where CUDA would take it."""
    return _dropout(func, *args, **kwargs)


def _dropout(func: Call, input: Tensor, p: float = 0.5, train: bool = True) -> object:  # noqa: A002
    if not train or p in (0, 1) or input.numel() == 0:
        return func(input, p, train)
    return torch.native_dropout(input, p, train)[0]
