"""Labels for models that compute their own loss: an optional parameter of forward, such as ``targets``, turns it on."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.training_step.labels import Example, Label, labels_for_loss
from profiler_kit.loading.training_step.losses import main_output
from profiler_kit.loading.training_step.meta_trials import MetaTrials
from profiler_kit.loading.training_step.output_losses import loss_in_output
from profiler_kit.loading.training_step.script_loss import newly_stored, stored_scalars
from profiler_kit.loading.vocabulary import LABELS
from profiler_kit.meta.batch import Batch, tensors_in


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLabel:
    """A label for the parameter `name` of forward. `label` is None if the batch brings a label, which is used.

    `stored`: the attribute with the loss, of a model that stores it; empty if the model returns it.
    """

    name: str
    label: Label | None
    stored: str = ""


def label_parameters(model: nn.Module, batch: Batch, passed: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The optional parameters of the model's forward that `batch` does not fill and that may take a label.

    Those with a usual name come first, then those that scripts pass, `passed`.
    """
    try:
        parameters = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        return ()
    filled = {p.name for p in parameters[: len(batch.args)]} | set(batch.kwargs)
    optional = [p.name for p in parameters if p.default is None and p.kind is not p.POSITIONAL_ONLY]
    usual = [name for name in LABELS if name in optional and name not in filled][:1]
    return (*usual, *(name for name in optional if name in passed and name not in (*usual, *filled)))


def find_model_label(trials: MetaTrials, name: str) -> ModelLabel | None:
    """The label for the parameter `name` with which the model returns or stores its loss; None if no label makes it do so."""
    model, batch, output = trials.model, trials.batch, trials.output()
    if model is None or output is None or loss_in_output(output) is not None:
        return None
    try:
        main = main_output(output)
    except TargetError:
        return None  # forward without labels returns no tensor to compare labels with
    example = Example(main=main, inputs=tuple(batch.tensors()))

    def run(labels: Mapping[str, Tensor]) -> tuple[Any, dict[str, Tensor]]:
        """The output, and the scalars that forward stored, which are gone after the trial."""
        return model(*batch.args, **{**batch.kwargs, **labels}), stored_scalars(model)

    always_stored = frozenset(trials.run(lambda: run({}))[1])
    stored = ""

    def loss(labels: Mapping[str, Tensor]) -> Any:
        nonlocal stored
        result, scalars = trials.run(lambda: run(labels))
        own = loss_in_output(result)
        attribute = newly_stored(scalars, always_stored) if own is None else None
        stored = attribute[0] if attribute is not None else ""
        return own.value if own is not None else attribute[1] if attribute is not None else result

    provided = next(tensors_in(batch.labels), None)
    if provided is not None:
        trial = labels_for_loss((), example, lambda _: loss({name: provided}))
        return ModelLabel(name=name, label=None, stored=stored) if trial.labels is not None else None
    trial = labels_for_loss((name,), example, loss)
    if trial.labels is None:
        return None
    return ModelLabel(name=name, label=trial.labels[0], stored=stored)
