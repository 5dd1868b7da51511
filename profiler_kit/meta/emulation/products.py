"""Linear layers: the bias of a strided input is added in place, as without a dispatch mode.

Such a layer is a matrix product and a sum. With a dispatch mode active, torch treats every tensor as a subclass and adds out of
place, so the product and the sum are alive at the same time.

Source: ATen/native/Linear.cpp, ``linear``.
"""

from __future__ import annotations

import torch
from torch import Tensor

from profiler_kit.meta.emulation import Call, Emulation, emulates


@emulates("linear", cpu=True)
def linear(emulation: Emulation, func: Call, input: Tensor, weight: Tensor, bias: Tensor | None = None) -> object:  # noqa: A002
    """The product plus the bias."""
    if bias is None:
        return func(input, weight)
    is_one_op = input.dim() <= 2 or weight.dim() != 2 or input.is_nested or input.is_contiguous()
    if is_one_op:
        return func(input, weight, bias)
    return torch.matmul(input, weight.t()).add_(bias)
