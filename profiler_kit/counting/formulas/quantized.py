"""Quantized layers: the same MACs as in floating point, in any precision. Not counted: requantizing the result.

Weights are packed in an object or in a layout of the backend. The output has the width of a linear layer; the packed object
has the kernel of a convolution. Pointwise ops on quantized tensors are integer arithmetic: 0 FLOPs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import contraction, free, numel, per_argument, per_result
from profiler_kit.counting.formulas import formula, named_formula
from profiler_kit.meta.packed_weights import packed_tensors
from profiler_kit.records.counts import Cost, TensorSpec


@formula(
    "quantized.linear", "quantized.linear_relu", "quantized.linear_leaky_relu", "quantized.linear_tanh",
    "quantized.linear_dynamic", "quantized.linear_relu_dynamic", "quantized.linear_dynamic_fp16",
    "quantized.linear_relu_dynamic_fp16", "quantized.linear_dynamic_fp16_unpacked_weight",
    "quantized.linear_with_input_q_dq_qweight_dq_output_fp32",
    "quantized.linear_with_input_q_dq_qweight_dq_relu_output_fp32", "onednn.linear_dynamic_fp16",
    "onednn.linear_relu_dynamic_fp16", "onednn.qlinear_pointwise", "_quantized.linear", "_quantized.linear_dynamic",
    "_quantized.wrapped_quantized_linear", "_quantized._wrapped_quantized_linear_prepacked",
    "_quantized.wrapped_fbgemm_linear_fp16_weight", "sparse.qlinear", "sparse.qlinear_dynamic", "sparse.qlinear_relu",
    "sparse.qlinear_relu_dynamic",
)  # fmt: skip
def quantized_linear(x: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """``(..., k)`` to ``(..., m)``: k MACs per output element."""
    return contraction(numel(out) * x.shape[-1], x)


def kernel_of(packed: Any) -> int:
    """Elements of the weight in a packed convolution. Shapes: (out, in/groups, *kernel), transposed (in, out/groups, ...)."""
    weight = packed.unpack()[0]
    return prod(weight.shape)


@formula(
    "quantized.conv1d", "quantized.conv1d_relu", "quantized.conv1d_dynamic", "quantized.conv2d", "quantized.conv2d_relu",
    "quantized.conv2d_dynamic", "quantized.conv3d", "quantized.conv3d_relu", "quantized.conv3d_dynamic",
    "_quantized.conv2d", "_quantized.conv2d_relu", "_quantized.conv3d", "_quantized.conv3d_relu",
)  # fmt: skip
def quantized_convolution(x: TensorSpec, packed: Any, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Each output position uses each weight once. Shapes: (batch, channels, ...)."""
    return contraction(out.shape[0] * prod(out.shape[2:]) * kernel_of(packed), x)


@formula("quantized.conv2d_add", "quantized.conv2d_add_relu")
def quantized_convolution_add(x: TensorSpec, added: TensorSpec, packed: Any, *_: Any, out: TensorSpec) -> Cost:
    """As `quantized_convolution`. The added tensor is the initial value of the accumulator and is free."""
    return contraction(out.shape[0] * prod(out.shape[2:]) * kernel_of(packed), x)


@formula(
    "quantized.conv_transpose1d", "quantized.conv_transpose1d_dynamic", "quantized.conv_transpose2d",
    "quantized.conv_transpose2d_dynamic", "quantized.conv_transpose3d", "quantized.conv_transpose3d_dynamic",
    "_quantized.conv_transpose1d", "_quantized.conv_transpose2d",
)  # fmt: skip
def quantized_convolution_transpose(x: TensorSpec, packed: Any, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """Each input position uses each weight once."""
    return contraction(x.shape[0] * prod(x.shape[2:]) * kernel_of(packed), x)


@formula("onednn.qconv_pointwise", "onednn.qconv1d_pointwise", "onednn.qconv2d_pointwise", "onednn.qconv3d_pointwise")
def onednn_convolution(
    x: TensorSpec, x_scale: Any, x_zero_point: Any, weight: TensorSpec, *_: Any, out: TensorSpec, **__: Any
) -> Cost:
    """Each output position uses each weight once."""
    return contraction(out.shape[0] * prod(out.shape[2:]) * numel(weight), x)


@formula(
    "quantized.quantized_lstm_cell_dynamic", "quantized.quantized_gru_cell_dynamic",
    "quantized.quantized_rnn_relu_cell_dynamic", "quantized.quantized_rnn_tanh_cell_dynamic",
)  # fmt: skip
def quantized_cell(x: TensorSpec, hx: Any, w_ih: Any, w_hh: Any, *_: Any, out: Any) -> Cost:
    """The two products of a recurrent cell. Not counted: gate arithmetic."""
    rows = prod(x.shape[:-1])
    return contraction(rows * (kernel_of(w_ih) + kernel_of(w_hh)), x)


@named_formula("aten.quantized_lstm", "aten.quantized_gru")
def quantized_layers(*, x: TensorSpec, params: Sequence[Any], out: Any, **_: Any) -> Cost:
    """The products of a recurrent layer: every time step uses each weight matrix once. Not counted: gate arithmetic.

    `params`: one packed object per layer and direction.
    """
    matrices = [tensor for packed in params for tensor in packed_tensors(packed) if tensor.dim() == 2]
    return contraction(prod(x.shape[:-1]) * sum(tensor.numel() for tensor in matrices), x)


# One per element.
formula(
    "aten.quantize_per_tensor", "aten.quantize_per_tensor_dynamic", "aten.quantize_per_channel",
    "aten.fake_quantize_per_channel_affine_cachemask", "aten.fake_quantize_per_tensor_affine_cachemask",
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "aten._fake_quantize_learnable_per_tensor_affine",
    "aten._fake_quantize_learnable_per_channel_affine", "aten._fused_moving_avg_obs_fq_helper",
)(per_argument(0))  # fmt: skip
# One per element of each of the three gradients.
formula(
    "aten._fake_quantize_learnable_per_tensor_affine_backward",
    "aten._fake_quantize_learnable_per_channel_affine_backward",
)(per_argument(0, 3))  # fmt: skip
formula("aten.dequantize")(per_result())  # one per element
# Integer arithmetic: 0 FLOPs.
formula(
    "quantized.add", "quantized.add_relu", "quantized.add_scalar", "quantized.add_scalar_relu", "quantized.mul",
    "quantized.mul_relu", "quantized.mul_scalar", "quantized.mul_scalar_relu", "quantized.cat", "quantized.cat_relu",
    "quantized.clamp", "quantized.relu6", "quantized.celu", "quantized.elu", "quantized.hardswish",
    "quantized.leaky_relu", "quantized.prelu", "quantized.sigmoid", "quantized.softmax", "quantized.threshold",
    "quantized.dropout", "quantized.batch_norm", "quantized.batch_norm_relu", "quantized.batch_norm1d",
    "quantized.batch_norm1d_relu", "quantized.batch_norm2d", "quantized.batch_norm2d_relu", "quantized.batch_norm3d",
    "quantized.batch_norm3d_relu", "quantized.layer_norm", "quantized.group_norm", "quantized.instance_norm",
    "quantized.max_pool1d", "quantized.max_pool2d", "aten.quantized_max_pool1d", "aten.quantized_max_pool3d",
    "aten.quantized_batch_norm", "onednn.qadd", "onednn.qadd_relu", "onednn.qmul", "onednn.qbatch_norm2d",
    "_quantized.add", "quantized.embedding_byte", "quantized.embedding_4bit", "aten.int_repr",
)(free)  # fmt: skip


@formula("quantized.embedding_bag_byte", "quantized.embedding_bag_4bit", "quantized.embedding_bag_2bit_rowwise_offsets",
         "quantized.embedding_bag_byte_rowwise_offsets", "quantized.embedding_bag_4bit_rowwise_offsets")  # fmt: skip
def quantized_embedding_bag(table: Any, indices: TensorSpec, *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """1 FLOP (add) per element of every selected row."""
    return Cost(flops=numel(indices) * out.shape[-1])


# Copies of weights into another layout.
formula(
    "aten._make_per_tensor_quantized_tensor", "aten._make_per_channel_quantized_tensor", "aten._convert_weight_to_int4pack",
    "aten._convert_weight_to_int4pack_for_cpu", "aten._dyn_quant_pack_4bit_weight", "aten.mkldnn_reorder_conv2d_weight",
    "aten.mkldnn_reorder_conv3d_weight", "aten.to_mkldnn", "aten._mkldnn_reshape", "aten._mkldnn_transpose",
    "mkldnn._reorder_convolution_weight", "mkldnn._reorder_convolution_transpose_weight",
    "mkldnn._reorder_linear_weight", "mkldnn._reorder_mkldnn_rnn_layer_weight", "mkl._mkl_reorder_linear_weight",
    "onednn.qlinear_prepack", "onednn.qconv_prepack", "onednn.linear_prepack_fp16", "quantized.linear_prepack",
    "quantized.linear_prepack_fp16", "quantized.conv1d_prepack", "quantized.conv2d_prepack", "quantized.conv3d_prepack",
    "quantized.conv_prepack", "quantized.conv_transpose1d_prepack", "quantized.conv_transpose2d_prepack",
    "quantized.conv_transpose3d_prepack", "quantized.embedding_bag_prepack",
    "quantized.embedding_bag_byte_prepack", "quantized.embedding_bag_4bit_prepack", "sparse.qlinear_prepack",
)(free)  # fmt: skip
# Reads of scales and zero points, and allocations.
formula(
    "aten.q_scale", "aten.q_zero_point", "aten.qscheme", "aten.q_per_channel_scales",
    "aten.q_per_channel_zero_points", "aten.q_per_channel_axis", "aten._empty_affine_quantized",
    "aten._empty_per_channel_affine_quantized", "aten.empty_quantized", "quantized.linear_unpack",
    moves="nothing",
)(free)  # fmt: skip
