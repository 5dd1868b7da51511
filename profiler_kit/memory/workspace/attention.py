"""Workspace of fused attention: the query's gradient in float32, sums per row, and copies into another layout.

Source: ATen/native/transformers/cuda (attention_backward.cu, flash_attn/flash_api.cpp, mem_eff_attention/kernel_backward.h).
The rules are exact for all cases of tests/fixtures/scratch, measured on an H100 with torch 2.11.
"""

from __future__ import annotations

from typing import Any, Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import LibraryConfig, WorkspaceBytes, exactly, rule
from profiler_kit.records.calls import OpCall, TensorFacts

_SOURCE: Final = "ATen/native/transformers/cuda, and an H100, torch 2.11"
_ROW_BYTES: Final = 4
_CUDNN_ALIGNMENT: Final = 256
_TILE: Final = 64  # queries per tile of the query's gradient
_TILE_HEADER_BYTES: Final = 1 << 4  # lock and counter of a tile
_FLASH_ROWS: Final = 128
_FLASH_COLUMNS: Final = 32
_MAX_SPLITS: Final = 128


@rule("aten._scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The query's gradient in float32, and one sum per row."""
    query, key = call.args[1], call.args[2]
    nbytes = 4 * query.numel + _rows(query) * _ROW_BYTES + _CUDNN_ALIGNMENT
    if key.shape[1] != query.shape[1]:  # gradients of keys and values for each query head
        expanded = 2 * key.nbytes // key.shape[1] * query.shape[1]
        return WorkspaceBytes(
            nbytes, nbytes + expanded, nbytes + 2 * expanded, _SOURCE + "; grouped heads not measured"
        )
    return exactly(nbytes, _SOURCE)


@rule("aten._scaled_dot_product_efficient_attention_backward")
def efficient_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The larger of two phases: row sums from a float32 product, then the query's gradient in tiles."""
    gradient, query, out = call.args[0], call.args[1], call.args[5]
    batch, heads, queries, width = query.shape
    rows = _rows(query) * _ROW_BYTES
    columns = -(-width // (2 * _TILE)) * 2 * _TILE if width > _TILE else _TILE
    header_bytes = -(-width // (2 * _TILE)) * _TILE_HEADER_BYTES
    tiles = batch * heads * -(-queries // _TILE)
    tile_bytes = tiles * (_TILE * columns * 4 + header_bytes)
    product = 4 * out.numel if query.element_bytes == 4 else 0
    copy_bytes = _layout_copy_bytes(gradient)
    return exactly(copy_bytes + max(product + 2 * rows, rows + tile_bytes), _SOURCE)


@rule("aten._scaled_dot_product_flash_attention")
def flash_forward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial results of split keys, used if the queries alone leave multiprocessors idle; zero with dropout."""
    query, key = call.args[0], call.args[1]
    dropout = call.args[3] if len(call.args) > 3 else call.kwargs.get("dropout_p", 0.0)
    splits = 1 if dropout else _splits(query, key, device)
    if splits == 1:
        return exactly(0, _SOURCE)
    width = -(-query.shape[-1] // _FLASH_COLUMNS) * _FLASH_COLUMNS
    return exactly(splits * _rows(query) * (width + 1) * 4, _SOURCE)


@rule("aten._scaled_dot_product_flash_attention_backward")
def flash_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The query's gradient in float32 and one sum per row, padded to whole tiles; copies of gradient and output."""
    gradient, query, key, out = call.args[0], call.args[1], call.args[2], call.args[4]
    batch, heads, queries, width = query.shape
    rows = batch * heads * -(-queries // _FLASH_ROWS) * _FLASH_ROWS
    columns = -(-width // _FLASH_COLUMNS) * _FLASH_COLUMNS
    nbytes = rows * (columns + 1) * 4 + _layout_copy_bytes(gradient) + _layout_copy_bytes(out)
    if key.shape[1] != heads:
        nbytes += 2 * key.nbytes // key.shape[1] * heads
    return exactly(nbytes, _SOURCE)


@rule("aten._safe_softmax")
def safe_softmax(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Masks of the elements that are minus infinity, and of the rows where all are."""
    scores = call.args[0]
    return exactly(scores.numel + scores.numel // max(scores.shape[-1], 1), "measured on an H100, torch 2.11")


def _rows(query: TensorFacts) -> int:
    return query.numel // query.shape[-1]


def _layout_copy_bytes(tensor: Any) -> int:
    """Bytes of a copy of (batch, heads, rows, width); 0 if its memory order is (batch, rows, heads, width)."""
    expected = 1
    for dim in (3, 1, 2, 0):
        if tensor.shape[dim] != 1 and tensor.strides[dim] != expected:
            return int(tensor.nbytes)
        expected *= tensor.shape[dim]
    return 0


def _splits(query: TensorFacts, key: TensorFacts, device: Device) -> int:
    """The fewest splits of the keys that reach 85 % of the best occupancy. Source: flash_api.cpp, num_splits_heuristic."""
    batch, heads, queries, width = query.shape
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    blocks = -(-key.shape[2] // block)
    tiles = batch * heads * -(-queries // 64)
    slots = 2 * device.multiprocessors.value
    if tiles >= 0.8 * slots or not tiles:
        return 1
    shares: dict[int, float] = {}
    for splits in range(1, min(_MAX_SPLITS, slots, blocks) + 1):
        if splits == 1 or -(-blocks // splits) != -(-blocks // (splits - 1)):
            waves = tiles * splits / slots
            shares[splits] = waves / -(-tiles * splits // slots)
    best = max(shares.values(), default=1.0)
    return next((splits for splits, share in shares.items() if share >= 0.85 * best), 1)
