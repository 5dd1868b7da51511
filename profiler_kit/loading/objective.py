"""What a target trains towards: its own `loss_fn`, a named loss, or the default that its output calls for."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import Batch, tensors_in
from profiler_kit.loading.losses import (
    LOSSES,
    LabelKind,
    default_loss,
    floats_in,
    is_class_last,
    made_up_label,
    main_output,
    own_loss,
)
from profiler_kit.loading.place import a_kind, user_errors

AUTO = "auto"
OWN_LOSSES = {  # where an output may bring its loss, and why that is taken
    "output.loss": "because the output brings it",
    "output[0]": "because the output is a tuple that begins with a scalar",
}

# Loss modules that compare with class labels or with probabilities; every other one compares with something output-like.
_LABELS_OF: dict[type[nn.Module], LabelKind] = {
    nn.CrossEntropyLoss: "classes",
    nn.NLLLoss: "classes",
    nn.MultiMarginLoss: "classes",
    nn.BCEWithLogitsLoss: "binary",
    nn.BCELoss: "binary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QuickLoss:
    """A loss for tensors of one shape, all questions answered: `function` of the output and as many values as it takes."""

    shape: torch.Size
    function: Callable[..., Any]
    places: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """How a loss is taken: a callable of the target, or a name (`AUTO`: settled by the first output)."""

    name: str
    function: Callable[..., Any] | None = None
    reason: str = ""
    where: str | None = None
    token_shapes: tuple[tuple[int, ...], ...] = ()

    def settled(self, output: object, labels: tuple[Any, ...]) -> Objective:
        """This objective with its name no longer open, now that an output is known."""
        if self.name != AUTO or self.function is not None:
            return self
        own = own_loss(output)
        if own is not None:
            return replace(self, name=own[0], reason=OWN_LOSSES[own[0]])
        name, reason = default_loss(output, next(tensors_in(labels), None), self.token_shapes)
        return replace(self, name=name, reason=f"{reason}, because no loss_fn is defined")

    def make_labels(self, output: object, generator: torch.Generator) -> tuple[Any, ...]:
        """Labels for `output`, made up; () when the loss needs none."""
        kind = self._label_kind()
        if kind == "none":
            return ()
        main = main_output(output)
        return made_up_label(kind, main, is_class_last(main, self.token_shapes, None), generator)

    def _label_kind(self) -> LabelKind:
        if self.function is not None:
            # A module of torch.nn compares with labels; a function is the target's own and is given the inputs.
            is_stock = isinstance(self.function, nn.Module) and type(self.function).__module__.startswith("torch.nn")
            return _LABELS_OF.get(type(self.function), "like") if is_stock else "none"  # type: ignore[arg-type]
        return LOSSES[self.name].labels if self.name in LOSSES else "none"

    def __call__(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Tensor:
        """The scalar loss. Raises TargetError when there is no such thing; out-of-memory goes through."""
        hint = "define loss_fn(output, *labels) that fits the output, or take another --loss"
        with user_errors(f"the loss {self.name}", where=self.where, hint=hint):
            loss = self._value(output, batch, labels)
        if not isinstance(loss, Tensor):
            raise TargetError(
                f"loss_fn returned {a_kind(loss)}, not a tensor",
                where=self.where,
                hint="return the scalar loss tensor",
            )
        if loss.dim() != 0:
            raise TargetError(
                f"the loss {self.name} has shape {tuple(loss.shape)}, not a scalar",
                where=self.where,
                hint="return loss.mean() or loss.sum()",
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise TargetError(
                f"the loss {self.name} does not depend on any parameter",
                where=self.where,
                hint="check for .detach(), .item() or no_grad in the model, or take --mode infer",
            )
        return loss

    def quick(self, output: object, labels: tuple[Any, ...]) -> QuickLoss | None:
        """A shorter way to the loss of outputs like `output`, for once `__call__` has found it right; None where there is none.

        What a loss needs to know of shapes is known by then, and asking again in every step would slow small models down.
        """
        if type(output) is not Tensor:
            return None
        if self.function is not None:
            stock = isinstance(self.function, nn.Module) and self._label_kind() != "none"
            places = None if stock else _places_after_output(self.function)
            return QuickLoss(shape=output.shape, function=self.function, places=places)
        if self.name not in LOSSES or len(labels) != 1 or main_output(output) is not output:
            return None
        class_last = is_class_last(output, self.token_shapes, labels[0])
        value = LOSSES[self.name].value
        return QuickLoss(shape=output.shape, function=lambda o, label: value(o, label, class_last), places=None)

    def _value(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Any:
        if self.function is not None:
            if isinstance(self.function, nn.Module) and self._label_kind() != "none":
                return self.function(main_output(output), *labels)
            return self.function(output, *(labels or batch.values())[: _places_after_output(self.function)])
        if self.name in OWN_LOSSES:
            own = own_loss(output)
            return own[1] if own is not None else None
        if self.name in LOSSES:
            main = main_output(output)
            label = next(tensors_in(labels))
            return LOSSES[self.name].value(main, label, is_class_last(main, self.token_shapes, label))
        total = [t.abs() if t.is_complex() else t for t in floats_in(output)]
        if not total:
            main_output(output)
        sums = [
            t.sum() if self.name == "sum" else t.mean() for t in total if t.requires_grad or not torch.is_grad_enabled()
        ]
        return sum(sums[1:], start=sums[0]) if sums else total[0].sum()


@lru_cache(maxsize=64)  # asked in every step, and reading a signature takes longer than many a loss
def _places_after_output(function: Callable[..., Any]) -> int | None:
    """How many positional arguments `function` takes after the first; None where any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return max(sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) - 1, 0)
