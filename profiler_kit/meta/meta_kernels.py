"""Replacement kernels for meta and fake tensors, where torch's differ from real kernels.

- Grouped matrix products reject dtypes other than bfloat16, which real kernels accept.
- Convolutions on meta tensors return contiguous results. Real kernels use channels last if image or weight do
  (ATen/native/ConvUtils.h, ``cudnn_conv_suggest_memory_format``, and the same for the CPU).
- The scalar of a reduced elementwise loss has a storage for all elements. Real kernels reduce into the buffer of the losses of
  the elements and shrink the tensor, not its storage (ATen/native/Loss.cpp, ATen/native/cuda/Loss.cu).

Also memory layouts, by shape and strides alone: which layout torch would suggest for the result of an op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

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


_CONVOLUTION: Final = torch.ops.aten.convolution.default
_MEMORY_FORMATS: Final = {4: torch.channels_last, 5: torch.channels_last_3d}
_GROUPED_MM: Final = getattr(getattr(torch.ops.aten, "_grouped_mm", None), "default", None)  # from torch 2.7 on


# Losses whose scalar keeps the storage of all elements, each with the position of its argument `reduction`.
_KEPT_STORAGE: Final = {
    torch.ops.aten.mse_loss.default: 2,
    torch.ops.aten.smooth_l1_loss.default: 2,
    torch.ops.aten.soft_margin_loss.default: 2,
    torch.ops.aten.binary_cross_entropy.default: 3,
}
_UNREDUCED: Final = 0
# Gradients without a meta kernel. Each has the form of its second argument, the tensor that the forward op was given.
_GRADIENTS: Final = frozenset(
    overload.default
    for name in (
        "_ctc_loss_backward", "multi_margin_loss_backward", "multilabel_margin_loss_backward", "fractional_max_pool3d_backward",
    )
    if (overload := getattr(torch.ops.aten, name, None)) is not None
)  # fmt: skip


def replacement_kernel(op: Any, args: Sequence[Any]) -> Callable[..., Any] | None:
    """The function to run instead of `op`; None, in nearly all cases, to run `op` itself."""
    at = _KEPT_STORAGE.get(op)
    if at is not None:
        return _loss_kernel(op, at)
    if op is _CONVOLUTION:
        return _convolution_kernel(*args[:2])
    if op in _GRADIENTS:
        return _gradient_like if _has_no_data(args[1]) else None
    if op is not _GROUPED_MM or op is None:
        return None
    a, b = args[:2]
    offsets = args[2] if len(args) > 2 else None
    if not _has_no_data(a) or a.dtype is torch.bfloat16 or a.dtype is not b.dtype:
        return None
    shape = _grouped_shape(a.shape, b.shape, None if offsets is None else offsets.shape[0])
    if shape is None or not a.is_floating_point():
        return None
    return lambda *_, **options: torch.empty(shape, dtype=options.get("out_dtype") or a.dtype, device=a.device)


def _has_no_data(tensor: torch.Tensor) -> bool:
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def _gradient_like(_: torch.Tensor, source: torch.Tensor, *__: Any, **___: Any) -> torch.Tensor:
    return torch.empty_like(source)


def _loss_kernel(op: Any, at: int) -> Callable[..., Any]:
    """`op`, with a scalar whose storage has room for the losses of all elements. `at`: the position of `reduction`."""

    def run(*args: Any, **kwargs: Any) -> Any:
        out = op(*args, **kwargs)
        reduction = args[at] if len(args) > at else kwargs.get("reduction", 1)
        if reduction == _UNREDUCED or not _has_no_data(out):
            return out
        count = torch.broadcast_shapes(args[0].shape, args[1].shape).numel()
        return out.new_empty(count).resize_(()) if count > 1 else out

    return run


def _convolution_kernel(image: torch.Tensor, weight: torch.Tensor) -> Callable[..., Any] | None:
    """The function for a convolution of meta tensors with channels last; None for all others."""
    if not image.is_meta or not any(
        not tensor.is_contiguous() and is_channels_last(tensor.shape, tensor.stride()) for tensor in (image, weight)
    ):
        return None
    # cuDNN has no kernels for channels last in double precision; torch before 2.13 gives its meta tensors that layout, too
    return _convolve_contiguous if image.dtype is torch.float64 else _convolve_channels_last


def _convolve_contiguous(*args: Any, **kwargs: Any) -> torch.Tensor:
    out: torch.Tensor = _CONVOLUTION(*args, **kwargs)
    return out.contiguous()


def _convolve_channels_last(*args: Any, **kwargs: Any) -> torch.Tensor:
    out: torch.Tensor = _CONVOLUTION(*args, **kwargs)
    return out.contiguous(memory_format=_MEMORY_FORMATS[out.dim()])


def _grouped_shape(a: torch.Size, b: torch.Size, groups: int | None) -> tuple[int, ...] | None:
    """The shape of a grouped matrix product; None for operands that the op rejects."""
    ragged = (len(a) == 2) + (len(b) == 2)
    if not {len(a), len(b)} <= {2, 3} or (ragged > 0) != (groups is not None):
        return None
    if groups is not None and ragged == 2:  # the ragged dimension is contracted
        return (groups, a[0], b[1]) if a[1] == b[0] else None
    if a[-1] != b[-2]:
        return None
    if len(a) == 2:
        return (a[0], b[2]) if b[0] == groups else None
    if len(b) == 2:
        return (a[1], b[1]) if a[0] == groups else None
    return (a[0], a[1], b[2]) if a[0] == b[0] else None
