"""Workspace of convolutions in cuDNN: the interval of each pass, and its likely size.

All figures were measured on an H100 with cuDNN 9.19 (tests/fixtures/scratch). Four kinds of kernels explain most of them:
kernels that read the tensors as they are and need no workspace; tensor-core kernels, which need copies of image, weight and
result with channels last, padded to 16 bytes; kernels that split the reduction over blocks and need partial sums; and, in
float32, transforms (`transforms`). cuDNN selects the kernel by heuristics that are not public. If the sizes do not decide,
the interval covers all of them.
"""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Device
from profiler_kit.memory.workspace import (
    NOTHING,
    LibraryConfig,
    WorkspaceBytes,
    on_card,
    rule,
)
from profiler_kit.memory.workspace.convolution_weights import weight_gradient
from profiler_kit.memory.workspace.feature_maps import feature_map_pass
from profiler_kit.memory.workspace.geometry import Geometry, Pass, geometry_of, has_channels_last
from profiler_kit.memory.workspace.reductions import reduce_bytes
from profiler_kit.meta.meta_kernels import is_dense
from profiler_kit.records.calls import OpCall, TensorFacts

_WITHOUT_CUDNN: Final = "ATen unfolds one sample at a time or none; not measured"
_FLIPPED: Final[dict[Pass, Pass]] = {"forward": "input_gradient", "input_gradient": "forward"}

_DEPTHWISE: Final = "H100, cuDNN 9.19: depthwise convolutions, by layout"
_MAX_DIRECT_SIDE: Final = 5  # ATen's kernels in half precision are for kernels of 1, 3 and 5
_PARTIAL_SHARE: Final = 0.01  # of the copies: typical partial sums of the weight's gradient with channels last


@rule("aten.convolution")
def convolution(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Workspace of the forward pass."""
    x, weight, _, stride, _, dilation, transposed, _, groups = call.args[:9]
    shape = geometry_of(x, weight, call.outputs[0], stride, dilation, transposed, groups, device, config)
    copies = sum(_copy_bytes(tensor, shape) for tensor in (x, weight))
    return _beside_copies(on_card(pass_workspace("forward", shape, config), device), copies)


@rule("aten.convolution_backward")
def convolution_backward(call: OpCall, device: Device, config: LibraryConfig) -> WorkspaceBytes:
    """Workspace of the needed gradients, computed one after the other. Later gradients are not allocated yet."""
    gradient, x, weight, _, stride, _, dilation, transposed, _, groups, output_mask = call.args[:11]
    shape = geometry_of(x, weight, gradient, stride, dilation, transposed, groups, device, config)
    bias = _bias_gradient(gradient, device) if output_mask[2] else NOTHING
    bias_bytes = gradient.shape[1] * gradient.element_bytes if output_mask[2] else 0
    of_weight = on_card(pass_workspace("weight_gradient", shape, config), device) if output_mask[1] else NOTHING
    of_input = on_card(pass_workspace("input_gradient", shape, config), device) if output_mask[0] else NOTHING
    later = bias_bytes + (weight.nbytes if output_mask[1] else 0)

    def peak(bound: str) -> int:
        sizes = (getattr(of_input, bound) - later, getattr(of_weight, bound) - bias_bytes, getattr(bias, bound), 0)
        return int(max(sizes))

    source = max((of_input, of_weight, bias), key=lambda part: part.likely).source
    workspace = WorkspaceBytes(peak("low"), peak("likely"), peak("high"), source or of_weight.source)
    operands = (gradient, weight, *((x,) if output_mask[1] else ()))
    return _beside_copies(workspace, sum(_copy_bytes(tensor, shape) for tensor in operands))


def _copy_bytes(tensor: TensorFacts, shape: Geometry) -> int:
    """Bytes of ATen's copy of an operand whose layout differs from that of the convolution; 0 without a copy."""
    is_in_order = is_dense(tensor.shape, tensor.strides, channels_last=shape.is_channels_last)
    return 0 if is_in_order else tensor.nbytes


def _beside_copies(workspace: WorkspaceBytes, copies: int) -> WorkspaceBytes:
    """`workspace` with ATen's copies of operands, which live during all passes."""
    if not copies:
        return workspace
    source = f"{workspace.source or 'no workspace'}; beside copies of operands with another layout"
    return WorkspaceBytes(workspace.low + copies, workspace.likely + copies, workspace.high + copies, source)


def pass_workspace(direction: Pass, shape: Geometry, config: LibraryConfig) -> WorkspaceBytes:
    """Workspace of one pass. A transposed convolution swaps forward and input gradient."""
    if not config.cudnn:
        unfolded = shape.image_channels * shape.taps * shape.result_positions * shape.element_bytes
        return WorkspaceBytes(0, unfolded // shape.groups, unfolded, _WITHOUT_CUDNN)
    if shape.is_transposed:
        direction = _FLIPPED.get(direction, direction)
    if shape.is_depthwise:
        return _depthwise(direction, shape)
    if direction == "weight_gradient":
        return weight_gradient(shape)
    return feature_map_pass(direction, shape)


def _bias_gradient(gradient: TensorFacts, device: Device) -> WorkspaceBytes:
    """A sum over samples and positions. With channels last, the number of blocks was measured to be up to a fifth lower."""
    dims = tuple(dim for dim in range(len(gradient.shape)) if dim != 1)
    nbytes = reduce_bytes(gradient, dims, device)
    low = nbytes * 3 // 4 if has_channels_last(gradient) else nbytes
    return WorkspaceBytes(low, nbytes, nbytes, "the bias gradient is a sum: ATen/native/cuda/Reduce.cuh")


def _depthwise(direction: Pass, shape: Geometry) -> WorkspaceBytes:
    """Workspace of a depthwise convolution: zero except for some weight gradients and, rarely, input gradients.

    ATen's kernels need no workspace. cuDNN runs for some weight gradients.
    """
    copies = shape.copies_bytes
    is_3d = len(shape.kernel) == 3
    if direction == "weight_gradient":
        if shape.is_channels_last:
            high = 15 * copies if is_3d else (7 if shape.precision == "tf32" else 5) * copies
            return WorkspaceBytes(0, int(_PARTIAL_SHARE * copies), high, _DEPTHWISE)
        if shape.is_transposed:
            return WorkspaceBytes(0, copies, int(6.5 * copies), _DEPTHWISE)
        if shape.precision == "half" and min(shape.kernel) > 1:
            return WorkspaceBytes(0, 0, copies + copies // 20, _DEPTHWISE)
        return NOTHING
    if (
        shape.is_channels_last
        and shape.precision == "half"
        and direction == "forward"
        and min(shape.kernel) > _MAX_DIRECT_SIDE
    ):
        return WorkspaceBytes(0, 0, copies * 9 // 2, _DEPTHWISE)
    has_multiplier = shape.result_channels > shape.image_channels
    if direction == "input_gradient" and (has_multiplier or (shape.is_channels_last and is_3d)):
        return WorkspaceBytes(0, 0, copies * 9 // 2, _DEPTHWISE)
    return NOTHING
