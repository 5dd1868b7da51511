"""Pointwise arithmetic, reductions and scans: 1 FLOP per element and operation; ops on lists of tensors.

torch tags most of these ops as pointwise. They are listed because the tags differ between torch versions. Also the
primitive ops of torch's Python decompositions, which forward-mode derivatives use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log2, prod
from typing import Any

from profiler_kit.counting.arithmetic import free, numel, per_argument, per_element, per_result
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import ZERO, Cost, TensorSpec

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


# one per output element, as for the aten op of the same name
formula(
    "prims.abs", "prims.acos", "prims.acosh", "prims.asin", "prims.asinh", "prims.atan", "prims.atanh", "prims.cos",
    "prims.cosh", "prims.bessel_i0", "prims.bessel_i0e", "prims.bessel_i1", "prims.bessel_i1e", "prims.bessel_j0",
    "prims.bessel_j1", "prims.cbrt", "prims.ceil", "prims.digamma", "prims.erf", "prims.erf_inv", "prims.erfc",
    "prims.erfcx", "prims.exp", "prims.expm1", "prims.exp2", "prims.floor", "prims.lgamma", "prims.log", "prims.log1p",
    "prims.log2", "prims.log10", "prims.ndtri", "prims.neg", "prims.reciprocal", "prims.round", "prims.rsqrt",
    "prims.sign", "prims.sin", "prims.sinh", "prims.spherical_bessel_j0", "prims.sqrt", "prims.tan", "prims.tanh",
    "prims.trunc", "prims.add", "prims.atan2", "prims.div", "prims.fmax", "prims.fmin", "prims.fmod", "prims.hypot",
    "prims.igamma", "prims.igammac", "prims.maximum", "prims.minimum", "prims.mul", "prims.nextafter", "prims.pow",
    "prims.remainder", "prims.sub", "prims.zeta",
)(per_result())  # fmt: skip
formula("prims.sum", "prims.prod", "prims.amax", "prims.amin")(per_argument(0))  # one per input element
formula("prims.var")(per_argument(0, 4))  # mean (1), then subtract, square, add (3)
# copies and comparisons
formula(
    "prims.convert_element_type", "prims.clone", "prims.cat", "prims.where", "prims.rev", "prims.collapse",
    "prims.reshape", "prims.device_put", "prims.as_strided_scatter", "prims.copy_strided", "prims.conj_physical",
    "prims.signbit", "prims.isfinite", "prims.eq", "prims.ne", "prims.ge", "prims.gt", "prims.le", "prims.lt",
    "prims.bitwise_not", "prims.bitwise_and", "prims.bitwise_or", "prims.bitwise_xor", "prims.item",
)(free)  # fmt: skip


POINTWISE = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc",
)  # fmt: skip


@formula(*(f"aten._foreach_{name}" for name in POINTWISE))
def pointwise(tensors: Any, *_: Any, out: Any, **__: Any) -> Cost:
    """1 FLOP per element of every tensor."""
    lists = tensors if isinstance(tensors, Sequence) else out or ()
    return sum((per_element(spec) for spec in lists), ZERO)


def each_element(flops: int) -> Callable[..., Cost]:
    """A formula: `flops` per element of every tensor in the first list."""
    return lambda tensors, *_, out, **__: sum((per_element(spec, flops) for spec in tensors), ZERO)


formula("aten._foreach_norm", "aten._foreach_powsum")(each_element(2))  # square and add
formula("aten._foreach_max")(each_element(1))  # one compare
# one multiplication; the check is a comparison
formula("aten._amp_foreach_non_finite_check_and_unscale")(each_element(1))
formula("aten._foreach_clone")(free)  # data moves
# the first list is written without being read
formula("aten._foreach_zero_", "aten._foreach_zero", "aten._foreach_copy_", "aten._foreach_copy", moves="overwrite")(
    free
)


# one add, multiplication or compare per input element
formula(
    "aten.sum", "aten.nansum", "aten.mean", "aten.prod", "aten.amax", "aten.amin", "aten.aminmax", "aten.max",
    "aten.min", "aten.max.dim", "aten.min.dim", "aten.cumsum", "aten.cumprod", "aten.cummax", "aten.cummin",
    "aten._cummax_helper", "aten._cummin_helper", "aten.trace", "aten.median", "aten.nanmedian", "aten.diff", "aten._aminmax",
)(per_argument(0))  # fmt: skip
# mean (1), then subtract, square, add (3)
formula("aten.var", "aten.std", "aten.var_mean", "aten.std_mean")(per_argument(0, 4))
# square (or power, or exponential) and add
formula(
    "aten.linalg_vector_norm", "aten.norm", "aten.native_norm", "aten.linalg__powsum", "aten.logsumexp",
    "aten.logcumsumexp", "aten._logcumsumexp",
)(per_argument(0, 2))  # fmt: skip
formula("aten.renorm")(per_argument(0, 3))  # square, add, scale
formula("aten.dist")(per_argument(0, 3))  # subtract, square, add


@formula("aten._fft_c2c", "aten._fft_r2c", "aten._fft_c2r")
def fft(x: TensorSpec, dims: Sequence[int], *_: Any, out: TensorSpec, **__: Any) -> Cost:
    """5 N log2 N for a complex transform of N points, half of that if input or output is real.

    Source: the usual nominal count of FFT benchmarks, https://www.fftw.org/speed/method.html.
    """
    real = out if not out.dtype.startswith("complex") else x
    points = prod(real.shape[dim] for dim in dims)
    transforms = prod(real.shape) // points if points else 0
    complex_to_complex = x.dtype.startswith("complex") and out.dtype.startswith("complex")
    flops = 5 * transforms * round(points * log2(points)) if points else 0
    return Cost(flops=flops if complex_to_complex else flops // 2)
