"""Convolutions of any dimension, grouped, dilated or transposed: nominal MACs. Padding counts, a bias is free.

Every output position (of a transposed convolution: every input position) uses each weight once.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, numel
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def convolution_macs(x: TensorSpec, w: TensorSpec, y: TensorSpec, transposed: bool) -> int:
    """MACs of ``y = conv(x, w)``.

    Shapes: w is (out, in/groups, *kernel), or (in, out/groups, *kernel) if transposed. numel(w) already includes the
    division by groups, so each position of each sample costs numel(w) MACs.
    """
    side = x if transposed else y
    batch = side.shape[0] if len(side.shape) == len(w.shape) else 1
    return batch * prod(side.shape[2:] if len(side.shape) == len(w.shape) else side.shape[1:]) * numel(w)


@formula("aten.convolution", "aten._convolution", "aten.convolution_overrideable")
def convolution(
    x: TensorSpec, w: TensorSpec, bias: TensorSpec | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], transposed: bool, *_: Any, out: TensorSpec,
) -> Cost:  # fmt: skip
    """2 FLOPs per MAC. The bias is the initial value of the accumulator and is free."""
    return contraction(convolution_macs(x, w, out, transposed), x)


def convolution_gradients(
    grad: TensorSpec, x: TensorSpec, w: TensorSpec, transposed: bool, output_mask: Sequence[bool]
) -> Cost:
    """The MACs of forward for each of dX and dW in the output mask, also with groups. The bias gradient is free.

    Source: pytorch/pytorch pull 183405, on dW of a grouped convolution.
    """
    return contraction(convolution_macs(x, w, grad, transposed) * (output_mask[0] + output_mask[1]), x)


@formula("aten.convolution_backward", "aten.convolution_backward_overrideable")
def convolution_backward(grad: TensorSpec, x: TensorSpec, w: TensorSpec, *others: Any, out: Any) -> Cost:
    """Gradients. Of the other arguments, the fourth to last is `transposed` and the last is `output_mask`."""
    return convolution_gradients(grad, x, w, others[-4], others[-1])


@formula(
    "aten.mkldnn_convolution", "aten.cudnn_convolution", "aten.miopen_convolution", "aten.miopen_depthwise_convolution",
    "aten.cudnn_convolution_relu", "aten._slow_conv2d_forward", "aten.slow_conv3d_forward", "aten.slow_conv_dilated2d",
    "aten.slow_conv_dilated3d", "aten._conv_depthwise2d", "aten.conv_depthwise3d", "aten.thnn_conv2d",
    "aten.cudnn_convolution_add_relu", "aten.miopen_convolution_relu", "aten.miopen_convolution_add_relu",
    "aten._mps_convolution", "aten._nnpack_spatial_convolution", "mkldnn._convolution_pointwise",
    "torchvision.deform_conv2d",
)  # fmt: skip
def backend_convolution(x: TensorSpec, w: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """A backend's convolution: as `convolution`. Not counted: the sampling of a deformable convolution."""
    return contraction(convolution_macs(x, w, out, transposed=False), x)


@formula(
    "aten.cudnn_convolution_transpose", "aten.miopen_convolution_transpose",
    "aten.slow_conv_transpose2d", "aten.slow_conv_transpose3d", "aten._mps_convolution_transpose",
    "mkldnn._convolution_transpose_pointwise",
)  # fmt: skip
def backend_convolution_transpose(x: TensorSpec, w: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """A backend's transposed convolution: as `convolution`."""
    return contraction(convolution_macs(x, w, out, transposed=True), x)


@formula("mkldnn._convolution_pointwise.binary")
def convolution_and_binary(x: TensorSpec, other: TensorSpec, w: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """A convolution with another tensor added or multiplied: one FLOP per output element."""
    return backend_convolution(x, w, out=out) + Cost(flops=numel(out))


@formula("mkldnn._convolution_pointwise_.binary")
def convolution_onto(other: TensorSpec, x: TensorSpec, w: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """As `convolution_and_binary`, in place."""
    return convolution_and_binary(x, other, w, out=out)


@formula("aten._slow_conv2d_backward")
def slow_convolution_backward(
    grad: TensorSpec, x: TensorSpec, w: TensorSpec, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int],
    output_mask: Sequence[bool] = (True, True, True), *, out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """Gradients of ATen's unfolding convolution."""
    return convolution_gradients(grad, x, w, False, output_mask)


@formula("aten.mps_convolution_backward")
def mps_convolution_backward(x: TensorSpec, grad: TensorSpec, w: TensorSpec, *others: Any, out: Any) -> Cost:
    """Gradients on Apple devices; the last argument is the output mask."""
    return convolution_gradients(grad, x, w, False, others[-1])


@formula("aten.mps_convolution_transpose_backward")
def mps_convolution_transpose_backward(x: TensorSpec, grad: TensorSpec, w: TensorSpec, *others: Any, out: Any) -> Cost:
    """Gradients of a transposed convolution on Apple devices; the last argument is the output mask."""
    return convolution_gradients(grad, x, w, True, others[-1])


@formula("aten.conv_tbc")
def convolution_tbc(x: TensorSpec, w: TensorSpec, *_: Any, out: TensorSpec) -> Cost:
    """A 1-d convolution. Shapes: x (t, b, in), w (k, in, out)."""
    return contraction(numel(out) * w.shape[0] * w.shape[1], x)


@formula("aten.conv_tbc_backward")
def convolution_tbc_backward(grad: TensorSpec, x: TensorSpec, w: TensorSpec, *_: Any, out: Any) -> Cost:
    """Both gradients, each with the MACs of forward."""
    return contraction(2 * numel(grad) * w.shape[0] * w.shape[1], x)


@formula("torchvision._deform_conv2d_backward")
def deformable_convolution_backward(
    grad: TensorSpec, x: TensorSpec, w: TensorSpec, *_: Any, out: Any, **__: Any
) -> Cost:
    """The contractions of both gradients. Not counted: gradients of offsets and mask, which are sampling."""
    return contraction(2 * convolution_macs(x, w, grad, transposed=False), x)
