"""Ops on lists of tensors, as in gradient clipping: the sum of the op's costs for each tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from profiler_kit.counting.arithmetic import free, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import ZERO, Cost

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
