"""Normalizations and softmax: FLOPs per element, from the textbook steps.

A mean costs 1 FLOP per element, mean and variance 4 (add; subtract, square, add), normalizing 2 (subtract, multiply), an
affine transform 1 each for weight and bias. Arithmetic per channel is not counted: it is smaller by the number of elements
per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from profiler_kit.counting.arithmetic import (
    SOFTMAX_BACKWARD_FLOPS,
    SOFTMAX_FLOPS,
    free,
    per_argument,
    per_element,
    per_result,
)
from profiler_kit.counting.formulas import formula, named_formula
from profiler_kit.records.counts import Cost, TensorSpec

STATISTICS_FLOPS: Final = 4
NORMALIZE_FLOPS: Final = 2


@named_formula(
    "aten._native_batch_norm_legit", "aten._native_batch_norm_legit_functional", "aten._batch_norm_with_update",
    "aten._batch_norm_with_update_functional", "aten.native_group_norm", "aten.native_layer_norm",
)  # fmt: skip
def normalize(
    *, x: TensorSpec, weight: TensorSpec | None = None, bias: TensorSpec | None = None, training: bool = True, out: Any,
    **_: Any,
) -> Cost:  # fmt: skip
    """Statistics in training, then normalize and affine."""
    flops = (STATISTICS_FLOPS if training else 0) + NORMALIZE_FLOPS + (weight is not None) + (bias is not None)
    return per_element(x, flops)


# Normalize by existing statistics, then affine.
named_formula("aten._native_batch_norm_legit_no_training", "aten._batch_norm_no_update", "aten.batch_norm_elemt")(
    partial(normalize, training=False)
)


@named_formula("aten.native_batch_norm", "aten.cudnn_batch_norm", "aten.miopen_batch_norm")
def batch_norm(
    *, training: bool, running_mean: TensorSpec | None = None, running_var: TensorSpec | None = None, out: Any,
    **arguments: Any,
) -> Cost:  # fmt: skip
    """Batch normalization. Training also writes the running statistics, which the op's schema does not declare."""
    updated = sum(spec.nbytes for spec in (running_mean, running_var) if spec is not None) if training else 0
    return normalize(training=training, out=out, **arguments) + Cost(write_bytes=updated)


@named_formula(
    "aten.native_batch_norm_backward", "aten.batch_norm_backward", "aten.cudnn_batch_norm_backward",
    "aten.miopen_batch_norm_backward", "aten.native_layer_norm_backward", "aten.native_group_norm_backward",
)  # fmt: skip
def norm_backward(
    *, x: TensorSpec, weight: TensorSpec | None = None, output_mask: Sequence[bool] = (True, True, True),
    train: bool = True, update: bool = True, out: Any, **_: Any,
) -> Cost:  # fmt: skip
    """The gradients dX, dweight and dbias of a normalization, for those in `output_mask`. `train`, `update`: batch statistics.

    dX with batch statistics, per element: recompute x̂ (2), gradient times weight (1), two sums (3: add; multiply, add),
    their combination (4). dX with running statistics: gradient times scale (1). dweight: multiply and add (2), plus x̂ (2)
    if dX did not compute it. dbias: add (1).
    """
    statistics, flops = train and update, 0
    if output_mask[0]:
        flops += NORMALIZE_FLOPS + (weight is not None) + 3 + 4 if statistics else 1
    if output_mask[1]:
        flops += 2 if output_mask[0] and statistics else 2 + NORMALIZE_FLOPS
    if output_mask[2]:
        flops += 1
    return per_element(x, flops)


@formula("aten._fused_rms_norm")
def rms_norm(x: TensorSpec, shape: Sequence[int], weight: TensorSpec | None, eps: float | None, *, out: Any) -> Cost:
    """Square and add, scale, and the weight."""
    return per_element(x, 3 + (weight is not None))


@formula("aten._fused_rms_norm_backward")
def rms_norm_backward(
    grad: TensorSpec, x: TensorSpec, shape: Sequence[int], rstd: Any, weight: TensorSpec | None,
    output_mask: Sequence[bool], *, out: Any,
) -> Cost:  # fmt: skip
    """dX: x̂ (1), gradient times weight (1), its dot product with x̂ (2), combination (3). dweight: multiply, add."""
    flops = (1 + (weight is not None) + 2 + 3 if output_mask[0] else 0) + (2 if output_mask[1] else 0)
    return per_element(x, flops)


# maximum, subtract, exponential, add, and divide (softmax) or subtract the logarithm
formula(
    "aten._softmax", "aten._log_softmax", "aten._safe_softmax", "aten._masked_softmax",
    "aten._nested_tensor_softmax_with_shape",
)(per_result(SOFTMAX_FLOPS))  # fmt: skip
# multiply (or exponential), add, and the subtraction and multiplication that combine them
formula("aten._softmax_backward_data", "aten._log_softmax_backward_data", "aten._masked_softmax_backward")(
    per_argument(1, SOFTMAX_BACKWARD_FLOPS)
)
formula("aten._weight_norm_interface")(per_argument(0, 3))  # square, add, scale
# a dot product (2), and its combination with the scaled gradient (3)
formula("aten._weight_norm_interface_backward")(per_argument(1, 5))
# the share of one process in synchronized batch normalization
formula("aten.batch_norm_stats", "aten.batch_norm_update_stats")(per_argument(0, STATISTICS_FLOPS))
# arithmetic per channel, not counted
formula("aten.batch_norm_gather_stats", "aten.batch_norm_gather_stats_with_counts")(free)
formula("aten.batch_norm_backward_reduce")(per_argument(1, NORMALIZE_FLOPS + 3))  # recompute x̂ (2), two sums (3)
formula("aten.batch_norm_backward_elemt")(per_argument(1, 4))  # the combination of gradient, x̂ and sums (4)
