"""Workspace of lookups, sorting and sampling: sorted indices, partial sums per index, workspace of the sorting library.

An index has 8 bytes. The rules fit all cases of tests/fixtures/scratch, measured on an H100 with torch 2.11.
"""

from __future__ import annotations

import math
from typing import Any, Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import NOTHING, LibraryConfig, WorkspaceBytes, exactly, rule
from profiler_kit.records.calls import OpCall, TensorFacts

_SOURCE: Final = "measured on an H100, torch 2.11"
_EMBEDDING: Final = "ATen/native/cuda/EmbeddingBackwardKernel.cu: one row per index value and per ten indices"
_INDEX_BYTES: Final = 8
_MAX_UNSORTED_INDICES: Final = 3072  # up to here Embedding.cu adds rows without sorting
_PER_SEGMENT: Final = 10
_MAX_BLOCK_SORT: Final = 4096  # elements that one block sorts
_SORTER_BYTES: Final = 0.25  # workspace per element, besides keys and indices


@rule("aten.embedding_dense_backward")
def embedding(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial sums of rows per index; zero for few indices."""
    gradient, indices, rows = call.args[:3]
    scaled = bool(call.args[4]) if len(call.args) > 4 else False
    if indices.numel <= _MAX_UNSORTED_INDICES and not scaled:
        return NOTHING
    return _rows_by_index(indices.numel, rows, gradient)


@rule("aten._embedding_bag_backward", "aten._embedding_bag_dense_backward")
def embedding_bag(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial sums of rows per index; zero for the maximum (mode 2)."""
    gradient, indices = call.args[:2]
    rows, mode = (call.args[6], call.args[8]) if call.op == "aten._embedding_bag_backward" else call.args[5:8:2]
    return NOTHING if mode == 2 else _rows_by_index(indices.numel, rows, gradient)


def _rows_by_index(count: int, rows: int, gradient: TensorFacts) -> WorkspaceBytes:
    out_bytes = rows * gradient.shape[-1] * gradient.element_bytes
    sorting = max(3 * _INDEX_BYTES * count + _sort_workspace(count, _INDEX_BYTES) - out_bytes, 0)
    index_bytes = 4 * _INDEX_BYTES * count
    segments = min(count, rows) + count // _PER_SEGMENT
    split = index_bytes + _INDEX_BYTES * count + segments * (4 * gradient.shape[-1] + _INDEX_BYTES)
    if rows * _PER_SEGMENT < count:  # rows occur often: measured without partial sums
        return WorkspaceBytes(max(sorting, index_bytes), max(sorting, index_bytes), max(sorting, split), _EMBEDDING)
    return exactly(max(sorting, split), _EMBEDDING)


@rule("aten.index_put", "aten.index_put_", "aten._index_put_impl_", "aten._unsafe_index_put")
def index_put(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Sorted indices if values accumulate; zero if they replace."""
    accumulate = call.args[3] if len(call.args) > 3 else call.kwargs.get("accumulate", False)
    indices = [index for index in call.args[1] if isinstance(index, TensorFacts)]
    if not accumulate or not indices:
        return NOTHING
    shape = _broadcast([index.shape for index in indices])
    count = math.prod(shape)
    return WorkspaceBytes(
        4 * _INDEX_BYTES * count, 6 * _INDEX_BYTES * count, 6 * _INDEX_BYTES * count + (1 << 15), _SOURCE
    )


@rule("aten.sort")
def sort(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Indices and the sorter's workspace; for several long rows also sorted copies of keys and indices."""
    tensor = call.args[0]
    if not tensor.shape:
        return NOTHING
    length = max(tensor.shape)
    dim = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", -1)
    if isinstance(dim, int) and not isinstance(dim, bool):
        length = tensor.shape[dim]
    if length <= _MAX_BLOCK_SORT:
        return WorkspaceBytes(0, _INDEX_BYTES * length, _INDEX_BYTES * length, _SOURCE)
    count = tensor.numel
    nbytes = _INDEX_BYTES * count + _sort_workspace(count, tensor.element_bytes)
    if count > length:
        nbytes += (_INDEX_BYTES + tensor.element_bytes) * count
    return exactly(nbytes, _SOURCE)


@rule("aten.median")
def median(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """All elements, sorted; zero along one dimension."""
    if len(call.args) > 1:
        return NOTHING
    tensor = call.args[0]
    size = tensor.element_bytes
    return exactly((size + 2 * _INDEX_BYTES) * tensor.numel + _sort_workspace(tensor.numel, size), _SOURCE)


@rule("aten.randperm")
def permutation(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Random keys, the numbers, and sorted copies of both."""
    count = int(call.args[0])
    return exactly(3 * _INDEX_BYTES * count + _sort_workspace(count, _INDEX_BYTES), _SOURCE)


@rule("aten.multinomial")
def multinomial(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """A random number per probability."""
    return exactly(call.args[0].nbytes, _SOURCE)


@rule("aten.topk")
def topk(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Counts of long rows, which several blocks share; zero for short rows."""
    tensor = call.args[0]
    long = tensor.shape and max(tensor.shape) > 2 * _MAX_BLOCK_SORT
    return WorkspaceBytes(0, 0, tensor.numel, _SOURCE) if long else NOTHING


@rule("aten.roll", "aten._fft_c2r", "aten.cumprod")
def input_copy(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """One copy: between two rolled dimensions, of the input that an inverse FFT destroys, or of a strided input."""
    tensor = call.args[0]
    if call.op == "aten.roll":
        shifts: Any = call.args[1] if len(call.args) > 1 else ()
        return exactly(tensor.nbytes, _SOURCE) if isinstance(shifts, tuple) and len(shifts) > 1 else NOTHING
    if call.op == "aten.cumprod":
        return WorkspaceBytes(0, 0, tensor.nbytes, _SOURCE)
    return exactly(tensor.nbytes, _SOURCE)


def _sort_workspace(count: int, key_bytes: int) -> int:
    """Workspace of a radix sort of keys with indices."""
    return int((key_bytes + _INDEX_BYTES + _SORTER_BYTES) * count)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))
