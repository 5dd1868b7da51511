"""Metadata of tensors that are no plain block of memory: sparse ones know what they store, nested ones are ragged."""

from __future__ import annotations

import torch

from profiler_kit.records.counts import TensorSpec


def spec_of_layout(tensor: torch.Tensor) -> TensorSpec:
    """The spec of a sparse or nested tensor.

    A strided nested tensor is taken as if padded to its longest, (batch, longest ..., width), with the bytes that it holds; a
    jagged one as the one row of values that it keeps, (1, sum of lengths, width). A sparse tensor has its full shape, the
    elements it stores, and the bytes of those and of their indices. On a meta tensor there is no pattern: how much is stored
    is unknown, and the bytes are the dense ones.
    """
    dtype = str(tensor.dtype).removeprefix("torch.")
    if tensor.is_nested and tensor.layout is torch.strided:
        sizes = tensor._nested_tensor_size()
        longest = tuple(int(size) for size in sizes.max(0).values) if len(sizes) else ()
        return TensorSpec(shape=(len(sizes), *longest), dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize)
    if tensor.layout is torch.jagged:
        values = tensor.values()
        return TensorSpec(shape=(1, *values.shape), dtype=dtype, nbytes=values.numel() * values.dtype.itemsize)
    shape = tuple(tensor.shape)
    if tensor.is_meta or tensor.layout is torch._mkldnn:  # type: ignore[attr-defined]
        return TensorSpec(shape=shape, dtype=dtype, nbytes=tensor.numel() * tensor.dtype.itemsize)
    indices: tuple[torch.Tensor, ...]
    if tensor.layout is torch.sparse_coo:
        indices, values = (tensor._indices(),), tensor._values()
    else:
        by_row = tensor.layout in (torch.sparse_csr, torch.sparse_bsr)
        compressed, plain = ("crow_indices", "col_indices") if by_row else ("ccol_indices", "row_indices")
        indices, values = (getattr(tensor, compressed)(), getattr(tensor, plain)()), tensor.values()
    bytes_of = sum(part.numel() * part.dtype.itemsize for part in (*indices, values))
    return TensorSpec(shape=shape, dtype=dtype, nbytes=bytes_of, stored=values.numel())
