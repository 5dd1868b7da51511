"""Convolutions' forward pass and the gradient of their input: both make a map out of a map and the weight."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.scratch import NOTHING, ScratchBytes
from profiler_kit.memory.scratch.geometry import Geometry, Pass
from profiler_kit.memory.scratch.transforms import fourier_bytes, may_transform, tiled_fourier_bytes, winograd_bytes

_SOURCE: Final = "H100, cuDNN 9.19: "
_COPIES: Final = _SOURCE + "copies of image, weight and result with channels last"
_EITHER: Final = _SOURCE + "either copies with channels last, or a kernel that needs none"
_TABLE: Final = 1024  # offsets of the kernel's taps and the like
_TILE_BYTES: Final = 128 * 128 * 4  # a block's partial sums, where blocks share a result
_MOST_TILES: Final = 264  # two to a multiprocessor
_FEW_PRODUCTS: Final = 132  # products that one result sums up: below, tensor cores are seldom taken


def map_pass(which: Pass, shape: Geometry) -> ScratchBytes:
    """Scratch of a pass that makes a map."""
    if shape.precision == "float64":
        return ScratchBytes(0, 0, shape.copies_bytes, "not measured in float64: at most copies of all three tensors")
    if shape.groups > 1:
        return _grouped(shape)
    if shape.is_channels_last:
        return _channels_last(shape)
    if shape.precision == "float32":
        return _without_tensor_cores(which, shape)
    if shape.is_pointwise:
        return ScratchBytes(0, 0, _TABLE, _SOURCE + "a product of matrices")
    return _with_tensor_cores(which, shape)


def _with_tensor_cores(which: Pass, shape: Geometry) -> ScratchBytes:
    copies = shape.copies_bytes
    most = copies + _shared_bytes(which, shape)
    if shape.precision == "tf32" and may_transform(shape) and _is_small(shape):
        most = max(most, fourier_bytes(shape))
    if _summed(which, shape) <= _FEW_PRODUCTS:
        return ScratchBytes(0, 0, most, _EITHER)
    return ScratchBytes(0, copies, most, _EITHER)


def _summed(which: Pass, shape: Geometry) -> int:
    return shape.taps * (shape.image_channels if which == "forward" else shape.result_channels)


def _shared_bytes(which: Pass, shape: Geometry) -> int:
    places, channels = (
        (shape.result_places, shape.result_channels)
        if which == "forward"
        else (shape.image_places, shape.image_channels)
    )
    tiles = -(-shape.batch * places // 128) * -(-channels // 128)
    return min(_MOST_TILES, 2 * tiles) * _TILE_BYTES


def _is_small(shape: Geometry) -> bool:
    return shape.batch <= 2 and min(shape.kernel) >= 5


def _without_tensor_cores(which: Pass, shape: Geometry) -> ScratchBytes:
    if not may_transform(shape):
        return ScratchBytes(0, 0, _TABLE, _SOURCE + "float32 without tensor cores: kernels that need nothing")
    if which == "forward":
        return ScratchBytes(0, 0, fourier_bytes(shape), _SOURCE + "nothing, or a Fourier transform")
    return ScratchBytes(0, 0, tiled_fourier_bytes(shape), _SOURCE + "nothing, or a Fourier transform by tiles")


def _channels_last(shape: Geometry) -> ScratchBytes:
    return ScratchBytes(0, 0, 2 * shape.copies_bytes, _EITHER)


def _grouped(shape: Geometry) -> ScratchBytes:
    return ScratchBytes(0, shape.copies_bytes, 2 * shape.copies_bytes, _EITHER)


__all__ = ["NOTHING", "map_pass", "winograd_bytes"]
