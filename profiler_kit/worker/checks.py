"""Reproducibility of a configuration, from the seeded start: whether passes repeat to the bit, and hashes to compare by."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import torch

from profiler_kit.loading import Batch
from profiler_kit.loading.surroundings import seeded
from profiler_kit.worker.pieces import pieces, tensors
from profiler_kit.worker.steps import Runner

State = dict[str, torch.Tensor]

PASSES: Final = 3  # a race between two orders of addition gives the same bits twice more easily than three times


@dataclass(frozen=True, slots=True, kw_only=True)
class Digests:
    """Hashes of what one pass left: outputs, loss, gradients; None where there is none (inference, an output without tensors)."""

    output: str | None
    loss: str | None
    gradient: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """Whether passes in this process gave the same bits, part by part, and the first one's hashes for other processes to compare.

    None where there is nothing to compare: no tensor in the output, no loss and no gradients in inference.
    """

    outputs: bool | None
    loss: bool | None
    gradients: bool | None
    digests: Digests

    @property
    def repeatable(self) -> bool | None:
        """Whether outputs and gradients were the same; None where there is neither.

        A loss may differ by itself, where it adds with atomics (cross-entropy on maps): no trained weight ever differs by that.
        """
        compared = [part for part in (self.outputs, self.gradients) if part is not None]
        return all(compared) if compared else None


def seeded_state(runner: Runner) -> State:
    """A copy in host memory of the model's parameters and buffers, to be taken before the first step.

    Buffers that are not saved with the model are among them: what a step counts or averages there changes the next one too.
    """
    return {name: value.detach().to("cpu", copy=True) for name, value in _named(runner.target.model)}


def bits(runner: Runner, start: State) -> Bits:
    """Runs forward (and loss and backward) three times from `start`, with no optimizer step, and compares every bit.

    Each pass has the same seeds. All tensors of the output count, of whatever type; so do signs of zeros and NaNs' payloads.
    """
    first = digests_only(runner, start)
    others = [digests_only(runner, start) for _ in range(PASSES - 1)]
    return Bits(
        outputs=_same(first.output, [other.output for other in others]),
        loss=_same(first.loss, [other.loss for other in others]),
        gradients=_same(first.gradient, [other.gradient for other in others]),
        digests=first,
    )


def digests_only(runner: Runner, start: State) -> Digests:
    """The hashes of one pass from `start`: enough for a second process, whose bits are compared with the first one's."""
    target = runner.target
    parameters = list(target.model.parameters())
    with seeded(target.spec.seed):
        batch = restored(runner, start)
        if not runner.train:
            return Digests(output=_digest([runner.forward(batch)]), loss=None, gradient=None)
        target.model.zero_grad(set_to_none=True)
        # hashed at once: what a captured graph returns is written over by its next replay
        output, loss = runner.forward_backward(batch)
        digests = Digests(
            output=_digest([output]), loss=_digest([loss]), gradient=_digest(parameter.grad for parameter in parameters)
        )
        target.model.zero_grad(set_to_none=True)
    return digests


def restored(runner: Runner, start: State) -> Batch:
    """The batch that every pass is fed, the model's parameters and buffers being those of `start` again, in place."""
    with torch.no_grad():
        for name, value in _named(runner.target.model):
            value.copy_(start[name])
    return runner.target.batch


def _named(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _same(first: str | None, others: Iterable[str | None]) -> bool | None:
    return all(other == first for other in others) if first is not None else None


def _digest(values: Iterable[object]) -> str | None:
    """A hash of all tensors in `values`, with their types and shapes; None where there are none.

    In pieces that are copied to the host one by one, so that the size of a model is no matter. Memory layout leaves no trace in
    it: elements are taken in their logical order.
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
