"""Hand-derived: matrix products of every form. n, k, m are rows, contracted length, columns."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from case_table import On, case
from torch import Tensor, nn

N, K, M = 6, 4, 5
NKM = N * K * M
C64 = torch.complex64
BF16 = torch.bfloat16
I8 = torch.int8
EXPERTS = 3


class Square(torch.autograd.Function):
    """``x @ x.T``, with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x @ x.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:  # type: ignore[override]
        (x,) = ctx.saved_tensors
        result: Tensor = (grad + grad.t()) @ x
        return result


def experts_one_by_one(x: Tensor, weights: Tensor) -> Tensor:
    """A mixture of experts as a loop: rows are dealt round-robin."""
    out = x.new_zeros(x.shape[0], weights.shape[-1])
    for expert in range(weights.shape[0]):
        rows = torch.arange(expert, x.shape[0], weights.shape[0], device=x.device)
        out = out.index_add(0, rows, x[rows] @ weights[expert])
    return out


def branching(x: Tensor, w: Tensor) -> Tensor:
    """Two products where the sum is not NaN, else one."""
    y = x @ w
    return y.t() @ y if bool(y.sum() == y.sum()) else y


def offsets(on: On, rows: int) -> Tensor:
    """Where each expert's rows end."""
    return (torch.arange(1, EXPERTS + 1) * (rows // EXPERTS)).to(torch.int32).to(on.device)


def sparse(on: On, kind: str) -> Tensor:
    """A (4, 4) identity: four stored elements."""
    eye = torch.eye(4)
    return {"csr": eye.to_sparse_csr, "coo": eye.to_sparse, "csc": eye.to_sparse_csc}[kind]()


def jagged(*lengths: int) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(length, K) for length in lengths], layout=torch.jagged)


CASES = [
    case("mm", lambda on: (torch.mm, on.w(N, K), on.w(K, M)), NKM, 2 * NKM, backward_flops=4 * NKM),
    case("mm, gradient of the first", lambda on: (torch.mm, on.w(N, K), on.x(K, M)), NKM, NKM),
    case("mm, gradient of the second", lambda on: (torch.mm, on.x(N, K), on.w(K, M)), NKM, NKM),
    case("mm of a matrix with itself", lambda on: (lambda a: a @ a, on.w(N, N)), N**3, 2 * N**3),
    case("mm, transposed", lambda on: (lambda a, b: a.t() @ b.t(), on.w(K, N), on.w(M, K)), NKM, 2 * NKM),
    case("mm, bfloat16", lambda on: (torch.mm, on.w(N, K, dtype=BF16), on.w(K, M, dtype=BF16)), NKM, 2 * NKM),
    case("mm, empty", lambda on: (torch.mm, on.x(0, K), on.x(K, M)), 0),
    case("addmm, bias free", lambda on: (torch.addmm, on.w(M), on.w(N, K), on.w(K, M)), NKM, 2 * NKM),
    case("addmm in place", lambda on: (lambda c, a, b: c.addmm_(a, b), on.x(N, M), on.x(N, K), on.x(K, M)), NKM),
    case("addmm scaled", lambda on: (partial(torch.addmm, beta=2, alpha=3), on.x(N, M), on.x(N, K), on.x(K, M)), NKM),
    case(
        "addmm and activation",
        lambda on: (torch._addmm_activation, on.x(M), on.x(N, K), on.x(K, M)),
        NKM, flops=None,
    ),
    case("bmm", lambda on: (torch.bmm, on.w(3, N, K), on.w(3, K, M)), 3 * NKM, 6 * NKM),
    case("baddbmm", lambda on: (torch.baddbmm, on.x(3, N, M), on.w(3, N, K), on.w(3, K, M)), 3 * NKM, 6 * NKM),
    case("addbmm", lambda on: (torch.addbmm, on.x(N, M), on.w(3, N, K), on.w(3, K, M)), 3 * NKM, 6 * NKM),
    # the matrix gets an outer product: a multiplication per element, and nothing to add it to
    case("mv", lambda on: (torch.mv, on.w(N, K), on.w(K)), N * K, N * K, backward_flops=3 * N * K),
    case("addmv", lambda on: (torch.addmv, on.x(N), on.x(N, K), on.x(K)), N * K),
    case("dot", lambda on: (torch.dot, on.x(K), on.x(K)), K),
    case("inner", lambda on: (torch.inner, on.x(N, K), on.x(M, K)), NKM),
    case("vdot, complex", lambda on: (torch.vdot, on.x(K, dtype=C64), on.x(K, dtype=C64)), 4 * K),
    case("addr", lambda on: (torch.addr, on.x(N, M), on.x(N), on.x(M)), N * M),
    case("mv then dot", lambda on: (lambda a, x: torch.dot(x, torch.mv(a, x)), on.x(K, K), on.x(K)), K * K + K),
    case("chain of three", lambda on: (torch.linalg.multi_dot, [on.x(2, 3), on.x(3, 4), on.x(4, 5)]), 24 + 40),
    case("matmul, vectors", lambda on: (torch.matmul, on.x(K), on.x(K)), K),
    case("matmul, matrix and vector", lambda on: (torch.matmul, on.x(N, K), on.x(K)), N * K),
    case("matmul, vector and matrix", lambda on: (torch.matmul, on.x(K), on.x(K, M)), K * M),
    case("matmul, batch and matrix", lambda on: (torch.matmul, on.w(2, 3, N, K), on.w(K, M)), 6 * NKM, 12 * NKM),
    case("matmul, broadcast", lambda on: (torch.matmul, on.x(3, 1, N, K), on.x(2, K, M)), 3 * 2 * NKM),
    case("matmul into out=", lambda on: (lambda a, b, c: torch.mm(a, b, out=c), on.x(N, K), on.x(K, M), on.x(N, M)), NKM),
    case("tensordot", lambda on: (partial(torch.tensordot, dims=2), on.x(N, 2, 3), on.x(2, 3, M)), N * 6 * M),
    case("kronecker product is pointwise", lambda on: (torch.kron, on.x(2, 3), on.x(4, 5)), 0, flops=8 * 15),
    case("linear", lambda on: (F.linear, on.w(N, K), on.w(M, K)), NKM, 2 * NKM),
    case("linear with bias", lambda on: (on.m(nn.Linear(K, M)), on.w(N, K)), NKM, 2 * NKM, backward_flops=4 * NKM + N * M),
    case("linear, three dimensions", lambda on: (on.m(nn.Linear(K, M)), on.w(2, 3, K)), 6 * K * M, 12 * K * M),
    case("linear, one row", lambda on: (on.m(nn.Linear(K, M, bias=False)), on.x(K)), K * M),
    case("linear, frozen", lambda on: (on.m(nn.Linear(K, M)).requires_grad_(False), on.w(N, K)), NKM, NKM),
    case("linear shared by two calls", lambda on: (lambda f, x: f(f(x)), on.m(nn.Linear(K, K, bias=False)), on.x(N, K)),
         2 * N * K * K, 3 * N * K * K),
    case("linear, inference mode", lambda on: (torch.inference_mode()(F.linear), on.x(N, K), on.x(M, K)), NKM),
    case("matmul, inference mode", lambda on: (torch.inference_mode()(torch.matmul), on.x(2, N, K), on.x(K, M)), 2 * NKM),
    case("linear under vmap", lambda on: (torch.vmap(F.linear, in_dims=(0, None)), on.x(7, K), on.x(M, K)), 7 * K * M),
    case("linear, a weight per example, under vmap", lambda on: (torch.vmap(F.linear), on.x(7, N, K), on.x(7, M, K)), 7 * NKM),
    case("gradient by torch.func", lambda on: (torch.func.grad(lambda w, x: (x @ w).sum()), on.x(K, M), on.x(N, K)),
         2 * NKM, flops=None),
    case("two-layer network", lambda on: (on.m(nn.Sequential(nn.Linear(K, 8), nn.ReLU(), nn.Linear(8, M))), on.x(N, K)),
         N * 8 * (K + M), N * 8 * (K + 2 * M), flops=2 * N * 8 * (K + M) + N * 8),
    case("autograd.Function", lambda on: (Square.apply, on.w(N, K)), N * K * N, N * N * K),
    case("mixture of experts, a loop", lambda on: (experts_one_by_one, on.x(N, K), on.x(EXPERTS, K, M)), NKM, flops=None),
    case("a branch on data", lambda on: (branching, on.x(N, K), on.x(K, M)), NKM + M * N * M, flops=None, devices=("cpu",)),
    case("einsum, product", lambda on: (torch.einsum, "nk,km->nm", on.w(N, K), on.w(K, M)), NKM, 2 * NKM),
    case("einsum, batched and transposed", lambda on: (torch.einsum, "bnk,bmk->bmn", on.x(3, N, K), on.x(3, M, K)), 3 * NKM),
    case("einsum, three operands", lambda on: (torch.einsum, "ij,jk,kl->il", on.x(2, 3), on.x(3, 4), on.x(4, 5)), 24 + 40),
    case("einsum, four operands", lambda on: (torch.einsum, "ij,jk,kl,lm->im", on.x(2, 3), on.x(3, 4), on.x(4, 5), on.x(5, 6)),
         24 + 2 * 4 * 5 + 2 * 5 * 6),
    case("einsum, attention scores", lambda on: (torch.einsum, "bqhd,bkhd->bhqk", on.w(2, 3, 4, 5), on.w(2, 6, 4, 5)),
         2 * 4 * 3 * 6 * 5, 2 * 2 * 4 * 3 * 6 * 5),
    case("einsum, dot product", lambda on: (torch.einsum, "k,k->", on.x(K), on.x(K)), K),
    case("complex mm", lambda on: (torch.mm, on.w(N, K, dtype=C64), on.w(K, M, dtype=C64)), 4 * NKM, 8 * NKM),
    case("complex bmm", lambda on: (torch.bmm, on.x(2, N, K, dtype=C64), on.x(2, K, M, dtype=C64)), 8 * NKM),
    case("complex linear", lambda on: (F.linear, on.x(N, K, dtype=C64), on.x(M, K, dtype=C64)), 4 * NKM),
    case("bilinear", lambda on: (F.bilinear, on.x(7, 3), on.x(7, 4), on.x(5, 3, 4)), 7 * 5 * 3 * 4 + 7 * 5 * 4),
    case("bilinear module, bias", lambda on: (on.m(nn.Bilinear(3, 4, 5)), on.x(7, 3), on.x(7, 4)),
         7 * 5 * 3 * 4 + 7 * 5 * 4, flops=2 * (7 * 5 * 3 * 4 + 7 * 5 * 4) + 7 * 5),
    case("int8 mm", lambda on: (torch._int_mm, on.x(32, 16, dtype=I8), on.x(16, 8, dtype=I8)), 32 * 16 * 8),
    case("mm of integers", lambda on: (torch.mm, on.n(N, K), on.n(K, M)), NKM),
    case("int8 weights", lambda on: (torch._weight_int8pack_mm, on.x(N, 32, dtype=BF16), on.x(M, 32, dtype=I8),
         on.x(M, dtype=BF16)), N * 32 * M),
    case("float8, scaled", lambda on: (torch._scaled_mm, on.x(16, 32, dtype=torch.float8_e4m3fn),
         on.x(16, 32, dtype=torch.float8_e4m3fn).t(), on.x(), on.x()), 16 * 32 * 16, devices=("meta",)),
    case("grouped mm, ragged rows", lambda on: (torch._grouped_mm, on.x(48, 16, dtype=BF16), on.x(EXPERTS, 16, 32, dtype=BF16),
         offsets(on, 48)), 48 * 16 * 32),
    case("grouped mm, ragged rows, with gradients", lambda on: (torch._grouped_mm, on.w(48, 16, dtype=BF16),
         on.w(EXPERTS, 16, 32, dtype=BF16), offsets(on, 48)), 48 * 16 * 32, 2 * 48 * 16 * 32),
    case("grouped mm, ragged contraction", lambda on: (torch._grouped_mm, on.x(16, 48, dtype=BF16), on.x(48, 32, dtype=BF16),
         offsets(on, 48)), 16 * 48 * 32),
    case("grouped mm, ragged columns", lambda on: (torch._grouped_mm, on.x(EXPERTS, 16, 32, dtype=BF16), on.x(32, 48, dtype=BF16),
         offsets(on, 48)), 16 * 32 * 48),
    case("grouped mm, all alike", lambda on: (torch._grouped_mm, on.x(EXPERTS, 16, 32, dtype=BF16),
         on.x(EXPERTS, 32, 8, dtype=BF16)), EXPERTS * 16 * 32 * 8),
    case("grouped mm in float32, ragged rows, with gradients", lambda on: (torch._grouped_mm, on.w(48, 16), on.w(EXPERTS, 16, 32),
         offsets(on, 48)), 48 * 16 * 32, 2 * 48 * 16 * 32),
    case("grouped mm in float32, ragged contraction", lambda on: (torch._grouped_mm, on.x(16, 48), on.x(48, 32), offsets(on, 48)),
         16 * 48 * 32),
    case("grouped mm in float32, ragged columns", lambda on: (torch._grouped_mm, on.x(EXPERTS, 16, 32), on.x(32, 48),
         offsets(on, 48)), 16 * 32 * 48),
    case("grouped mm in float32, all alike", lambda on: (torch._grouped_mm, on.w(EXPERTS, 16, 32), on.w(EXPERTS, 32, 8)),
         EXPERTS * 16 * 32 * 8, 2 * EXPERTS * 16 * 32 * 8),
    case("sparse CSR by dense", lambda on: (torch.mm, sparse(on, "csr"), on.x(4, M)), 4 * M, devices=("cpu",)),
    case("sparse COO by dense", lambda on: (torch.sparse.mm, sparse(on, "coo"), on.x(4, M)), 4 * M, devices=("cpu",)),
    case("sparse CSR by vector", lambda on: (torch.mv, sparse(on, "csr"), on.x(4)), 4, devices=("cpu",)),
    case("sparse COO plus dense", lambda on: (torch.sparse.addmm, on.x(4, M), sparse(on, "coo"), on.x(4, M)), 4 * M,
         devices=("cpu",)),
    case("sparse by sparse, a bound", lambda on: (torch.sparse.mm, sparse(on, "coo"), sparse(on, "coo")), 4 * 4,
         devices=("cpu",)),
    case("sampled product", lambda on: (torch.sparse.sampled_addmm, sparse(on, "csr"), on.x(4, K), on.x(K, 4)), 4 * K,
         devices=("cpu",)),
    case("dense by sparse CSC", lambda on: (torch.mm, on.x(M, 4), sparse(on, "csc")), M * 4, devices=("cpu",)),
    case("jagged linear: rows that are there", lambda on: (F.linear, jagged(2, 4), on.x(M, K)), (2 + 4) * K * M,
         devices=("cpu",)),
    case("jagged linear, with gradients", lambda on: (lambda x, w: F.linear(x, w).values(), jagged(2, 4), on.w(M, K)),
         (2 + 4) * K * M, (2 + 4) * K * M, devices=("cpu",)),
    case("nested linear: as if padded to the longest", lambda on: (F.linear, torch.nested.nested_tensor([torch.ones(2, K),
         torch.ones(4, K)]), on.x(M, K)), 2 * 4 * K * M, devices=("cpu",)),
    case("distances", lambda on: (torch.cdist, on.x(N, K), on.x(M, K)), NKM, flops=3 * NKM),
    case("distances, batched, p=1", lambda on: (partial(torch.cdist, p=1.0), on.w(3, N, K), on.x(3, M, K)), 3 * NKM, 3 * NKM,
         flops=9 * NKM, backward_flops=9 * NKM),
    case("distances of rows", lambda on: (F.pdist, on.x(N, K)), N * (N - 1) // 2 * K, flops=3 * (N * (N - 1) // 2 * K)),
]  # fmt: skip
