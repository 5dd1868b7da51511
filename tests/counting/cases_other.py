"""Hand-derived: everything that is no contraction, by the stated convention, and small real networks.

FLOPs per element: pointwise 1; softmax 5, backward 4; batch statistics 4, normalize 2, affine 1 each; pooling 1 per position.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log2
from typing import Any

import torch
import torch.nn.functional as F
from case_table import On, case
from torch import Tensor, nn

A = torch.ops.aten
C64 = torch.complex64
B, C, S = 2, 6, 4
N = B * C * S * S  # elements of an image
M = 3 * 4  # elements of a matrix
QUANTISED = ("cpu",)  # quantised kernels exist for real data only


def image(on: On) -> Tensor:
    return on.w(B, C, S, S)


def rotate(x: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], -1)


class Rms(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Decoder(nn.Module):
    """A decoder block: `kv` key heads for `heads` query heads, a gated MLP where `gated`."""

    def __init__(self, width: int, heads: int, kv: int, inner: int, *, gated: bool) -> None:
        super().__init__()
        self.heads, self.kv, self.head = heads, kv, width // heads
        self.norm1, self.norm2 = Rms(width), Rms(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k, self.v = (nn.Linear(width, kv * self.head, bias=False) for _ in range(2))
        self.o = nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, inner, bias=False), nn.Linear(inner, width, bias=False)
        self.gate = nn.Linear(width, inner, bias=False) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        b, s, _ = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, s, self.heads, -1).transpose(1, 2)
        k, v = (layer(y).view(b, s, self.kv, -1).transpose(1, 2) for layer in (self.k, self.v))
        y = F.scaled_dot_product_attention(
            q + rotate(q), k + rotate(k), v, is_causal=True, enable_gqa=self.kv != self.heads
        )
        x = x + self.o(y.transpose(1, 2).reshape(b, s, -1))
        y = self.norm2(x)
        inner = F.gelu(self.up(y)) if self.gate is None else F.silu(self.gate(y)) * self.up(y)
        out: Tensor = x + self.down(inner)
        return out


def language_model(on: On, **options: Any) -> nn.Module:
    return on.m(
        nn.Sequential(
            nn.Embedding(11, 16),
            *(Decoder(16, 4, inner=24, **options) for _ in range(2)),
            nn.Linear(16, 11, bias=False),
        )
    )


def decoder_macs(kv: int, matrices: int) -> int:
    """Of the model above on (2, 5) tokens: per token and layer the projections, the MLP's matrices, and attention."""
    per_token = 2 * 16 * 16 + 2 * 16 * kv * 4 + matrices * 16 * 24
    return 2 * 5 * (2 * per_token + 16 * 11) + 2 * (2 * 4 * 5 * 5 * 2 * 4)


def linear_algebra() -> list[Any]:
    n, k, m = 6, 2, 8
    table: list[tuple[str, Callable[[On], tuple[Any, ...]], int]] = [
        ("solve", lambda on: (torch.linalg.solve, spd(on), on.x(3, n, k)), n**3 - n**3 // 3 + 2 * n * n * k),
        ("solve for a vector", lambda on: (torch.linalg.solve, spd(on), on.x(3, n)), n**3 - n**3 // 3 + 2 * n * n),
        ("inverse", lambda on: (torch.linalg.inv, spd(on)), 2 * n**3),
        ("determinant", lambda on: (torch.linalg.det, spd(on)), n**3 - n**3 // 3 + n),
        ("Cholesky", lambda on: (torch.linalg.cholesky, spd(on)), n**3 // 3),
        ("triangular solve", lambda on: (partial(torch.linalg.solve_triangular, upper=True), spd(on), on.x(3, n, k)), n * n * k),
        ("QR of a tall matrix", lambda on: (torch.linalg.qr, on.x(3, m, n)), 4 * m * n * n - 4 * n**3 // 3),
        ("singular values", lambda on: (partial(A._linalg_svd, compute_uv=False), on.x(3, m, n)), 4 * m * n * n - 4 * n**3 // 3),
        ("thin SVD", lambda on: (partial(torch.linalg.svd, full_matrices=False), on.x(3, m, n)), 14 * m * n * n + 8 * n**3),
        ("thin SVD of the transpose", lambda on: (partial(torch.linalg.svd, full_matrices=False), on.x(3, n, m)),
         14 * m * n * n + 8 * n**3),
        ("symmetric eigenvectors", lambda on: (torch.linalg.eigh, spd(on)), 9 * n**3),
        ("symmetric eigenvalues", lambda on: (partial(A._linalg_eigh, compute_v=False), spd(on)), 4 * n**3 // 3),
        ("eigenvectors", lambda on: (torch.linalg.eig, spd(on)), 25 * n**3),
    ]  # fmt: skip
    return [case(name, build, 0, flops=3 * each) for name, build, each in table]


def spd(on: On) -> Tensor:
    """Three symmetric positive definite matrices."""
    return (torch.eye(6) + 0.1).expand(3, 6, 6).contiguous().to(on.device)


def quantised() -> list[Any]:
    quantise = partial(torch.quantize_per_tensor, scale=0.1, zero_point=0, dtype=torch.qint8)
    weight = partial(torch.quantize_per_tensor, scale=0.1, zero_point=0, dtype=torch.qint8)

    def activation(on: On, *shape: int) -> Tensor:
        return torch.quantize_per_tensor(on.x(*shape), 0.1, 0, torch.quint8)

    def linear(on: On) -> Any:
        return torch.ops.quantized.linear_prepack(weight(on.x(5, 4)), None)

    def convolution(*shape: int) -> Any:
        pair = [1, 1]
        return torch.ops.quantized.conv2d_prepack(weight(torch.randn(shape)), None, pair, [0, 0], pair, 1)

    return [
        case("linear, dynamically quantised", lambda on: (torch.ops.quantized.linear_dynamic, on.x(6, 4), linear(on)), 6 * 4 * 5,
             devices=QUANTISED),
        case("linear, quantised", lambda on: (torch.ops.quantized.linear, activation(on, 2, 3, 4), linear(on), 0.1, 0), 6 * 4 * 5,
             devices=QUANTISED),
        case("convolution, quantised", lambda on: (torch.ops.quantized.conv2d, activation(on, 2, 3, 8, 8),
             convolution(5, 3, 3, 2), 0.1, 0), 2 * 6 * 7 * 5 * 3 * 6, devices=QUANTISED),
        case("quantising", lambda on: (quantise, on.x(3, 4)), 0, flops=M, devices=QUANTISED),
        case("dynamically quantised module", lambda on: (torch.ao.nn.quantized.dynamic.Linear(4, 5), on.x(6, 4)), 6 * 4 * 5,
             devices=QUANTISED),
    ]  # fmt: skip


CASES = [
    case("add with broadcasting", lambda on: (torch.add, on.w(3, 4), on.x(4)), flops=M, backward=0, backward_flops=0),
    case("division", lambda on: (torch.div, on.x(3, 4), on.x(3, 4)), flops=M),
    case("integers", lambda on: (torch.mul, on.n(3, 4), on.n(3, 4)), flops=0),
    case("comparison and choice", lambda on: (lambda x, y: torch.where(x > y, x, y), on.x(3, 4), on.x(3, 4)), flops=0),
    case("exponential", lambda on: (torch.exp, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("relu", lambda on: (F.relu, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("gelu", lambda on: (F.gelu, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("silu", lambda on: (F.silu, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("sigmoid", lambda on: (torch.sigmoid, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("gated linear unit", lambda on: (F.glu, on.w(3, 4)), flops=M // 2, backward=0, backward_flops=M),
    case("softmax", lambda on: (partial(torch.softmax, dim=1), on.w(3, 4)), flops=5 * M, backward=0, backward_flops=4 * M),
    case("log-softmax", lambda on: (partial(torch.log_softmax, dim=1), on.w(3, 4)), flops=5 * M, backward=0,
         backward_flops=4 * M),
    case("sum", lambda on: (torch.sum, on.w(3, 4)), flops=M, backward=0, backward_flops=0),
    case("sum over a dimension", lambda on: (partial(torch.sum, dim=1), on.x(3, 4)), flops=M),
    case("mean", lambda on: (torch.mean, on.w(3, 4)), flops=M, backward=0, backward_flops=M),
    case("variance", lambda on: (torch.var, on.x(3, 4)), flops=4 * M),
    case("norm", lambda on: (torch.linalg.vector_norm, on.x(3, 4)), flops=2 * M),
    case("cumulative sum", lambda on: (partial(torch.cumsum, dim=0), on.x(3, 4)), flops=M),
    case("largest over a dimension", lambda on: (partial(torch.amax, dim=1), on.x(3, 4)), flops=M),
    case("position of the largest", lambda on: (partial(torch.argmax, dim=1), on.x(3, 4)), flops=0),
    case("sorting", lambda on: (torch.sort, on.x(3, 4)), flops=0),
    case("top k", lambda on: (partial(torch.topk, k=2), on.x(3, 4)), flops=0),
    case("random numbers", lambda on: (torch.rand_like, on.x(3, 4)), flops=0),
    case(
        "dropout", lambda on: (lambda x: A.native_dropout(x, 0.5, True)[0], on.w(3, 4)),
        flops=2 * M, backward=0, backward_flops=M,
    ),
    case("views", lambda on: (lambda x: x.view(4, 3).t().unsqueeze(0).expand(2, -1, -1)[0], on.x(3, 4)), flops=0),
    case("copies", lambda on: (lambda x: torch.cat([x.clone(), x.to(torch.float64).float()]), on.x(3, 4)), flops=0),
    case("padding", lambda on: (lambda x: F.pad(x, (1, 1)), on.x(3, 4)), flops=0),
    case("gather", lambda on: (lambda x, i: torch.gather(x, 1, i), on.x(3, 4), on.n(3, 2)), flops=0),
    case("scatter that adds", lambda on: (lambda x, i, y: torch.scatter_add(x, 1, i, y), on.x(3, 4), on.n(3, 2), on.x(3, 2)),
         flops=6),
    case("scatter that replaces", lambda on: (lambda x, i, y: torch.scatter(x, 1, i, y), on.x(3, 4), on.n(3, 2), on.x(3, 2)),
         flops=0),
    case("index_select", lambda on: (lambda x, i: torch.index_select(x, 0, i), on.x(3, 4), on.n(5)), flops=0),
    case("index_add", lambda on: (lambda x, i, y: torch.index_add(x, 0, i, y), on.x(3, 4), on.n(5), on.x(5, 4)), flops=20),
    case("indexing, backward accumulates", lambda on: (lambda x, i: x[i], on.w(3, 4), on.n(5)), flops=0, backward=0,
         backward_flops=20),
    case("embedding", lambda on: (F.embedding, on.n(2, 5), on.w(9, 4)), flops=0, backward=0, backward_flops=2 * 5 * 4),
    case("embedding bag", lambda on: (F.embedding_bag, on.n(2, 5), on.x(9, 4)), flops=2 * 5 * 4),
    case("embedding bag, weighted", lambda on: (lambda i, w, s: F.embedding_bag(i, w, per_sample_weights=s, mode="sum"),
         on.n(2, 5), on.x(9, 4), on.x(2, 5)), 2 * 5 * 4),
    case("batch norm", lambda on: (on.m(nn.BatchNorm2d(C, track_running_stats=False)), image(on)), flops=8 * N, backward=0,
         backward_flops=13 * N),
    case("batch norm, eval", lambda on: (on.m(nn.BatchNorm2d(C)).eval(), image(on)), flops=4 * N, backward=0,
         backward_flops=6 * N),
    case("batch norm of 65,536 elements", lambda on: (on.m(nn.BatchNorm2d(16)).eval(), on.x(4, 16, 32, 32)), flops=4 * 65536),
    case("layer norm", lambda on: (on.m(nn.LayerNorm(4)), on.w(3, 4)), flops=8 * M, backward=0, backward_flops=13 * M),
    case("layer norm, plain", lambda on: (lambda x: F.layer_norm(x, (4,)), on.w(3, 4)), flops=6 * M, backward=0,
         backward_flops=9 * M),
    case("group norm", lambda on: (on.m(nn.GroupNorm(3, C)), image(on)), flops=8 * N, backward=0, backward_flops=13 * N),
    case("instance norm", lambda on: (on.m(nn.InstanceNorm2d(C)), image(on)), flops=6 * N, backward=0, backward_flops=9 * N),
    case("rms norm by hand", lambda on: (on.m(Rms(4)), on.x(3, 4)), flops=M + M + 3 + 3 + M + M),
    case("max pooling", lambda on: (lambda x: F.max_pool2d(x, 2), image(on)), flops=N, backward=0, backward_flops=N // 4),
    case("max pooling, overlapping", lambda on: (lambda x: F.max_pool2d(x, 3, 1), image(on)), flops=B * C * 4 * 9, backward=0,
         backward_flops=B * C * 4),
    case("average pooling", lambda on: (lambda x: F.avg_pool2d(x, 2), image(on)), flops=N, backward=0, backward_flops=N),
    case("average pooling, 1-d", lambda on: (lambda x: F.avg_pool1d(x, 2), on.x(B, C, 8)), flops=B * C * 4 * 2),
    case("average pooling, 3-d", lambda on: (lambda x: F.avg_pool3d(x, 2), on.x(B, C, 4, 4, 4)), flops=B * C * 64),
    case("global pooling", lambda on: (lambda x: F.adaptive_avg_pool2d(x, 1), on.x(B, C, S, S)), flops=N),
    case("adaptive pooling, overlapping", lambda on: (lambda x: F.adaptive_avg_pool2d(x, 3), on.w(1, 1, 5, 5)),
         flops=(2 + 3 + 2) ** 2, backward=0, backward_flops=(2 + 3 + 2) ** 2),
    case("nearest upsampling", lambda on: (lambda x: F.interpolate(x, scale_factor=2.0), image(on)), flops=0, backward=0,
         backward_flops=4 * N),
    case("bilinear upsampling", lambda on: (lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), image(on)),
         flops=7 * 4 * N, backward=0, backward_flops=8 * 4 * N),
    case("bicubic upsampling", lambda on: (lambda x: F.interpolate(x, scale_factor=2.0, mode="bicubic"), on.x(1, 2, 4, 4)),
         flops=31 * 2 * 64),
    case("trilinear upsampling", lambda on: (lambda x: F.interpolate(x, scale_factor=2.0, mode="trilinear"), on.x(1, 2, 2, 2, 2)),
         flops=15 * 2 * 64),
    case("sampling on a grid", lambda on: (partial(F.grid_sample, align_corners=False), on.w(B, C, S, S), on.x(B, 5, 5, 2)),
         flops=7 * B * C * 25, backward=0, backward_flops=8 * B * C * 25),
    case("affine grid", lambda on: (lambda theta: F.affine_grid(theta, [B, 1, 4, 4], align_corners=False), on.x(B, 2, 3)),
         B * 16 * 2 * 3, flops=None),
    case("pixel shuffle", lambda on: (lambda x: F.pixel_shuffle(x, 2), on.x(2, 8, 3, 3)), flops=0),
    case("FFT", lambda on: (torch.fft.fft, on.x(3, 8, dtype=C64)), flops=3 * round(5 * 8 * log2(8))),
    case("FFT, no power of two", lambda on: (torch.fft.fft, on.x(6, dtype=C64)), flops=5 * round(6 * log2(6))),
    case("FFT of reals", lambda on: (torch.fft.rfft, on.x(3, 8)), flops=3 * round(5 * 8 * log2(8)) // 2),
    case("inverse FFT to reals", lambda on: (torch.fft.irfft, on.x(3, 5, dtype=C64)), flops=3 * round(5 * 8 * log2(8)) // 2),
    case("FFT in two dimensions", lambda on: (torch.fft.fft2, on.x(3, 4, 8, dtype=C64)), flops=3 * round(5 * 32 * log2(32))),
    case("mean squared error", lambda on: (F.mse_loss, on.w(3, 4), on.x(3, 4)), flops=3 * M, backward=0, backward_flops=2 * M),
    case("absolute error", lambda on: (F.l1_loss, on.x(3, 4), on.x(3, 4)), flops=3 * M),
    case("cross-entropy", lambda on: (F.cross_entropy, on.w(3, 4), on.n(3)), flops=5 * M + 3, backward=0,
         backward_flops=3 + 4 * M),
    case("CTC", lambda on: (lambda p, y: A._ctc_loss(p, y, [7, 5], [2, 1])[0], on.w(7, 2, 4), 1 + on.n(2, 2)),
         flops=13 * (7 * 5 + 5 * 3), backward=0, backward_flops=19 * (7 * 5 + 5 * 3) + 5 * 7 * 2 * 4, devices=("cpu",)),
    case("gradient clipping", lambda on: (lambda a, b: torch._foreach_norm([a, b]), on.x(3, 4), on.x(5)), flops=2 * (M + 5)),
    case("list arithmetic", lambda on: (lambda a, b: torch._foreach_mul_([a, b], 2.0), on.x(3, 4), on.x(5)), flops=M + 5),
    case("perceptron on images", lambda on: (on.m(nn.Sequential(nn.Conv2d(C, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))),
         on.x(B, C, S, S)), B * 4 * 4 * C * 9 + B * 16 * 3, B * 4 * 4 * C * 9 + 2 * B * 16 * 3,
         flops=2 * (B * 4 * 4 * C * 9 + B * 16 * 3) + B * 16),
    case("GPT-like decoder", lambda on: (language_model(on, kv=4, gated=False), on.n(2, 5)), decoder_macs(4, 2),
         2 * decoder_macs(4, 2), flops=None),
    case("Llama-like decoder, grouped queries", lambda on: (language_model(on, kv=2, gated=True), on.n(2, 5)), decoder_macs(2, 3),
         2 * decoder_macs(2, 3), flops=None),
    *linear_algebra(),
    *quantised(),
]  # fmt: skip
