"""Products with sparse matrices: one MAC per stored element and column it meets, where it is known what is stored.

On meta tensors nothing is stored; there the product counts as a dense one, which is its upper bound. A product of two sparse
matrices is bounded by the cheaper of its operands against a dense other. Two-of-four sparsity does half the dense work.
"""

from __future__ import annotations

from typing import Any

from profiler_kit.counting.arithmetic import contraction, free, numel, per_element, product_macs
from profiler_kit.counting.formulas import formula
from profiler_kit.counting.formulas.matmul import addmm, mm
from profiler_kit.records.counts import Cost, TensorSpec

# ``(n, k) @ (k, m)``, one or both of them sparse
formula("aten._sparse_mm", "aten._sparse_sparse_matmul", "aten.hspmm", "aten._sparse_mm_reduce_impl")(mm)
formula("aten._sparse_addmm", "aten.sspaddmm")(addmm)  # ``bias + (n, k) @ (k, m)``, one or both of them sparse


@formula("aten.sparse_sampled_addmm")
def sampled_addmm(pattern: TensorSpec, a: TensorSpec, b: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """A dense product, of which only the elements that `pattern` stores are made: k MACs each."""
    made = numel(pattern) if pattern.stored is None else pattern.stored
    return contraction(made * a.shape[-1], a)


@formula("aten._sparse_mm_reduce_impl_backward")
def sparse_mm_reduce_backward(
    a: TensorSpec, grad: TensorSpec, b: TensorSpec, reduce: str, arg: Any, output_mask: tuple[bool, bool], *, out: Any
) -> Cost:
    """As many MACs as forward for each gradient that is asked for."""
    return contraction(product_macs(a, b) * sum(output_mask), a)


@formula("aten._sparse_semi_structured_linear")
def semi_structured_linear(x: TensorSpec, weight: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(..., k) @ (m, k).T`` with two of four weights kept. Shapes: weight (m, k / 2)."""
    return contraction(numel(out) * weight.shape[1], x)


@formula("aten._sparse_semi_structured_mm", "aten._sparse_semi_structured_apply_dense")
def semi_structured_mm(a: TensorSpec, meta: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(n, k) @ (k, m)`` with two of four elements of the first kept. Shapes: a (n, k / 2)."""
    return contraction(numel(a) * b.shape[1], a)


@formula("aten._sparse_semi_structured_addmm")
def semi_structured_addmm(
    bias: TensorSpec, a: TensorSpec, meta: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any
) -> Cost:
    """As `semi_structured_mm`, and a bias."""
    return semi_structured_mm(a, meta, b, out=out)


@formula("aten._cslt_sparse_mm")
def cslt_sparse_mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(n, k) @ (k, m)`` with two of four elements of the first kept; it comes packed, so the output says what n is."""
    return contraction(numel(out) * b.shape[0] // 2, b)


@formula("aten._sparse_sum", "aten._sparse_csr_sum", "aten._sparse_csr_prod", "aten._sparse_sum_backward")
def sparse_sum(x: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """One per stored element."""
    return Cost(flops=numel(x) if x.stored is None else x.stored)


@formula("aten._sparse_softmax", "aten._sparse_log_softmax")
def sparse_softmax(x: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """As softmax, of the stored elements."""
    return per_element(x, 5) if x.stored is None else Cost(flops=5 * x.stored)


# Elements change places; nothing is computed with them.
formula(
    "aten._to_sparse", "aten._to_sparse_csr", "aten._to_sparse_csc", "aten._to_sparse_bsr", "aten._to_sparse_bsc",
    "aten._to_dense", "aten.sparse_mask", "aten._sparse_mask_projection", "aten._sparse_broadcast_to_copy",
    "aten._sparse_coo_tensor_with_dims_and_tensors", "aten.sparse_compressed_tensor", "aten.copy_sparse_to_sparse",
    "aten.copy_sparse_to_sparse_", "aten._spdiags", "aten._coalesce", "aten._convert_indices_from_coo_to_csr",
    "aten._convert_indices_from_csr_to_coo", "aten._to_sparse_semi_structured", "aten._cslt_compress",
    "aten._sparse_semi_structured_tile", "aten._sparse_semi_structured_apply",
    "aten.indices_copy", "aten._indices_copy", "aten.values_copy", "aten._values_copy", "aten.crow_indices_copy",
    "aten.col_indices_copy", "aten.ccol_indices_copy", "aten.row_indices_copy",
)(free)  # fmt: skip
# Questions about, and changes of, a sparse tensor's metadata.
formula(
    "aten._nnz", "aten._dimI", "aten._dimV", "aten.sparse_dim", "aten.dense_dim", "aten._coalesced", "aten._coalesced_",
    "aten._validate_compressed_sparse_indices", "aten.sparse_resize", "aten.sparse_resize_",
    "aten.sparse_resize_and_clear", "aten.sparse_resize_and_clear_", "aten.resize_as_sparse",
    "aten.resize_as_sparse_",
    moves="nothing",
)(free)  # fmt: skip
