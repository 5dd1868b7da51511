"""Products with sparse matrices: 1 MAC per stored element and column of the other operand.

A meta tensor has no stored elements, so its product counts as dense, an upper bound. A product of two sparse matrices counts
as the cheaper of the two products with one dense operand, also an upper bound. 2:4 sparsity halves the dense cost.
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
    """A dense product computed only at the stored elements of `pattern`: k MACs each."""
    results = numel(pattern) if pattern.stored is None else pattern.stored
    return contraction(results * a.shape[-1], a)


@formula("aten._sparse_mm_reduce_impl_backward")
def sparse_mm_reduce_backward(
    a: TensorSpec, grad: TensorSpec, b: TensorSpec, reduce: str, arg: Any, output_mask: tuple[bool, bool], *, out: Any
) -> Cost:
    """The MACs of forward for each gradient in the output mask."""
    return contraction(product_macs(a, b) * sum(output_mask), a)


@formula("aten._sparse_semi_structured_linear")
def semi_structured_linear(x: TensorSpec, weight: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(..., k) @ (m, k).T`` with 2:4 sparse weights. Shapes: weight (m, k / 2)."""
    return contraction(numel(out) * weight.shape[1], x)


@formula("aten._sparse_semi_structured_mm", "aten._sparse_semi_structured_apply_dense")
def semi_structured_mm(a: TensorSpec, meta: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(n, k) @ (k, m)`` with a 2:4 sparse first operand. Shapes: a (n, k / 2)."""
    return contraction(numel(a) * b.shape[1], a)


@formula("aten._sparse_semi_structured_addmm")
def semi_structured_addmm(
    bias: TensorSpec, a: TensorSpec, meta: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any
) -> Cost:
    """As `semi_structured_mm`, with a bias."""
    return semi_structured_mm(a, meta, b, out=out)


@formula("aten._cslt_sparse_mm")
def cslt_sparse_mm(a: TensorSpec, b: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(n, k) @ (k, m)`` with a packed 2:4 sparse first operand. The output has n rows."""
    return contraction(numel(out) * b.shape[0] // 2, b)


@formula("aten._sparse_sum", "aten._sparse_csr_sum", "aten._sparse_csr_prod", "aten._sparse_sum_backward")
def sparse_sum(x: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """1 FLOP per stored element."""
    return Cost(flops=numel(x) if x.stored is None else x.stored)


@formula("aten._sparse_softmax", "aten._sparse_log_softmax")
def sparse_softmax(x: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """As softmax, for the stored elements."""
    return per_element(x, 5) if x.stored is None else Cost(flops=5 * x.stored)


# Copies of elements into another layout.
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
# Reads and changes of a sparse tensor's metadata.
formula(
    "aten._nnz", "aten._dimI", "aten._dimV", "aten.sparse_dim", "aten.dense_dim", "aten._coalesced", "aten._coalesced_",
    "aten._validate_compressed_sparse_indices", "aten.sparse_resize", "aten.sparse_resize_",
    "aten.sparse_resize_and_clear", "aten.sparse_resize_and_clear_", "aten.resize_as_sparse",
    "aten.resize_as_sparse_",
    moves="nothing",
)(free)  # fmt: skip
