"""Assembles a Target from a model: adds inputs, loss and optimizer, and collects notes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError
from profiler_kit.foreign import attribute_of
from profiler_kit.loading.command import next_command
from profiler_kit.loading.evidence.input_check import check_batch
from profiler_kit.loading.evidence.program_inputs import loader_batches
from profiler_kit.loading.evidence.providers import find_inputs, layer_inputs
from profiler_kit.loading.evidence.record import Evidence
from profiler_kit.loading.evidence.subject import Subject
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.model import OptimizerRecipe, Target
from profiler_kit.loading.training_step.lightning import as_step, find_lightning_step, has_training_step
from profiler_kit.loading.training_step.losses import LOSSES
from profiler_kit.loading.training_step.meta_trials import MetaTrials, is_without_gradients, may_stop_gradients
from profiler_kit.loading.training_step.model_labels import find_model_label, label_parameters
from profiler_kit.loading.training_step.objective import AUTO, Objective
from profiler_kit.loading.training_step.optimizers import DEFAULT, OPTIMIZERS
from profiler_kit.loading.training_step.output_losses import is_output_path, loss_in_output
from profiler_kit.loading.training_step.script_loss import ScriptLoss, stored_loss
from profiler_kit.loading.training_step.script_optimizer import (
    CONFIGURE,
    optimizer_problem,
    optimizer_text,
    own_configuration,
)
from profiler_kit.loading.training_step.script_steps import ScriptSteps
from profiler_kit.meta.batch import Batch, forward_of, map_batch
from profiler_kit.meta.compilation import Wrapper
from profiler_kit.meta.copies import copy_with_weights, meta_copy
from profiler_kit.meta.device_moves import moves_redirected
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.notes import Choice, Confidence, Note, plain_notes
from profiler_kit.records.seen import SeenRun
from profiler_kit.records.target import IN_PYTHON, Pinned, TargetInfo, TargetSpec
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import type_with_article, user_errors
from profiler_kit.user_code.restoration import restored_objects


def _with_model_label(
    spec: TargetSpec, model: nn.Module, inputs: Evidence, device: torch.device, passed: frozenset[str]
) -> tuple[Evidence, tuple[ScriptLoss, ...]]:
    """`inputs` with a label, if an optional parameter of forward makes the model return or store its loss; the stored loss.

    `passed` are the parameters that scripts pass.
    """
    names = label_parameters(model, inputs.value, passed)
    trials = MetaTrials(model, inputs.value, spec.seed) if names else None
    model_label = next(filter(None, (find_model_label(trials, name) for name in names if trials is not None)), None)
    if model_label is None:
        return inputs, ()
    name, stored = model_label.name, model_label.stored
    losses = (stored_loss(stored, model),) if stored else ()
    purpose = f"so that forward stores {stored}" if stored else "so that the model returns its loss"
    if model_label.label is None:
        loader = replace(inputs.loader, label_parameter=name) if inputs.loader is not None else None
        note = Note(subject="labels", text=f"{name} from the batch, {purpose}")
        return replace(inputs, value=inputs.value.with_label(name), loader=loader, notes=(*inputs.notes, note)), losses
    label = model_label.label
    kwargs = {**inputs.value.kwargs, name: label.as_input(spec.seed, device)}
    batch = Batch(args=inputs.value.args, kwargs=kwargs, labels=inputs.value.labels)
    note = Note(subject="labels", text=f"random {label.text}, {purpose}")
    return replace(inputs, value=batch, notes=(*inputs.notes, note)), losses


def _find_inputs(subject: Subject, loss_fn: object) -> tuple[Subject, Evidence, bool]:
    """The subject, its inputs, and whether they are for the step of a Lightning module, which is now the forward of the model.

    Raises TargetError or UsageError if there are no inputs.
    """
    spec, model = subject.spec, subject.model
    if spec.mode != "train" or spec.loss is not None or loss_fn is not None or not has_training_step(model):
        return subject, find_inputs(subject), False
    kind = type(model)
    if subject.loader is not None:
        model.__class__ = as_step(kind)
        forward = forward_of(model)
        stepping = replace(subject, forward=forward, loader=replace(subject.loader, forward=forward))
        step_inputs = find_inputs(stepping)
        if loss_in_output(MetaTrials(model, step_inputs.value, spec.seed).output()) is not None:
            return stepping, step_inputs, True
        model.__class__ = kind
        return subject, find_inputs(subject), False
    inputs, failure = None, None
    try:
        inputs = find_inputs(subject)
    except TargetError as error:
        failure = error
    candidates: Iterable[Evidence] = [inputs] if inputs is not None else []
    if inputs is None or inputs.strength == "assumed":
        candidates = chain(loader_batches(subject), candidates, layer_inputs(subject))
    with_step = find_lightning_step(model, candidates, spec.seed, subject.device)
    if with_step is not None:
        model.__class__ = as_step(kind)
        return replace(subject, forward=forward_of(model)), with_step, True
    if failure is not None:
        raise failure
    assert inputs is not None
    return subject, inputs, False


def _create_objective(
    spec: TargetSpec,
    batch: Batch,
    loss_fn: object,
    where: str | None,
    steps: ScriptSteps | None,
    own_losses: tuple[ScriptLoss, ...],
) -> Objective | None:
    """The loss of the target, of which `own_losses` are the model's; None in ``infer`` mode.

    Raises TargetError if `loss_fn` is not callable.
    """
    if spec.mode == "infer":
        return None
    tokens = tuple(tuple(t.shape) for t in batch.tensors() if not (t.is_floating_point() or t.is_complex()))
    if spec.loss is not None:
        return Objective(name=spec.loss, token_shapes=tokens)
    if loss_fn is None:
        losses: list[ScriptLoss | str] = [*own_losses] or (list(steps.losses()) if steps is not None else [])
        scripts = tuple(loss for loss in losses if not isinstance(loss, str))
        problems = (
            [Note(subject="loss", text=loss) for loss in losses if isinstance(loss, str)][:1] if not scripts else []
        )
        preferred, named_at = (spec.seen.loss, "") if spec.seen is not None and spec.seen.loss in LOSSES else (None, "")
        if preferred is None and steps is not None:
            preferred, named_at = steps.named_loss()
        return Objective(
            name=AUTO,
            token_shapes=tokens,
            scripts=scripts,
            notes=tuple(problems),
            preferred=preferred,
            named_at=named_at,
        )
    if not callable(loss_fn):
        raise TargetError(
            f"loss_fn is {type_with_article(loss_fn)}, not a function",
            where=where,
            hint="define loss_fn(output, *inputs)",
        )
    name = (
        type(loss_fn).__name__ if isinstance(loss_fn, nn.Module) else attribute_of(loss_fn, "__name__", str, "loss_fn")
    )
    return Objective(name=name, function=loss_fn, where=where, token_shapes=tokens)


def _create_optimizer_recipe(
    spec: TargetSpec, model: nn.Module, configure: object, where: str | None, steps: ScriptSteps | None
) -> tuple[OptimizerRecipe | None, tuple[Note, ...]]:
    """The recipe of the optimizer, and notes; None in ``infer`` mode.

    The first of these is used: ``--optimizer``, the file's ``configure_optimizer``, the optimizer of a training script, the
    model's ``configure_optimizers()``, the default. Raises TargetError if `configure` is not callable.
    """
    if spec.mode == "infer":
        return None, ()
    if spec.optimizer is not None:
        return OptimizerRecipe(name=spec.optimizer), ()
    if configure is None:
        return _optimizer_of_script(model, steps, spec.seen)
    if not callable(configure):
        raise TargetError(
            f"configure_optimizer is {type_with_article(configure)}, not a function",
            where=where,
            hint="define configure_optimizer(model), or use --optimizer adamw",
        )
    return OptimizerRecipe(name="configure_optimizer", function=configure, where=where), ()


def _optimizer_of_script(
    model: nn.Module, steps: ScriptSteps | None, seen: SeenRun | None
) -> tuple[OptimizerRecipe, tuple[Note, ...]]:
    optimizer, failure = steps.optimizer() if steps is not None else (None, "")
    if optimizer is not None:
        recipe = OptimizerRecipe(
            name=optimizer.text.partition("(")[0], function=optimizer.build, where=optimizer.where, certainty="derived"
        )
        return recipe, (Note(subject="optimizer", text=f"{optimizer.text}, as at {optimizer.where}"),)
    own = own_configuration(model)
    if own is not None:
        built, problem = optimizer_problem(own, model)
        if built is not None:
            recipe = OptimizerRecipe(name=type(built).__name__, function=own, where=None)
            text = f"{optimizer_text(built)}, from {type(model).__name__}.{CONFIGURE}()"
            return recipe, (Note(subject="optimizer", text=text),)
        failure = failure or f"{CONFIGURE}(): {problem}"
    if seen is not None and seen.optimizer in OPTIMIZERS:
        note = Note(subject="optimizer", text=f"{seen.optimizer}, as the program used it")
        return OptimizerRecipe(name=seen.optimizer, certainty="derived"), (note,)
    reason = f"{failure}; {DEFAULT} is used" if failure else "the target defines no configure_optimizer"
    return OptimizerRecipe(name=DEFAULT, certainty="assumed"), (
        Note(subject="optimizer", text=f"{DEFAULT} ({reason})"),
    )


def assemble(
    subject: Subject,
    where: str,
    *,
    notes: tuple[Note, ...],
    again: Callable[..., Target] | None,
    loss_fn: object = None,
    loss_fn_at: str | None = None,
    configure: object = None,
    configure_at: str | None = None,
    steps: ScriptSteps | None = None,
    compiles: Wrapper | None = None,
    ready: Callable[[], None] | None = None,
    cudnn_flags: tuple[NamedValue, ...] = (),
    cudnn_off_lines: tuple[int, ...] = (),
    confidence: Confidence = Confidence(),  # noqa: B008 it is frozen
    choices: tuple[Choice, ...] = (),
) -> Target:
    """Assemble the Target of the subject's model and inputs. Calls `ready` before anything is moved to the device.

    `loss_fn` and `configure` (``configure_optimizer``) come from the target's file, together with their locations. `steps`
    are the training steps of its documents; None without documents. `confidence` and `choices`: of the model and its arguments.

    Raises:
        TargetError, UsageError: there are no inputs, or they do not fit the model.
        TargetError: the model has no trainable parameters, but a training step was requested.
    """
    if subject.spec.mode == "train" and not any(p.requires_grad for p in subject.model.parameters()):
        subject = _without_training(subject, where, has_step=loss_fn is not None or configure is not None)
        reason = f"{subject.name} has no trainable parameters"
        notes += (Note(subject="mode", text=f"infer, because {reason}"),)
    spec, model, device = subject.spec, subject.model, subject.device
    subject, inputs, is_lightning_step = _find_inputs(subject, loss_fn)
    if is_lightning_step:
        steps = None  # the step returns its loss, and configure_optimizers() its optimizer
    check_batch(spec, subject.forward, inputs.value, where)
    has_default_step = not is_lightning_step and _has_free_loss(spec, loss_fn) and may_stop_gradients(model)
    if has_default_step and is_without_gradients(MetaTrials(model, inputs.value, spec.seed)):
        subject = _without_training(subject, where, has_step=False)
        spec = subject.spec
        reason = f"the output of {type(model).__name__} does not depend on its parameters"
        notes += (Note(subject="mode", text=f"infer, because {reason}"),)
    own_losses: tuple[ScriptLoss, ...] = ()
    if spec.mode == "train" and loss_fn is None and (spec.loss is None or is_output_path(spec.loss)):
        passed = steps.passed_parameters() if steps is not None else frozenset()
        inputs, own_losses = _with_model_label(spec, model, inputs, device, passed)
    objective = _create_objective(spec, inputs.value, loss_fn, loss_fn_at, steps, own_losses)
    tuning, optimizer_notes = _create_optimizer_recipe(spec, model, configure, configure_at, steps)
    notes += inputs.notes + plain_notes(_materialize_lazy_layers(spec, model, inputs.value))
    notes += optimizer_notes
    if objective is not None:
        notes += objective.notes
    if ready is not None:
        ready()
    info = TargetInfo(
        spec=spec.spec if spec.spec != IN_PYTHON else type(model).__name__,
        name=type(model).__name__,
        inputs=(),
        mode=spec.mode,
        loss=objective.name if objective is not None else None,
        optimizer=tuning.name if tuning is not None else None,
        dtype=spec.dtype,
        amp=spec.amp,
        channels_last=spec.channels_last,
        inputs_from=inputs.source,
        has_loader=inputs.loader is not None,
        notes=notes,
        cudnn_flags=cudnn_flags,
        cudnn_off_lines=cudnn_off_lines,
        choices=(*choices, *inputs.choices, *_assumed_optimizer(tuning)),
        confidence=replace(
            confidence, inputs=inputs.strength, optimizer=tuning.certainty if tuning is not None else None
        ),
        seen=spec.seen,
    )
    model = model.to(device)
    if objective is not None:
        objective = objective.moved(device, model, meta_copy if device.type == "meta" else copy_with_weights)
    if inputs.pinned:
        spec = replace(spec, pinned=replace(spec.pinned or Pinned(candidate=""), inputs=inputs.pinned))
    return Target(
        spec=spec,
        info=info,
        forward=subject.forward,
        model=model,
        step_module=compiles(model) if compiles is not None else model,
        device=device,
        batch=inputs.value,
        objective=objective,
        optimizer_recipe=tuning,
        loader=inputs.loader,
        rebuild=again,
    )


def _assumed_optimizer(recipe: OptimizerRecipe | None) -> tuple[Choice, ...]:
    if recipe is None or recipe.certainty != "assumed":
        return ()
    return (Choice(subject="optimizer", value=recipe.name, options=("--optimizer", recipe.name)),)


def _without_training(subject: Subject, where: str, *, has_step: bool) -> Subject:
    """`subject` in ``infer`` mode, for a file whose model has no trainable parameters.

    Raises:
        TargetError: the user asked for a training step, with `has_step`, an option or a model from Python.
    """
    spec = subject.spec
    if has_step or spec.loss is not None or spec.optimizer is not None or spec.spec == IN_PYTHON:
        raise TargetError(
            f"{type(subject.model).__name__} has no trainable parameters",
            where=where,
            hint=next_command(replace(spec, loss=None, optimizer=None), add=("--mode", "infer")),
        )
    subject.model.eval()
    return replace(subject, spec=replace(spec, mode="infer"))


def _has_free_loss(spec: TargetSpec, loss_fn: object) -> bool:
    """Whether a training step is only the default: the user chose no loss and no optimizer, and passed no model."""
    is_default = spec.loss is None and spec.optimizer is None and spec.spec != IN_PYTHON
    return is_default and spec.mode == "train" and loss_fn is None


def _materialize_lazy_layers(spec: TargetSpec, model: nn.Module, batch: Batch) -> tuple[str, ...]:
    """Run one forward pass if the model has lazy layers, which get their shapes from it; returns a note in this case."""
    tensors = [*model.parameters(), *model.buffers()]
    if not any(is_lazy(tensor) for tensor in tensors):
        return ()
    device = tensors[0].device
    dtype = DTYPES[spec.dtype] if spec.dtype is not None else None

    def moved(tensor: Tensor) -> Tensor:
        return tensor.to(device, dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype)

    moved_batch = map_batch(batch, moved, moved)
    action = "the forward pass that initializes lazy layers"
    hint = "fix it, or pass other inputs with -i"
    with (
        user_errors(action, hint=hint),
        torch.no_grad(),
        seeded(spec.seed),
        moves_redirected(device, join=device.type == "meta"),
        restored_objects(moved_batch.args, moved_batch.kwargs, [type(module) for module in model.modules()]),
    ):
        model(*moved_batch.args, **moved_batch.kwargs)
    return ("lazy layers: initialized by one forward pass",)
