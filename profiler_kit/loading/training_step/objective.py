"""The loss of a target: its own `loss_fn`, a named loss, or a default that fits the output."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.training_step.labels import Example, usual_label
from profiler_kit.loading.training_step.losses import (
    LOSSES,
    LabelKind,
    default_loss,
    fits_classes,
    floats_in,
    is_class_last,
    main_output,
)
from profiler_kit.loading.training_step.output_losses import is_output_path, loss_in_output, select_loss
from profiler_kit.loading.training_step.script_loss import ScriptLoss, loss_kinds
from profiler_kit.meta.batch import Batch, map_tensors, tensors_in
from profiler_kit.records.notes import Certainty, Choice, Note
from profiler_kit.user_code.locations import type_with_article, user_errors

AUTO = "auto"

# Loss modules with class labels or probabilities. All others compare with a tensor of the output's shape.
_LABELS_OF: dict[type[nn.Module], LabelKind] = {
    nn.CrossEntropyLoss: "classes",
    nn.NLLLoss: "classes",
    nn.MultiMarginLoss: "classes",
    nn.BCEWithLogitsLoss: "binary",
    nn.BCELoss: "binary",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedLoss:
    """A prepared loss for outputs of one shape: `function(output, *values)`, with at most `places` values."""

    shape: torch.Size
    function: Callable[..., Any]
    places: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A loss: a function of the target, or a name (`AUTO`: determined by the first output).

    `preferred` is the named loss of a run of the program, or the one that a training script names at the line `named_at`; it is
    used instead of a default.
    `certainty`: how it is known, once it is settled.
    `scripts` are the losses of training scripts, of which the first that runs is used; `script` is that loss. `notes` are
    lines for the report.
    """

    name: str
    function: Callable[..., Any] | None = None
    notes: tuple[Note, ...] = ()
    where: str | None = None
    token_shapes: tuple[tuple[int, ...], ...] = ()
    scripts: tuple[ScriptLoss, ...] = ()
    script: ScriptLoss | None = None
    preferred: str | None = None
    named_at: str = ""
    certainty: Certainty = "stated"

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The loss, if it is assumed."""
        options = ("--loss", self.name)
        return (Choice(subject="loss", value=self.name, options=options),) if self.certainty == "assumed" else ()

    def settled(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Objective:
        """This objective with `AUTO` replaced by the loss for `output`, which `labels` of the batch may determine."""
        if self.name != AUTO or self.function is not None:
            return self
        failure: tuple[Note, ...] = ()
        for script in self.scripts:
            fitted = script.fitted(output, batch, labels)
            if isinstance(fitted, ScriptLoss):
                return replace(
                    self,
                    name=fitted.name,
                    script=fitted,
                    where=fitted.where,
                    notes=(*self.notes, fitted.note),
                    certainty="assumed" if fitted.is_in_test else "derived",
                )
            text = f"the training step at {script.where} does not run here ({fitted}), so it is not used"
            failure = failure or (Note(subject="loss", text=text),)
        settled = self._of_kind(output, batch, labels) or self._default(output, batch, labels)
        return replace(settled, notes=settled.notes + failure)

    def _of_kind(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Objective | None:
        """The first loss of torch that a training step computes which does not run here; None if none fits the output.

        It is derived if the step itself calls it, and no other one; else assumed.
        """
        for script in self.scripts:
            kinds, is_direct = loss_kinds(script)
            name = next((kind for kind in kinds if replace(self, name=kind)._runs(output, batch, labels)), None)
            if name is not None:
                note = Note(subject="loss", text=f"{name}, which the training step at {script.where} computes")
                is_known = is_direct and len(kinds) == 1 and not script.is_in_test
                certainty: Certainty = "derived" if is_known else "assumed"
                return replace(self, name=name, notes=(*self.notes, note), where=script.where, certainty=certainty)
        return None

    def _default(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Objective:
        own = loss_in_output(output)
        if own is not None:
            note = Note(subject="loss", text=f"{own.name} {own.reason}")
            return replace(self, name=own.name, notes=(*self.notes, note), certainty="derived")
        if self.preferred is not None and replace(self, name=self.preferred)._runs(output, batch, labels):
            reason = f"which {self.named_at} names" if self.named_at else "as the program computed it"
            note = Note(subject="loss", text=f"{self.preferred}, {reason}")
            certainty: Certainty = "assumed" if self.named_at else "derived"
            return replace(self, name=self.preferred, notes=(*self.notes, note), certainty=certainty)
        name, reason = default_loss(output, next(tensors_in(labels), None), self.token_shapes)
        text = f"{name} {reason} (the target defines no loss_fn)"
        default = Note(subject="loss", code="default_loss", text=text)
        return replace(self, name=name, notes=(*self.notes, default), certainty="assumed")

    def _runs(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> bool:
        """Whether this loss is a number for outputs and labels like these, on meta tensors."""
        on_meta = map_tensors(output, lambda tensor: tensor.detach().to("meta"))
        try:
            values = labels or self.make_labels(on_meta, batch, torch.Generator())
            loss = self._value(on_meta, batch, map_tensors(values, lambda tensor: tensor.to("meta")))
        except (TargetError, RuntimeError, ValueError, TypeError, IndexError):
            return False
        return isinstance(loss, Tensor) and loss.dim() == 0

    def moved(self, device: torch.device, model: nn.Module, change: Callable[[nn.Module], nn.Module]) -> Objective:
        """This objective for `model` on `device`, with its own modules replaced by ``change(module)``."""
        function = self.function
        if isinstance(function, nn.Module):
            function = change(function).to(device)
        return replace(
            self,
            function=function,
            scripts=tuple(script.moved(device, model, change) for script in self.scripts),
            script=self.script.moved(device, model, change) if self.script is not None else None,
        )

    def user_objects(self) -> tuple[Any, ...]:
        """The functions of the user that compute the loss, and the values that they read."""
        scripts = self.scripts if self.script is None else (self.script,)
        return (self.function, *(script.constants for script in scripts))

    def make_labels(self, output: object, batch: Batch, generator: torch.Generator) -> tuple[Any, ...]:
        """Random labels for `output` of `batch`; () if the loss needs none."""
        if self.script is not None:
            return self.script.make_labels(output, batch, generator)
        kind = self._label_kind()
        if kind == "none":
            return ()
        example = Example(main=main_output(output), inputs=tuple(batch.tensors()))
        main = example.main
        if kind == "classes" and not example.is_class_last and not fits_classes(main):
            raise TargetError(
                f"cross_entropy needs an output of shape (N, classes, ...), got {tuple(main.shape)} {main.dtype}",
                hint="use another --loss, or define loss_fn(output, *inputs)",
            )
        return (usual_label("label", kind, example).make(example, generator, main.device),)

    def _label_kind(self) -> LabelKind:
        if self.function is not None:
            # A torch.nn loss gets labels; a function of the target gets the inputs.
            is_stock = isinstance(self.function, nn.Module) and type(self.function).__module__.startswith("torch.nn")
            return _LABELS_OF.get(type(self.function), "like") if is_stock else "none"  # type: ignore[arg-type]
        return LOSSES[self.name].labels if self.name in LOSSES else "none"

    def __call__(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Tensor:
        """Compute the scalar loss. Raises TargetError for an invalid loss; out-of-memory errors pass through."""
        hint = "define a loss_fn(output, *labels) that fits the output, or use another --loss"
        with user_errors(f"the loss {self.name}", where=self.where, hint=hint):
            loss = self._value(output, batch, labels)
        if not isinstance(loss, Tensor):
            raise TargetError(
                f"loss_fn returned {type_with_article(loss)}, not a tensor",
                where=self.where,
                hint="return the scalar loss tensor",
            )
        is_one = self.script is not None and loss.numel() == 1  # backward() of a script takes it
        if loss.dim() != 0 and not is_one:
            raise TargetError(
                f"the loss {self.name} has shape {tuple(loss.shape)}, but must be a scalar",
                where=self.where,
                hint="return loss.mean() or loss.sum()",
            )
        if torch.is_grad_enabled() and not loss.requires_grad:
            raise TargetError(
                f"the loss {self.name} does not depend on any parameter",
                where=self.where,
                hint="check the model for .detach(), .item() or no_grad, or use --mode infer",
            )
        return loss if loss.dim() == 0 else loss.reshape(())

    def quick(self, output: object, labels: tuple[Any, ...]) -> PreparedLoss | None:
        """A prepared loss for outputs of the same shape, after `__call__` has validated one; None if not possible.

        It skips the checks of shapes and signatures, which would slow down the steps of small models.
        """
        if type(output) is not Tensor:
            return None
        if self.script is not None:
            return (
                None
                if self.script.reads_inputs
                else PreparedLoss(
                    shape=output.shape, function=_without_batch(self.script), places=len(self.script.label_names)
                )
            )
        if self.function is not None:
            stock = isinstance(self.function, nn.Module) and self._label_kind() != "none"
            places = None if stock else _argument_count_after_output(self.function)
            return PreparedLoss(shape=output.shape, function=self.function, places=places)
        if self.name not in LOSSES or len(labels) != 1 or main_output(output) is not output:
            return None
        class_last = is_class_last(output, self.token_shapes, labels[0])
        value = LOSSES[self.name].value
        return PreparedLoss(shape=output.shape, function=lambda o, label: value(o, label, class_last), places=None)

    def _value(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Any:
        if self.script is not None:
            return self.script(output, batch, labels)
        if self.function is not None:
            if isinstance(self.function, nn.Module) and self._label_kind() != "none":
                return self.function(main_output(output), *labels)
            return self.function(output, *(labels or batch.values())[: _argument_count_after_output(self.function)])
        if is_output_path(self.name):
            return select_loss(output, self.name)
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


def _without_batch(script: ScriptLoss) -> Callable[..., Any]:
    batch = Batch()
    return lambda output, *labels: script(output, batch, labels)


@lru_cache(maxsize=64)  # called in every step; reading a signature takes longer than computing many losses
def _argument_count_after_output(function: Callable[..., Any]) -> int | None:
    """The number of positional arguments of `function` after the first; None for any number."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    return max(sum(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) - 1, 0)
