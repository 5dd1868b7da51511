"""CUDA autocast: the functions that run in low precision or in float32, and the cached copies of weights.

``torch.autocast("cuda")`` has no effect on meta tensors.

Source: ATen/autocast_mode.h (the lists, read in torch 2.13), ATen/autocast_mode.cpp (``cached_cast``).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import torch.utils.checkpoint
from torch import Tensor

from profiler_kit.meta.emulation import Args, Emulation, Kwargs, casts, patch
from profiler_kit.meta.emulation._patching import patched

HALF: Final = (torch.float16, torch.bfloat16)

_LOW_PRECISION: Final = frozenset(
    """
    conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d conv_transpose3d convolution _convolution prelu addmm addmv
    addr matmul __matmul__ __rmatmul__ einsum mm mv linalg_vecdot linear addbmm baddbmm bmm chain_matmul linalg_multi_dot
    scaled_dot_product_attention lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
    """.split()  # noqa: SIM905
)
_FLOAT32: Final = frozenset(
    """
    acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow __pow__ __rpow__ softplus
    layer_norm native_layer_norm rms_norm group_norm frobenius_norm nuclear_norm cosine_similarity poisson_nll_loss
    cosine_embedding_loss nll_loss nll_loss_nd nll_loss2d hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss
    mse_loss margin_ranking_loss multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
    binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d upsample_nearest2d
    upsample_nearest3d _upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d
    upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d upsample_bicubic2d _upsample_bicubic2d_aa
    """.split()  # noqa: SIM905
)
# `linalg_norm` is not on torch's list; it calls one of the other norms, which are.
_FLOAT32_RESULT: Final = frozenset(
    "softmax log_softmax sum prod cumsum cumprod norm linalg_norm linalg_vector_norm linalg_matrix_norm".split()  # noqa: SIM905
)
_WIDEST: Final = frozenset(
    (
        "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "grid_sampler", "index_put", "scatter_add", "tensordot",
        "vdot",
    )  # promoted to the widest type of the arguments; `cat` and `stack` do this without autocast
)  # fmt: skip


def autocast_enabled() -> bool:
    """Whether autocast for CUDA is enabled."""
    return torch.is_autocast_enabled("cuda")


def autocast_dtype() -> torch.dtype:
    """The low-precision dtype of autocast for CUDA."""
    return torch.get_autocast_dtype("cuda")


def cast(emulation: Emulation, value: Any, dtype: torch.dtype, *, cache: bool = True) -> Any:
    """`value` in `dtype` if autocast casts it. With `cache`, the copy of a weight is created once and reused."""
    if type(value) in (list, tuple):
        return type(value)(cast(emulation, item, dtype, cache=cache) for item in value)
    if not isinstance(value, Tensor) or not value.is_floating_point() or value.dtype in (dtype, torch.float64):
        return value
    is_weight = value.is_leaf and value.requires_grad and value.dtype is torch.float32 and not value._is_view()
    if not (cache and is_weight and dtype in HALF and torch.is_autocast_cache_enabled()):
        return value.to(dtype)
    copy = emulation.weights.get(id(value))
    if copy is None or copy.dtype != dtype:
        copy = emulation.weights[id(value)] = value.to(dtype)
    return copy


@casts
def autocast(emulation: Emulation, name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    """The arguments after autocast's casts."""
    if not autocast_enabled():
        emulation.weights.clear()  # the autocast context has ended
        return args, kwargs
    if name in _LOW_PRECISION:
        return _all_cast(emulation, args, kwargs, autocast_dtype())
    if name in _FLOAT32:
        return _all_cast(emulation, args, kwargs, torch.float32)
    if name in _FLOAT32_RESULT:
        return _in_float32(name, args, kwargs)
    if name in _WIDEST:
        wide = any(isinstance(arg, Tensor) and arg.dtype is torch.float32 for arg in args)
        return _all_cast(emulation, args, kwargs, torch.float32 if wide else autocast_dtype())
    return args, kwargs


def _all_cast(emulation: Emulation, args: Args, kwargs: Kwargs, dtype: torch.dtype) -> tuple[Args, Kwargs]:
    cast_args = tuple([cast(emulation, value, dtype) for value in args])
    return cast_args, {key: cast(emulation, value, dtype) for key, value in kwargs.items()}


def _in_float32(name: str, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
    first = args[0] if args else None
    has_dtype = kwargs.get("dtype") is not None or any(isinstance(arg, torch.dtype) for arg in args)
    if not isinstance(first, Tensor) or first.dtype not in HALF or has_dtype:
        return args, kwargs
    if name in ("softmax", "log_softmax"):  # F.softmax passes dtype=None
        args = tuple(arg for arg in args if arg is not None)
    return args, {**kwargs, "dtype": torch.float32}


@patch
@contextmanager
def autocast_without_cuda(emulation: Emulation) -> Iterator[None]:
    """Inside the block, ``torch.autocast("cuda")`` works without CUDA, also when checkpointing restores it."""
    clear_torch_cache = torch.clear_autocast_cache

    def clear_both() -> None:
        emulation.weights.clear()
        clear_torch_cache()

    def return_false(*_: object, **__: object) -> bool:
        return False

    def return_true(*_: object, **__: object) -> bool:
        return True

    changes: list[tuple[Any, str, Any]] = [
        (torch.cuda.amp.common, "amp_definitely_not_available", return_false),
        (torch.cuda, "is_bf16_supported", return_true),
        (torch, "clear_autocast_cache", clear_both),
    ]
    if hasattr(torch.utils.checkpoint, "_infer_device_type"):
        changes.append((torch.utils.checkpoint, "_infer_device_type", lambda *_: "cuda"))
    with patched(changes):
        yield
