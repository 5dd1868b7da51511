"""Attention kernels, dense and nominal: one count, whichever backend runs it.

Forward is two contractions, Q Kᵀ and P V; backward is the four that the chain rule has, dP, dV, dQ, dK. That a fused backward
computes the scores again is its way of saving memory and not counted, as the tricks of convolution algorithms are not; so the
same model costs the same on meta tensors, where attention is bmm and softmax, and under a fused kernel. A causal or padding
mask changes no contraction. Pointwise work, per pair of query and key: the softmax, one FLOP for a mask, two for dropout; and
queries and keys are scaled.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from profiler_kit.counting.arithmetic import SOFTMAX_BACKWARD_FLOPS, SOFTMAX_FLOPS, contraction, gradients_wanted, numel
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def pairs_of(q: TensorSpec, k: TensorSpec) -> int:
    """Pairs of query and key that meet, over all query heads. Shapes: q (..., s, d), k (..., t, d)."""
    return numel(q) // q.shape[-1] * k.shape[-2] if numel(q) else 0


def attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, *, masked: bool = False, dropout: bool = False) -> Cost:
    """The forward of attention: s t (d + e) MACs per query head, and the pointwise work.

    Shapes: q (b, h, s, d), k (b, h', t, d), v (b, h', t, e); h' divides h (grouped queries).
    """
    pairs = pairs_of(q, k)
    flops = pairs * (SOFTMAX_FLOPS + masked + 2 * dropout)
    flops += numel(q) + numel(k) * group_size(q, k)
    return contraction(pairs * (q.shape[-1] + v.shape[-1]), q) + Cost(flops=flops)


def attention_backward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, *, wanted: Sequence[bool] = (True, True, True), dropout: bool = False
) -> Cost:
    """The gradients of attention that are `wanted`: of q, k, v."""
    pairs = pairs_of(q, k)
    group = group_size(q, k)
    through = wanted[0] or wanted[1]  # the gradient goes back through the softmax
    macs = pairs * v.shape[-1] * (through + bool(wanted[2])) + pairs * q.shape[-1] * (wanted[0] + wanted[1])
    flops = pairs * (SOFTMAX_BACKWARD_FLOPS + dropout) if through else 0
    flops += numel(q) * wanted[0]
    # what was repeated for the group is scaled, then summed over it
    flops += numel(k) * group * wanted[1] + (numel(k) * wanted[1] + numel(v) * wanted[2]) * group * (group > 1)
    return contraction(macs, q) + Cost(flops=flops)


def group_size(q: TensorSpec, k: TensorSpec) -> int:
    """How many query heads share a key head."""
    return max(1, q.shape[-3] // k.shape[-3]) if len(q.shape) > 2 and len(k.shape) > 2 and k.shape[-3] else 1


def by_heads(spec: TensorSpec) -> TensorSpec:
    """(b, s, h, d), or packed (s, h, d), as (..., h, s, d)."""
    *rest, length, heads, width = spec.shape
    return TensorSpec(shape=(*rest, heads, length, width), dtype=spec.dtype, nbytes=spec.nbytes)


@formula("aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_flash_attention_for_cpu")
def flash_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, dropout_p: float = 0.0, is_causal: bool = False, *_: Any,
    attn_mask: TensorSpec | None = None, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Flash attention."""
    return attention(q, k, v, masked=is_causal or attn_mask is not None, dropout=dropout_p > 0)


@formula("aten._scaled_dot_product_flash_attention.quantized")
def quantized_flash_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, q_scale: Any, k_scale: Any, v_scale: Any, dropout_p: float = 0.0,
    is_causal: bool = False, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Flash attention of 8-bit floats."""
    return attention(q, k, v, masked=is_causal, dropout=dropout_p > 0)


@formula("aten._scaled_dot_product_efficient_attention", "aten._scaled_dot_product_cudnn_attention")
def efficient_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec | None, keep: bool, dropout_p: float = 0.0,
    is_causal: bool = False, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The memory-efficient kernel, and cuDNN's."""
    return attention(q, k, v, masked=is_causal or bias is not None, dropout=dropout_p > 0)


@formula("aten._scaled_dot_product_fused_attention_overrideable", "aten._scaled_dot_product_attention_math",
         "aten._scaled_dot_product_attention_math_for_mps", "aten.scaled_dot_product_attention")  # fmt: skip
def any_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """A backend's own kernel, and attention that reaches dispatch whole, as in inference mode."""
    return attention(q, k, v, masked=is_causal or bias is not None, dropout=dropout_p > 0)


@formula("aten._triton_scaled_dot_attention")
def triton_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, dropout_p: float = 0.0, *, out: Any) -> Cost:
    """Attention of PyTorch's Triton kernel."""
    return attention(q, k, v, dropout=dropout_p > 0)


def fused_backward(node: str, dropout_at: int) -> Callable[..., Cost]:
    """A formula: the gradients of a fused op whose autograd node is `node`, with the dropout probability at this place."""

    def cost(grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, *rest: Any, out: Any, **_: Any) -> Cost:
        dropout = rest[dropout_at - 4] > 0
        return attention_backward(q, k, v, wanted=gradients_wanted(node, 3), dropout=dropout)

    return cost


formula("aten._scaled_dot_product_flash_attention_backward")(fused_backward("ScaledDotProductFlashAttention", 10))
formula("aten._scaled_dot_product_flash_attention_for_cpu_backward")(
    fused_backward("ScaledDotProductFlashAttentionForCpu", 6)
)
formula("aten._scaled_dot_product_cudnn_attention_backward")(fused_backward("ScaledDotProductCudnnAttention", 13))


@formula("aten._scaled_dot_product_efficient_attention_backward")
def efficient_attention_backward(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: Any, output: Any, logsumexp: Any, seed: Any,
    offset: Any, dropout_p: float, grad_input_mask: Sequence[bool], *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Gradients of the memory-efficient kernel."""
    return attention_backward(q, k, v, wanted=grad_input_mask, dropout=dropout_p > 0)


@formula("aten._scaled_dot_product_fused_attention_overrideable_backward")
def overrideable_attention_backward(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: Any, grad_input_mask: Sequence[bool],
    *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Gradients of a backend's own kernel."""
    return attention_backward(q, k, v, wanted=grad_input_mask)


def varlen(
    q: TensorSpec, k: TensorSpec, starts: TensorSpec | None, longest_k: int | None
) -> tuple[TensorSpec, TensorSpec]:
    """Queries and keys by heads; of packed sequences every query meets as many keys as the longest sequence has."""
    q, k = by_heads(q), by_heads(k)
    if starts is not None and longest_k:
        k = TensorSpec(shape=(*k.shape[:-2], int(longest_k), k.shape[-1]), dtype=k.dtype, nbytes=k.nbytes)
    return q, k


@formula("aten._flash_attention_forward")
def flash_attention_forward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, cum_q: TensorSpec | None, cum_k: TensorSpec | None, max_q: int,
    max_k: int, dropout_p: float, is_causal: bool, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Flash attention by its inner name. Shapes: (b, s, h, d), or packed (sum of lengths, h, d)."""
    queries, keys = varlen(q, k, cum_k, max_k)
    return attention(queries, keys, v, masked=is_causal, dropout=dropout_p > 0)


@formula("aten._flash_attention_forward_no_dropout_inplace")
def flash_attention_into(target: TensorSpec, *args: Any, out: Any, **options: Any) -> Cost:
    """As `flash_attention_forward`, into a tensor that is given."""
    return flash_attention_forward(*args, out=out, **options)


@formula("aten._flash_attention_backward")
def inner_flash_attention_backward(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, output: Any, logsumexp: Any,
    cum_q: TensorSpec | None, cum_k: TensorSpec | None, max_q: int, max_k: int, dropout_p: float, *_: Any,
    out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Gradients of flash attention by its inner name."""
    queries, keys = varlen(q, k, cum_k if cum_k is not None and numel(cum_k) else None, max_k)
    return attention_backward(queries, keys, v, dropout=dropout_p > 0)


@formula("aten._efficient_attention_forward", "aten._cudnn_attention_forward")
def efficient_attention_forward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: TensorSpec | None, cum_q: TensorSpec | None,
    cum_k: TensorSpec | None, max_q: int | None, max_k: int | None, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The memory-efficient kernel, and cuDNN's, by their inner names. Shapes: (b, s, h, d)."""
    queries, keys = varlen(q, k, cum_k, max_k)
    return attention(queries, keys, v, masked=bias is not None)


@formula("aten._efficient_attention_backward")
def inner_efficient_attention_backward(
    grad: TensorSpec, q: TensorSpec, k: TensorSpec, v: TensorSpec, bias: Any, output: Any, cum_q: TensorSpec | None,
    cum_k: TensorSpec | None, max_q: int, max_k: int, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Gradients of the memory-efficient kernel by its inner name."""
    queries, keys = varlen(q, k, cum_k, max_k)
    return attention_backward(queries, keys, v)


@formula("higher_order.flex_attention")
def flex_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, score_mod: Any, block_mask: Any, *_: Any, out: Any, **__: Any
) -> Cost:
    """FlexAttention, dense: which blocks its mask leaves out is known from values only. `score_mod` itself is not counted."""
    return attention(q, k, v)


@formula("higher_order.flex_attention_backward")
def flex_attention_backward(q: TensorSpec, k: TensorSpec, v: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """Gradients of FlexAttention, dense."""
    return attention_backward(q, k, v)


@formula("aten._native_multi_head_attention")
def native_multi_head_attention(
    query: TensorSpec, key: TensorSpec, value: TensorSpec, embed_dim: int, num_head: int, qkv_weight: TensorSpec,
    qkv_bias: TensorSpec, proj_weight: TensorSpec, proj_bias: TensorSpec, mask: TensorSpec | None = None,
    need_weights: bool = True, average_attn_weights: bool = True, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The inference fast path of nn.MultiheadAttention: projections in, attention, projection out.

    Shapes: query (b, s, e), key and value (b, t, e). Counts, besides: the projections' bias, added by an op of its own; and
    the mean over heads of the weights that are given back.
    """
    batch, length, width = query.shape
    keys = key.shape[1]
    projections = batch * (2 * length + 2 * keys) * width * width
    pairs = batch * num_head * length * keys
    per_pair = SOFTMAX_FLOPS + (mask is not None) + (need_weights and average_attn_weights)
    biases = batch * (length + 2 * keys) * width
    scaling = batch * length * width + (0 if need_weights else batch * keys * width)
    macs = projections + 2 * batch * length * keys * width
    return contraction(macs, query) + Cost(flops=pairs * per_pair + biases + scaling)


@formula("aten._triton_multi_head_attention")
def triton_multi_head_attention(*args: Any, out: Any) -> Cost:
    """As `native_multi_head_attention`, of PyTorch's Triton kernel, which gives no weights back."""
    mask = args[9] if len(args) > 9 else None
    return native_multi_head_attention(*args[:9], mask, False, out=out)


@formula("aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    x: TensorSpec, embed_dim: int, num_heads: int, qkv_weight: TensorSpec, qkv_bias: TensorSpec,
    proj_weight: TensorSpec, proj_bias: TensorSpec, use_gelu: bool, norm_first: bool, eps: float,
    norm_weight_1: TensorSpec, norm_bias_1: TensorSpec, norm_weight_2: TensorSpec, norm_bias_2: TensorSpec,
    ffn_weight_1: TensorSpec, ffn_bias_1: TensorSpec, ffn_weight_2: TensorSpec, ffn_bias_2: TensorSpec,
    mask: TensorSpec | None = None, *_: Any, out: TensorSpec, **__: Any,
) -> Cost:  # fmt: skip
    """The inference fast path of nn.TransformerEncoderLayer. A nested input counts as if padded to its longest.

    Counts its contractions and softmax, the projections' bias and the scaling, two affine layer norms (8 FLOPs per element),
    one activation, two residual adds: what its parts cost one by one.
    """
    batch, length, width = x.shape
    linear = 4 * length * width * width + length * (numel(ffn_weight_1) + numel(ffn_weight_2))
    macs = batch * (linear + 2 * length * length * width)
    pairs = batch * num_heads * length * length
    per_position = 3 * width + 2 * width + 2 * 8 * width + ffn_weight_1.shape[0] + 2 * width
    flops = pairs * (SOFTMAX_FLOPS + (mask is not None)) + batch * length * per_position
    return contraction(macs, x) + Cost(flops=flops)
