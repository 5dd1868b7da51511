"""Workspace of a convolution's forward pass and input gradient: both compute a feature map from a feature map."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.workspace import WorkspaceBytes
from profiler_kit.memory.workspace.geometry import (
    Geometry,
    Pass,
    fourier_bytes,
    has_transform_shape,
    may_transform,
    tiled_fourier_bytes,
)

_SOURCE: Final = "H100, cuDNN 9.19: "
_COPIES: Final = _SOURCE + "copies of image, weight and result with channels last"
_EITHER: Final = _SOURCE + "copies with channels last, or a kernel without workspace"
_TABLE_BYTES: Final = 1024  # bytes of offsets of kernel positions
_TILE_BYTES: Final = 128 * 128 * 4  # partial sums of a block, if blocks share a result
_MAX_TILES: Final = 396  # three to a multiprocessor
_MIN_MANY_PAIRS: Final = 200_000
# Thresholds of cuDNN's heuristics, from decision trees fitted to the measured convolutions.
_MAX_SHORT_SUM: Final = 132  # products per result
_MAX_FEW_PAIRS: Final = 612
_COLOR_CHANNELS: Final = 3
_MAX_FEW_CHANNELS: Final = 14
_MAX_FEW_INPUT_CHANNELS: Final = 42
_MAX_FEW_TILES: Final = 365
_MAX_FEW_POSITIONS: Final = 7000
_MIN_DIRECT_CHANNELS: Final = 32
_MAX_MEDIUM_WEIGHT_BYTES: Final = 620_000
_MIN_LONG_SIDE: Final = 328
_MAX_SHORT_SIDE: Final = 92
_MAX_TILED_SIDE: Final = 5
_MAX_TILED_PAIRS: Final = 4096
# In float32, a tiled transform is likely for images that fill its tiles of 32 x 32, with many channels.
_MIN_TILED_SIDE: Final = 24
_MIN_TILED_BATCH: Final = 4
_MIN_TILED_CHANNELS: Final = 64
_MAX_FOURIER_POSITIONS: Final = 3600
_MAX_FOURIER_SIDE: Final = 64  # image and kernel together
_MAX_HALF_FOURIER_CHANNELS: Final = 16
_SMALL_SIDE: Final = 20
_MAX_SMALL_MACS: Final = 2_200_000_000
_MAX_SMALL_IMAGE_BYTES: Final = 800_000
_MAX_SMALL_WEIGHT_BYTES: Final = 420_000
_MAX_TINY_WEIGHT_BYTES: Final = 340


def feature_map_pass(direction: Pass, shape: Geometry) -> WorkspaceBytes:
    """Workspace of a forward pass or input gradient."""
    if shape.precision == "float64":
        return WorkspaceBytes(0, 0, shape.copies_bytes, "not measured in float64: at most copies of all three tensors")
    if shape.groups > 1:
        return _grouped(shape)
    if shape.is_channels_last:
        return _channels_last(shape)
    if shape.precision == "float32":
        return _without_tensor_cores(direction, shape)
    if shape.is_pointwise:
        return _pointwise(shape)
    return _with_tensor_cores(direction, shape)


def _pointwise(shape: Geometry) -> WorkspaceBytes:
    """A matrix product needs no workspace, except a large one whose rows are not multiples of 16 bytes."""
    if shape.result_positions * shape.element_bytes % 16 == 0:
        return WorkspaceBytes(0, 0, _TABLE_BYTES, _SOURCE + "a matrix product")
    pairs = shape.image_channels * shape.result_channels
    likely = shape.image_bytes + shape.result_bytes if pairs >= _MIN_MANY_PAIRS else 0
    return WorkspaceBytes(
        0, likely, shape.copies_bytes + _TABLE_BYTES, _SOURCE + "a matrix product, or copies of image and result"
    )


def _with_tensor_cores(direction: Pass, shape: Geometry) -> WorkspaceBytes:
    copies = shape.copies_bytes
    high = copies + _shared_bytes(direction, shape)
    if shape.precision == "tf32" and may_transform(shape):
        high = max(high, _transform(direction, shape))
    if direction == "input_gradient" and shape.precision == "half" and has_transform_shape(shape):
        few = shape.image_channels <= _MAX_HALF_FOURIER_CHANNELS and min(shape.kernel) > _MAX_TILED_SIDE
        high = max(high, tiled_fourier_bytes(shape) * 3 // 2) if few else high
    if _needs_no_copies(direction, shape):
        return WorkspaceBytes(0, 0, high, _EITHER)
    if direction == "forward" and shape.precision == "tf32" and _writes_in_place(shape):
        weight = shape.padded_weight_elements * shape.element_bytes
        return WorkspaceBytes(0, shape.padded_image_bytes + weight, high, _EITHER)
    always_copies = direction == "input_gradient" and shape.precision == "half" and _macs(shape) > _MAX_SMALL_MACS
    return WorkspaceBytes(
        copies if always_copies and shape.image_channels > _MAX_FEW_CHANNELS else 0, copies, high, _EITHER
    )


def _needs_no_copies(direction: Pass, shape: Geometry) -> bool:
    """Whether a kernel without copies is likely: short sums, or little work."""
    channels = shape.image_channels
    if direction == "input_gradient":
        if shape.precision == "half":
            return shape.weight_bytes <= _MAX_TINY_WEIGHT_BYTES
        if channels * shape.taps <= 2 * _MAX_SHORT_SUM:
            return shape.taps == 1 or channels * shape.result_channels <= _MAX_FEW_PAIRS
        small = shape.image_bytes <= _MAX_SMALL_IMAGE_BYTES and shape.weight_bytes <= _MAX_SMALL_WEIGHT_BYTES
        return channels <= _MAX_FEW_CHANNELS or small
    summed = channels * shape.taps
    if shape.precision == "half":
        return summed <= _MAX_SHORT_SUM or (channels <= _COLOR_CHANNELS and min(shape.image_sides) <= _MAX_SHORT_SIDE)
    if summed <= _MAX_SHORT_SUM * 3 // 2:
        return True
    if (
        summed <= 3 * _MAX_SHORT_SUM
        and channels <= _MAX_FEW_INPUT_CHANNELS
        and _tiles(direction, shape) <= _MAX_FEW_TILES
    ):
        return True
    max_macs = _MAX_SMALL_MACS // 2 if channels <= _COLOR_CHANNELS else _MAX_SMALL_MACS
    return _macs(shape) <= max_macs and (channels <= _COLOR_CHANNELS or shape.taps == 1)


def _writes_in_place(shape: Geometry) -> bool:
    """Whether only image and weight are likely copied, and the result is written without a copy."""
    if _macs(shape) > _MAX_SMALL_MACS or shape.result_channels < _MIN_DIRECT_CHANNELS:
        return False
    small = (
        shape.batch <= 6
        and shape.weight_bytes <= _MAX_MEDIUM_WEIGHT_BYTES
        and shape.result_positions <= _MAX_FEW_POSITIONS
    )
    return small or min(shape.image_sides) > _MIN_LONG_SIDE


def _macs(shape: Geometry) -> int:
    return shape.batch * shape.result_positions * shape.image_channels * shape.result_channels * shape.taps


def _tiles(direction: Pass, shape: Geometry) -> int:
    places, channels = (
        (shape.result_positions, shape.result_channels)
        if direction == "forward"
        else (shape.image_positions, shape.image_channels)
    )
    return -(-shape.batch * places // 128) * -(-channels // 128)


def _shared_bytes(direction: Pass, shape: Geometry) -> int:
    """Maximum bytes of partial sums of blocks that share results: for long sums, and less for much work."""
    copies = shape.copies_bytes
    if shape.image_channels * shape.taps <= 3 * _MAX_SHORT_SUM:
        return _TABLE_BYTES if direction == "forward" else copies // 2
    shared = min(_MAX_TILES, 3 * _tiles(direction, shape)) * _TILE_BYTES
    return min(shared, copies * 17 // 10 if _macs(shape) <= _MAX_SMALL_MACS else copies * 13 // 10)


def _transform(direction: Pass, shape: Geometry) -> int:
    if direction == "input_gradient":
        tiled = 4 <= min(shape.kernel) <= 5 and shape.image_channels * shape.result_channels <= _MAX_TILED_PAIRS
        return tiled_fourier_bytes(shape) if tiled else 0
    places, side = shape.batch * shape.result_positions, min(shape.kernel)
    is_small = max(shape.image_sides) + max(shape.kernel) <= _MAX_FOURIER_SIDE
    if side >= 5 and (shape.batch == 1 or is_small or (side >= 13 and places <= _MAX_FOURIER_POSITIONS)):
        return fourier_bytes(shape)
    return 0


def _without_tensor_cores(direction: Pass, shape: Geometry) -> WorkspaceBytes:
    if not may_transform(shape):
        return WorkspaceBytes(0, 0, _TABLE_BYTES, _SOURCE + "float32 without tensor cores: kernels without workspace")
    if direction == "forward":
        return WorkspaceBytes(0, 0, fourier_bytes(shape), _SOURCE + "no workspace, or a Fourier transform")
    high = tiled_fourier_bytes(shape)
    if max(shape.image_sides) <= _SMALL_SIDE:  # some transforms are of larger tiles than the image needs
        high = max(3 * high, 2 * fourier_bytes(shape))
    fills_tiles = min(shape.image_sides) >= _MIN_TILED_SIDE and shape.batch >= _MIN_TILED_BATCH
    has_channels = min(shape.image_channels, shape.result_channels) >= _MIN_TILED_CHANNELS
    is_tiled = fills_tiles and has_channels and max(shape.kernel) <= _MAX_TILED_SIDE
    likely = tiled_fourier_bytes(shape) if is_tiled else 0
    return WorkspaceBytes(0, likely, high, _SOURCE + "no workspace, or a tiled Fourier transform")


def _channels_last(shape: Geometry) -> WorkspaceBytes:
    high = shape.copies_bytes * 5 // 2
    if shape.precision == "float32" and may_transform(shape):
        high = max(high, tiled_fourier_bytes(shape), fourier_bytes(shape))
    return WorkspaceBytes(0, 0, high, _EITHER)


def _grouped(shape: Geometry) -> WorkspaceBytes:
    high = (11 if len(shape.kernel) == 3 else 9) * shape.copies_bytes // 2
    has_copies = not shape.is_channels_last and shape.precision != "float32"
    return WorkspaceBytes(0, shape.copies_bytes if has_copies else 0, high, _EITHER)
