"""Normalisations and softmax: copies of what does not lie in order, and one full-size product."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.scratch import NOTHING, LibraryConfig, OpCall, ScratchBytes, TensorFacts, exactly, rule
from profiler_kit.memory.scratch.geometry import has_channels_last

_SOURCE: Final = "seen on an H100, torch 2.11"
_PARTIAL_SHARE: Final = 0.04  # of the input: batch statistics with channels last, block by block


@rule("aten._softmax_backward_data")
def softmax_backward(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """The product of gradient and output."""
    return exactly(call.args[0].nbytes, _SOURCE)


@rule("aten.native_layer_norm")
def layer_norm(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """A copy of an input that does not lie in order."""
    return exactly(copied_bytes(call.args[0]), _SOURCE)


@rule("aten.native_layer_norm_backward")
def layer_norm_backward(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Copies of gradient and input that do not lie in order."""
    return exactly(copied_bytes(call.args[0]) + copied_bytes(call.args[1]), _SOURCE)


@rule("aten.native_group_norm")
def group_norm(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """A scale and a shift for every sample and channel in float32; a copy of an input that does not lie in order."""
    batch, channels = call.args[0].shape[:2]
    return exactly(8 * batch * channels + copied_bytes(call.args[0]), _SOURCE)


@rule("aten.native_group_norm_backward")
def group_norm_backward(call: OpCall, device: Device, config: LibraryConfig) -> ScratchBytes:
    """Three numbers for every sample and channel in float32; copies of what does not lie in order."""
    batch, channels = call.args[1].shape[:2]
    return exactly(12 * batch * channels + copied_bytes(call.args[0]) + copied_bytes(call.args[1]), _SOURCE)


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
