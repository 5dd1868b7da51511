"""Dropout, and cross entropy under autocast.

Dropout on CUDA is one fused op that saves a mask of one byte per element. On other devices it multiplies by a mask of the
input's dtype. Source: ATen/native/Dropout.cpp, ``is_fused_kernel_acceptable``.

Cross entropy runs log_softmax in the input's low precision, and the negative log likelihood makes a float32 copy. Both
results are saved for backward.

Source: ATen/native/LossNLL.cpp, ``cross_entropy_loss_prob_target`` and ``cross_entropy_loss``.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler_kit.meta.emulation import Call, Emulation, emulates
from profiler_kit.meta.emulation.autocast import HALF, autocast_enabled

_REDUCTIONS: Final = ("none", "mean", "sum")


@emulates("dropout")
def dropout(emulation: Emulation, func: Call, input: Tensor, p: float = 0.5, train: bool = True) -> object:  # noqa: A002
    """The result of the fused op if CUDA would use it."""
    if not train or p in (0, 1) or input.numel() == 0:
        return func(input, p, train)
    return torch.native_dropout(input, p, train)[0]


@emulates("cross_entropy_loss")
def cross_entropy(
    emulation: Emulation,
    func: Call,
    input: Tensor,  # noqa: A002
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> object:
    """The loss as the ops that autocast runs."""
    if not autocast_enabled() or input.dtype not in HALF or target.is_floating_point() or label_smoothing:
        return func(input, target, weight, reduction, ignore_index, label_smoothing)
    log_probs = torch.log_softmax(input, 1 if input.dim() > 1 else 0, dtype=input.dtype).float()
    return F.nll_loss(log_probs, target, weight, ignore_index=ignore_index, reduction=_REDUCTIONS[reduction])
