"""Hand-derived: attention, fused or not. B sequences, H heads of width D, S queries, T keys; pairs are B H S T.

Forward: Q Kᵀ and P V, pairs x 2 D MACs; a softmax of 5 FLOPs per pair; Q and K are scaled. Backward: dP, dV, dQ, dK.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from case_table import On, case
from torch import Tensor, nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

A = torch.ops.aten
B, H, S, T, D = 2, 3, 8, 6, 4
PAIRS = B * H * S * T
MACS = PAIRS * 2 * D
QK = B * H * (S + T) * D  # elements of Q and K
SELF = B * H * S * S * 2 * D
E, HEADS, L, FF = 8, 2, 5, 16  # width, heads, length, inner width of a layer
PROJECTIONS = B * L * 4 * E * E
MHA = PROJECTIONS + B * HEADS * L * L * 2 * (E // HEADS)
LAYER = MHA + B * L * 2 * E * FF
MHA_BACKWARD = 2 * MHA - B * L * 3 * E * E  # the input needs no gradient
LAYER_BACKWARD = 2 * LAYER - B * L * 3 * E * E
LAYER_FLOPS = 2 * LAYER + B * L * (3 * E + 2 * E + 2 * E + 2 * 8 * E + FF) + 5 * B * HEADS * L * L
sdpa = F.scaled_dot_product_attention


def qkv(on: On, heads: int = H, width: int = D) -> tuple[Tensor, Tensor, Tensor]:
    return on.w(B, H, S, D), on.w(B, heads, T, D), on.w(B, heads, T, width)


def first(function: Callable[..., Any], *args: Any, **options: Any) -> Callable[..., Tensor]:
    """`function` cut to the first tensor of its result, which backward starts from."""
    return lambda *tensors: function(*tensors, *args, **options)[0]


def mha(on: On, mode: bool = True, **options: Any) -> Any:
    return on.m(nn.MultiheadAttention(E, HEADS, batch_first=True, **options)).train(mode)


def layer(on: On, mode: bool = True, **options: Any) -> Any:
    return on.m(nn.TransformerEncoderLayer(E, HEADS, FF, dropout=0.0, batch_first=True, **options)).train(mode)


def encoder(on: On, mode: bool = True) -> Any:
    return on.m(nn.TransformerEncoder(layer(on), 3)).train(mode)


def self_attention(module: Any, **options: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: module(x, x, x, **options)[0]


def by_hand(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-2, -1), -1) @ v


def causal(on: On) -> Any:
    return create_block_mask(lambda b, h, q, k: q >= k, None, None, S, S, device=on.device)


def doubled(score: Tensor, *position: Any) -> Tensor:
    return score * 2


def in_no_grad(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.no_grad()(function)


CASES = [
    case("scaled dot product", lambda on: (sdpa, *qkv(on)), MACS, 2 * MACS, flops=2 * MACS + 5 * PAIRS + QK,
         backward_flops=4 * MACS + 4 * PAIRS + QK),
    case("causal is dense", lambda on: (partial(sdpa, is_causal=True), *qkv(on)), MACS, 2 * MACS,
         flops=2 * MACS + 6 * PAIRS + QK),
    case("a mask adds", lambda on: (lambda q, k, v, m: sdpa(q, k, v, m), *qkv(on), on.x(S, T)), MACS, 2 * MACS,
         flops=2 * MACS + 6 * PAIRS + QK),
    case("a truth mask is dense", lambda on: (lambda q, k, v, m: sdpa(q, k, v, m), *qkv(on), on.x(S, T, dtype=torch.bool)),
         MACS, 2 * MACS, flops=2 * MACS + 6 * PAIRS + QK),
    case("dropout", lambda on: (partial(sdpa, dropout_p=0.1), *qkv(on)), MACS, 2 * MACS, flops=2 * MACS + 7 * PAIRS + QK),
    case("gradient of the queries alone", lambda on: (sdpa, on.w(B, H, S, D), on.x(B, H, T, D), on.x(B, H, T, D)), MACS, MACS),
    case("gradient of the values alone", lambda on: (sdpa, on.x(B, H, S, D), on.x(B, H, T, D), on.w(B, H, T, D)), MACS,
         MACS // 2),
    case("values of another width", lambda on: (sdpa, *qkv(on, width=7)), PAIRS * (D + 7), 2 * PAIRS * (D + 7)),
    case("grouped queries", lambda on: (partial(sdpa, enable_gqa=True), *qkv(on, heads=1)), MACS, 2 * MACS),
    case("grouped queries, repeated by hand", lambda on: (
         lambda q, k, v: sdpa(q, k.expand(-1, H, -1, -1), v.expand(-1, H, -1, -1)), *qkv(on, heads=1)), MACS, 2 * MACS),
    case("bfloat16", lambda on: (sdpa, *(on.w(B, H, S, D, dtype=torch.bfloat16) for _ in range(3))), SELF, 2 * SELF),
    case("without a batch", lambda on: (sdpa, on.x(H, S, D), on.x(H, T, D), on.x(H, T, D)), MACS // B),
    case("one query, a cache of keys", lambda on: (sdpa, on.x(B, H, 1, D), on.x(B, H, T, D), on.x(B, H, T, D)), MACS // S),
    case("by hand", lambda on: (by_hand, *qkv(on)), MACS, 2 * MACS, flops=2 * MACS + 5 * PAIRS,
         backward_flops=4 * MACS + 4 * PAIRS),
    case("inference mode", lambda on: (torch.inference_mode()(sdpa), on.x(B, H, S, D), on.x(B, H, T, D), on.x(B, H, T, D)), MACS),
    case("CPU flash kernel", lambda on: (first(A._scaled_dot_product_flash_attention_for_cpu), *qkv(on)), MACS, 2 * MACS),
    case("flash kernel", lambda on: (first(A._scaled_dot_product_flash_attention), *qkv(on)), MACS, devices=("meta",)),
    case("memory-efficient kernel", lambda on: (first(A._scaled_dot_product_efficient_attention, None, True), *qkv(on)), MACS,
         2 * MACS, devices=("meta",)),
    case("cuDNN kernel", lambda on: (first(A._scaled_dot_product_cudnn_attention, None, True), *qkv(on)), MACS,
         devices=("meta",)),
    case("a backend's own kernel", lambda on: (first(A._scaled_dot_product_fused_attention_overrideable), *qkv(on)), MACS,
         devices=("meta",)),
    case("flex attention", lambda on: (flex_attention, *qkv(on)), MACS, 2 * MACS, flops=2 * MACS + 5 * PAIRS + QK,
         backward_flops=4 * MACS + 4 * PAIRS + QK),
    case("flex attention, a block mask is dense", lambda on: (partial(flex_attention, block_mask=causal(on)), on.x(B, H, S, D),
         on.x(B, H, S, D), on.x(B, H, S, D)), SELF),
    case("flex attention, a function of the scores", lambda on: (partial(flex_attention, score_mod=doubled), *qkv(on)), MACS,
         2 * MACS),
    case("flex attention, grouped queries", lambda on: (partial(flex_attention, enable_gqa=True), *qkv(on, heads=1)), MACS,
         2 * MACS),
    case("packed sequences, a bound", lambda on: (first(A._flash_attention_forward, on.n(3), on.n(3), 8, 8, 0.0, False, False),
         on.x(13, H, D), on.x(13, H, D), on.x(13, H, D)), 13 * H * 8 * 2 * D, devices=("meta",)),
    case("module in training", lambda on: (self_attention(mha(on), need_weights=False), on.x(B, L, E)), MHA, MHA_BACKWARD),
    case("module, weights wanted", lambda on: (self_attention(mha(on)), on.x(B, L, E)), MHA, MHA_BACKWARD),
    case("module, eval", lambda on: (in_no_grad(self_attention(mha(on, False), need_weights=False)), on.x(B, L, E)), MHA),
    case("module, eval, weights wanted", lambda on: (in_no_grad(self_attention(mha(on, False))), on.x(B, L, E)), MHA),
    case("module, eval with gradients", lambda on: (self_attention(mha(on, False), need_weights=False), on.x(B, L, E)), MHA,
         MHA_BACKWARD),
    case("module, keys and values of their own", lambda on: (lambda m, q, k: m(q, k, k)[0], mha(on, kdim=6, vdim=6),
         on.x(B, L, E), on.x(B, 7, 6)), B * (2 * L * E * E + 2 * 7 * 6 * E) + B * HEADS * L * 7 * 2 * (E // HEADS)),
    case("encoder layer in training", lambda on: (layer(on), on.x(B, L, E)), LAYER, LAYER_BACKWARD, flops=LAYER_FLOPS),
    case("encoder layer, no gradients", lambda on: (in_no_grad(layer(on)), on.x(B, L, E)), LAYER, flops=LAYER_FLOPS),
    case("encoder layer, eval", lambda on: (in_no_grad(layer(on, False)), on.x(B, L, E)), LAYER, flops=LAYER_FLOPS),
    case("encoder layer, eval, norm first, gelu", lambda on: (in_no_grad(layer(on, False, norm_first=True, activation="gelu")),
         on.x(B, L, E)), LAYER, flops=LAYER_FLOPS),
    case("encoder layer, eval, padding mask", lambda on: (in_no_grad(lambda m, x, mask: m(x, src_key_padding_mask=mask)),
         layer(on, False), on.x(B, L, E), on.n(B, L) == 2), LAYER),
    case("encoder in training", lambda on: (encoder(on), on.x(B, L, E)), 3 * LAYER, 6 * LAYER - B * L * 3 * E * E,
         flops=3 * LAYER_FLOPS),
    case("encoder, eval", lambda on: (in_no_grad(encoder(on, False)), on.x(B, L, E)), 3 * LAYER, flops=3 * LAYER_FLOPS),
    case("decoder layer", lambda on: (on.m(nn.TransformerDecoderLayer(E, HEADS, FF, dropout=0.0, batch_first=True)),
         on.x(B, L, E), on.x(B, 7, E)), MHA + B * 2 * E * E * (L + 7) + B * HEADS * L * 7 * 2 * (E // HEADS) + B * L * 2 * E * FF,
         flops=None),
]  # fmt: skip

# contractions are what these are about; pointwise FLOPs are looked at where they are derived
CASES = [replace(one, flops=None) if one.flops == 2 * one.macs else one for one in CASES]
