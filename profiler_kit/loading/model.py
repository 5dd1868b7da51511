"""The loaded target: a model with inputs, loss, optimizer and data loader."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from profiler_kit.errors import TargetError
from profiler_kit.loading.evidence.loader import Loader
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.training_step.objective import Objective, PreparedLoss
from profiler_kit.loading.training_step.optimizers import OPTIMIZERS
from profiler_kit.loading.training_step.script_optimizer import without_fused_kernels
from profiler_kit.meta.batch import Batch, Forward, describe_inputs, map_batch
from profiler_kit.meta.compilation import uncompiled_path
from profiler_kit.meta.copies import filled
from profiler_kit.meta.values import copy_values
from profiler_kit.records.notes import Certainty, Confidence
from profiler_kit.records.target import TargetInfo, TargetSpec
from profiler_kit.user_code.locations import type_with_article, user_errors

CHANNELS_LAST: Final = {4: torch.channels_last, 5: torch.channels_last_3d}  # by number of dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerRecipe:
    """The recipe of the optimizer: the target's own function, or a name; and how it is known."""

    name: str
    function: Callable[[nn.Module], Any] | None = None
    where: str | None = None
    certainty: Certainty = "stated"


@dataclass(kw_only=True, eq=False)
class Target:
    """A model with everything that a step needs. Other code must not change it.

    `step_module` is the module that a step calls: `model`, or its torch.compile version. `batch` is on `device`.
    ``rebuild(device, **options)`` builds the target again on another device with other fields of its spec; None if that is
    impossible. `loader` iterates over the target's own batches on the host; None without a loader. In `info`, the loss is
    ``auto`` until the first output is known, and an optimizer of the target's own is ``configure_optimizer`` until it exists.
    `requested_devices` are the types of accelerators that the target's code asked for while it ran on meta or on the CPU.
    """

    spec: TargetSpec
    info: TargetInfo
    forward: Forward
    model: nn.Module
    step_module: nn.Module
    device: torch.device
    batch: Batch
    objective: Objective | None
    optimizer_recipe: OptimizerRecipe | None
    loader: Callable[[], Iterable[Batch]] | None = None
    rebuild: Callable[..., Target] | None = None
    requested_devices: set[str] = field(default_factory=set)
    _random_labels: tuple[Any, ...] | None = field(default=None, init=False)
    _quick: PreparedLoss | None = field(default=None, init=False)
    _settled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.batch = self.to_device(self.batch)
        self.info = replace(self.info, inputs=describe_inputs(self.batch, self.forward))

    def labels_for(self, output: object) -> tuple[Any, ...]:
        """The labels of `batch`, or random labels for `output`, created once; () if the loss needs none.

        Call it outside traced code, because it draws random numbers and copies them to the device.
        """
        if self.batch.labels or self.objective is None:
            return self.batch.labels
        if self._random_labels is None:
            with torch.no_grad():
                objective = self._determine_loss(output, self.batch, ())
                self._random_labels = self._make_labels(objective, output, self.batch)
        return self._random_labels

    def labels_of(self, output: object, batch: Batch) -> tuple[Any, ...]:
        """The labels of any `batch`, or new random labels for its `output`; () if the loss needs none.

        Random labels are the same for the same shapes. Call it outside timed code.
        """
        if batch.labels or self.objective is None:
            return batch.labels
        tokens = tuple(tuple(t.shape) for t in batch.tensors() if not (t.is_floating_point() or t.is_complex()))
        with torch.no_grad():
            objective = self._determine_loss(output, batch, ())
            return self._make_labels(replace(objective, token_shapes=tokens), output, batch)

    def loss(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Tensor:
        """The scalar loss of the model's `output` for `batch`. Raises TargetError for an invalid loss.

        `labels` default to those of `batch`, or to new random labels if the loss needs them.
        """
        targets = labels or batch.labels
        quick = self._quick
        if quick is not None and type(output) is Tensor and output.shape == quick.shape:
            value: Tensor = quick.function(output, *(targets or batch.values())[: quick.places])
            return value
        objective = self._determine_loss(output, batch, targets)
        targets = targets or self._make_labels(objective, output, batch)
        loss = objective(output, batch, targets)
        self._quick = objective.quick(output, targets)
        return loss

    def make_optimizer(self) -> torch.optim.Optimizer:
        """Create an optimizer for the model's parameters. Raises TargetError if the target's own function fails."""
        tuning = self.optimizer_recipe
        if tuning is None:
            raise TargetError("--mode infer has no optimizer", where=self.spec.spec, hint="use --mode train")
        if tuning.function is None:
            return OPTIMIZERS[tuning.name]([p for p in self.model.parameters() if p.requires_grad])
        call = "configure_optimizer(model)"
        with (
            user_errors(call, where=tuning.where, hint="fix it, or use --optimizer adamw"),
            contextlib.redirect_stdout(sys.stderr),
            without_fused_kernels(self.model),
        ):
            optimizer = tuning.function(self.model)
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise TargetError(
                f"{call} returned {type_with_article(optimizer)}, not an optimizer",
                where=tuning.where,
                hint="return one torch.optim.Optimizer, or use --optimizer adamw",
            )
        self.info = replace(self.info, optimizer=type(optimizer).__name__)
        return optimizer

    def autocast(self) -> AbstractContextManager[Any]:
        """The context for forward and loss: autocast with ``--amp``, except on meta tensors, which do not support autocast."""
        if self.spec.amp is None or self.device.type == "meta":
            return contextlib.nullcontext()
        return torch.autocast(device_type=self.device.type, dtype=DTYPES[self.spec.amp])

    def copy_info_from(self, other: Target) -> None:
        """Copy the `info` of `other`, the same target on another device: its loss, optimizer and notes; and its requests."""
        self.info = other.info
        self.requested_devices |= other.requested_devices

    def replaced(self, change: Callable[[nn.Module], nn.Module], batch: Batch, device: torch.device) -> Target:
        """This target with another batch and device, and with its model and loss module replaced by ``change(module)``."""
        model = change(self.model)
        objective = self.objective.moved(device, model, change) if self.objective is not None else None
        return Target(
            spec=self.spec,
            info=self.info,
            forward=self.forward,
            model=model,
            step_module=model,
            device=device,
            batch=batch,
            objective=objective,
            optimizer_recipe=self.optimizer_recipe,
        )

    def user_objects(self) -> tuple[Any, ...]:
        """The objects that a step passes to user code: the model, its inputs and labels, the loss, the optimizer's function."""
        loss = self.objective.user_objects() if self.objective is not None else ()
        configure = self.optimizer_recipe.function if self.optimizer_recipe is not None else None
        batch = self.batch
        return (self.model, self.step_module, batch.args, batch.kwargs, batch.labels, loss, configure)

    def with_step_module(self, module: nn.Module) -> Target:
        """This target with steps that call `module`, which must compute the same as `model`."""
        target = copy.copy(self)
        target.step_module = module
        return target

    def with_loader(self, *, workers: int | None, pinned: bool) -> Target:
        """This target with its DataLoader changed (see `Loader.configured`). Raises TargetError without one."""
        if not isinstance(self.loader, Loader):
            raise TargetError(
                "the target has no data loader", where=self.spec.spec, hint="define a function get_loader()"
            )
        target = copy.copy(self)
        target.loader = self.loader.configured(workers=workers, pinned=pinned)
        return target

    @property
    def prepared_batches(self) -> int:
        """The number of batches that workers of the loader prepare while none is read; 0 without workers."""
        return self.loader.prepared_batches if isinstance(self.loader, Loader) else 0

    def paths(self) -> dict[int, str]:
        """id of each module -> its first path in ``named_modules()``.

        A compiled module has the path of the original module.
        """
        paths = {id(module): uncompiled_path(path) for path, module in self.model.named_modules()}
        return {**paths, id(self.step_module): ""}

    def _determine_loss(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Objective:
        if self.objective is None:
            raise TargetError("--mode infer has no loss", where=self.spec.spec, hint="use --mode train")
        if not self._settled:
            before = len(self.objective.notes)
            self.objective = self.objective.settled(output, batch, labels)
            self._settled = True
            notes = self.info.notes + self.objective.notes[before:]
            known = replace(self.info.confidence or Confidence(), loss=self.objective.certainty)
            choices = self.info.choices + self.objective.choices
            self.info = replace(self.info, loss=self.objective.name, notes=notes, confidence=known, choices=choices)
        return self.objective

    def _make_labels(self, objective: Objective, output: object, batch: Batch) -> tuple[Any, ...]:
        with torch.no_grad():
            return objective.make_labels(output, batch, torch.Generator().manual_seed(self.spec.seed))

    def to_device(self, batch: Batch) -> Batch:
        """Move `batch` to the target's device, dtype and memory format; asynchronously from pinned memory."""
        dtype = DTYPES[self.spec.dtype] if self.spec.dtype is not None else None

        def moved(tensor: Tensor) -> Tensor:
            if tensor.is_nested and tensor.layout is torch.strided:
                raise TargetError(
                    "a nested tensor with strided layout has no fixed shape",
                    where=self.spec.spec,
                    hint="create it with torch.nested.nested_tensor(..., layout=torch.jagged)",
                )
            if tensor.is_meta and self.device.type != "meta":  # an input of a loop, whose values are not kept
                tensor = filled(tensor, torch.Generator().manual_seed(self.spec.seed)).requires_grad_(
                    tensor.requires_grad
                )
            kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            pinned = self.device.type == "cuda" and tensor.device.type == "cpu" and tensor.is_pinned()
            result = tensor.to(self.device, kind, non_blocking=pinned)
            if result.is_leaf:
                return copy_values(result, tensor)
            # otherwise gradients would flow into the caller's tensor
            return copy_values(result.detach().requires_grad_(tensor.requires_grad), tensor)

        def converted(tensor: Tensor) -> Tensor:
            tensor = moved(tensor)
            if self.spec.channels_last and tensor.dim() in CHANNELS_LAST and tensor.is_floating_point():
                return tensor.contiguous(memory_format=CHANNELS_LAST[tensor.dim()])
            return tensor

        return map_batch(batch, converted, moved)
