"""How far a configuration's numbers are from float64's, from the same weights: outputs, and gradients where they are cheap."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor, nn

from profiler_kit.loading import Batch, Target
from profiler_kit.loading.batch import map_batch
from profiler_kit.loading.compiled import as_written, nothing_compiled
from profiler_kit.loading.place import first_line
from profiler_kit.loading.surroundings import seeded
from profiler_kit.worker.checks import State, restored
from profiler_kit.worker.pieces import pieces, tensors
from profiler_kit.worker.steps import Runner

# What the gradients' error may take: no more than a few dozen steps of most models.
GRADIENT_LIMIT_NS: Final = 1_000_000_000
PASS_OF_FORWARDS: Final = 3  # a pass with backward costs about three times its forward

_NO_FLOAT: Final = "No error against float64: the output holds no floating-point tensor."
_NO_NUMBER: Final = "No error against float64: the output holds NaN or infinity."
_RANDOM: Final = "No error against float64: the pass draws random numbers, which differ by data type."
_NO_DROPOUT: Final = "The error against float64 was measured with dropout off: random numbers differ by data type."


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Differences between the configuration's numbers and float64's, None where there is none to tell; `note` says why.

    `max_relative`: the largest |out - out64| over the largest |out64|. `l2_relative`: the norm of out - out64 over that of
    out64, all outputs taken as one vector. `gradient_l2_relative`: the same of all parameters' gradients; None also where it
    would have taken too long, or was not asked for.
    """

    max_relative: float | None = None
    l2_relative: float | None = None
    gradient_l2_relative: float | None = None
    note: str | None = None


def error_against_float64(runner: Runner, start: State, *, gradient_limit_ns: int = GRADIENT_LIMIT_NS) -> Errors:
    """The errors of a forward pass, and in training of the gradients, where those take no more than `gradient_limit_ns`.

    The float64 twin runs with benchmark off and as it is written: it is the yardstick, and tuning or compiling it would cost
    time and say nothing. A pass that draws random numbers is run without dropout, as the twin would draw others.
    """
    if runner.target.device.type == "mps":
        return Errors(note="No error against float64: Metal (MPS) has no float64.")
    narrow, drew = _narrow(runner, start)
    if not drew:
        return _compared(runner, start, narrow, gradient_limit_ns)
    if runner.target.runs is not runner.target.model:  # captured or compiled with its dropout in it
        return Errors(note=_RANDOM)
    with _without_dropout(runner.target.model):
        narrow, drew = _narrow(runner, start)
        if drew:
            return Errors(note=_RANDOM)
        errors = _compared(runner, start, narrow, gradient_limit_ns)
    return errors if errors.note else replace(errors, note=_NO_DROPOUT)


def _compared(runner: Runner, start: State, narrow: list[Tensor], limit_ns: int) -> Errors:
    begin_ns = time.perf_counter_ns()
    with _yardstick(runner, start) as (twin, batch), torch.no_grad():
        wide = _floats(twin.model(*batch.args, **batch.kwargs))
        runner.synchronize()
    forward_ns = time.perf_counter_ns() - begin_ns
    if not wide or [t.shape for t in narrow] != [t.shape for t in wide]:
        return Errors(note=_NO_FLOAT)
    errors = _distance(narrow, wide)
    if errors is None:
        return Errors(note=_NO_NUMBER)
    output_errors = Errors(max_relative=errors[0], l2_relative=errors[1])
    del narrow, wide
    if not runner.train or PASS_OF_FORWARDS * forward_ns > limit_ns:
        return output_errors
    try:
        gradients = _gradient_error(runner, start)
    except Exception as error:  # noqa: BLE001 the user's loss in float64, and memory for all of it: the outputs' error stands
        return replace(
            output_errors, note=f"The gradients' error against float64 could not be measured: {first_line(error)}"
        )
    finally:
        runner.target.model.zero_grad(set_to_none=True)
    return replace(output_errors, gradient_l2_relative=gradients)


def _gradient_error(runner: Runner, start: State) -> float | None:
    model = runner.target.model
    with seeded(runner.target.spec.seed):
        model.zero_grad(set_to_none=True)
        runner.forward_backward(restored(runner, start))
    with _yardstick(runner, start) as (twin, batch):
        output = twin.model(*batch.args, **batch.kwargs)
        labels = map_batch(Batch(labels=runner.labels(output, batch)), _double, _double).labels
        twin.loss(output, batch, labels).backward()
    pairs = [
        (n.grad.to_dense(), w.grad.to_dense())
        for n, w in zip(model.parameters(), twin.model.parameters(), strict=True)
        if n.grad is not None and w.grad is not None and n.is_floating_point()
    ]
    errors = _distance([n for n, _ in pairs], [w for _, w in pairs]) if pairs else None
    return errors[1] if errors is not None else None


def _narrow(runner: Runner, start: State) -> tuple[list[Tensor], bool]:
    """The floating tensors of the output as the configuration computes them, and whether random numbers were drawn."""
    target = runner.target
    with seeded(target.spec.seed):
        batch = restored(runner, start)
        before = _random_states(target.device)
        outputs = _floats(runner.forward(batch))
        after = _random_states(target.device)
    return outputs, not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@contextmanager
def _yardstick(runner: Runner, start: State) -> Iterator[tuple[Target, Batch]]:
    """The target with a float64 copy of its model (and loss), and its batch in float64; benchmark is off meanwhile."""
    target = runner.target
    benchmark = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = False
    try:
        with seeded(target.spec.seed), nothing_compiled():
            batch = map_batch(restored(runner, start), _double, _double)
            twin = target.replaced(lambda module: as_written(copy.deepcopy(module)).double(), batch, target.device)
            yield twin, batch
    finally:
        torch.backends.cudnn.benchmark = benchmark


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """While it lasts, nothing in `model` drops out; batch norms and recurrent layers go on training.

    Whatever asks for `self.training` stops, so that dropout by function stops too. Recurrent layers of cuDNN have no backward
    unless they train, so it is their dropout that is put to 0.
    """
    trained = [module for module in model.modules() if module.training]
    recurrent = [(module, module.dropout) for module in model.modules() if isinstance(module, nn.RNNBase)]
    try:
        for module in trained:
            module.training = isinstance(module, (nn.modules.batchnorm._NormBase, nn.RNNBase))
        for layer, _ in recurrent:
            layer.dropout = 0.0
        yield
    finally:
        for module in trained:
            module.training = True
        for layer, dropout in recurrent:
            layer.dropout = dropout


def _distance(narrow: Sequence[Tensor], wide: Sequence[Tensor]) -> tuple[float, float] | None:
    """Largest difference over the largest of `wide`, and norm of the difference over its norm; None where one is no number.

    Where `wide` is zero everywhere, so is a distance of nothing, and no other can be told.
    """
    sums = torch.zeros(4, dtype=torch.float64, device=wide[0].device)  # worst, largest, and the two sums of squares
    for n, w in zip(narrow, wide, strict=True):
        for piece, exact in pieces(n, w):
            if exact.numel():
                exact = exact.double()
                off = piece.double() - exact
                largest = torch.stack([off.abs().max(), exact.abs().max()])
                squares = torch.stack([off.square().sum(), exact.square().sum()])
                largest, squares = largest.to(sums.device), squares.to(sums.device)
                sums = torch.cat([torch.maximum(sums[:2], largest), sums[2:] + squares])
    worst, largest_, off_squares, squares_ = sums.tolist()
    if worst == 0:
        return 0.0, 0.0
    if largest_ == 0 or not all(map(math.isfinite, (worst, largest_, off_squares, squares_))):
        return None
    return worst / largest_, (off_squares / squares_) ** 0.5


def _floats(value: object) -> list[Tensor]:
    return [tensor for tensor in tensors(value) if tensor.is_floating_point()]


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _random_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
