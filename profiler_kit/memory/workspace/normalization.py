"""Workspace of normalizations and softmax: copies of strided tensors, and one full-size product."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import NOTHING, LibraryConfig, WorkspaceBytes, exactly, rule
from profiler_kit.memory.workspace.geometry import has_channels_last
from profiler_kit.meta.emulation.library_calls import OpCall, TensorFacts

_SOURCE: Final = "measured on an H100, torch 2.11"
_PARTIAL_SHARE: Final = 0.04  # of the input: batch statistics per block, with channels last


# (float32 bytes per sample and channel, number of leading operands that are copied if they are strided)
_NORMALIZATIONS: Final[Mapping[str, tuple[int, int]]] = {
    "aten.native_layer_norm": (0, 1),
    "aten.native_layer_norm_backward": (0, 2),
    "aten.native_group_norm": (8, 1),  # a scale and a shift
    "aten.native_group_norm_backward": (12, 2),  # three numbers
}


@rule("aten._softmax_backward_data")
def softmax_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """The product of gradient and output."""
    return exactly(call.args[0].nbytes, _SOURCE)


@rule(*_NORMALIZATIONS)
def normalization(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """float32 numbers per sample and channel; copies of strided gradients and inputs."""
    channel_bytes, operands = _NORMALIZATIONS[call.op]
    rows = math.prod(call.args[operands - 1].shape[:2])
    return exactly(channel_bytes * rows + sum(map(copy_bytes, call.args[:operands])), _SOURCE)


@rule(
    "aten.cudnn_batch_norm", "aten.cudnn_batch_norm_backward",
    "aten.native_batch_norm", "aten.native_batch_norm_backward",
)  # fmt: skip
def batch_norm(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Partial statistics with channels last; else zero."""
    tensor = call.args[0]
    if not has_channels_last(tensor):
        return NOTHING
    return WorkspaceBytes(0, int(0.6 * _PARTIAL_SHARE * tensor.nbytes), int(_PARTIAL_SHARE * tensor.nbytes), _SOURCE)


def copy_bytes(tensor: TensorFacts) -> int:
    """Bytes of a contiguous copy of `tensor`; 0 if it is contiguous."""
    expected = 1
    for stride, size in zip(reversed(tensor.strides), reversed(tensor.shape), strict=True):
        if size != 1 and stride != expected:
            return tensor.nbytes
        expected *= size
    return 0
