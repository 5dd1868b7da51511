"""Ops on lists of tensors, as gradient clipping uses them: what the op costs on each tensor, added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from profiler_kit.counting.arithmetic import per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import ZERO, Cost, TensorSpec

POINTWISE = (
    "abs", "acos", "add", "addcdiv", "addcmul", "asin", "atan", "ceil", "clamp_max", "clamp_min", "cos", "cosh", "div",
    "erf", "erfc", "exp", "expm1", "floor", "frac", "lerp", "lgamma", "log", "log10", "log1p", "log2", "maximum",
    "minimum", "mul", "neg", "pow", "reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "sub", "tan",
    "tanh", "trunc",
)  # fmt: skip


@formula(*(f"aten._foreach_{name}" for name in POINTWISE))
def pointwise(tensors: Any, *_: Any, out: Any, **__: Any) -> Cost:
    """One per element of every tensor."""
    lists = tensors if isinstance(tensors, Sequence) else out or ()
    return sum((per_element(spec) for spec in lists), ZERO)


@formula("aten._foreach_norm", "aten._foreach_powsum")
def norms(tensors: Sequence[TensorSpec], *_: Any, out: Any, **__: Any) -> Cost:
    """Square and add."""
    return sum((per_element(spec, 2) for spec in tensors), ZERO)


@formula("aten._foreach_max")
def maxima(tensors: Sequence[TensorSpec], *_: Any, out: Any) -> Cost:
    """One compare per element."""
    return sum((per_element(spec) for spec in tensors), ZERO)


@formula("aten._foreach_clone")
def copies(*args: Any, out: Any, **kwargs: Any) -> Cost:
    """Data moves."""
    return ZERO


@formula("aten._foreach_zero_", "aten._foreach_zero", "aten._foreach_copy_", "aten._foreach_copy", moves="overwrite")
def overwrites(*args: Any, out: Any, **kwargs: Any) -> Cost:
    """The first list is written without being read."""
    return ZERO


@formula("aten._amp_foreach_non_finite_check_and_unscale")
def unscale(tensors: Sequence[TensorSpec], *_: Any, out: Any) -> Cost:
    """One multiplication per element; the check is a comparison."""
    return sum((per_element(spec) for spec in tensors), ZERO)
