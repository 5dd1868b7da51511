"""Depthwise convolutions: ATen's own kernels, which take nothing; cuDNN's where it is asked for the weight's gradient."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.scratch import NOTHING, ScratchBytes
from profiler_kit.memory.scratch.geometry import Geometry, Pass

_SOURCE: Final = "H100, cuDNN 9.19: depthwise convolutions, by layout"
_PARTIAL_SHARE: Final = 0.01  # of the copies: partial sums of the weight's gradient with channels last, typically


def depthwise(which: Pass, shape: Geometry) -> ScratchBytes:
    """Nothing but for the weight's gradient of some layouts, and now and then for the input's in half precision."""
    copies = shape.copies_bytes
    deep = len(shape.kernel) == 3
    if which == "weight_gradient":
        if shape.is_channels_last:
            most = 15 * copies if deep else (7 if shape.precision == "tf32" else 2) * copies
            return ScratchBytes(0, int(_PARTIAL_SHARE * copies), most, _SOURCE)
        if shape.is_transposed:
            return ScratchBytes(0, copies, int(6.5 * copies), _SOURCE)
        if shape.precision == "half" and min(shape.kernel) > 1:
            return ScratchBytes(0, 0, copies + copies // 20, _SOURCE)
        return NOTHING
    several = shape.result_channels > shape.image_channels
    if which == "input_gradient" and (several or (shape.is_channels_last and deep)):
        return ScratchBytes(0, 0, copies * 9 // 2, _SOURCE)
    return NOTHING
