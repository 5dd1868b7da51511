"""The few computations that formulas share: element counts, and what a multiply-accumulate or an element costs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from profiler_kit.records.counts import Cost, TensorSpec

# A complex multiply-accumulate is four real multiplications and four real additions: four real MACs.
COMPLEX_MACS: Final = 4

SOFTMAX_FLOPS: Final = 5  # per element: maximum, subtract, exponential, add, divide
SOFTMAX_BACKWARD_FLOPS: Final = 4  # per element: multiply, add, subtract, multiply

Specs = TensorSpec | Sequence["TensorSpec | None"] | None


def numel(spec: TensorSpec | None) -> int:
    """Elements of `spec`; 0 for an absent tensor."""
    return 0 if spec is None else prod(spec.shape)


def first(out: Specs) -> TensorSpec | None:
    """The first tensor of what an op returned."""
    if out is None or isinstance(out, TensorSpec):
        return out
    return next((spec for spec in out if spec is not None), None)


def is_float(spec: TensorSpec) -> bool:
    """Whether `spec` holds floating-point or complex numbers, the only ones whose pointwise arithmetic is FLOPs."""
    return spec.dtype.startswith(("float", "bfloat", "complex"))


def contraction(macs: int, operand: TensorSpec) -> Cost:
    """`macs` multiply-accumulates in the dtype of `operand`, as two FLOPs each."""
    real = macs * COMPLEX_MACS if operand.dtype.startswith("complex") else macs
    return Cost(macs=real, flops=2 * real)


def per_element(spec: TensorSpec | None, flops: int = 1) -> Cost:
    """`flops` for every element of `spec`; nothing where it holds no floating-point numbers."""
    if spec is None or not is_float(spec):
        return Cost()
    return Cost(flops=flops * numel(spec))
