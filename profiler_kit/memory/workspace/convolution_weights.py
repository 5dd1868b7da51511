"""Workspace of a convolution's weight gradient: a long sum over batch and positions, which kernels split over blocks."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.workspace import WorkspaceBytes
from profiler_kit.memory.workspace.geometry import (
    Geometry,
    fourier_bytes,
    may_transform,
    tiled_fourier_bytes,
    winograd_bytes,
)

_COPIES: Final = "H100, cuDNN 9.19: copies with channels last, and partial sums of split reductions"
_PER_SAMPLE: Final = "H100, cuDNN 9.19: a matrix product per sample, then a sum"
_EITHER: Final = "H100, cuDNN 9.19: no workspace, copies with channels last, or a transform"
_PARTIAL_BYTES: Final = 4  # sums are in float32
_TABLE_BYTES: Final = 1 << 14
_MAX_EXTRA_POINTWISE_BYTES: Final = 8 << 20
_MAX_PER_SAMPLE_BYTES_MANY_PAIRS: Final = 24 << 20
_MAX_PER_SAMPLE_BYTES_FEW_PAIRS: Final = 192 << 20
_MIN_MANY_PAIRS: Final = 1 << 19
_ALIGNED_POSITIONS: Final = 4
_MIN_UNALIGNED_PAIRS: Final = 200_000  # in tf32; as many as for large products in half precision
# Weights (pairs of channels, per tap) in the partial sums of all blocks: typical and maximum values. The typical value
# fills 132 multiprocessors with one tile each.
_TYPICAL_PAIRS: Final = 60_000
# By taps (up to 9, up to 49, more) and by pairs (up to 1024, 2048, 4096, 16384, more).
_MAX_PAIRS: Final = {
    "half": ((280_000, 280_000, 280_000, 280_000, 400_000), (200_000, 290_000, 170_000, 100_000, 250_000),
             (140_000, 140_000, 175_000, 120_000, 20_000)),
    "float": ((150_000, 500_000, 500_000, 680_000, 600_000), (220_000, 400_000, 400_000, 560_000, 200_000),
              (260_000, 260_000, 350_000, 280_000, 140_000)),
}  # fmt: skip
_TAPS: Final = (9, 49)
_PAIRS: Final = (1024, 2048, 4096, 16_384)
_TYPICAL_SPLITS: Final = 96
_TILE_PAIRS: Final = 64 * 64
_TILE_SIDE: Final = 128
_MULTIPROCESSORS: Final = 132  # of the measured card
_MAX_SMALL_KERNEL_TAPS: Final = 9
_PAIRS_PER_SPLIT: Final = 98_304
_MAX_SPLITS_IN_HALF: Final = 13
_MIN_LARGE_KERNEL_TAPS: Final = 25
_MAX_FEW_POSITIONS: Final = 16_384
_MAX_SPLITS_FEW_POSITIONS: Final = 5
_MIN_SPLIT_POSITIONS: Final = {"half": 8192, "tf32": 2048, "float32": 2048, "float64": 2048}
_POSITIONS_PER_SPLIT: Final = 32
_MIN_TRANSFORM_PAIRS: Final = 1500  # fewer pairs never used Winograd's algorithm
_MAX_WINOGRAD_SIDE: Final = 5
_WINOGRAD_SIDE: Final = 3  # of kernels that use it in tf32 too, for short sums and some channels
_MAX_WINOGRAD_POSITIONS: Final = 3200
_MAX_WINOGRAD_PAIRS: Final = 40_000
_MIN_COPIED_PAIRS: Final = 1 << 15  # in float32, with a stride or dilation
_MIN_FOURIER_PAIRS: Final = 1024
_MAX_FEW_SAMPLES: Final = 4
_MIN_FOURIER_KERNEL_SIDE: Final = 5
_FACTOR_3D: Final = 2  # factor for three dimensions


def weight_gradient(shape: Geometry) -> WorkspaceBytes:
    """Workspace of the weight gradient."""
    if shape.is_channels_last or shape.groups > 1:
        return _in_place_or_split(shape)
    if shape.is_pointwise:
        return _pointwise(shape)
    if shape.precision == "float32":
        return _without_tensor_cores(shape)
    split = shape.copies_bytes + _splits(shape) * _partial(shape)
    high = max(split, _max_split(shape))
    if shape.precision == "tf32" and may_transform(shape):
        high = max(high, _transform(shape))
        is_short = _positions(shape) <= _MAX_WINOGRAD_POSITIONS and max(shape.kernel) == _WINOGRAD_SIDE
        if is_short and _MIN_TRANSFORM_PAIRS <= shape.image_channels * shape.result_channels <= _MAX_WINOGRAD_PAIRS:
            split = winograd_bytes(shape)
    low = shape.copies_bytes // 2 if shape.precision == "half" and _pairs(shape) > _PAIRS[-1] else 0
    return WorkspaceBytes(low, split, high, _COPIES)


def _pairs(shape: Geometry) -> int:
    return shape.padded_image_channels * shape.padded_result_channels


def _partial(shape: Geometry) -> int:
    return shape.padded_weight_elements * _PARTIAL_BYTES


def _positions(shape: Geometry) -> int:
    return shape.batch * shape.result_positions


def _splits(shape: Geometry) -> int:
    """Typical number of splits of the sum: one tile per multiprocessor; 0 for a short sum."""
    if _positions(shape) < _MIN_SPLIT_POSITIONS[shape.precision]:
        return 0
    pairs = _pairs(shape)
    if pairs >= _TILE_PAIRS and shape.taps <= _MAX_SMALL_KERNEL_TAPS:
        return _splits_of_small_kernels(shape)
    if shape.precision == "half" and shape.taps > _MIN_LARGE_KERNEL_TAPS and _positions(shape) <= _MAX_FEW_POSITIONS:
        return min(_TYPICAL_PAIRS // pairs, _MAX_SPLITS_FEW_POSITIONS)
    typical = _TYPICAL_PAIRS if shape.precision == "half" or pairs >= _TILE_PAIRS else _TYPICAL_PAIRS * 2 // 3
    return min(typical // pairs, _TYPICAL_SPLITS)


def _splits_of_small_kernels(shape: Geometry) -> int:
    """Number of splits for kernels of up to 3 x 3 with many channels: one tile of 128 x 128, or 64 x 256, per multiprocessor."""
    if shape.precision == "half":
        splits = _PAIRS_PER_SPLIT // _pairs(shape)
        return min(splits, _MAX_SPLITS_IN_HALF) if _positions(shape) > _MAX_FEW_POSITIONS else 0
    result_side = _TILE_SIDE if shape.image_channels > _TILE_SIDE // 2 else 2 * _TILE_SIDE
    sides = -(-shape.image_channels // _TILE_SIDE) * -(-shape.result_channels // result_side)
    return _MULTIPROCESSORS // (shape.taps * sides)


def _max_split(shape: Geometry) -> int:
    dims_factor = _FACTOR_3D if len(shape.kernel) == 3 else 1
    pairs = _pairs(shape)
    table = _MAX_PAIRS["half" if shape.precision == "half" else "float"]
    max_pairs = table[sum(shape.taps > bound for bound in _TAPS)][sum(pairs > bound for bound in _PAIRS)]
    splits = min(dims_factor * max_pairs // pairs, -(-_positions(shape) // _POSITIONS_PER_SPLIT))
    return shape.copies_bytes + max(splits, 1) * _partial(shape) + _TABLE_BYTES


def _transform(shape: Geometry) -> int:
    pairs = shape.image_channels * shape.result_channels
    if min(shape.kernel) < _MIN_FOURIER_KERNEL_SIDE:
        return winograd_bytes(shape) if pairs >= _MIN_TRANSFORM_PAIRS else 0
    if pairs < _MIN_FOURIER_PAIRS:
        return 0
    is_small = _positions(shape) <= _MAX_FEW_POSITIONS and pairs >= _MIN_FOURIER_PAIRS
    return fourier_bytes(shape) if is_small or shape.batch <= _MAX_FEW_SAMPLES else 0


def _pointwise(shape: Geometry) -> WorkspaceBytes:
    copies = shape.copies_bytes
    per_sample = shape.batch * shape.image_channels * shape.result_channels * _PARTIAL_BYTES
    if shape.precision == "float32":
        return WorkspaceBytes(0, 0, copies, _EITHER)
    high = max(per_sample, copies + min(copies, _MAX_EXTRA_POINTWISE_BYTES))
    maps = shape.image_bytes + shape.result_bytes
    if _is_one_product(shape, per_sample):
        return WorkspaceBytes(0, min(maps, high), high, _COPIES)
    return WorkspaceBytes(0, per_sample, high, _PER_SAMPLE)


def _is_one_product(shape: Geometry, per_sample: int) -> bool:
    """Whether one product over all samples is likely: rows of a sample are not aligned, or products per sample are too large."""
    pairs = shape.image_channels * shape.result_channels
    min_pairs = _MIN_UNALIGNED_PAIRS if shape.element_bytes == 4 else _MIN_MANY_PAIRS
    if shape.result_positions % _ALIGNED_POSITIONS and pairs >= min_pairs:
        return True
    max_bytes = _MAX_PER_SAMPLE_BYTES_MANY_PAIRS if pairs >= _MIN_MANY_PAIRS else _MAX_PER_SAMPLE_BYTES_FEW_PAIRS
    return per_sample >= max_bytes


def _without_tensor_cores(shape: Geometry) -> WorkspaceBytes:
    high = _max_split(shape)
    pairs = shape.image_channels * shape.result_channels
    if not may_transform(shape):
        min_pairs = _MIN_TRANSFORM_PAIRS if len(shape.kernel) == 3 else _MIN_COPIED_PAIRS
        likely = shape.copies_bytes if pairs >= min_pairs and shape.taps > 1 else 0
        return WorkspaceBytes(0, likely, high, _EITHER)
    winograd = winograd_bytes(shape)
    high = max(high, fourier_bytes(shape), winograd, tiled_fourier_bytes(shape))
    if pairs < _MIN_TRANSFORM_PAIRS:
        return WorkspaceBytes(0, 0, high, _EITHER)
    return WorkspaceBytes(0, winograd if max(shape.kernel) <= _MAX_WINOGRAD_SIDE else shape.copies_bytes, high, _EITHER)


def _in_place_or_split(shape: Geometry) -> WorkspaceBytes:
    high = _max_split(shape) + (2 if shape.groups > 1 else 1) * shape.copies_bytes
    if shape.precision == "float32":
        if may_transform(shape):
            high = max(high, fourier_bytes(shape), winograd_bytes(shape))
        return WorkspaceBytes(0, 0, high, _EITHER)
    if shape.groups > 1:
        has_copies = not (shape.is_channels_last and shape.precision == "half")
        return WorkspaceBytes(0, shape.copies_bytes if has_copies else 0, high, _COPIES)
    return WorkspaceBytes(0, shape.padded_copies_bytes + _splits(shape) * _partial(shape), high, _COPIES)
