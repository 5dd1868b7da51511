"""Pointwise arithmetic on floating-point tensors: 1 FLOP per output element for every function.

torch tags most of these ops as pointwise. They are listed because the tags differ between torch versions.
"""

from __future__ import annotations

from typing import Any

from profiler_kit.counting.arithmetic import numel, per_element, per_result
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec

# one per output element
formula(
    "aten.add", "aten.sub", "aten.rsub", "aten.mul", "aten.div", "aten.remainder", "aten.fmod", "aten.floor_divide",
    "aten.addcmul", "aten.addcdiv", "aten.lerp", "aten.neg", "aten.abs", "aten.reciprocal", "aten.square", "aten.sqrt",
    "aten.rsqrt", "aten.pow", "aten.float_power", "aten.exp", "aten.exp2", "aten.expm1", "aten.log", "aten.log2",
    "aten.log10", "aten.log1p", "aten.logaddexp", "aten.logaddexp2", "aten.xlogy", "aten.sin", "aten.cos", "aten.tan",
    "aten.asin", "aten.acos", "aten.atan", "aten.atan2", "aten.sinh", "aten.cosh", "aten.tanh", "aten.asinh",
    "aten.acosh", "aten.atanh", "aten.erf", "aten.erfc", "aten.erfinv", "aten.lgamma", "aten.digamma", "aten.sinc",
    "aten.hypot", "aten.ceil", "aten.floor", "aten.round", "aten.trunc", "aten.frac", "aten.sign", "aten.sgn",
    "aten.clamp", "aten.clamp_min", "aten.clamp_max", "aten.maximum", "aten.minimum", "aten.fmax", "aten.fmin",
    "aten.max.other", "aten.min.other", "aten.angle", "aten.polar", "aten.complex", "aten.nan_to_num", "aten.cross",
    "aten.linalg_cross", "aten._add_relu", "aten.glu_jvp", "aten.glu_backward_jvp", "aten._standard_gamma_grad",
    "aten._dirichlet_grad", "aten.rrelu_with_noise_functional",
)(per_result())  # fmt: skip
# activations: one per output element
formula(
    "aten.relu", "aten.relu6", "aten.leaky_relu", "aten.elu", "aten.celu", "aten.selu", "aten.gelu", "aten.silu",
    "aten.mish", "aten.sigmoid", "aten.log_sigmoid_forward", "aten.softplus", "aten.softshrink", "aten.hardshrink",
    "aten.hardtanh", "aten.hardsigmoid", "aten.hardswish", "aten.threshold", "aten.prelu", "aten._prelu_kernel",
    "aten.rrelu_with_noise", "aten.glu",
)(per_result())  # fmt: skip
# one per element of the gradient
formula(
    "aten.threshold_backward", "aten.leaky_relu_backward", "aten.elu_backward", "aten.gelu_backward",
    "aten.silu_backward", "aten.mish_backward", "aten.sigmoid_backward", "aten.tanh_backward",
    "aten.log_sigmoid_backward", "aten.softplus_backward", "aten.softshrink_backward", "aten.hardshrink_backward",
    "aten.hardtanh_backward", "aten.hardsigmoid_backward", "aten.hardswish_backward", "aten.rrelu_with_noise_backward",
    "aten.glu_backward", "aten.logit_backward",
)(per_result())  # fmt: skip


@formula("aten._prelu_kernel_backward")
def prelu_backward(*args: Any, out: Any) -> Cost:
    """1 FLOP per element of each of the two gradients."""
    return per_element(out[0]) + per_element(out[1])


# as the ops of dropout on the CPU: the mask is scaled and multiplied; random numbers are not counted
formula("aten.native_dropout", "aten._fused_dropout", "aten.alpha_dropout")(per_result(2))
formula("aten.native_dropout_backward", "aten._masked_scale")(per_result())  # one multiplication per element


@formula("aten._transform_bias_rescale_qkv")
def rescale_qkv(qkv: TensorSpec, *_: Any, out: Any) -> Cost:
    """Add the bias to queries, keys and values; scale the queries."""
    return Cost(flops=numel(qkv) + numel(qkv) // 3)
