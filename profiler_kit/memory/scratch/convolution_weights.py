"""The gradient of a convolution's weight: a long sum over batch and places for few results, so it is split over blocks."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.scratch import ScratchBytes
from profiler_kit.memory.scratch.geometry import Geometry
from profiler_kit.memory.scratch.transforms import fourier_bytes, may_transform, tiled_fourier_bytes, winograd_bytes

_COPIES: Final = "H100, cuDNN 9.19: copies with channels last, and partial sums of split reductions"
_BY_SAMPLE: Final = "H100, cuDNN 9.19: a product of matrices for every sample, summed up afterwards"
_EITHER: Final = "H100, cuDNN 9.19: nothing, copies with channels last, or a transform"
_PARTIAL_BYTES: Final = 4  # sums are kept in float32
_TABLE: Final = 1 << 14
_MORE_OF_POINTWISE: Final = 8 << 20
_BY_SAMPLE_OF_MANY: Final = 32 << 20
_BY_SAMPLE_OF_FEW: Final = 192 << 20
_TOO_MANY_PAIRS: Final = 1 << 19
_UNFILLED_PAIRS: Final = 200_000
# Weights (pairs of channels, for each tap) that all blocks hold at once: in the middle, and in nearly every case. The
# first is what fills 132 multiprocessors with one tile each.
_USUAL_PAIRS: Final = 60_000
# By taps (up to 9, up to 49, more) and by pairs (up to 1024, 2048, 4096, 16384, more).
_MOST_PAIRS: Final = {
    "half": ((280_000, 280_000, 280_000, 280_000, 400_000), (200_000, 290_000, 170_000, 100_000, 250_000),
             (140_000, 140_000, 175_000, 120_000, 20_000)),
    "float": ((150_000, 500_000, 500_000, 680_000, 600_000), (220_000, 400_000, 400_000, 560_000, 200_000),
              (260_000, 260_000, 350_000, 280_000, 140_000)),
}  # fmt: skip
_TAPS: Final = (9, 49)
_PAIRS: Final = (1024, 2048, 4096, 16_384)
_USUAL_SPLITS: Final = 96
_A_TILE: Final = 64 * 64
_TILE_SIDE: Final = 128
_MULTIPROCESSORS: Final = 132  # of the card that all this was measured on
_SMALL_KERNEL: Final = 9
_PAIRS_OF_A_SPLIT: Final = 98_304
_MOST_IN_HALF: Final = 13
_LARGE_KERNEL: Final = 25
_FEW_PLACES: Final = 16_384
_SPLITS_OF_FEW_PLACES: Final = 5
_MANY_PLACES: Final = {"half": 8192, "tf32": 2048, "float32": 2048, "float64": 2048}
_PLACES_OF_A_SPLIT: Final = 32
_TRANSFORMED_PAIRS: Final = 1500  # below, transforms were not seen
_MANY_PAIRS: Final = 8192
_FEW_SAMPLES: Final = 4
_FOURIER_KERNEL: Final = 5
_DEEP_MORE: Final = 2  # with three dimensions


def weight_gradient(shape: Geometry) -> ScratchBytes:
    """Scratch of the weight's gradient."""
    if shape.is_channels_last or shape.groups > 1:
        return _in_place_or_split(shape)
    if shape.is_pointwise:
        return _pointwise(shape)
    if shape.precision == "float32":
        return _without_tensor_cores(shape)
    split = shape.copies_bytes + _splits(shape) * _partial(shape)
    most = max(split, _most_split(shape))
    if shape.precision == "tf32" and may_transform(shape):
        most = max(most, _transform(shape))
    least = shape.copies_bytes // 2 if shape.precision == "half" and _pairs(shape) > _PAIRS[-1] else 0
    return ScratchBytes(least, split, most, _COPIES)


def _pairs(shape: Geometry) -> int:
    return shape.padded_image_channels * shape.padded_result_channels


def _partial(shape: Geometry) -> int:
    return shape.padded_weight_elements * _PARTIAL_BYTES


def _places(shape: Geometry) -> int:
    return shape.batch * shape.result_places


def _splits(shape: Geometry) -> int:
    """How often the sum is split, usually: until every multiprocessor has a tile, unless there is little to sum."""
    if _places(shape) < _MANY_PLACES[shape.precision]:
        return 0
    pairs = _pairs(shape)
    if pairs >= _A_TILE and shape.taps <= _SMALL_KERNEL:
        return _splits_of_small_kernels(shape)
    if shape.precision == "half" and shape.taps > _LARGE_KERNEL and _places(shape) <= _FEW_PLACES:
        return min(_USUAL_PAIRS // pairs, _SPLITS_OF_FEW_PLACES)
    usual = _USUAL_PAIRS if shape.precision == "half" or pairs >= _A_TILE else _USUAL_PAIRS * 2 // 3
    return min(usual // pairs, _USUAL_SPLITS)


def _splits_of_small_kernels(shape: Geometry) -> int:
    """Of kernels of up to 3 x 3 over many channels: as many as multiprocessors have room for, a tile of 128 x 128 each."""
    if shape.precision == "half":
        most = _PAIRS_OF_A_SPLIT // _pairs(shape)
        return min(most, _MOST_IN_HALF) if _places(shape) > _FEW_PLACES else 0
    sides = -(-shape.image_channels // _TILE_SIDE) * -(-shape.result_channels // _TILE_SIDE)
    return _MULTIPROCESSORS // (shape.taps * sides)


def _most_split(shape: Geometry) -> int:
    deep = _DEEP_MORE if len(shape.kernel) == 3 else 1
    pairs = _pairs(shape)
    table = _MOST_PAIRS["half" if shape.precision == "half" else "float"]
    most = table[sum(shape.taps > bound for bound in _TAPS)][sum(pairs > bound for bound in _PAIRS)]
    splits = min(deep * most // pairs, -(-_places(shape) // _PLACES_OF_A_SPLIT))
    return shape.copies_bytes + max(splits, 1) * _partial(shape) + _TABLE


def _transform(shape: Geometry) -> int:
    pairs = shape.image_channels * shape.result_channels
    if pairs < _TRANSFORMED_PAIRS:
        return 0
    if min(shape.kernel) < _FOURIER_KERNEL:
        return winograd_bytes(shape)
    little = _places(shape) <= _FEW_PLACES and pairs >= _MANY_PAIRS
    return fourier_bytes(shape) if little or shape.batch <= _FEW_SAMPLES else 0


def _pointwise(shape: Geometry) -> ScratchBytes:
    copies = shape.copies_bytes
    by_sample = shape.batch * shape.image_channels * shape.result_channels * _PARTIAL_BYTES
    if shape.precision == "float32":
        return ScratchBytes(0, 0, copies, _EITHER)
    most = max(by_sample, copies + min(copies, _MORE_OF_POINTWISE))
    maps = shape.image_bytes + shape.result_bytes
    if _is_summed_at_once(shape, by_sample):
        return ScratchBytes(0, min(maps, most), most, _COPIES)
    return ScratchBytes(0, by_sample, most, _BY_SAMPLE)


def _is_summed_at_once(shape: Geometry, by_sample: int) -> bool:
    """Whether a product for every sample would take too much, or its sides don't fill up 16 bytes."""
    pairs = shape.image_channels * shape.result_channels
    unfilled = shape.element_bytes == 4 and shape.result_places * shape.element_bytes % 16 > 0
    most = _BY_SAMPLE_OF_MANY if pairs >= _TOO_MANY_PAIRS else _BY_SAMPLE_OF_FEW
    return by_sample >= most or (unfilled and pairs >= _UNFILLED_PAIRS)


def _without_tensor_cores(shape: Geometry) -> ScratchBytes:
    most = _most_split(shape)
    if may_transform(shape):
        most = max(most, fourier_bytes(shape), winograd_bytes(shape), tiled_fourier_bytes(shape))
    if shape.image_channels * shape.result_channels < _TRANSFORMED_PAIRS:
        return ScratchBytes(0, 0, most, _EITHER)
    return ScratchBytes(0, shape.copies_bytes, most, _EITHER)


def _in_place_or_split(shape: Geometry) -> ScratchBytes:
    most = _most_split(shape) + (2 if shape.groups > 1 else 1) * shape.copies_bytes
    return ScratchBytes(0, _partial(shape), most, _COPIES)
