"""Shapes and bytes of sparse and nested tensors."""

from __future__ import annotations

from typing import Any

import torch

from profiler_kit.records.counts import TensorSpec


def spec_of_layout(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a sparse or nested tensor.

    Shapes: a strided nested tensor has its padded shape, (batch, longest ..., width); a jagged one (1, sum of lengths,
    width); a sparse one its full shape. `values` has the lengths of a strided nested tensor, before its last dimension.
    Units: bytes of stored values and, for sparse tensors, of indices. A sparse meta tensor has no stored pattern, so its
    `stored` is None and its bytes are those of a dense tensor.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested and tensor.layout is torch.strided:
        sizes = tensor._nested_tensor_size()
        longest = tuple(int(size) for size in sizes.max(0).values) if len(sizes) else ()
        lengths = tuple(int(length) for length in sizes[:, -2]) if len(longest) > 1 else None
        return TensorSpec(
            shape=(len(sizes), *longest), dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize, values=lengths
        )
    if tensor.layout is torch.jagged:
        values: Any = tensor._values  # `values()` would save the tensor for backward
        return TensorSpec(shape=(1, *values.shape), dtype=dtype, nbytes=values.numel() * values.dtype.itemsize)
    shape = tuple(tensor.shape)
    if tensor.is_meta or tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return TensorSpec(shape=shape, dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize)
    indices: tuple[torch.Tensor, ...]
    if tensor.layout is torch.sparse_coo:
        indices, values = (tensor._indices(),), tensor._values()
    else:
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        compressed_name, plain_name = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
        indices, values = (getattr(tensor, compressed_name)(), getattr(tensor, plain_name)()), tensor.values()
    nbytes = sum(part.numel() * part.dtype.itemsize for part in (*indices, values))
    return TensorSpec(shape=shape, dtype=dtype, nbytes=nbytes, stored=values.numel())
