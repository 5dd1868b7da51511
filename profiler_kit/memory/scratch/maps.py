"""Convolutions' forward pass and the gradient of their input: both make a map out of a map and the weight."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.scratch import ScratchBytes
from profiler_kit.memory.scratch.geometry import Geometry, Pass
from profiler_kit.memory.scratch.transforms import fourier_bytes, may_transform, tiled_fourier_bytes

_SOURCE: Final = "H100, cuDNN 9.19: "
_COPIES: Final = _SOURCE + "copies of image, weight and result with channels last"
_EITHER: Final = _SOURCE + "either copies with channels last, or a kernel that needs none"
_TABLE: Final = 1024  # offsets of the kernel's taps and the like
_TILE_BYTES: Final = 128 * 128 * 4  # a block's partial sums, where blocks share a result
_MOST_TILES: Final = 396  # three to a multiprocessor
_MANY_PAIRS: Final = 200_000
# Where the heuristics turn, as trees fitted to the points of the training groups put it.
_FEW_PRODUCTS: Final = 132  # products that one result sums up
_FEW_PAIRS: Final = 612
_COLOURS: Final = 3
_FEW_CHANNELS: Final = 14
_FEW_INPUTS: Final = 42
_FEW_TILES: Final = 365
_FEW_PLACES: Final = 7000
_SOME_CHANNELS: Final = 32
_MEDIUM_WEIGHT_BYTES: Final = 620_000
_LONG_SIDE: Final = 328
_SHORT_SIDE: Final = 92
_TILED_PAIRS: Final = 4096
_FOURIER_PLACES: Final = 3600
_LITTLE_WORK: Final = 2_200_000_000
_SMALL_IMAGE_BYTES: Final = 800_000
_SMALL_WEIGHT_BYTES: Final = 420_000
_TINY_WEIGHT_BYTES: Final = 340


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
        return _pointwise(shape)
    return _with_tensor_cores(which, shape)


def _pointwise(shape: Geometry) -> ScratchBytes:
    """A product of matrices takes nothing, unless places do not fill up 16 bytes and there is much to multiply."""
    if shape.result_places * shape.element_bytes % 16 == 0:
        return ScratchBytes(0, 0, _TABLE, _SOURCE + "a product of matrices")
    pairs = shape.image_channels * shape.result_channels
    likely = shape.image_bytes + shape.result_bytes if pairs >= _MANY_PAIRS else 0
    return ScratchBytes(
        0, likely, shape.copies_bytes + _TABLE, _SOURCE + "a product of matrices, or copies of both maps"
    )


def _with_tensor_cores(which: Pass, shape: Geometry) -> ScratchBytes:
    copies = shape.copies_bytes
    most = copies + _shared_bytes(which, shape)
    if shape.precision == "tf32" and may_transform(shape):
        most = max(most, _transform(which, shape))
    if _needs_no_copies(which, shape):
        return ScratchBytes(0, 0, most, _EITHER)
    if which == "forward" and shape.precision == "tf32" and _writes_in_place(shape):
        weight = shape.padded_weight_elements * shape.element_bytes
        return ScratchBytes(0, shape.padded_image_bytes + weight, most, _EITHER)
    is_sure = which == "input_gradient" and shape.precision == "half" and _products(shape) > _LITTLE_WORK
    return ScratchBytes(copies if is_sure and shape.image_channels > _FEW_CHANNELS else 0, copies, most, _EITHER)


def _needs_no_copies(which: Pass, shape: Geometry) -> bool:
    """Whether a kernel that reads the tensors as they are is more likely: there is little to sum up, or little at all."""
    channels = shape.image_channels
    if which == "input_gradient":
        if shape.precision == "half":
            return shape.weight_bytes <= _TINY_WEIGHT_BYTES
        if channels * shape.taps <= 2 * _FEW_PRODUCTS:
            return shape.taps == 1 or channels * shape.result_channels <= _FEW_PAIRS
        small = shape.image_bytes <= _SMALL_IMAGE_BYTES and shape.weight_bytes <= _SMALL_WEIGHT_BYTES
        return channels <= _FEW_CHANNELS or small
    summed = channels * shape.taps
    if shape.precision == "half":
        return summed <= _FEW_PRODUCTS or (channels <= _COLOURS and min(shape.image_sides) <= _SHORT_SIDE)
    if summed <= _FEW_PRODUCTS * 3 // 2:
        return True
    if summed <= 3 * _FEW_PRODUCTS and channels <= _FEW_INPUTS and _tiles(which, shape) <= _FEW_TILES:
        return True
    most = _LITTLE_WORK // 2 if channels <= _COLOURS else _LITTLE_WORK
    return _products(shape) <= most and (channels <= _COLOURS or shape.taps == 1)


def _writes_in_place(shape: Geometry) -> bool:
    """Whether image and weight alone are likely copied, and the result is written as it shall lie."""
    if _products(shape) > _LITTLE_WORK or shape.result_channels < _SOME_CHANNELS:
        return False
    small = shape.batch <= 6 and shape.weight_bytes <= _MEDIUM_WEIGHT_BYTES and shape.result_places <= _FEW_PLACES
    return small or min(shape.image_sides) > _LONG_SIDE


def _products(shape: Geometry) -> int:
    return shape.batch * shape.result_places * shape.image_channels * shape.result_channels * shape.taps


def _tiles(which: Pass, shape: Geometry) -> int:
    places, channels = (
        (shape.result_places, shape.result_channels)
        if which == "forward"
        else (shape.image_places, shape.image_channels)
    )
    return -(-shape.batch * places // 128) * -(-channels // 128)


def _shared_bytes(which: Pass, shape: Geometry) -> int:
    """At most, of partial sums where blocks share results: of long sums alone, and less where there is much to do."""
    copies = shape.copies_bytes
    if shape.image_channels * shape.taps <= 3 * _FEW_PRODUCTS:
        return _TABLE if which == "forward" else copies // 2
    shared = min(_MOST_TILES, 3 * _tiles(which, shape)) * _TILE_BYTES
    return min(shared, copies * 17 // 10 if _products(shape) <= _LITTLE_WORK else copies * 13 // 10)


def _transform(which: Pass, shape: Geometry) -> int:
    if which == "input_gradient":
        tiled = 4 <= min(shape.kernel) <= 5 and shape.image_channels * shape.result_channels <= _TILED_PAIRS
        return tiled_fourier_bytes(shape) if tiled else 0
    places, side = shape.batch * shape.result_places, min(shape.kernel)
    if (side >= 5 and shape.batch == 1) or (side >= 13 and places <= _FOURIER_PLACES):
        return fourier_bytes(shape)
    return 0


def _without_tensor_cores(which: Pass, shape: Geometry) -> ScratchBytes:
    if not may_transform(shape):
        return ScratchBytes(0, 0, _TABLE, _SOURCE + "float32 without tensor cores: kernels that need nothing")
    if which == "forward":
        return ScratchBytes(0, 0, fourier_bytes(shape), _SOURCE + "nothing, or a Fourier transform")
    return ScratchBytes(0, 0, tiled_fourier_bytes(shape), _SOURCE + "nothing, or a Fourier transform by tiles")


def _channels_last(shape: Geometry) -> ScratchBytes:
    most = shape.copies_bytes * 5 // 2
    if shape.precision == "float32" and may_transform(shape):
        most = max(most, tiled_fourier_bytes(shape))
    return ScratchBytes(0, 0, most, _EITHER)


def _grouped(shape: Geometry) -> ScratchBytes:
    most = (11 if len(shape.kernel) == 3 else 9) * shape.copies_bytes // 2
    return ScratchBytes(0, shape.copies_bytes, most, _EITHER)
