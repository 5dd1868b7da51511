"""Losses by name, the one that fits an output, and labels made up for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import tensors_in
from profiler_kit.loading.place import a_kind

LabelKind = Literal["classes", "like", "binary", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLoss:
    """A loss: what labels it compares with, and its value for (output, label, whether the class dimension is the last)."""

    labels: LabelKind
    value: Callable[[Tensor, Tensor, bool], Tensor]


def _cross_entropy(output: Tensor, label: Tensor, class_last: bool) -> Tensor:
    if class_last and output.dim() > 2:
        output, label = output.flatten(0, -2), label.flatten()
    return F.cross_entropy(output, label)


LOSSES: Final[dict[str, NamedLoss]] = {
    "cross_entropy": NamedLoss(labels="classes", value=_cross_entropy),
    "mse": NamedLoss(labels="like", value=lambda o, y, _: F.mse_loss(o, y)),
    "l1": NamedLoss(labels="like", value=lambda o, y, _: F.l1_loss(o, y)),
    "smooth_l1": NamedLoss(labels="like", value=lambda o, y, _: F.smooth_l1_loss(o, y)),
    "bce_with_logits": NamedLoss(labels="binary", value=lambda o, y, _: F.binary_cross_entropy_with_logits(o, y)),
}
# These look at every floating output, not at the main one alone.
REDUCTIONS: Final = ("sum", "mean")
CHOICES: Final = (*LOSSES, *REDUCTIONS)


def plain(output: object) -> object:
    """`output` with mappings and attribute holders (a model output class) as plain mappings."""
    if isinstance(output, (Tensor, Mapping, tuple, list)):
        return output
    return dict(vars(output)) if hasattr(output, "__dict__") else output


def floats_in(output: object) -> list[Tensor]:
    """The floating and complex tensors of `output`, in order."""
    return [t for t in tensors_in(plain(output)) if t.is_floating_point() or t.is_complex()]


def own_loss(output: object) -> tuple[str, Tensor] | None:
    """The loss that the output brings, and where: ``output.loss``, ``output["loss"]``, or the scalar that a tuple begins with."""
    if isinstance(output, Mapping):
        where, found = "output.loss", output.get("loss")
    elif isinstance(output, (tuple, list)) and not hasattr(output, "loss"):
        where, found = "output[0]", output[0] if output else None
        if isinstance(found, Tensor) and not found.requires_grad:  # some other scalar, such as a temperature
            return None
    else:
        where, found = "output.loss", getattr(output, "loss", None)
    if isinstance(found, Tensor) and found.dim() == 0 and found.is_floating_point():
        return where, found
    return None


def main_output(output: object) -> Tensor:
    """The tensor a loss looks at: the output, its ``logits`` or ``out``, else its first floating tensor. Raises TargetError."""
    kept = plain(output)
    if isinstance(kept, Mapping):
        for name in ("logits", "out"):
            if isinstance(kept.get(name), Tensor):
                return kept[name]  # type: ignore[no-any-return]
    floats = floats_in(kept)
    if not floats:
        raise TargetError(
            f"the output holds no floating tensor, but {a_kind(output)}: no loss can be taken of it",
            hint="define loss_fn(output, *inputs), or take --mode infer",
        )
    return floats[0]


def is_class_last(output: Tensor, token_shapes: tuple[tuple[int, ...], ...], label: Tensor | None) -> bool:
    """Whether the classes of a (batch, sequence, classes) output are its last dimension, not the second.

    They are when an integer input (the tokens) or the given label has the shape (batch, sequence).
    """
    if output.dim() != 3:
        return False
    front = tuple(output.shape[:2])
    if front in token_shapes:
        return True
    return label is not None and tuple(label.shape) == front and front[1] != output.shape[2]


def class_shape(output: Tensor, class_last: bool) -> tuple[int, ...]:
    """Shape of the integer labels of `output`: (N, *spatial), or all but the last dimension."""
    return tuple(output.shape[:-1]) if class_last else (output.shape[0], *output.shape[2:])


def fits_classes(output: Tensor) -> bool:
    """Whether cross-entropy makes sense of `output`: two dimensions at least, two classes at least."""
    return output.is_floating_point() and output.dim() >= 2 and output.shape[1] >= 2


def default_loss(output: object, label: Tensor | None, token_shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    """(name, reason) of the loss for a target that names none; `label` is the first label its batch brings."""
    main = main_output(output)
    if label is not None:
        return _for_label(main, label, token_shapes)
    last = is_class_last(main, token_shapes, None)
    if last and main.shape[-1] >= 2:
        return "cross_entropy", f"over made-up labels for the {main.shape[-1]} classes of the last dimension"
    if not last and fits_classes(main):
        return "cross_entropy", "over made-up labels"
    return "sum", "of the floating outputs"


def _for_label(main: Tensor, label: Tensor, token_shapes: tuple[tuple[int, ...], ...]) -> tuple[str, str]:
    last = is_class_last(main, token_shapes, label)
    if label.is_floating_point():
        if label.shape == main.shape:
            return "mse", "between the output and the batch's labels"
    elif main.dim() >= 2 and tuple(label.shape) == class_shape(main, last):
        return "cross_entropy", "over the batch's labels"
    return "sum", f"of the floating outputs (labels {tuple(label.shape)} do not fit the output {tuple(main.shape)})"


def made_up_label(kind: LabelKind, output: Tensor, class_last: bool, generator: torch.Generator) -> tuple[Tensor, ...]:
    """Labels of `kind` for `output`, on its device, the same for the same generator state."""
    if kind == "none":
        return ()
    if kind == "classes":
        if not class_last and not fits_classes(output):
            raise TargetError(
                f"cross_entropy needs an output (N, classes, ...), got {tuple(output.shape)} {output.dtype}",
                hint="take another --loss, or define loss_fn(output, *inputs)",
            )
        classes = output.shape[-1] if class_last else output.shape[1]
        shape = class_shape(output, class_last)
        if output.device.type == "meta":
            return (torch.empty(shape, dtype=torch.int64, device="meta"),)
        return (torch.randint(0, classes, shape, generator=generator).to(output.device),)
    if output.device.type == "meta":
        return (torch.empty(output.shape, dtype=output.dtype, device="meta"),)
    drawn = (
        torch.randn(output.shape, generator=generator)
        if kind == "like"
        else torch.rand(output.shape, generator=generator)
    )
    return (drawn.to(output.device, output.dtype),)
