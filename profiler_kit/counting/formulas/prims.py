"""Primitive ops of torch's Python decompositions. Forward-mode derivatives use them."""

from __future__ import annotations

from profiler_kit.counting.arithmetic import free, per_argument, per_result
from profiler_kit.counting.formulas import formula

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
