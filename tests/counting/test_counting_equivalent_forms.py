"""Forms of one contraction count the same; docs/counting.md names the forms that are no contraction, and their count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, einsum, linalg, nn, vmap

from profiler_kit.counting import count_target
from profiler_kit.loading import from_model
from profiler_kit.records.counts import StaticCount

B, N, K, M = 2, 3, 5, 7
Form = tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]
Row = tuple[str, int, tuple[Form, ...]]


class Product(nn.Module):
    """A function of two parameters."""

    def __init__(self, function: Callable[..., Tensor], shapes: tuple[tuple[int, ...], ...]) -> None:
        super().__init__()
        self.function = function
        self.operands = nn.ParameterList([nn.Parameter(torch.zeros(shape)) for shape in shapes])

    def forward(self, x: Tensor) -> Tensor:
        return self.function(*self.operands)


def zeros(like: Tensor, *shape: int) -> Tensor:
    return torch.zeros(shape, device=like.device)


# One multiply-accumulate per term of the sum, in any form that reaches a kernel of a product.
CONTRACTIONS: tuple[Row, ...] = (
    ("matrix and vector", N * K, (
        (lambda a, x: a @ x, (N, K), (K,)),
        (torch.mv, (N, K), (K,)),
        (torch.inner, (N, K), (K,)),
        (lambda a, x: einsum("nk,k->n", a, x), (N, K), (K,)),
        (lambda a, x: einsum("nk,k", a, x), (N, K), (K,)),
        (lambda a, x: torch.tensordot(a, x, 1), (N, K), (K,)),
        (lambda a, x: linalg.multi_dot([a, x]), (N, K), (K,)),
        (lambda a, x: torch.addmv(zeros(a, N), a, x), (N, K), (K,)),
        (lambda a, x: F.linear(x, a), (N, K), (K,)),
        (lambda a, x: a @ x[:, None], (N, K), (K,)),
        (vmap(torch.dot, (0, None)), (N, K), (K,)),
    )),
    ("rows with rows", N * K, (
        (lambda a, x: einsum("nk,nk->n", a, x), (N, K), (N, K)),
        (vmap(torch.dot), (N, K), (N, K)),
        (lambda a, x: (a[:, None] @ x[:, :, None])[:, 0, 0], (N, K), (N, K)),
    )),
    ("two vectors", K, (
        (lambda a, x: a @ x, (K,), (K,)),
        (torch.dot, (K,), (K,)),
        (torch.vdot, (K,), (K,)),
        (torch.inner, (K,), (K,)),
        (linalg.vecdot, (K,), (K,)),
        (lambda a, x: einsum("k,k->", a, x), (K,), (K,)),
        (lambda a, x: torch.tensordot(a, x, 1), (K,), (K,)),
        (lambda a, x: a[None] @ x[:, None], (K,), (K,)),
    )),
    ("two matrices", N * K * M, (
        (torch.mm, (N, K), (K, M)),
        (torch.matmul, (1, N, K), (K, M)),
        (lambda a, x: einsum("nk,km->nm", a, x), (N, K), (K, M)),
        (lambda a, x: einsum("nkz,kmz->nm", a, x), (N, K, 1), (K, M, 1)),
        (lambda a, x: torch.tensordot(a, x, 1), (N, K), (K, M)),
        (torch.inner, (N, K), (M, K)),
        (lambda a, x: vmap(lambda row: row @ x)(a), (N, K), (K, M)),
        (lambda a, x: vmap(torch.mv, (None, 1), 1)(a, x), (N, K), (K, M)),
        (lambda a, x: torch.bmm(a[None], x[None]), (N, K), (K, M)),
        (F.linear, (N, K), (M, K)),
        (lambda a, x: F.conv1d(a[:, :, None], x[:, :, None]), (N, K), (M, K)),
        (lambda a, x: torch.addmm(zeros(a, N, M), a, x), (N, K), (K, M)),
    )),
    ("batches of matrices", B * N * K * M, (
        (torch.bmm, (B, N, K), (B, K, M)),
        (torch.matmul, (B, N, K), (B, K, M)),
        (torch.matmul, (B, N, K), (K, M)),
        (torch.matmul, (N, K), (B, K, M)),
        (lambda a, x: einsum("bnk,bkm->bnm", a, x), (B, N, K), (B, K, M)),
        (lambda a, x: einsum("bnk,bkm->nm", a, x), (B, N, K), (B, K, M)),
        (lambda a, x: einsum("...nk,...km->...nm", a, x), (B, N, K), (1, K, M)),
        (vmap(torch.mm), (B, N, K), (B, K, M)),
        (lambda a, x: torch.baddbmm(zeros(a, B, N, M), a, x), (B, N, K), (B, K, M)),
        (lambda a, x: torch.addbmm(zeros(a, N, M), a, x), (B, N, K), (B, K, M)),
    )),
    ("the diagonal with a matrix", N * M, (
        (lambda a, x: einsum("ii,ij->j", a, x), (N, N), (N, M)),
        (lambda a, x: einsum("i,ij->j", a.diagonal(), x), (N, N), (N, M)),
    )),
    # a kernel of a product adds also where its inner dimension has length one
    ("an inner dimension of one", N * M, (
        (torch.mm, (N, 1), (1, M)),
        (lambda a, x: a[:, None] @ x[None], (N,), (M,)),
        (lambda a, x: torch.tensordot(a, x, 0), (N,), (M,)),
        (lambda a, x: torch.addr(zeros(a, N, M), a, x), (N,), (M,)),
        (lambda a, x: torch.addmm(zeros(a, N, M), a, x), (N, 1), (1, M)),
        (torch.bmm, (1, N, 1), (1, 1, M)),
    )),
)  # fmt: skip

# A product and a sum that run as two ops: as many FLOPs as the contraction, and no MACs.
WRITTEN_OUT: tuple[Row, ...] = (
    ("matrix and vector", N * K, (
        (linalg.vecdot, (N, K), (K,)),
        (linalg.vecdot, (N, K), (N, K)),
        (lambda a, x: (a * x).sum(-1), (N, K), (K,)),
        (lambda a, x: einsum("nk,nk->nk", a, x).sum(-1), (N, K), (N, K)),
    )),
    ("two matrices", N * K * M, (
        (lambda a, x: (a[:, :, None] * x).sum(1), (N, K), (K, M)),
        (lambda a, x: linalg.vecdot(a[:, None], x.T[None]), (N, K), (K, M)),
    )),
)  # fmt: skip

# Nothing is summed: one multiplication per element of the result.
MULTIPLICATIONS: tuple[Row, ...] = (
    ("two vectors", N * M, (
        (torch.outer, (N,), (M,)),
        (torch.kron, (N,), (M,)),
        (lambda a, x: einsum("n,m->nm", a, x), (N,), (M,)),
        (lambda a, x: einsum("i,j", a, x), (N,), (M,)),
        (lambda a, x: einsum("nk,km->nm", a, x), (N, 1), (1, M)),  # einsum drops dimensions of length one
        (lambda a, x: vmap(lambda scalar: scalar * x)(a), (N,), (M,)),
        (vmap(torch.outer), (1, N), (1, M)),
        (lambda a, x: a[:, None] * x[None], (N,), (M,)),
    )),
    ("rows and factors", B * K, (
        (lambda a, x: einsum("bk,bk->bk", a, x), (B, K), (B, K)),
        (lambda a, x: einsum("bk,k->bk", a, x), (B, K), (K,)),
        (torch.kron, (B, K), (1, 1)),
        (lambda a, x: a * x, (B, K), (B, K)),
    )),
)  # fmt: skip


def cases(rows: tuple[Row, ...]) -> list[Any]:
    return [pytest.param(terms, form, id=f"{name} {i}") for name, terms, forms in rows for i, form in enumerate(forms)]


def counted(form: Form, kind: str = "meta") -> StaticCount:
    function, *shapes = form
    model = Product(function, tuple(shapes))
    return count_target(from_model(model, torch.zeros(1), device=kind, loss_fn=lambda out: out.sum()))


@pytest.mark.parametrize("kind", ["meta", "cpu"])
@pytest.mark.parametrize(("terms", "form"), cases(CONTRACTIONS))
def test_forms_of_a_contraction_count_the_same(terms: int, form: Form, kind: str) -> None:
    static = counted(form, kind)
    assert (static.forward.macs, static.forward.flops) == (terms, 2 * terms)
    assert not static.uncounted


@pytest.mark.parametrize(("terms", "form"), cases(CONTRACTIONS))
def test_backward_of_vectors_multiplies_without_a_sum(terms: int, form: Form) -> None:
    """The gradient of a vector product can be an outer product: a multiplication where other forms have a MAC."""
    static = counted(form)
    flops, macs = static.backward.flops, static.backward.macs
    assert macs in (2 * terms, terms, 0)
    assert flops == 4 * terms - (2 * terms - macs)


@pytest.mark.parametrize(("terms", "form"), cases(WRITTEN_OUT))
def test_a_product_and_a_sum_are_two_ops(terms: int, form: Form) -> None:
    static = counted(form)
    assert (static.forward.macs, static.forward.flops) == (0, 2 * terms)


@pytest.mark.parametrize(("terms", "form"), cases(MULTIPLICATIONS))
def test_a_product_without_a_sum_is_no_contraction(terms: int, form: Form) -> None:
    static = counted(form)
    assert (static.forward.macs, static.forward.flops) == (0, terms)
