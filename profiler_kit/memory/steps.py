"""Run the steps of a simulation: the user's model, loss, backward and optimizer on meta tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import torch

from profiler_kit.devices.device import Device
from profiler_kit.loading import Target
from profiler_kit.loading.inputs import DTYPES
from profiler_kit.loading.tensor_kinds import as_step_errors
from profiler_kit.memory.log import MemoryLog
from profiler_kit.memory.tracker import Tracker
from profiler_kit.memory.workspace import LibraryConfig
from profiler_kit.meta.batch import tensors_in
from profiler_kit.meta.checkpointing import checkpointed
from profiler_kit.meta.device_moves import joins_paused
from profiler_kit.meta.emulation import Emulation, emulated
from profiler_kit.meta.ownership import ModuleTracker, parameter_owners
from profiler_kit.meta.packed_weights import packed_bytes
from profiler_kit.records.counts import LOSS_PATH, OPTIMIZER_PATH
from profiler_kit.user_code.reachable import tensors_of
from profiler_kit.user_code.restoration import restored

# The first step creates the optimizer's state. All later steps are alike.
STEPS: Final = 2

ZeroGrad = Literal["none", "zero"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """Settings of a simulation.

    `steps`: number of steps. `zero_grad`: whether gradients are reset to None or to zero. `checkpoint`: paths of
    modules to checkpoint. `watched`: ops whose calls are logged with their
    arguments, also without a workspace rule. `records_calls`: whether the log has all op calls of the last step.
    """

    steps: int = STEPS
    zero_grad: ZeroGrad = "none"
    checkpoint: tuple[str, ...] = ()
    config: LibraryConfig = field(default_factory=LibraryConfig)
    watched: frozenset[str] = frozenset()
    records_calls: bool = False


def record_steps(target: Target, device: Device, setup: Setup) -> MemoryLog:
    """Run `target`'s steps (forward passes in ``infer`` mode) and return the log. `target` is restored afterwards.

    Meta tensors behave as on `device`. Other tensors behave as on their own device.

    Raises: StepError around an exception of the model or the optimizer.
    """
    ownership = ModuleTracker(target.paths(), parameter_owners(target.model))
    tracker = Tracker(
        ownership, device, setup.config, target.device.type, setup.watched, records_calls=setup.records_calls
    )
    is_emulated = target.device.type == "meta"
    batch = target.batch
    inputs = tensors_of(batch.args, batch.kwargs, batch.labels)
    with ExitStack() as stack:
        stack.enter_context(checkpointed(target.model, setup.checkpoint))
        saved = stack.enter_context(restored(target, weights=True))
        emulation = stack.enter_context(emulated(device, tracker, tracker.log.note)) if is_emulated else None
        tracker.label([*target.model.parameters(), *target.model.buffers()], "parameters")
        tracker.add_parameters(packed_bytes(target.model))
        tracker.label(inputs, "inputs")
        run = _Run(target, tracker, emulation, ownership)
        if target.info.mode != "train":
            for step in range(setup.steps):  # the first pass creates library handles, as in training
                if step:
                    saved.restart()
                run.forward_pass()
            return tracker.finish()
        with as_step_errors("optimizer"):
            optimizer = target.make_optimizer()
        if device.is_cuda and not is_emulated:
            _use_foreach(optimizer)
        for step in range(setup.steps):
            if step:
                saved.restart()
            run.training_step(optimizer, setup.zero_grad, is_last=step == setup.steps - 1)
        return tracker.finish()


def _use_foreach(optimizer: torch.optim.Optimizer) -> None:
    """Enable foreach kernels, the default on CUDA but not on the CPU."""
    for group in optimizer.param_groups:
        if "foreach" in group and group["foreach"] is None and not group.get("fused"):
            group["foreach"] = True


@dataclass(slots=True, eq=False)
class _Run:
    """A running simulation. `emulation`: None on tensors that already behave as on their own device."""

    target: Target
    tracker: Tracker
    emulation: Emulation | None
    ownership: ModuleTracker

    def forward_pass(self) -> None:
        """Run forward without gradients."""
        target, tracker = self.target, self.tracker
        tracker.log.begin_step()
        tracker.enter_phase("forward", "")
        with as_step_errors("forward"), torch.no_grad(), self._watched(), self._autocast():
            output = target.model(*target.batch.args, **target.batch.kwargs)
        tracker.mark_results(tensors_in(output))
        tracker.log.mark("after forward")

    def training_step(self, optimizer: torch.optim.Optimizer, zero_grad: ZeroGrad, *, is_last: bool) -> None:
        """Run one training step. Its local variables live as long as those in the body of a training loop."""
        target, tracker = self.target, self.tracker
        tracker.log.begin_step()
        tracker.enter_phase("forward", "")
        with as_step_errors("forward"), torch.enable_grad(), self._watched(record_saved=is_last), self._autocast():
            output = target.model(*target.batch.args, **target.batch.kwargs)
        tracker.mark_results(tensors_in(output))
        tracker.log.mark("after forward")

        labels = target.labels_for(output)
        tracker.label(tensors_in(labels), "inputs")
        tracker.enter_phase("loss", LOSS_PATH)
        with as_step_errors("loss"), torch.enable_grad(), self._watched(record_saved=is_last), self._autocast():
            loss = target.loss(output, target.batch, labels)
        if self.emulation is not None:
            self.emulation.weights.clear()  # autocast drops its copies at the end of its context
        tracker.mark_results((loss,))
        tracker.mark_unattributed_saved()
        tracker.log.mark("after loss")

        tracker.enter_phase("backward", "")
        with as_step_errors("backward"), self._watched():
            if loss.requires_grad:
                loss.backward()
        gradients = (parameter.grad for parameter in target.model.parameters())
        tracker.label((gradient for gradient in gradients if gradient is not None), "gradients")
        tracker.log.mark("after backward")

        tracker.enter_phase("optimizer", OPTIMIZER_PATH)
        with as_step_errors("optimizer"), joins_paused(), tracker:
            optimizer.step()
        tracker.label(tensors_in(list(optimizer.state.values())), "optimizer_state")
        with tracker:
            optimizer.zero_grad(set_to_none=zero_grad == "none")
        tracker.log.mark("after optimizer")

    @contextmanager
    def _watched(self, *, record_saved: bool = False) -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(self.ownership.watching())
            if record_saved:
                stack.enter_context(torch.autograd.graph.saved_tensors_hooks(self.tracker.pack, lambda tensor: tensor))
            if self.emulation is not None:
                stack.enter_context(self.emulation)
            stack.enter_context(self.tracker)
            yield

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.emulation is None:
            return self.target.autocast()
        amp = self.target.spec.amp
        return self.emulation.autocast(None if amp is None else DTYPES[amp])
