"""A model ready to be counted and run: what it is fed, what it trains towards, and how."""

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
from profiler_kit.loading.batch import Batch, Forward, describe_inputs, map_batch
from profiler_kit.loading.compiled import plain_path
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.objective import Objective, QuickLoss
from profiler_kit.loading.optimizers import OPTIMIZERS
from profiler_kit.loading.place import a_kind, user_errors
from profiler_kit.loading.values import remember_like
from profiler_kit.records.target import TargetInfo, TargetSpec

CHANNELS_LAST: Final = {4: torch.channels_last, 5: torch.channels_last_3d}  # by number of dimensions


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """How the optimizer is made: the target's own function, or the one of a name."""

    name: str
    function: Callable[[nn.Module], Any] | None = None
    where: str | None = None


@dataclass(kw_only=True, eq=False)
class Target:
    """A live model with everything one step needs. Nothing of it changes from outside.

    `runs` is what a step calls: `model`, or what torch.compile made of it. `batch` is on `device`. ``again(device,
    **words)`` builds it anew, on another device and with other words of its spec; None where it can't be built.
    `loader` goes over the target's own batches, on the host; None when it brings none.
    `info` names the loss as ``auto`` until the first output has been seen, and the optimizer that the target configures
    as ``configure_optimizer`` until it has been made.
    """

    spec: TargetSpec
    info: TargetInfo
    forward: Forward
    model: nn.Module
    runs: nn.Module
    device: torch.device
    batch: Batch
    objective: Objective | None
    tuning: Tuning | None
    loader: Callable[[], Iterable[Batch]] | None = None
    again: Callable[..., Target] | None = None
    _made_up: tuple[Any, ...] | None = field(default=None, init=False)
    _quick: QuickLoss | None = field(default=None, init=False)
    _settled: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.batch = self.to_device(self.batch)
        self.info = replace(self.info, inputs=describe_inputs(self.batch, self.forward))

    def labels_for(self, output: object) -> tuple[Any, ...]:
        """The labels of `batch`: its own, else made up once from `output`, seeded; () when the loss needs none.

        Call it outside any tracing: it draws numbers and copies them to the device.
        """
        if self.batch.labels or self.objective is None:
            return self.batch.labels
        if self._made_up is None:
            with torch.no_grad():
                self._made_up = self._make_labels(self._settle(output, ()), output)
        return self._made_up

    def labels_of(self, output: object, batch: Batch) -> tuple[Any, ...]:
        """The labels of any `batch`, whatever its shapes: its own, else made up anew from `output`, its output or one like it.

        They are the same for the same shapes; () when the loss needs none. Call it outside any timing.
        """
        if batch.labels or self.objective is None:
            return batch.labels
        tokens = tuple(tuple(t.shape) for t in batch.tensors() if not (t.is_floating_point() or t.is_complex()))
        with torch.no_grad():
            return self._make_labels(replace(self._settle(output, ()), token_shapes=tokens), output)

    def loss(self, output: object, batch: Batch, labels: tuple[Any, ...]) -> Tensor:
        """The scalar loss of `output`, which is what the model made of `batch`. Raises TargetError when there is none.

        Without `labels` those of `batch` hold; where it has none and the loss needs some, they are made up on the spot.
        """
        given = labels or batch.labels
        quick = self._quick
        if quick is not None and type(output) is Tensor and output.shape == quick.shape:
            value: Tensor = quick.function(output, *(given or batch.values())[: quick.places])
            return value
        objective = self._settle(output, given)
        given = given or self._make_labels(objective, output)
        loss = objective(output, batch, given)
        self._quick = objective.quick(output, given)
        return loss

    def make_optimizer(self) -> torch.optim.Optimizer:
        """A new optimizer over the model's parameters. Raises TargetError when the target's own function makes none."""
        tuning = self.tuning
        if tuning is None:
            raise TargetError("infer mode has no optimizer", where=self.spec.spec, hint="take --mode train")
        if tuning.function is None:
            return OPTIMIZERS[tuning.name]([p for p in self.model.parameters() if p.requires_grad])
        what = "configure_optimizer(model)"
        with (
            user_errors(what, where=tuning.where, hint="mend it, or take --optimizer adamw"),
            contextlib.redirect_stdout(sys.stderr),
        ):
            made = tuning.function(self.model)
        if not isinstance(made, torch.optim.Optimizer):
            raise TargetError(
                f"{what} returned {a_kind(made)}, not an optimizer",
                where=tuning.where,
                hint="return one torch.optim.Optimizer, or take --optimizer adamw",
            )
        self.info = replace(self.info, optimizer=type(made).__name__)
        return made

    def autocast(self) -> AbstractContextManager[Any]:
        """The context that forward and loss run in: autocast for ``--amp``, else nothing. Meta tensors know no autocast."""
        if self.spec.amp is None or self.device.type == "meta":
            return contextlib.nullcontext()
        return torch.autocast(device_type=self.device.type, dtype=DTYPES[self.spec.amp])

    def adopt(self, other: Target) -> None:
        """Takes over what `other`, the same target on another device, has learnt: its loss, its optimizer, its notes."""
        self.info = other.info

    def replaced(self, change: Callable[[nn.Module], nn.Module], batch: Batch, device: torch.device) -> Target:
        """This target with another batch, and ``change(module)`` in place of its model and of a loss that is a module."""
        objective = self.objective
        if objective is not None and isinstance(objective.function, nn.Module):
            objective = replace(objective, function=change(objective.function))
        model = change(self.model)
        return Target(
            spec=self.spec,
            info=self.info,
            forward=self.forward,
            model=model,
            runs=model,
            device=device,
            batch=batch,
            objective=objective,
            tuning=self.tuning,
        )

    def running(self, runs: nn.Module) -> Target:
        """This target with steps that call `runs`, which computes what `model` does."""
        other = copy.copy(self)
        other.runs = runs
        return other

    def paths(self) -> dict[int, str]:
        """id of each module -> its path in ``named_modules()``, the first one where a module has several.

        A module and what torch.compile made of it are both at the module's path.
        """
        paths = {id(module): plain_path(path) for path, module in self.model.named_modules()}
        return {**paths, id(self.runs): ""}

    def _settle(self, output: object, labels: tuple[Any, ...]) -> Objective:
        if self.objective is None:
            raise TargetError("infer mode has no loss", where=self.spec.spec, hint="take --mode train")
        if not self._settled:
            self.objective = self.objective.settled(output, labels)
            self._settled = True
            note = (f"loss: {self.objective.name} {self.objective.reason}",) if self.objective.reason else ()
            self.info = replace(self.info, loss=self.objective.name, notes=self.info.notes + note)
        return self.objective

    def _make_labels(self, objective: Objective, output: object) -> tuple[Any, ...]:
        with torch.no_grad():
            return objective.make_labels(output, torch.Generator().manual_seed(self.spec.seed))

    def to_device(self, batch: Batch) -> Batch:
        """`batch` on the target's device, in its dtype and memory format; asynchronous from pinned memory."""
        dtype = DTYPES[self.spec.dtype] if self.spec.dtype is not None else None

        def moved(tensor: Tensor) -> Tensor:
            if tensor.is_nested and tensor.layout is torch.strided:
                raise TargetError(
                    "a nested tensor of the strided layout has no shape to go by",
                    where=self.spec.spec,
                    hint="make it with torch.nested.nested_tensor(..., layout=torch.jagged)",
                )
            kind = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            pinned = self.device.type == "cuda" and tensor.device.type == "cpu" and tensor.is_pinned()
            made = tensor.to(self.device, kind, non_blocking=pinned)
            if made.is_leaf:
                return remember_like(made, tensor)
            # a copy would carry gradients on to the caller's tensor, where no data is
            return remember_like(made.detach().requires_grad_(tensor.requires_grad), tensor)

        def formatted(tensor: Tensor) -> Tensor:
            tensor = moved(tensor)
            if self.spec.channels_last and tensor.dim() in CHANNELS_LAST and tensor.is_floating_point():
                return tensor.contiguous(memory_format=CHANNELS_LAST[tensor.dim()])
            return tensor

        return map_batch(batch, formatted, moved)
