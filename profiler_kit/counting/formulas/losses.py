"""Losses that are one op: FLOPs per element of the input, including the final reduction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from profiler_kit.counting.arithmetic import numel, per_argument, per_element
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec

_NONE = 0  # at::Reduction::None

# log-sum-exp of three terms plus the emission, 1 FLOP per function: two maxima, three subtractions, three exponentials,
# two adds, a logarithm, and adding the maximum and the emission
CTC_STATE_FLOPS: Final = 13


def per_input(flops: int) -> Callable[..., Cost]:
    """A formula: `flops` per element of the input, plus 1 if the loss is reduced."""
    return lambda x, target, reduction=1, *_, out: per_element(x, flops + (reduction != _NONE))


formula("aten.mse_loss")(per_input(2))  # subtract, square
formula("aten.l1_loss")(per_input(2))  # subtract, absolute value
# subtract, absolute value, then square and scale (the quadratic branch)
formula("aten.smooth_l1_loss", "aten.huber_loss")(per_input(4))
formula("aten.soft_margin_loss")(per_input(4))  # negate, product, exponential, log1p
formula("aten.mse_loss_backward")(per_argument(1, 2))  # subtract, scale by the gradient
# subtract, divide, scale by the gradient
formula("aten.smooth_l1_loss_backward", "aten.huber_loss_backward")(per_argument(1, 3))


@formula("aten.binary_cross_entropy")
def binary_cross_entropy(
    x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, reduction: int = 1, *, out: TensorSpec
) -> Cost:
    """Two logarithms, two complements, two products, an add; the weight; the reduction."""
    return per_element(x, 7 + (weight is not None) + (reduction != _NONE))


@formula("aten.binary_cross_entropy_backward")
def binary_cross_entropy_backward(
    grad: TensorSpec, x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, *_: Any, out: TensorSpec
) -> Cost:
    """Subtract, complement, product, divide, scale by the gradient; the weight."""
    return per_element(x, 5 + (weight is not None))


@formula("aten.binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, pos_weight: TensorSpec | None = None,
    reduction: int = 1, *, out: TensorSpec,
) -> Cost:  # fmt: skip
    """Complement, product, log-sigmoid, subtract; the weights; the reduction."""
    return per_element(x, 4 + (weight is not None) + 3 * (pos_weight is not None) + (reduction != _NONE))


# product, exponential, add, divide, scale by the gradient
formula("aten.soft_margin_loss_backward")(per_argument(1, 5))
# Per class: subtract from the target's score, add the margin, clamp, add; one target per row.
formula("aten.multi_margin_loss", "aten.multilabel_margin_loss_forward")(per_argument(0, 4))
# Per class: the same three steps, and adding to the target's gradient.
formula("aten.multi_margin_loss_backward", "aten.multilabel_margin_loss_backward")(per_argument(1, 4))


@formula("aten.nll_loss_forward", "aten.nll_loss2d_forward", "aten.nll_loss", "aten.nll_loss2d", moves="own")
def nll_loss(x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, *_: Any, out: Any) -> Cost:
    """1 FLOP (add) per target. Only the targets' elements of the input are read."""
    targets = numel(target)
    itemsize = x.nbytes // numel(x) if numel(x) else 0
    outputs = (out,) if isinstance(out, TensorSpec) else out
    return Cost(
        flops=targets * (1 if weight is None else 2),
        read_bytes=targets * itemsize + target.nbytes + (weight.nbytes if weight is not None else 0),
        write_bytes=sum(spec.nbytes for spec in outputs if spec is not None),
    )


@formula("aten.nll_loss_backward", "aten.nll_loss2d_backward", moves="own")
def nll_loss_backward(
    grad: TensorSpec, x: TensorSpec, target: TensorSpec, weight: TensorSpec | None = None, *_: Any, out: TensorSpec
) -> Cost:
    """1 FLOP (negation) per target, into a gradient of zeros. The input is not read."""
    read = grad.nbytes + target.nbytes + (weight.nbytes if weight is not None else 0)
    return Cost(flops=numel(target) * (1 if weight is None else 2), read_bytes=read, write_bytes=out.nbytes)


def ctc_states(log_probs: TensorSpec, targets: TensorSpec, input_lengths: object, target_lengths: object) -> int:
    """States of the alignment over all sequences: T (2 L + 1) each.

    Shapes: log_probs (t, b, c), targets (b, l) or packed. Lengths in tensors are unknown; the maximum length is used instead.
    """
    steps, batch = log_probs.shape[0], log_probs.shape[1]
    if isinstance(input_lengths, Sequence) and isinstance(target_lengths, Sequence):
        return sum(t * (2 * length + 1) for t, length in zip(input_lengths, target_lengths, strict=True))
    labels = batch * targets.shape[-1] if len(targets.shape) == 2 else targets.shape[0]
    return steps * (2 * labels + batch)


@formula("aten._ctc_loss", "aten._cudnn_ctc_loss", "aten.miopen_ctc_loss")
def ctc_loss(
    log_probs: TensorSpec, targets: TensorSpec, input_lengths: Any, target_lengths: Any, *_: Any, out: Any, **__: Any
) -> Cost:
    """The forward recursion, `CTC_STATE_FLOPS` per state and time step."""
    return Cost(flops=CTC_STATE_FLOPS * ctc_states(log_probs, targets, input_lengths, target_lengths))


@formula("aten._ctc_loss_backward")
def ctc_loss_backward(
    grad: TensorSpec, log_probs: TensorSpec, targets: TensorSpec, input_lengths: Any, target_lengths: Any,
    *_: Any, out: Any, **__: Any,
) -> Cost:  # fmt: skip
    """The backward recursion, its sum with the forward recursion per class, and the gradient: 5 per class and time step.

    Counts: per state, also an add and a log-sum-exp of two terms (5).
    """
    states = ctc_states(log_probs, targets, input_lengths, target_lengths)
    return Cost(flops=(CTC_STATE_FLOPS + 6) * states + 5 * numel(log_probs))
