"""Lookups, sorting and sampling: sorted indices, partial sums by index, and the sorting library's own workspace.

Per element: an index takes 8 bytes. Fitted to, and met by, every case on an H100, torch 2.11 (tests/fixtures/scratch).
"""

from __future__ import annotations

import math
from typing import Any, Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, TensorFacts, exactly, rule

_SOURCE: Final = "seen on an H100, torch 2.11"
_EMBEDDING: Final = "ATen/native/cuda/EmbeddingBackwardKernel.cu: a row for every index value and for every tenth index"
_INDEX: Final = 8
_FEW_INDICES: Final = 3072  # below, Embedding.cu adds rows without sorting
_PER_SEGMENT: Final = 10
_SORTED_IN_A_BLOCK: Final = 4096
_SORTER_SHARE: Final = 0.25  # bytes of workspace per element beside keys and indices


@rule("aten.embedding_dense_backward")
def embedding(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial sums of rows by index; nothing for few indices."""
    gradient, indices, rows = call.args[:3]
    scaled = bool(call.args[4]) if len(call.args) > 4 else False
    if indices.numel <= _FEW_INDICES and not scaled:
        return NOTHING
    return _rows_by_index(indices.numel, rows, gradient)


@rule("aten._embedding_bag_backward", "aten._embedding_bag_dense_backward")
def embedding_bag(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial sums of rows by index; nothing where the largest is taken (mode 2)."""
    gradient, indices = call.args[:2]
    rows, mode = (call.args[6], call.args[8]) if call.op == "aten._embedding_bag_backward" else call.args[5:8:2]
    return NOTHING if mode == 2 else _rows_by_index(indices.numel, rows, gradient)


def _rows_by_index(count: int, rows: int, gradient: TensorFacts) -> ScratchBytes:
    out_bytes = rows * gradient.shape[-1] * gradient.element_bytes
    sorting = max(3 * _INDEX * count + _sorter_bytes(count, _INDEX) - out_bytes, 0)
    held = 4 * _INDEX * count
    segments = min(count, rows) + count // _PER_SEGMENT
    split = held + _INDEX * count + segments * (4 * gradient.shape[-1] + _INDEX)
    if rows * _PER_SEGMENT < count:  # most rows occur often: seen without partial sums
        return ScratchBytes(max(sorting, held), max(sorting, held), max(sorting, split), _EMBEDDING)
    return exactly(max(sorting, split), _EMBEDDING)


@rule("aten.index_put", "aten.index_put_", "aten._index_put_impl_", "aten._unsafe_index_put")
def index_put(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Indices, sorted, where values add up; nothing where they replace."""
    adds = call.args[3] if len(call.args) > 3 else call.kwargs.get("accumulate", False)
    given = [index for index in call.args[1] if isinstance(index, TensorFacts)]
    if not adds or not given:
        return NOTHING
    shape = _broadcast([index.shape for index in given])
    count = math.prod(shape)
    return ScratchBytes(4 * _INDEX * count, 6 * _INDEX * count, 6 * _INDEX * count + (1 << 15), _SOURCE)


@rule("aten.sort")
def sort(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Indices and the sorter's workspace; where rows are long and many, copies of both in order as well."""
    tensor = call.args[0]
    if not tensor.shape:
        return NOTHING
    length = max(tensor.shape)
    given = call.args[1] if len(call.args) > 1 else call.kwargs.get("dim", -1)
    if isinstance(given, int) and not isinstance(given, bool):
        length = tensor.shape[given]
    if length <= _SORTED_IN_A_BLOCK:
        return ScratchBytes(0, _INDEX * length, _INDEX * length, _SOURCE)
    count = tensor.numel
    nbytes = _INDEX * count + _sorter_bytes(count, tensor.element_bytes)
    if count > length:
        nbytes += (_INDEX + tensor.element_bytes) * count
    return exactly(nbytes, _SOURCE)


@rule("aten.median")
def median(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """All elements, sorted; nothing along one dimension."""
    if len(call.args) > 1:
        return NOTHING
    tensor = call.args[0]
    size = tensor.element_bytes
    return exactly((size + 2 * _INDEX) * tensor.numel + _sorter_bytes(tensor.numel, size), _SOURCE)


@rule("aten.randperm")
def permutation(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Random keys, the numbers, and both sorted."""
    count = int(call.args[0])
    return exactly(3 * _INDEX * count + _sorter_bytes(count, _INDEX), _SOURCE)


@rule("aten.multinomial")
def multinomial(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """A random number for every probability."""
    return exactly(call.args[0].nbytes, _SOURCE)


@rule("aten.topk")
def largest(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Counts of long rows, taken by several blocks; nothing of short ones."""
    tensor = call.args[0]
    long = tensor.shape and max(tensor.shape) > 2 * _SORTED_IN_A_BLOCK
    return ScratchBytes(0, 0, tensor.numel, _SOURCE) if long else NOTHING


@rule("aten.roll", "aten._fft_c2r", "aten.cumprod")
def one_copy(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """A copy: between two dimensions that are rolled, of what an inverse transform destroys, of what lies in disorder."""
    tensor = call.args[0]
    if call.op == "aten.roll":
        shifts: Any = call.args[1] if len(call.args) > 1 else ()
        return exactly(tensor.nbytes, _SOURCE) if isinstance(shifts, tuple) and len(shifts) > 1 else NOTHING
    if call.op == "aten.cumprod":
        return ScratchBytes(0, 0, tensor.nbytes, _SOURCE)
    return exactly(tensor.nbytes, _SOURCE)


def _sorter_bytes(count: int, key_bytes: int) -> int:
    """The workspace of a radix sort of keys with indices."""
    return int((key_bytes + _INDEX + _SORTER_SHARE) * count)


def _broadcast(shapes: list[tuple[int, ...]]) -> tuple[int, ...]:
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) for sizes in zip(*padded, strict=True))
