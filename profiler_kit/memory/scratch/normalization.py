"""Normalisations and softmax: copies of what does not lie in order, and one full-size product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, TensorFacts, exactly, rule
from profiler_kit.memory.scratch.geometry import has_channels_last

_SOURCE: Final = "seen on an H100, torch 2.11"
_PARTIAL_SHARE: Final = 0.04  # of the input: batch statistics with channels last, block by block


# What an op takes at least, by the sample and channel in float32, and which of its operands it copies out of order.
_NORMALIZATIONS: Final[Mapping[str, tuple[int, int]]] = {
    "aten.native_layer_norm": (0, 1),
    "aten.native_layer_norm_backward": (0, 2),
    "aten.native_group_norm": (8, 1),  # a scale and a shift
    "aten.native_group_norm_backward": (12, 2),  # three numbers
}


@rule("aten._softmax_backward_data")
def softmax_backward(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The product of gradient and output."""
    return exactly(call.args[0].nbytes, _SOURCE)


@rule(*_NORMALIZATIONS)
def normalization(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Numbers for every sample and channel in float32; copies of gradient and input that do not lie in order."""
    channel_bytes, copied = _NORMALIZATIONS[call.op]
    rows = math.prod(call.args[copied - 1].shape[:2])
    return exactly(channel_bytes * rows + sum(map(copied_bytes, call.args[:copied])), _SOURCE)


@rule(
    "aten.cudnn_batch_norm", "aten.cudnn_batch_norm_backward",
    "aten.native_batch_norm", "aten.native_batch_norm_backward",
)  # fmt: skip
def batch_norm(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Partial statistics, with channels last alone."""
    tensor = call.args[0]
    if not has_channels_last(tensor):
        return NOTHING
    return ScratchBytes(0, int(0.6 * _PARTIAL_SHARE * tensor.nbytes), int(_PARTIAL_SHARE * tensor.nbytes), _SOURCE)


def copied_bytes(tensor: TensorFacts) -> int:
    """Bytes of a copy of `tensor`, unless it lies in order."""
    expected = 1
    for stride, size in zip(reversed(tensor.strides), reversed(tensor.shape), strict=True):
        if size != 1 and stride != expected:
            return tensor.nbytes
        expected *= size
    return 0
