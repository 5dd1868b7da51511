"""The gradient of a convolution's weight: a long sum over batch and places for few results, so it is split over blocks."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.scratch import ScratchBytes
from profiler_kit.memory.scratch.geometry import Geometry

_SOURCE: Final = "H100, cuDNN 9.19: copies with channels last, and partial sums of split reductions"
_BY_SAMPLE: Final = "H100, cuDNN 9.19: a product of matrices for every sample, summed up afterwards"
_PARTIAL_BYTES: Final = 4
_MORE_OF_POINTWISE: Final = 8 << 20


def weight_gradient(shape: Geometry) -> ScratchBytes:
    """Scratch of the weight's gradient."""
    copies = shape.copies_bytes
    if shape.is_pointwise and shape.groups == 1 and not shape.is_channels_last:
        return _pointwise(shape)
    parts = 250_000 if shape.precision == "half" else 350_000
    high = copies + shape.taps * parts * _PARTIAL_BYTES
    return ScratchBytes(0, copies, high, _SOURCE)


def _pointwise(shape: Geometry) -> ScratchBytes:
    copies = shape.copies_bytes
    by_sample = shape.batch * shape.image_channels * shape.result_channels * _PARTIAL_BYTES
    if shape.precision == "float32":
        return ScratchBytes(0, 0, copies, _SOURCE)
    return ScratchBytes(0, by_sample, max(by_sample, copies + min(copies, _MORE_OF_POINTWISE)), _BY_SAMPLE)
