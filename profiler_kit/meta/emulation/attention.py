"""Scaled dot-product attention: the fused kernel that the device selects for the dtype, shapes, mask and torch's switches.

Source: ATen/native/transformers/cuda/sdp_utils.cpp (``select_sdp_backend`` and its checks), attention.cpp (padding of odd
head sizes for flash attention, conversion of boolean masks), sdp_utils_cpp.cpp (``select_sdp_backend_cpp``). The selection for
sm90 was checked on an H100 with torch 2.11, that for the CPU with ``torch._fused_sdp_choice`` of torch 2.13.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.utils._python_dispatch import _disable_current_modes

from profiler_kit.devices.device import AttentionKernel, Device
from profiler_kit.meta.emulation import Call, Emulation, emulates
from profiler_kit.meta.emulation._patching import patched
from profiler_kit.meta.emulation.autocast import HALF
from profiler_kit.meta.emulation.library_calls import Libraries, facts_of
from profiler_kit.records.calls import OpCall

_ATEN: Final = torch.ops.aten
_FLASH: Final = _ATEN._scaled_dot_product_flash_attention
_MAX_HEAD_SIZE: Final = 256
_HEAD_MULTIPLE: Final = 8  # elements; for flash attention and cuDNN
# before torch 2.9, only the math kernel takes grouped heads on a CPU
_CPU_TAKES_GROUPS: Final = torch.__version__ >= "2.9"


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
    if query.is_nested:
        with _jagged_kernels(device):
            return func(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
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
        return _flash(emulation.libraries, query, key, value, dropout_p, is_causal, scale, enable_gqa)
    return _ATEN._scaled_dot_product_efficient_attention(
        query, key, value, mask, saves_logsumexp, dropout_p, is_causal, scale=scale
    )[0]


def _jagged_kernels(device: Device) -> AbstractContextManager[None]:
    """Inside the block, attention of jagged tensors on meta runs a kernel for packed sequences, as on CUDA.

    On a CPU torch runs the products of each sequence, which has the same work.
    """
    jagged: Any = importlib.import_module("torch.nested._internal.sdpa")

    def backend(query: Tensor, key: Tensor, value: Tensor, *others: Any) -> SDPBackend:
        is_flash = not device.is_cuda or (query.dtype in HALF and query.shape[-1] <= _MAX_HEAD_SIZE)
        return SDPBackend.FLASH_ATTENTION if is_flash else SDPBackend.EFFICIENT_ATTENTION

    def cast_all(*tensors: Tensor | None) -> tuple[Tensor | None, ...]:
        if not torch.is_autocast_enabled("cuda"):
            return tensors
        dtype = torch.get_autocast_dtype("cuda")
        return tuple(
            tensor.to(dtype) if tensor is not None and tensor.is_floating_point() else tensor for tensor in tensors
        )

    return patched([(jagged, "_select_sdp_backend", backend), (jagged, "_autocast", cast_all)])


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
    if len(heads) > 1 and not (_CPU_TAKES_GROUPS and grouped and query.shape[1] % key.shape[1] == 0):
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
    libraries: Libraries, query: Tensor, key: Tensor, value: Tensor, dropout: float, is_causal: bool, scale: float | None,
    enable_gqa: bool,
) -> Any:  # fmt: skip
    head = query.shape[-1]
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[1] // t.shape[1], 1) for t in (key, value))
    scale = scale or 1 / math.sqrt(head)
    padding = -head % _HEAD_MULTIPLE
    if not padding:
        return _FLASH(query, key, value, dropout, is_causal, False, scale=scale)[0]
    query, key, value = (F.pad(t, (0, padding)) for t in (query, key, value))
    apply: Call = ScaledDotProductFlashAttention.apply
    return apply(libraries.use_workspace, head, query, key, value, dropout, is_causal, scale)[..., :head]


class ScaledDotProductFlashAttention(torch.autograd.Function):
    """The allocations of flash attention on padded heads, and its backward. The calls name the head size without padding.

    The class has the name of the op's autograd node, by which formulas find the gradients that are needed.
    """

    @staticmethod
    def forward(
        ctx: Any, use_workspace: Any, head: int, query: Tensor, key: Tensor, value: Tensor, dropout: float, is_causal: bool,
        scale: float,
    ) -> Any:  # fmt: skip
        """The output, with padding; `head` is the head size without it."""
        arguments = (query, key, value, dropout, is_causal, False)
        with _disable_current_modes():
            shapes = _FLASH(*arguments, scale=scale)
        results = [_new(value) for value in shapes]
        call = OpCall(
            "aten._scaled_dot_product_flash_attention", facts_of(arguments), {"head_size": head}, facts_of(results)
        )
        use_workspace(call)
        out, logsumexp, _, _, max_query, max_key, seed, offset, _ = results
        ctx.save_for_backward(query, key, value, out, logsumexp, seed, offset)
        ctx.options = use_workspace, head, (None, None, max_query, max_key, dropout, is_causal)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        """The gradients of queries, keys and values, with padding."""
        query, key, value, out, logsumexp, seed, offset = ctx.saved_tensors
        use_workspace, head, options = ctx.options
        results = tuple(torch.empty_like(tensor) for tensor in (query, key, value))
        arguments = (*gradients, query, key, value, out, logsumexp, *options, seed, offset)
        op = "aten._scaled_dot_product_flash_attention_backward"
        use_workspace(OpCall(op, facts_of(arguments), {"head_size": head}, facts_of(results), in_backward=True))
        return (None, None, *results, None, None, None)


def _new(value: Any) -> Any:
    """A new tensor like `value`; another value as it is."""
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
