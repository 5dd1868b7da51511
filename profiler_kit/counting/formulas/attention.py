"""Attention: dense, nominal costs that do not depend on the backend.

Forward counts two contractions, Q Kᵀ and P V. Backward counts the four of the chain rule: dP, dV, dQ, dK. A fused backward
computes the scores again to save memory. This recomputation is not counted, so the cost is the same for a fused kernel and
for bmm and softmax on meta tensors. A causal or padding mask changes no contraction, but FlexAttention skips blocks. Packed
sequences count with their lengths where the values of the offsets are known, else with the length of the longest. Pointwise work
per pair of query and key: softmax, 1 FLOP for a mask, 2 for dropout. Scaling queries and keys costs 1 FLOP per element.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, Final

from profiler_kit.counting.arithmetic import SOFTMAX_BACKWARD_FLOPS, SOFTMAX_FLOPS, contraction, needed_gradients, numel
from profiler_kit.counting.formulas import formula, named_formula
from profiler_kit.records.counts import Cost, TensorSpec


def pairs_of(q: TensorSpec, k: TensorSpec) -> int:
    """Pairs of query and key over all query heads. Shapes: q (..., s, d), k (..., t, d); nested ones have lengths as values."""
    if q.values is not None and k.values is not None and len(q.values) == len(k.values):
        return prod(q.shape[1:-2]) * sum(s * t for s, t in zip(q.values, k.values, strict=True))
    return numel(q) // q.shape[-1] * k.shape[-2] if numel(q) else 0


def attention(
    q: TensorSpec,
    k: TensorSpec,
    v: TensorSpec,
    *,
    pairs: int | None = None,
    masked: bool = False,
    dropout: bool = False,
) -> Cost:
    """Forward: s t (d + e) MACs per query head, and the pointwise work.

    Shapes: q (b, h, s, d), k (b, h', t, d), v (b, h', t, e); h' divides h (grouped queries). `pairs`: the pairs of query and key
    over all query heads, if they are not all pairs.
    """
    pairs = pairs_of(q, k) if pairs is None else pairs
    flops = pairs * (SOFTMAX_FLOPS + masked + 2 * dropout)
    flops += numel(q) + numel(k) * group_size(q, k)
    return contraction(pairs * (q.shape[-1] + v.shape[-1]), q) + Cost(flops=flops)


def attention_backward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, *, pairs: int | None = None,
    needed: Sequence[bool] = (True, True, True), dropout: bool = False,
) -> Cost:  # fmt: skip
    """Backward: the `needed` gradients of q, k and v. `pairs` as in `attention`."""
    pairs = pairs_of(q, k) if pairs is None else pairs
    group = group_size(q, k)
    through_softmax = needed[0] or needed[1]
    macs = pairs * v.shape[-1] * (through_softmax + bool(needed[2])) + pairs * q.shape[-1] * (needed[0] + needed[1])
    flops = pairs * (SOFTMAX_BACKWARD_FLOPS + dropout) if through_softmax else 0
    flops += numel(q) * needed[0]
    # gradients of a shared key head are scaled for each query head of its group, then summed over the group
    flops += numel(k) * group * needed[1] + (numel(k) * needed[1] + numel(v) * needed[2]) * group * (group > 1)
    return contraction(macs, q) + Cost(flops=flops)


def group_size(q: TensorSpec, k: TensorSpec) -> int:
    """Query heads per key head."""
    return max(1, q.shape[-3] // k.shape[-3]) if len(q.shape) > 2 and len(k.shape) > 2 and k.shape[-3] else 1


def by_heads(spec: TensorSpec) -> TensorSpec:
    """`spec` of shape (b, s, h, d) or packed (s, h, d), transposed to (..., h, s, d)."""
    *batch, length, heads, width = spec.shape
    return TensorSpec(shape=(*batch, heads, length, width), dtype=spec.dtype, nbytes=spec.nbytes)


@named_formula(
    "aten._scaled_dot_product_flash_attention", "aten._scaled_dot_product_flash_attention_for_cpu",
    "aten._scaled_dot_product_efficient_attention", "aten._scaled_dot_product_cudnn_attention",
    "aten._scaled_dot_product_fused_attention_overrideable", "aten._scaled_dot_product_attention_math",
    "aten._scaled_dot_product_attention_math_for_mps", "aten.scaled_dot_product_attention",
)  # fmt: skip
def dense_attention(
    *, query: TensorSpec, key: TensorSpec, value: TensorSpec, attn_bias: TensorSpec | None = None,
    attn_mask: TensorSpec | None = None, dropout_p: float = 0.0, is_causal: bool = False, out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """The kernels of all backends, and attention that is dispatched as one op, as in inference mode."""
    masked = is_causal or attn_bias is not None or attn_mask is not None
    return attention(query, key, value, masked=masked, dropout=dropout_p > 0)


@formula("aten._triton_scaled_dot_attention")
def triton_attention(q: TensorSpec, k: TensorSpec, v: TensorSpec, dropout_p: float = 0.0, *, out: Any) -> Cost:
    """PyTorch's Triton kernel."""
    return attention(q, k, v, dropout=dropout_p > 0)


def dense_backward(node: str = "") -> Callable[..., Cost]:
    """A formula: gradients of a fused op. `node`: its autograd node, which knows the needed ones where no argument says it."""

    def cost(
        *, query: TensorSpec, key: TensorSpec, value: TensorSpec, grad_input_mask: Sequence[bool] | None = None,
        dropout_p: float = 0.0, out: Any, **_: Any,
    ) -> Cost:  # fmt: skip
        needed = needed_gradients(node, 3) if grad_input_mask is None else grad_input_mask
        return attention_backward(query, key, value, needed=needed, dropout=dropout_p > 0)

    return cost


named_formula("aten._scaled_dot_product_flash_attention_backward")(dense_backward("ScaledDotProductFlashAttention"))
named_formula("aten._scaled_dot_product_flash_attention_for_cpu_backward")(
    dense_backward("ScaledDotProductFlashAttentionForCpu")
)
named_formula("aten._scaled_dot_product_cudnn_attention_backward")(dense_backward("ScaledDotProductCudnnAttention"))
named_formula(
    "aten._scaled_dot_product_efficient_attention_backward",
    "aten._scaled_dot_product_fused_attention_overrideable_backward",
)(dense_backward())  # fmt: skip


# The arguments that hold the lengths of packed sequences, under the names of all ops and torch versions.
OFFSETS_Q: Final = ("cum_seq_q", "cu_seqlens_q", "cu_seq_q")
OFFSETS_K: Final = ("cum_seq_k", "cu_seqlens_k", "cu_seq_k")
USED_K: Final = ("seqused_k", "seqlen_k")
LONGEST_K: Final = ("max_k", "max_seqlen_k")
LENGTHS: Final = (*OFFSETS_Q, *OFFSETS_K, *USED_K)


@dataclass(frozen=True, slots=True)
class Sequences:
    """Queries and keys by heads, and the pairs of a query and a key of the same sequence, over all query heads."""

    q: TensorSpec
    k: TensorSpec
    pairs: int

    def forward(self, v: TensorSpec, *, masked: bool = False, dropout: bool = False) -> Cost:
        """Forward of attention."""
        return attention(self.q, self.k, v, pairs=self.pairs, masked=masked, dropout=dropout)

    def backward(self, v: TensorSpec, *, dropout: bool = False, needed: Sequence[bool] = (True, True, True)) -> Cost:
        """The `needed` gradients."""
        return attention_backward(self.q, self.k, v, pairs=self.pairs, needed=needed, dropout=dropout)


def sequences(arguments: Mapping[str, Any]) -> Sequences:
    """The sequences of one call. Without offsets, every query meets the keys of its row of the batch.

    If lengths are unknown, every query meets as many keys as the longest sequence has, which is an upper bound.

    Shapes: q (b, s, h, d) or packed (sum of lengths, h, d), k alike or paged (pages, page, h, d), offsets (b + 1,), used (b,).
    """
    q, k = arguments["query"], arguments["key"]
    offsets_q, offsets_k, used_k, longest_k = (
        next((arguments[name] for name in names if name in arguments), None)
        for names in (OFFSETS_Q, OFFSETS_K, USED_K, LONGEST_K)
    )
    lengths_q = (q.shape[1],) * q.shape[0] if len(q.shape) == 4 else None
    if offsets_q is not None and numel(offsets_q):
        lengths_q = None if offsets_q.values is None else differences(offsets_q.values)
    is_dense = offsets_k is None or not numel(offsets_k)
    longest = int(longest_k or 0) or k.shape[-3]
    if used_k is not None:
        lengths_k = used_k.values
    elif is_dense:
        lengths_k = (k.shape[-3],) * (1 if lengths_q is None else len(lengths_q))
    else:
        lengths_k = None if offsets_k is None or offsets_k.values is None else differences(offsets_k.values)
    queries, keys = by_heads(q), by_heads(k)
    heads = q.shape[-2]
    if lengths_q is None or lengths_k is None:
        return Sequences(queries, keys, numel(q) // max(1, q.shape[-1]) * longest)
    return Sequences(queries, keys, heads * sum(s * t for s, t in zip(lengths_q, lengths_k, strict=False)))


def differences(offsets: Sequence[int]) -> tuple[int, ...]:
    """The lengths of sequences from their offsets."""
    return tuple(end - start for start, end in pairwise(offsets))


@named_formula(
    "aten._flash_attention_forward", "aten._flash_attention_forward_no_dropout_inplace", "aten._efficient_attention_forward",
    "aten._cudnn_attention_forward", "torch_attn._varlen_attn", "torch_attn._varlen_attn_out", reads=LENGTHS,
)  # fmt: skip
def packed_attention(*, value: TensorSpec, dropout_p: float = 0.0, out: Any, **arguments: Any) -> Cost:
    """The kernels under their internal op names, and ``torch.nn.attention.varlen``. A window is a mask there.

    Shapes: (b, s, h, d), or packed (sum of lengths, h, d), in the memory-efficient kernel (1, sum of lengths, h, d).
    """
    window = arguments.get("window_size")
    masked = (
        any(arguments.get(name) is not None for name in ("bias", "attn_bias"))
        or arguments.get("is_causal", False)
        or arguments.get("custom_mask_type", 0) > 0
        or (isinstance(window, Sequence) and any(size >= 0 for size in window))
    )
    return sequences(arguments).forward(value, masked=masked, dropout=dropout_p > 0)


@named_formula(
    "aten._flash_attention_backward", "aten._efficient_attention_backward", "aten._cudnn_attention_backward",
    reads=LENGTHS,
)  # fmt: skip
def packed_attention_backward(*, value: TensorSpec, dropout_p: float = 0.0, out: Any, **arguments: Any) -> Cost:
    """Gradients of the kernels under their internal op names."""
    return sequences(arguments).backward(value, dropout=dropout_p > 0)


@named_formula("torch_attn._varlen_attn_backward", reads=LENGTHS)
def varlen_attention_backward(*, value: TensorSpec, out: Any, **arguments: Any) -> Cost:
    """Gradients of ``torch.nn.attention.varlen``."""
    needed = needed_gradients("GeneratedBackwardFor_torch_attn__varlen_attn_default", 3)
    return sequences(arguments).backward(value, needed=needed)


def block_pairs(q: TensorSpec, k: TensorSpec, block_mask: Sequence[Any]) -> int | None:
    """Pairs of query and key in the blocks that FlexAttention computes, over all query heads; None if they are unknown.

    `block_mask`: `BlockMask.as_tuple()`. For each row of blocks, it has the number of blocks and their columns: first those
    that the mask cuts, then those that it leaves whole. Both are computed in whole. Heads and examples may share a mask.
    """
    counts, columns, whole_counts, whole_columns = [item for item in block_mask if not isinstance(item, int)][:4]
    height, width = block_mask[-3:-1]
    queries, keys = q.shape[-2], k.shape[-2]
    pairs, masks = 0, 1
    for numbers, places in ((counts, columns), (whole_counts, whole_columns)):
        if numbers is None:
            continue
        if numbers.values is None or places.values is None:
            return None
        rows, length = numbers.shape[-1], places.shape[-1]
        masks = max(1, len(numbers.values) // max(1, rows))
        for i, number in enumerate(numbers.values):
            blocks = places.values[i * length : i * length + number]
            row_queries = min(height, max(0, queries - i % rows * height))
            pairs += row_queries * sum(min(width, max(0, keys - block * width)) for block in blocks)
    return pairs * (prod(q.shape[:-2]) // masks)


@formula("higher_order.flex_attention", reads=("block_mask",))
def flex_attention(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, score_mod: Any, block_mask: Any, *_: Any, out: Any, **__: Any
) -> Cost:
    """FlexAttention: the blocks of the mask; with unknown blocks, all. Not counted: `score_mod`."""
    return attention(q, k, v, pairs=block_pairs(q, k, block_mask))


@formula("higher_order.flex_attention_backward", reads=("block_mask",))
def flex_attention_backward(
    q: TensorSpec, k: TensorSpec, v: TensorSpec, output: Any, logsumexp: Any, grad: Any, grad_logsumexp: Any,
    graph: Any, joint_graph: Any, block_mask: Any, *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """Gradients of FlexAttention."""
    return attention_backward(q, k, v, pairs=block_pairs(q, k, block_mask))


@named_formula("aten._native_multi_head_attention")
def native_multi_head_attention(
    *, query: TensorSpec, key: TensorSpec, num_head: int, mask: TensorSpec | None = None, need_weights: bool = True,
    average_attn_weights: bool = True, out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """The inference fast path of nn.MultiheadAttention: input projections, attention, output projection.

    Shapes: query (b, s, e), key and value (b, t, e).
    Counts: also the biases of the projections, added by a separate op, and the mean of the returned weights over heads.
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


# PyTorch's Triton kernel returns no weights.
named_formula("aten._triton_multi_head_attention")(partial(native_multi_head_attention, need_weights=False))


@named_formula("aten._transformer_encoder_layer_fwd")
def transformer_encoder_layer(
    *, src: TensorSpec, num_heads: int, ffn_weight_1: TensorSpec, ffn_weight_2: TensorSpec,
    mask: TensorSpec | None = None, out: TensorSpec, **_: Any,
) -> Cost:  # fmt: skip
    """The inference fast path of nn.TransformerEncoderLayer. A nested input counts as padded to its longest sequence.

    Counts: the sum of the layer's parts: contractions and softmax, biases of the projections, scaling, two affine layer
    norms (8 FLOPs per element), one activation, two residual adds.
    """
    batch, length, width = src.shape
    linear = 4 * length * width * width + length * (numel(ffn_weight_1) + numel(ffn_weight_2))
    macs = batch * (linear + 2 * length * length * width)
    pairs = batch * num_heads * length * length
    per_position = 3 * width + 2 * width + 2 * 8 * width + ffn_weight_1.shape[0] + 2 * width
    flops = pairs * (SOFTMAX_FLOPS + (mask is not None)) + batch * length * per_position
    return contraction(macs, src) + Cost(flops=flops)
