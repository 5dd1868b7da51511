"""Scaled dot-product attention: the fused kernel that the device selects for the dtype, shapes, mask and torch's switches.

Source: ATen/native/transformers/cuda/sdp_utils.cpp (``select_sdp_backend`` and its checks), attention.cpp (padding of odd
head sizes for flash attention, conversion of boolean masks), sdp_utils_cpp.cpp (``select_sdp_backend_cpp``). The selection for
sm90 was checked on an H100 with torch 2.11, that for the CPU with ``torch._fused_sdp_choice`` of torch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler_kit.devices.device import AttentionKernel, Device
from profiler_kit.emulation import Call, Emulation, emulates
from profiler_kit.emulation.autocast import HALF

_ATEN: Final = torch.ops.aten
_MAX_HEAD_SIZE: Final = 256
_HEAD_MULTIPLE: Final = 8  # elements; for flash attention and cuDNN


# switches of torch, also for the kernel of the CPU
_SWITCHES: Final[dict[AttentionKernel, Callable[[], bool]]] = {
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "math": lambda: True,  # the last choice; torch raises an error where it is off
}


@emulates("scaled_dot_product_attention", cpu=True)
def attention(
    emulation: Emulation,
    func: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """The output of the kernel that the device would run."""
    device = emulation.device
    kernel = select_kernel(device, query, key, value, attn_mask, enable_gqa=enable_gqa, dropout=dropout_p > 0)
    if kernel == "math":
        emulation.decomposed_attention[query.dtype] += 1
        return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
    if not device.is_cuda:
        mask = _additive(attn_mask, query)
        return _ATEN._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=mask, scale=scale
        )[0]
    saves_logsumexp = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
    mask = _additive(attn_mask, query)
    if mask is not None:
        mask = mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    if kernel == "cudnn":
        return _ATEN._scaled_dot_product_cudnn_attention(
            query, key, value, mask, saves_logsumexp, dropout_p, is_causal, False, scale=scale
        )[0]
    if kernel == "flash":
        return _flash(query, key, value, dropout_p, is_causal, scale, enable_gqa)
    return _ATEN._scaled_dot_product_efficient_attention(
        query, key, value, mask, saves_logsumexp, dropout_p, is_causal, scale=scale
    )[0]


def select_kernel(
    device: Device,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    enable_gqa: bool = False,
    dropout: bool = False,
) -> AttentionKernel:
    """The first kernel in the device's order that torch's switches allow and that supports these tensors."""
    if query.dim() != 4 or not query.is_floating_point() or 0 in query.shape or key.shape[-1] != value.shape[-1]:
        return "math"
    grouped = enable_gqa and query.shape[1] != key.shape[1]
    for kernel in device.architecture.attention.kernels:
        if not _SWITCHES[kernel]():
            continue
        if not device.is_cuda:
            is_supported = _cpu_supports(query, key, value, mask, grouped=grouped, dropout=dropout)
        else:
            is_supported = _cuda_supports(kernel, device, query, mask, grouped=grouped)
        if is_supported:
            return kernel
    return "math"


def _cuda_supports(
    kernel: AttentionKernel, device: Device, query: Tensor, mask: Tensor | None, *, grouped: bool
) -> bool:
    head = query.shape[-1]
    if kernel == "math":
        return True
    if query.dtype is torch.float64 or head > _MAX_HEAD_SIZE:
        return False
    is_half = query.dtype in HALF and (query.dtype is torch.float16 or device.architecture.capability >= 80)
    if kernel == "cudnn":
        return is_half and head % _HEAD_MULTIPLE == 0
    if kernel == "flash":
        return is_half and mask is None
    return head % _alignment(device, query.dtype) == 0 and not grouped and (is_half or query.dtype not in HALF)


def _cpu_supports(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, grouped: bool, dropout: bool
) -> bool:
    tensors = (query, key, value)
    if dropout or any(tensor.dim() != 4 or 0 in tensor.shape or tensor.stride(-1) != 1 for tensor in tensors):
        return False
    heads = {tensor.shape[1] for tensor in tensors}
    if len({tensor.shape[0] for tensor in tensors}) > 1 or len({tensor.shape[-1] for tensor in tensors}) > 1:
        return False
    if len(heads) > 1 and not (grouped and query.shape[1] % key.shape[1] == 0):
        return False
    return mask is None or (mask.dim() in (2, 4) and not mask.requires_grad)


def _alignment(device: Device, dtype: torch.dtype) -> int:
    """The required multiple of head sizes for the efficient kernel: 16 bytes with tensor cores, else one element."""
    if dtype in HALF:
        return 8 if device.architecture.capability >= 75 else 4
    return 4 if device.architecture.capability >= 80 else 1


def _additive(mask: Tensor | None, query: Tensor) -> Tensor | None:
    if mask is None or mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=query.dtype).masked_fill_(mask, 0)


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout: float, is_causal: bool, scale: float | None, enable_gqa: bool
) -> Tensor:
    head = query.shape[-1]
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))
    padding = -head % _HEAD_MULTIPLE
    if padding:
        query, key, value = (F.pad(t, (0, padding)) for t in (query, key, value))
    out: Tensor = _ATEN._scaled_dot_product_flash_attention(
        query, key, value, dropout, is_causal, False, scale=scale or 1 / math.sqrt(head)
    )[0]
    return out[..., :head] if padding else out
