"""What the recorder saw of a loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils import _pytree as pytree

from profiler_kit.records.counts import Phase


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """The arguments of one call of the model, with meta tensors in place of its tensors. `amp`: the dtype of autocast."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    amp: torch.dtype | None

    @property
    def signature(self) -> tuple[tuple[tuple[int, ...], torch.dtype], ...]:
        """Shape and dtype of each tensor."""
        leaves = pytree.tree_leaves((self.args, self.kwargs))
        return tuple((tuple(leaf.shape), leaf.dtype) for leaf in leaves if isinstance(leaf, Tensor))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedCall:
    """A call of the model with the id `model`, and whether autograd recorded it."""

    model: int
    arguments: Arguments
    has_gradients: bool


def describe_arguments(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Arguments:
    """The arguments of a call without the memory of their tensors."""
    tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    device = next((tensor.device for tensor in tensors), None)
    kind = device.type if device is not None else "cpu"
    amp = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
    meta_args, meta_kwargs = pytree.tree_map_only(Tensor, _on_meta, (args, kwargs))
    return Arguments(args=meta_args, kwargs=meta_kwargs, amp=amp)


def _on_meta(tensor: Tensor) -> Tensor:
    """`tensor` without memory. Inside a transform of ``torch.func`` it has the shape that the model sees there."""
    size, stride, dtype = tensor.shape, tensor.stride() if tensor.layout == torch.strided else (), tensor.dtype
    is_wrapped, needs_gradient = torch._C._functorch.is_functorch_wrapped_tensor(tensor), tensor.requires_grad
    with temporarily_clear_interpreter_stack():  # of the transforms
        if is_wrapped:
            return torch.empty_strided(size, stride, dtype=dtype, device="meta")
        return torch.empty_like(tensor.detach(), device="meta").requires_grad_(needs_gradient)


@dataclass(slots=True, kw_only=True)
class Observations:
    """The steps of a loop, as far as they were recorded. Times are ns.

    - `device`: the device of the model.
    - `first_step_ns`: the first step, with the synchronization at its end.
    - `warmup_ns`: the steps before the timed ones, by the host clock.
    - `kept_ns`, `evaluated_ns`: all steps, without and with an evaluation of the models, by the host clock.
    - `steps_ns`: the timed steps. `stopwatch_ns`, `event_ns`: their phases, one entry per step.
    - `between_calls_ns`, `between_calls_event_ns`: the part of the loss that is before a further call of a model, in each timed
      step. `is_loss_stated`: the program says itself what the loss is.
    - `forward_calls`, `backward_passes`, `optimizer_steps`: calls of the model, backward passes and steps of optimizers in the
      timed steps.
    - `arguments`: those of the last call of the model outside the timed steps. `signatures`: id of each model -> the different
      shapes of its inputs.
    - `calls`: the outermost calls of the last step without a clock.
    - `optimizer`: the first optimizer that made a step. `has_backward`: whether a step had a backward pass.
    - `traced_steps`: the steps in the trace `trace`, which is None without one.
    """

    device: torch.device
    first_step_ns: int | None = None
    warmup_steps: int = 0
    warmup_ns: list[int] = field(default_factory=list)
    kept_ns: list[int] = field(default_factory=list)
    evaluated_ns: list[int] = field(default_factory=list)
    steps_ns: list[int] = field(default_factory=list)
    stopwatch_ns: dict[Phase, list[int]] = field(default_factory=dict)
    event_ns: dict[Phase, list[int]] = field(default_factory=dict)
    between_calls_ns: list[int] = field(default_factory=list)
    between_calls_event_ns: list[int] = field(default_factory=list)
    is_loss_stated: bool = False
    forward_calls: int = 0
    backward_passes: int = 0
    optimizer_steps: int = 0
    arguments: Arguments | None = None
    calls: list[ObservedCall] = field(default_factory=list)
    signatures: dict[int, set[Any]] = field(default_factory=dict)
    optimizer: torch.optim.Optimizer | None = None
    has_backward: bool = False
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    trace: Path | None = None
    traced_steps: int = 0
    notes: list[str] = field(default_factory=list)
