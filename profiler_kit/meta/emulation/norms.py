"""Root-mean-square normalization: one fused op on CUDA, which saves its input and one number per row.

On other devices it is a sequence of elementwise ops, which also save the normalized input.

Source: ATen/native/layer_norm.cpp, ``rms_norm_symint`` (the cases without the fused op) and ``rms_norm_composite``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch import Tensor

from profiler_kit.meta.emulation import Call, Emulation, emulates
from profiler_kit.meta.emulation.autocast import HALF
from profiler_kit.meta.emulation.library_calls import facts_of
from profiler_kit.records.calls import OpCall

_CHANNELS_LAST: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
_HAS_FUSED_OP: Final = hasattr(torch.ops.aten, "_fused_rms_norm")  # from torch 2.8 on


@emulates("rms_norm")
def rms_norm(
    emulation: Emulation,
    func: Call,
    input: Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> object:
    """The result of the fused op if CUDA would use it."""
    is_fused = (
        _HAS_FUSED_OP
        and input.is_floating_point()
        and (weight is None or weight.dtype is input.dtype)
        and not _has_channels_last(input)
    )
    if not is_fused:
        return func(input, normalized_shape, weight, eps)
    apply: Call = FusedRmsNorm.apply
    return apply(emulation.libraries.use_workspace, tuple(normalized_shape), eps, input, weight)


def _has_channels_last(tensor: Tensor) -> bool:
    layout = _CHANNELS_LAST.get(tensor.dim())
    return layout is not None and not tensor.is_contiguous() and tensor.is_contiguous(memory_format=layout)


class FusedRmsNorm(torch.autograd.Function):
    """The allocations of ``aten::_fused_rms_norm`` and its backward.

    The class has the name of the op's autograd node, by which formulas find the gradients that are needed.
    """

    @staticmethod
    def forward(ctx: Any, use_workspace: Any, shape: tuple[int, ...], eps: Any, input: Tensor, weight: Any) -> Tensor:  # noqa: A002
        """The normalized input."""
        out = torch.empty_like(input, memory_format=torch.contiguous_format)
        rows = input.shape[: input.dim() - len(shape)]
        dtype = torch.float32 if input.dtype in HALF else input.dtype
        rstd = input.new_empty((*rows, *(1 for _ in shape)), dtype=dtype)
        use_workspace(
            OpCall("aten._fused_rms_norm", facts_of((input, shape, weight, eps)), outputs=facts_of((out, rstd)))
        )
        ctx.save_for_backward(input, weight, rstd)
        ctx.use_workspace, ctx.shape = use_workspace, shape
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of input and weight."""
        x, weight, rstd = ctx.saved_tensors
        needed = (ctx.needs_input_grad[3], ctx.needs_input_grad[4])
        grad_x = torch.empty_like(x, memory_format=torch.contiguous_format) if needed[0] else None
        grad_weight = torch.empty_like(weight) if needed[1] else None
        arguments = (*gradients, x, ctx.shape, rstd, weight, needed)
        outputs = facts_of((grad_x, grad_weight))
        ctx.use_workspace(
            OpCall("aten._fused_rms_norm_backward", facts_of(arguments), outputs=outputs, in_backward=True)
        )
        return None, None, None, grad_x, grad_weight
