"""Named losses, the default loss for an output, and random labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch.nn.functional as F
from torch import Tensor

from profiler_kit.errors import TargetError
from profiler_kit.meta.batch import tensors_in
from profiler_kit.user_code.locations import type_with_article

LabelKind = Literal["classes", "like", "binary", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLoss:
    """A loss: its kind of labels, and a function of (output, label, whether the class dimension is the last).

    `function`: its name in ``torch.nn.functional``.
    """

    labels: LabelKind
    value: Callable[[Tensor, Tensor, bool], Tensor]
    function: str


def _of_classes(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor, bool], Tensor]:
    def value(output: Tensor, label: Tensor, class_last: bool) -> Tensor:
        if class_last and output.dim() > 2:
            output, label = output.flatten(0, -2), label.flatten()
        return loss(output, label)

    return value


LOSSES: Final[dict[str, NamedLoss]] = {
    "cross_entropy": NamedLoss(labels="classes", value=_of_classes(F.cross_entropy), function="cross_entropy"),
    "nll": NamedLoss(labels="classes", value=_of_classes(F.nll_loss), function="nll_loss"),  # of logarithms
    "mse": NamedLoss(labels="like", value=lambda o, y, _: F.mse_loss(o, y), function="mse_loss"),
    "l1": NamedLoss(labels="like", value=lambda o, y, _: F.l1_loss(o, y), function="l1_loss"),
    "smooth_l1": NamedLoss(labels="like", value=lambda o, y, _: F.smooth_l1_loss(o, y), function="smooth_l1_loss"),
    "huber": NamedLoss(labels="like", value=lambda o, y, _: F.huber_loss(o, y), function="huber_loss"),
    "bce_with_logits": NamedLoss(
        labels="binary",
        value=lambda o, y, _: F.binary_cross_entropy_with_logits(o, y),
        function="binary_cross_entropy_with_logits",
    ),
    "bce": NamedLoss(
        labels="binary",
        value=lambda o, y, _: F.binary_cross_entropy(o, y),  # of probabilities
        function="binary_cross_entropy",
    ),
}
# These use every floating-point output, not only the main one.
# The functions and modules of torch that compute one of `LOSSES`.
LOSS_NAMES: Final = {loss.function: name for name, loss in LOSSES.items()} | {
    "CrossEntropyLoss": "cross_entropy", "NLLLoss": "nll", "MSELoss": "mse", "L1Loss": "l1", "SmoothL1Loss": "smooth_l1",
    "HuberLoss": "huber", "BCEWithLogitsLoss": "bce_with_logits", "BCELoss": "bce",
}  # fmt: skip
REDUCTIONS: Final = ("sum", "mean")
CHOICES: Final = (*LOSSES, *REDUCTIONS)


def name_of_function(function: str) -> str:
    """The name of the loss that a function of ``torch.nn.functional`` computes: its own if it is none of `LOSSES`."""
    return next((name for name, loss in LOSSES.items() if loss.function == function), function)


def as_mapping(output: object) -> object:
    """`output` as a mapping if it is a model output class; tensors, mappings, tuples and lists are unchanged."""
    if isinstance(output, (Tensor, Mapping, tuple, list)):
        return output
    return dict(vars(output)) if hasattr(output, "__dict__") else output


def floats_in(output: object) -> list[Tensor]:
    """The floating-point and complex tensors of `output`, in order; of nested tensors the values of all rows."""
    floats = (t for t in tensors_in(as_mapping(output)) if t.is_floating_point() or t.is_complex())
    return [t.values() if t.is_nested else t for t in floats]


def main_output(output: object) -> Tensor:
    """The tensor for the loss: ``logits`` or ``out`` of the output, or its first floating-point tensor. Raises TargetError."""
    values = as_mapping(output)
    if isinstance(values, Mapping):
        for name in ("logits", "out"):
            if isinstance(values.get(name), Tensor):
                return floats_in(values[name])[0] if values[name].is_nested else values[name]
    floats = floats_in(values)
    if not floats:
        raise TargetError(
            f"the output ({type_with_article(output)}) contains no floating-point tensor for a loss",
            hint="define loss_fn(output, *inputs), or use --mode infer",
        )
    return floats[0]


def is_class_last(output: Tensor, token_shapes: tuple[tuple[int, ...], ...], label: Tensor | None) -> bool:
    """Whether the class dimension of a three-dimensional output is the last one, as in (batch, sequence, classes).

    It is the last one if an integer input (the tokens) or `label` has the shape (batch, sequence).
    """
    if output.dim() != 3:
        return False
    front = tuple(output.shape[:2])
    if front in token_shapes:
        return True
    return label is not None and tuple(label.shape) == front and front[1] != output.shape[2]


def class_shape(output: Tensor, class_last: bool) -> tuple[int, ...]:
    """Shape of integer labels for `output`: (N, *spatial), or all dimensions but the last."""
    return tuple(output.shape[:-1]) if class_last else (output.shape[0], *output.shape[2:])


def fits_classes(output: Tensor) -> bool:
    """Whether cross-entropy accepts `output`: at least two dimensions and at least two classes."""
    return output.is_floating_point() and output.dim() >= 2 and output.shape[1] >= 2


def default_loss(output: object, label: Tensor | None, token_shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    """(name, description) of the default loss; `label` is the first label of the batch."""
    main = main_output(output)
    if label is not None:
        return _loss_for_label(main, label, token_shapes)
    if not main.requires_grad and any(value.requires_grad for value in floats_in(output)):
        return "sum", "of the outputs that depend on parameters"
    last = is_class_last(main, token_shapes, None)
    if last and main.shape[-1] >= 2:
        return "cross_entropy", f"with random labels for the {main.shape[-1]} classes of the last dimension"
    if not last and fits_classes(main):
        return "cross_entropy", "with random labels"
    return "sum", "of the floating-point outputs"


def _loss_for_label(main: Tensor, label: Tensor, token_shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    last = is_class_last(main, token_shapes, label)
    if label.is_floating_point():
        if label.shape == main.shape:
            return "mse", "with the labels of the batch"
    elif main.dim() >= 2 and tuple(label.shape) == class_shape(main, last):
        return "cross_entropy", "with the labels of the batch"
    return (
        "sum",
        f"of the floating-point outputs, because labels {tuple(label.shape)} do not fit the output {tuple(main.shape)}",
    )
