"""Matrix products: 2 FLOPs per MAC. A bias or an added matrix is the initial value of the accumulator and is free."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, numel, product_macs
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


@formula("aten.mm", "aten.bmm", "aten._int_mm", "aten._scaled_mm", "aten._scaled_mm_v2", "quantized.matmul")
def mm(a: TensorSpec, b: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """``(..., n, k) @ (..., k, m)``: n k m MACs per matrix in any precision. Scales are free."""
    return contraction(product_macs(a, b), a)


@formula("aten._foreach_mm")
def foreach_mm(a: Sequence[TensorSpec], b: Sequence[TensorSpec], *, out: Any) -> Cost:
    """One `mm` per pair."""
    return sum((contraction(product_macs(x, y), x) for x, y in zip(a, b, strict=True)), Cost())


@formula("aten.addmm", "aten._addmm_activation", "aten.baddbmm", "aten.addbmm")
def addmm(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """As `mm`, with a bias; also for ops that sum over the batch."""
    return contraction(product_macs(a, b), a)


@formula("aten.mv")
def mv(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """``(n, k) @ (k)``: n k MACs; for a sparse matrix 1 per stored element."""
    return contraction(numel(a) if a.stored is None else a.stored, a)


@formula("aten.addmv")
def addmv(bias: TensorSpec, a: TensorSpec, b: TensorSpec, *, out: TensorSpec, **_: Any) -> Cost:
    """As `mv`, with a bias."""
    return mv(a, b, out=out)


@formula("aten.dot", "aten.vdot")
def dot(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """``(k) . (k)``: k MACs."""
    return contraction(numel(a), a)


@formula("aten.addr")
def addr(base: TensorSpec, a: TensorSpec, b: TensorSpec, *, out: TensorSpec, **_: Any) -> Cost:
    """``base + outer(n, m)``: n m MACs."""
    return contraction(numel(a) * numel(b), a)


@formula("aten.linear", "aten.mkldnn_linear", "aten._weight_int8pack_mm", "mkldnn._linear_pointwise", "mkl._mkl_linear")
def linear(x: TensorSpec, weight: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(..., k) @ (m, k).T``: a linear layer that is not decomposed, as for nested tensors or int8 weights."""
    return contraction(numel(x) * weight.shape[0], x)


@formula("mkldnn._linear_pointwise.binary")
def linear_and_binary(x: TensorSpec, other: TensorSpec, weight: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """``(..., k) @ (m, k).T`` with another tensor added or multiplied: one FLOP per output element."""
    return contraction(numel(x) * weight.shape[0], x) + Cost(flops=numel(out))


@formula("aten.linear_backward", "aten.mkldnn_linear_backward")
def linear_backward(
    x: TensorSpec, grad: TensorSpec, weight: TensorSpec, output_mask: Sequence[bool], *, out: Any
) -> Cost:
    """The MACs of forward for each of dX and dW in the output mask. The bias gradient is a sum over rows."""
    macs = numel(x) * weight.shape[0] * (output_mask[0] + output_mask[1])
    return contraction(macs, x) + Cost(flops=numel(grad) * output_mask[2])


@formula("aten.mkldnn_linear_backward_input")
def linear_backward_input(size: Sequence[int], grad: TensorSpec, weight: TensorSpec, *, out: Any) -> Cost:
    """dX: the MACs of forward."""
    return contraction(numel(grad) * weight.shape[1], grad)


@formula("aten.mkldnn_linear_backward_weights")
def linear_backward_weights(grad: TensorSpec, x: TensorSpec, weight: TensorSpec, *_: Any, out: Any) -> Cost:
    """dW: the MACs of forward."""
    return contraction(numel(grad) * weight.shape[1], grad)


@formula("aten.matmul")
def matmul(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """``(..., n, k) @ (..., k, m)``: n k m MACs each. Only nested tensors use this op, padded to the longest sequence."""
    return contraction(numel(out) * a.shape[-1], a)


@formula("aten.matmul_backward")
def matmul_backward(grad: TensorSpec, a: TensorSpec, b: TensorSpec, mask: Sequence[bool], *, out: Any) -> Cost:
    """The MACs of forward for each gradient in the mask. Only nested tensors use this op."""
    return contraction(numel(grad) * a.shape[-1] * sum(mask), a)


@formula(
    "aten._mixed_dtypes_linear", "aten._weight_int4pack_mm", "aten._weight_int4pack_mm_for_cpu",
    "aten._dyn_quant_matmul_4bit", "aten._weight_int4pack_mm_with_scales_and_zeros", "quantized.int4mm_packed_weight_cpu",
)  # fmt: skip
def packed_linear(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """A linear layer with packed int8 or int4 weights. The output has their width."""
    return contraction(numel(x) * out.shape[-1], x)


@formula("aten._grouped_mm", "aten._scaled_grouped_mm", "aten._scaled_grouped_mm_v2")
def grouped_mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Matrix products of ragged groups, as in mixture-of-experts layers. The offsets do not change the cost.

    Shapes: a (rows, k), b (g, k, m): every row is multiplied by one expert. Both 2-d: the contracted dimension is ragged, and
    every element of a meets m columns. a (g, n, k), b (k, columns): every column meets one expert. Both 3-d: a bmm.
    """
    packed = 2 if a.dtype.endswith("_x2") else 1
    if len(a.shape) == 3 and len(b.shape) == 2:
        return contraction(prod(a.shape[1:]) * b.shape[1] * packed, a)
    return contraction(numel(a) * b.shape[-1] * packed, a)


@formula("aten._trilinear")
def trilinear(
    a: TensorSpec, b: TensorSpec, c: TensorSpec,
    expand_a: list[int], expand_b: list[int], expand_c: list[int], sum_dims: list[int], unroll_dim: int = 1,
    *, out: TensorSpec,
) -> Cost:  # fmt: skip
    """``sum(a * b * c)`` over `sum_dims`, contracted as in ATen: first a with b, then with c.

    Source: aten/src/ATen/native/Linear.cpp, _trilinear.
    """
    sizes = [1] * (len(a.shape) + len(expand_a))
    for spec, expanded in ((a, expand_a), (b, expand_b), (c, expand_c)):
        own_dims = [dim for dim in range(len(sizes)) if dim not in expanded]
        for dim, size in zip(own_dims, spec.shape, strict=True):
            sizes[dim] = max(sizes[dim], size)
    pair = [dim for dim in range(len(sizes)) if dim not in expand_a or dim not in expand_b]
    # a dimension that is summed over and absent from c is reduced in the first product
    remaining = [dim for dim in range(len(sizes)) if not (dim in sum_dims and dim in expand_c)]
    return contraction(prod(sizes[dim] for dim in pair) + prod(sizes[dim] for dim in remaining), a)


@formula("aten._cdist_forward", "aten._pdist_forward")
def distances(a: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """Distances of all pairs of rows of width k: 1 MAC and 1 subtraction per pair and coordinate."""
    terms = numel(out) * a.shape[-1]
    return contraction(terms, a) + Cost(flops=terms)


@formula("aten._cdist_backward")
def cdist_backward(grad: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """The gradient of one input: 1 MAC and 1 subtraction per pair and coordinate."""
    return distances(a, out=grad)


@formula("aten._pdist_backward")
def pdist_backward(grad: TensorSpec, x: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """Gradients of both rows of a pair: 2 MACs and 1 subtraction per pair and coordinate."""
    terms = numel(grad) * x.shape[-1]
    return contraction(2 * terms, x) + Cost(flops=terms)


@formula("aten._euclidean_dist")
def euclidean_dist(a: TensorSpec, b: TensorSpec, *, out: TensorSpec) -> Cost:
    """Pairwise distances by a matrix product of ``(a, |a|, 1)`` and ``(b, 1, |b|)``: two columns more than coordinates."""
    norms = 2 * (numel(a) + numel(b))
    return contraction(numel(out) * (a.shape[-1] + 2), a) + Cost(flops=norms + 2 * numel(out))


@formula("aten._compute_linear_combination")
def linear_combination(x: TensorSpec, coefficients: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """``(m, n) @ (n, ...)``, as in a matrix exponential."""
    return contraction(coefficients.shape[0] * numel(x), x)
