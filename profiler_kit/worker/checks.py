"""Bitwise reproducibility of a configuration, and hashes to compare processes."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from profiler_kit.loading import Batch
from profiler_kit.user_code.environment import seeded
from profiler_kit.worker.pieces import pieces, tensors
from profiler_kit.worker.steps import Runner

State = dict[str, torch.Tensor]

PASSES: Final = 3  # with a race between two orders of addition, three equal passes are less likely than two


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hashes of one pass: outputs, loss, gradients. None in inference, or if the output has no tensors.

    `nan_in`, `infinity_in`: the parts that contain NaN, and those that contain infinity without NaN.
    """

    output: str | None
    loss: str | None
    gradient: str | None
    nan_in: tuple[str, ...] = ()
    infinity_in: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproducibility:
    """Whether passes in this process are bitwise equal, by part, and the hashes of the first pass.

    None where nothing can be compared: no tensor in the output, or no loss and gradients in inference.
    """

    outputs: bool | None
    loss: bool | None
    gradients: bool | None
    digests: Digests

    @property
    def repeatable(self) -> bool | None:
        """Whether outputs and gradients are bitwise reproducible; None without both.

        The loss is excluded. It may differ because it adds with atomics (cross-entropy on maps), which never changes a weight.
        """
        compared = [part for part in (self.outputs, self.gradients) if part is not None]
        return all(compared) if compared else None


def seeded_state(runner: Runner) -> State:
    """A copy of the model's parameters and buffers in host memory, taken before the first step.

    Includes buffers that are not saved with the model, because steps may update them and depend on them.
    """
    return {name: value.detach().to("cpu", copy=True) for name, value in _named_tensors(runner.target.model)}


def compare_passes(runner: Runner, start: State) -> Reproducibility:
    """Compare three forward (and backward) passes from `start` bit by bit, without optimizer steps.

    All passes use the same seeds. Every tensor of the output counts, of any type, including signs of zeros and NaN payloads.
    """
    first = pass_digests(runner, start)
    others = [pass_digests(runner, start) for _ in range(PASSES - 1)]
    return Reproducibility(
        outputs=_all_equal(first.output, [other.output for other in others]),
        loss=_all_equal(first.loss, [other.loss for other in others]),
        gradients=_all_equal(first.gradient, [other.gradient for other in others]),
        digests=first,
    )


def pass_digests(runner: Runner, start: State) -> Digests:
    """The hashes of one pass from `start`. A second process compares them with those of the first."""
    target = runner.target
    parameters = list(target.model.parameters())
    with seeded(target.spec.seed):
        batch = restore_state(runner, start)
        if not runner.train:
            output = runner.forward(batch)
            nan_in, infinity_in = _non_finite(outputs=[output])
            return Digests(output=_digest([output]), loss=None, gradient=None, nan_in=nan_in, infinity_in=infinity_in)
        target.model.zero_grad(set_to_none=True)
        # hash immediately: the next replay of a captured graph overwrites its outputs
        output, loss = runner.forward_backward(batch)
        gradients = [parameter.grad for parameter in parameters]
        nan_in, infinity_in = _non_finite(outputs=[output], loss=[loss], gradients=gradients)
        digests = Digests(
            output=_digest([output]), loss=_digest([loss]), gradient=_digest(gradients), nan_in=nan_in,
            infinity_in=infinity_in,
        )  # fmt: skip
        target.model.zero_grad(set_to_none=True)
    return digests


def restore_state(runner: Runner, start: State) -> Batch:
    """The batch of every pass, after resetting the model's parameters and buffers to `start` in place."""
    with torch.no_grad():
        for name, value in _named_tensors(runner.target.model):
            value.copy_(start[name])
    return runner.target.batch.fresh()


def _named_tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _all_equal(first: str | None, others: Iterable[str | None]) -> bool | None:
    return all(other == first for other in others) if first is not None else None


def _non_finite(**parts: Sequence[object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the `parts` that contain NaN, and of those that contain infinity without NaN."""
    nan_in, infinity_in = [], []
    for name, values in parts.items():
        floats = [tensor for tensor in tensors(values) if tensor.is_floating_point()]
        # the maximum of absolute values is NaN where one is; float8 has no such operations
        largest = [piece.float().abs().amax() for tensor in floats for (piece,) in pieces(tensor) if piece.numel()]
        if any(value.isnan() for value in largest):
            nan_in.append(name)
        elif any(value.isinf() for value in largest):
            infinity_in.append(name)
    return tuple(nan_in), tuple(infinity_in)


def _digest(values: Iterable[object]) -> str | None:
    """A hash of all tensors in `values`, with their types and shapes; None without tensors.

    Tensors are copied to the host in pieces, so large models need little memory. Elements are in logical order, so the memory
    layout does not matter.
    """
    hashed = hashlib.sha256()
    empty = True
    for tensor in tensors(list(values)):
        empty = False
        hashed.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        for (piece,) in pieces(tensor):
            on_host = piece.cpu().contiguous()
            size = on_host.numel() * on_host.element_size()
            if size:
                hashed.update((ctypes.c_char * size).from_address(on_host.data_ptr()))
    return None if empty else hashed.hexdigest()[:16]
