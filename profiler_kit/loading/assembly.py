"""Assembles a Target from a model: adds inputs, loss and optimizer, and collects notes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from profiler_kit.errors import TargetError
from profiler_kit.loading.batch import Batch, map_batch
from profiler_kit.loading.command import IN_PYTHON, next_command
from profiler_kit.loading.compilation import Wrapper
from profiler_kit.loading.copies import copy_with_weights, meta_copy
from profiler_kit.loading.input_check import check_batch
from profiler_kit.loading.input_sources import InputFinder
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.model import OptimizerRecipe, Target
from profiler_kit.loading.objective import AUTO, Objective
from profiler_kit.loading.optimizers import DEFAULT
from profiler_kit.loading.user_environment import seeded
from profiler_kit.loading.user_locations import type_with_article, user_errors
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.target import Pinned, TargetInfo, TargetSpec


def _create_objective(spec: TargetSpec, batch: Batch, loss_fn: object, where: str | None) -> Objective | None:
    """The loss of the target; None in ``infer`` mode. Raises TargetError if `loss_fn` is not callable."""
    if spec.mode == "infer":
        return None
    tokens = tuple(tuple(t.shape) for t in batch.tensors() if not (t.is_floating_point() or t.is_complex()))
    if spec.loss is not None:
        return Objective(name=spec.loss, token_shapes=tokens)
    if loss_fn is None:
        return Objective(name=AUTO, token_shapes=tokens)
    if not callable(loss_fn):
        raise TargetError(
            f"loss_fn is {type_with_article(loss_fn)}, not a function",
            where=where,
            hint="define loss_fn(output, *inputs)",
        )
    name = type(loss_fn).__name__ if isinstance(loss_fn, nn.Module) else getattr(loss_fn, "__name__", "loss_fn")
    return Objective(name=name, function=loss_fn, where=where, token_shapes=tokens)


def _create_optimizer_recipe(spec: TargetSpec, configure: object, where: str | None) -> OptimizerRecipe | None:
    """The recipe of the optimizer; None in ``infer`` mode. Raises TargetError if `configure` is not callable."""
    if spec.mode == "infer":
        return None
    if spec.optimizer is not None or configure is None:
        return OptimizerRecipe(name=spec.optimizer or DEFAULT)
    if not callable(configure):
        raise TargetError(
            f"configure_optimizer is {type_with_article(configure)}, not a function",
            where=where,
            hint="define configure_optimizer(model), or use --optimizer adamw",
        )
    return OptimizerRecipe(name="configure_optimizer", function=configure, where=where)


def assemble(
    finder: InputFinder,
    where: str,
    *,
    notes: tuple[str, ...],
    again: Callable[..., Target] | None,
    loss_fn: object = None,
    loss_fn_at: str | None = None,
    configure: object = None,
    configure_at: str | None = None,
    compiles: Wrapper | None = None,
    ready: Callable[[], None] | None = None,
    cudnn_flags: tuple[NamedValue, ...] = (),
    cudnn_off_lines: tuple[int, ...] = (),
) -> Target:
    """Assemble the Target of the finder's model and inputs. Calls `ready` before anything is moved to the device.

    `loss_fn` and `configure` (``configure_optimizer``) come from the target's file, together with their locations.

    Raises:
        TargetError, UsageError: there are no inputs, or they do not fit the model.
        TargetError: in ``train`` mode, the model has no trainable parameters.
    """
    spec, model, device = finder.spec, finder.model, finder.device
    inputs = finder.find()
    check_batch(spec, finder.forward, inputs.batch, where)
    objective = _create_objective(spec, inputs.batch, loss_fn, loss_fn_at)
    tuning = _create_optimizer_recipe(spec, configure, configure_at)
    notes += inputs.notes + _materialize_lazy_layers(spec, model, inputs.batch)
    if spec.mode == "train" and not any(p.requires_grad for p in model.parameters()):
        raise TargetError(
            f"{type(model).__name__} has no trainable parameters",
            where=where,
            hint=next_command(spec, add=("--mode", "infer")),
        )
    if tuning is not None and tuning.function is None and spec.optimizer is None:
        notes += (f"optimizer: {tuning.name} (the target defines no configure_optimizer)",)
    if spec.amp is not None and device.type == "meta":
        notes += (f"--amp {spec.amp}: static byte counts do not include autocast, which meta tensors do not support",)
    if ready is not None:
        ready()
    if objective is not None and isinstance(objective.function, nn.Module):
        loss_module = meta_copy(objective.function) if device.type == "meta" else copy_with_weights(objective.function)
        objective = replace(objective, function=loss_module.to(device))
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
        inputs_from=inputs.origin,
        has_loader=inputs.loader is not None,
        notes=notes,
        cudnn_flags=cudnn_flags,
        cudnn_off_lines=cudnn_off_lines,
    )
    model = model.to(device)
    if inputs.pinned:
        spec = replace(spec, pinned=replace(spec.pinned or Pinned(candidate=""), inputs=inputs.pinned))
    return Target(
        spec=spec,
        info=info,
        forward=finder.forward,
        model=model,
        step_module=compiles(model) if compiles is not None else model,
        device=device,
        batch=inputs.batch,
        objective=objective,
        optimizer_recipe=tuning,
        loader=inputs.loader,
        rebuild=again,
    )


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
    hint = f"if the inputs are wrong, pass others: {next_command(spec)}"
    with user_errors(action, hint=hint), torch.no_grad(), seeded(spec.seed):
        model(*moved_batch.args, **moved_batch.kwargs)
    return ("lazy layers: initialized by one forward pass",)
