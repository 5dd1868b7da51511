"""Scratch of convolutions on cuDNN: what each pass may take, and which of it is likely.

Every figure is from convolutions on an H100 with cuDNN 9.19 (tests/fixtures/scratch). Four things explain nearly all:
kernels that read the tensors as they are and take nothing; tensor-core kernels, before which image, weight and result
are copied with channels last and filled up to 16 bytes; partial sums, where the reduction is split over many blocks;
and, in float32, transforms (`transforms`). Which of them cuDNN takes is decided by its heuristics, which are not public:
where the sizes do not tell, the interval holds them all.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import (
    NOTHING,
    LibraryConfig,
    OpCall,
    ScratchBytes,
    TensorFacts,
    exactly,
    on_card,
    rule,
)
from profiler_kit.memory.scratch.convolution_weights import weight_gradient
from profiler_kit.memory.scratch.geometry import Geometry, Pass, geometry_of
from profiler_kit.memory.scratch.maps import map_pass
from profiler_kit.memory.scratch.reductions import reduce_bytes

_WITHOUT_CUDNN: Final = "ATen's own kernels unfold one sample at a time, or nothing; not measured"
_FLIPPED: Final[dict[Pass, Pass]] = {"forward": "input_gradient", "input_gradient": "forward"}

_DEPTHWISE: Final = "H100, cuDNN 9.19: depthwise convolutions, by layout"
_PARTIAL_SHARE: Final = 0.01  # of the copies: partial sums of the weight's gradient with channels last, typically


@rule("aten.convolution")
def convolution(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Scratch of the forward pass."""
    x, weight, _, stride, _, dilation, transposed, _, groups = call.args[:9]
    shape = geometry_of(x, weight, call.outputs[0], stride, dilation, transposed, groups, device, config)
    return on_card(scratch_of_pass("forward", shape, config), device)


@rule("aten.convolution_backward")
def convolution_backward(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Scratch of the gradients asked for, one after the other: what is taken before a gradient exists lies in its place."""
    gradient, x, weight, _, stride, _, dilation, transposed, _, groups, wanted = call.args[:11]
    shape = geometry_of(x, weight, gradient, stride, dilation, transposed, groups, device, config)
    bias = _bias_gradient(gradient, device) if wanted[2] else NOTHING
    bias_bytes = gradient.shape[1] * gradient.element_bytes if wanted[2] else 0
    of_weight = on_card(scratch_of_pass("weight_gradient", shape, config), device) if wanted[1] else NOTHING
    of_input = on_card(scratch_of_pass("input_gradient", shape, config), device) if wanted[0] else NOTHING
    later = bias_bytes + (weight.nbytes if wanted[1] else 0)

    def peak(end: str) -> int:
        ends = (getattr(of_input, end) - later, getattr(of_weight, end) - bias_bytes, getattr(bias, end), 0)
        return int(max(ends))

    source = max((of_input, of_weight, bias), key=lambda part: part.likely).source
    return ScratchBytes(peak("low"), peak("likely"), peak("high"), source or of_weight.source)


def scratch_of_pass(which: Pass, shape: Geometry, config: LibraryConfig) -> ScratchBytes:
    """Scratch of one pass of `shape`, as aten names the pass; a transposed convolution's passes are the other's."""
    if not config.cudnn:
        unfolded = shape.image_channels * shape.taps * shape.result_places * shape.element_bytes
        return ScratchBytes(0, unfolded // shape.groups, unfolded, _WITHOUT_CUDNN)
    if shape.is_transposed:
        which = _FLIPPED.get(which, which)
    if shape.is_depthwise:
        return _depthwise(which, shape)
    if which == "weight_gradient":
        return weight_gradient(shape)
    return map_pass(which, shape)


def _bias_gradient(gradient: TensorFacts, device: Device) -> ScratchBytes:
    dims = tuple(dim for dim in range(len(gradient.shape)) if dim != 1)
    return exactly(reduce_bytes(gradient, dims, device), "the bias's gradient is a sum: ATen/native/cuda/Reduce.cuh")


def _depthwise(which: Pass, shape: Geometry) -> ScratchBytes:
    """Nothing but for the weight's gradient of some layouts, and now and then for the input's in half precision.

    ATen's own kernels take nothing; cuDNN's run where it is asked for the weight's gradient.
    """
    copies = shape.copies_bytes
    deep = len(shape.kernel) == 3
    if which == "weight_gradient":
        if shape.is_channels_last:
            most = 15 * copies if deep else (7 if shape.precision == "tf32" else 2) * copies
            return ScratchBytes(0, int(_PARTIAL_SHARE * copies), most, _DEPTHWISE)
        if shape.is_transposed:
            return ScratchBytes(0, copies, int(6.5 * copies), _DEPTHWISE)
        if shape.precision == "half" and min(shape.kernel) > 1:
            return ScratchBytes(0, 0, copies + copies // 20, _DEPTHWISE)
        return NOTHING
    several = shape.result_channels > shape.image_channels
    if which == "input_gradient" and (several or (shape.is_channels_last and deep)):
        return ScratchBytes(0, 0, copies * 9 // 2, _DEPTHWISE)
    return NOTHING
