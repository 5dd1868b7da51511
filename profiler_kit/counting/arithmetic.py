"""Computations that formulas share: element counts, and costs per multiply-accumulate or per element."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import torch

from profiler_kit.records.counts import ZERO, Cost, TensorSpec

# A complex multiply-accumulate is four real multiplications and four real additions: four real MACs.
COMPLEX_MACS: Final = 4

SOFTMAX_FLOPS: Final = 5  # per element: maximum, subtract, exponential, add, divide
SOFTMAX_BACKWARD_FLOPS: Final = 4  # per element: multiply, add, subtract, multiply

Specs = TensorSpec | Sequence["TensorSpec | None"] | None


def numel(spec: TensorSpec | None) -> int:
    """Elements of `spec`; 0 for an absent tensor."""
    return 0 if spec is None else prod(spec.shape)


def first_tensor(out: Specs) -> TensorSpec | None:
    """The first tensor in an op's result; None without one."""
    if out is None or isinstance(out, TensorSpec):
        return out
    return next((spec for spec in out if spec is not None), None)


def is_float(spec: TensorSpec) -> bool:
    """Whether `spec` is floating-point or complex. Pointwise arithmetic on other dtypes counts 0 FLOPs."""
    return spec.dtype.startswith(("float", "bfloat", "complex"))


def contraction(macs: int, operand: TensorSpec) -> Cost:
    """Cost of `macs` multiply-accumulates in the dtype of `operand`: 2 FLOPs each, 4 real MACs per complex one."""
    real = macs * COMPLEX_MACS if operand.dtype.startswith("complex") else macs
    return Cost(macs=real, flops=2 * real)


def product_macs(a: TensorSpec, b: TensorSpec) -> int:
    """MACs of ``(..., n, k) @ (..., k, m)`` with equal batch dimensions.

    Counts: stored elements only, for a sparse operand. A dtype that packs two four-bit floats per element doubles k.
    """
    macs = numel(a) * b.shape[-1]
    if a.stored is not None:
        macs = min(macs, a.stored * b.shape[-1])
    if b.stored is not None:
        macs = min(macs, a.shape[-2] * b.stored)
    return macs * 2 if a.dtype.endswith("_x2") else macs


def per_element(spec: TensorSpec | None, flops: int = 1) -> Cost:
    """Cost of `flops` per element of `spec`; zero for integer and boolean tensors."""
    if spec is None or not is_float(spec):
        return Cost()
    return Cost(flops=flops * numel(spec))


def per_argument(place: int = 0, flops: int = 1) -> Callable[..., Cost]:
    """A formula: `flops` per element of the positional argument `place`."""
    return lambda *args, out, **_: per_element(args[place], flops)


def per_result(flops: int = 1) -> Callable[..., Cost]:
    """A formula: `flops` per element of the first tensor in the result."""
    return lambda *_, out, **__: per_element(first_tensor(out), flops)


def free(*_: Any, out: Any, **__: Any) -> Cost:
    """A formula: no floating-point arithmetic."""
    return ZERO


def needed_gradients(node_name: str, inputs: int) -> tuple[bool, ...]:
    """For each of an op's first `inputs` differentiable inputs: whether the running backward node needs its gradient.

    Some fused backward ops have no output mask. Their autograd node, named ``<node_name>Backward<n>``, has the
    information. If another node runs, every gradient counts as needed.
    """
    node: Any = torch._C._current_autograd_node()  # None outside backward, although the stub excludes it
    if node is None or node.name().rpartition("Backward")[0] != node_name:
        return (True,) * inputs
    edges = node.next_functions
    return tuple(i >= len(edges) or edges[i][0] is not None for i in range(inputs))
