"""Matrix products: 2 FLOPs per multiply-accumulate; a bias or an added matrix is the accumulator's start value."""

from __future__ import annotations

from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, numel
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


@formula("aten.mm", "aten._int_mm", "aten._scaled_mm")
def mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(n, k) @ (k, m)``: n k m MACs."""
    return contraction(a.shape[0] * a.shape[1] * b.shape[1], a)


@formula("aten.addmm", "aten._addmm_activation")
def addmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``bias + (n, k) @ (k, m)``: n k m MACs."""
    return contraction(a.shape[0] * a.shape[1] * b.shape[1], a)


@formula("aten.bmm")
def bmm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(g, n, k) @ (g, k, m)``: g n k m MACs."""
    return contraction(numel(a) * b.shape[2], a)


@formula("aten.baddbmm", "aten.addbmm")
def baddbmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``bias + (g, n, k) @ (g, k, m)``: g n k m MACs, summed over g or not."""
    return contraction(numel(a) * b.shape[2], a)


@formula("aten.mv")
def mv(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """``(n, k) @ (k)``: n k MACs."""
    return contraction(numel(a), a)


@formula("aten.addmv")
def addmv(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *, out: TensorSpec, **_: Any) -> Cost:
    """``bias + (n, k) @ (k)``: n k MACs."""
    return contraction(numel(a), a)


@formula("aten.dot", "aten.vdot")
def dot(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """``(k) . (k)``: k MACs."""
    return contraction(numel(a), a)


@formula("aten.addr")
def addr(base: TensorSpec, a: TensorSpec, b: TensorSpec, *, out: TensorSpec, **_: Any) -> Cost:
    """``base + outer(n, m)``: n m MACs."""
    return contraction(numel(a) * numel(b), a)


@formula("aten.linear", "aten.mkldnn_linear", "mkldnn._linear_pointwise")
def linear(x: TensorSpec, weight: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(..., k) @ (m, k).T``: an undecomposed linear, as in inference mode."""
    return contraction(numel(x) * weight.shape[0], x)


@formula("aten._weight_int8pack_mm")
def weight_int8pack_mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """``(n, k) @ (m, k).T`` with int8 weights."""
    return contraction(numel(a) * b.shape[0], a)


@formula("aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu")
def weight_int4pack_mm(a: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """``(n, k)`` by packed int4 weights: the output says how wide they are."""
    return contraction(numel(a) * out.shape[-1], a)


@formula("aten._grouped_mm", "aten._scaled_grouped_mm")
def grouped_mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Matrix products of ragged groups, as mixture-of-experts layers use them.

    Shapes: with a 2-d and b 3-d every row of a meets one expert's (k, m); with both 2-d the ragged dimension is the
    contracted one; with both 3-d it is a bmm.
    """
    if len(a.shape) == 3 and len(b.shape) == 2:
        return contraction(prod(a.shape[1:]) * b.shape[1], a)
    if len(a.shape) == 2 and len(b.shape) == 2:
        return contraction(numel(a) * b.shape[1], a)
    return contraction(numel(a) * b.shape[-1], a)


@formula("aten._trilinear")
def trilinear(
    a: TensorSpec, b: TensorSpec, c: TensorSpec,
    expand_a: list[int], expand_b: list[int], expand_c: list[int], sum_dims: list[int], unroll_dim: int = 1,
    *, out: TensorSpec,
) -> Cost:  # fmt: skip
    """``sum(a * b * c)`` over `sum_dims`, contracted pair by pair as ATen does: first a with b, then with c.

    Source: aten/src/ATen/native/Linear.cpp, _trilinear.
    """
    sizes = [1] * (len(a.shape) + len(expand_a))
    for spec, expanded in ((a, expand_a), (b, expand_b), (c, expand_c)):
        kept = [dim for dim in range(len(sizes)) if dim not in expanded]
        for dim, size in zip(kept, spec.shape, strict=True):
            sizes[dim] = max(sizes[dim], size)
    pair = [dim for dim in range(len(sizes)) if dim not in expand_a or dim not in expand_b]
    # a dimension summed over and absent from c is gone after the first product
    rest = [dim for dim in range(len(sizes)) if not (dim in sum_dims and dim in expand_c)]
    return contraction(prod(sizes[dim] for dim in pair) + prod(sizes[dim] for dim in rest), a)


@formula("aten._cdist_forward")
def cdist_forward(a: TensorSpec, b: TensorSpec, p: float = 2.0, *_: Any, out: TensorSpec) -> Cost:
    """Pairwise distances of ``(..., n, k)`` and ``(..., m, k)``: one MAC per pair and coordinate, and its subtraction."""
    terms = numel(out) * a.shape[-1]
    return contraction(terms, a) + Cost(flops=terms)


@formula("aten._cdist_backward")
def cdist_backward(grad: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """The gradient of one side: one MAC per pair and coordinate, and its subtraction."""
    terms = numel(grad) * a.shape[-1]
    return contraction(terms, a) + Cost(flops=terms)


@formula("aten._pdist_forward")
def pdist_forward(x: TensorSpec, p: float = 2.0, *, out: TensorSpec) -> Cost:
    """Distances of all pairs of rows: one MAC per pair and coordinate, and its subtraction."""
    terms = numel(out) * x.shape[-1]
    return contraction(terms, x) + Cost(flops=terms)


@formula("aten._pdist_backward")
def pdist_backward(grad: TensorSpec, x: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """The gradient goes to both rows of a pair: two MACs per pair and coordinate, and one subtraction."""
    terms = numel(grad) * x.shape[-1]
    return contraction(2 * terms, x) + Cost(flops=terms)
