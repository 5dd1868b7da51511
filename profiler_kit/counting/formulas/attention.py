"""Attention kernels, dense: a causal or padding mask changes no count.

Forward is two contractions, Q Kᵀ and P V. A fused backward does five: it computes Q Kᵀ again, then dV, dP, dQ, dK; so
it is 2.5 times its forward. Where attention reaches dispatch as bmm and softmax, those are counted as they are.
"""

from __future__ import annotations

from typing import Any

from profiler_kit.counting.arithmetic import SOFTMAX_BACKWARD_FLOPS, SOFTMAX_FLOPS, contraction, numel
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def attention(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Cost:
    """Shapes: q (b, h, s, d), k (b, h', t, d), v (b, h', t, e). s t (d + e) MACs per head, and the softmax."""
    pairs = numel(q) // q.shape[-1] * k.shape[-2]
    return contraction(pairs * (q.shape[-1] + v.shape[-1]), q) + Cost(flops=SOFTMAX_FLOPS * pairs)


def attention_backward(q: TensorSpec, k: TensorSpec, v: TensorSpec) -> Cost:
    """s t (3 d + 2 e) MACs per head, the softmax again and its gradient."""
    pairs = numel(q) // q.shape[-1] * k.shape[-2]
    return contraction(pairs * (3 * q.shape[-1] + 2 * v.shape[-1]), q) + Cost(
        flops=(SOFTMAX_FLOPS + SOFTMAX_BACKWARD_FLOPS) * pairs
    )


@formula(
    "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_efficient_attention", "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_fused_attention_overrideable", "aten._scaled_dot_product_attention_math_for_mps",
)  # fmt: skip
def scaled_dot_product(q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """A fused attention kernel, whichever backend runs it."""
    return attention(q, k, v)


@formula(
    "aten._scaled_dot_product_flash_attention_backward", "aten._scaled_dot_product_flash_attention_for_cpu_backward",
    "aten._scaled_dot_product_efficient_attention_backward", "aten._scaled_dot_product_cudnn_attention_backward",
    "aten._scaled_dot_product_fused_attention_overrideable_backward",
)  # fmt: skip
def scaled_dot_product_backward(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, out: Any, **__: Any
) -> Cost:
    """A fused attention kernel's gradients."""
    return attention_backward(q, k, v)


@formula("aten._native_multi_head_attention")
def native_multi_head_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, embed_dim: int, num_head: int, *_: Any, out: Any, **__: Any
) -> Cost:
    """The inference fast path of nn.MultiheadAttention: projections in, attention, projection out.

    Shapes: query (b, s, e), key and value (b, t, e). Biases free.
    """
    batch, length, width = query.shape
    keys = key.shape[1]
    projections = length * width * width + 2 * keys * width * width + length * width * width
    pairs = batch * num_head * length * keys
    macs = batch * (projections + 2 * length * keys * width)
    return contraction(macs, query) + Cost(flops=SOFTMAX_FLOPS * pairs)


@formula("aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    x: TensorSpec, embed_dim: int, num_heads: int, qkv_weight: TensorSpec, qkv_bias: TensorSpec,
    proj_weight: TensorSpec, proj_bias: TensorSpec, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: TensorSpec, norm_bias_1: TensorSpec, norm_weight_2: TensorSpec, norm_bias_2: TensorSpec,
    ffn_weight_1: TensorSpec, ffn_bias_1: TensorSpec, ffn_weight_2: TensorSpec, *_: Any, out: TensorSpec, **__: Any,
) -> Cost:  # fmt: skip
    """The inference fast path of nn.TransformerEncoderLayer.

    Counts: its contractions and softmax, two affine layer norms (8 FLOPs per element), one activation, two residual adds.
    """
    batch, length, width = x.shape
    linear = 4 * length * width * width + length * (numel(ffn_weight_1) + numel(ffn_weight_2))
    macs = batch * (linear + 2 * length * length * width)
    pairs = batch * num_heads * length * length
    rest = batch * length * (2 * 8 * width + ffn_weight_1.shape[0] + 2 * width)
    return contraction(macs, x) + Cost(flops=SOFTMAX_FLOPS * pairs + rest)
