"""Error of a configuration against float64 from the same weights: outputs, and gradients where they are cheap."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from profiler_kit.loading import Batch, Target
from profiler_kit.meta.batch import map_batch
from profiler_kit.meta.compilation import remove_compilation
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.user_code.process_settings import settings_restored
from profiler_kit.worker.checks import State, restore_state
from profiler_kit.worker.pieces import pieces, tensors
from profiler_kit.worker.steps import Runner

if TYPE_CHECKING:
    from torch._ops import OpOverload

# The time limit of the gradients' error: a few dozen steps of most models.
GRADIENT_LIMIT_NS: Final = 1_000_000_000
FORWARDS_PER_PASS: Final = 3  # forward and backward take about three times as long as forward

_NO_FLOAT: Final = "No error against float64: the output has no floating-point tensor."
_NO_NUMBER: Final = "No error against float64: the output contains NaN or infinity."
_RANDOM: Final = "No error against float64: the model draws random numbers, which differ by data type."
_NO_DROPOUT: Final = (
    "The error against float64 was measured with dropout off, because random numbers differ by data type."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Errors:
    """Differences from float64. None is unknown; `note` then has the reason.

    - `max_relative`: the largest |out - out64| divided by the largest |out64|.
    - `l2_relative`: the norm of out - out64 divided by the norm of out64, all outputs as one vector.
    - `gradient_l2_relative`: the same for the gradients of all parameters; None also if it would take too long.
    """

    max_relative: float | None = None
    l2_relative: float | None = None
    gradient_l2_relative: float | None = None
    note: str | None = None


def error_against_float64(runner: Runner, start: State, *, gradient_limit_ns: int = GRADIENT_LIMIT_NS) -> Errors:
    """The errors of a forward pass, and in training of the gradients if they take no more than `gradient_limit_ns`.

    The float64 copy is the reference. It runs with benchmark off and without torch.compile, because both would only cost time.
    A model that draws random numbers runs without dropout, because the copy would draw different numbers.
    """
    if runner.target.device.type == "mps":
        return Errors(note="No error against float64: Metal (MPS) has no float64.")
    outputs, is_random = _outputs(runner, start)
    if not is_random:
        return _compare_with_reference(runner, start, outputs, gradient_limit_ns)
    if runner.target.step_module is not runner.target.model:  # captured or compiled with its dropout
        return Errors(note=_RANDOM)
    with _without_dropout(runner.target.model):
        outputs, is_random = _outputs(runner, start)
        if is_random:
            return Errors(note=_RANDOM)
        errors = _compare_with_reference(runner, start, outputs, gradient_limit_ns)
    return errors if errors.note else replace(errors, note=_NO_DROPOUT)


def _compare_with_reference(runner: Runner, start: State, outputs: list[Tensor], limit_ns: int) -> Errors:
    begin_ns = time.perf_counter_ns()
    with _reference(runner, start) as (twin, batch), torch.no_grad():
        reference = _float_tensors(twin.model(*batch.args, **batch.kwargs))
        runner.synchronize()
    forward_ns = time.perf_counter_ns() - begin_ns
    if not reference or [t.shape for t in outputs] != [t.shape for t in reference]:
        return Errors(note=_NO_FLOAT)
    errors = _distance(outputs, reference)
    if errors is None:
        return Errors(note=_NO_NUMBER)
    output_errors = Errors(max_relative=errors[0], l2_relative=errors[1])
    del outputs, reference
    if not runner.train or FORWARDS_PER_PASS * forward_ns > limit_ns:
        return output_errors
    try:
        gradients = _gradient_error(runner, start)
    except Exception as error:  # noqa: BLE001 the loss may not support float64, or memory may run out: keep the outputs' error
        return replace(
            output_errors, note=f"The gradients' error against float64 could not be measured: {one_line_message(error)}"
        )
    finally:
        runner.target.model.zero_grad(set_to_none=True)
    return replace(output_errors, gradient_l2_relative=gradients)


def _gradient_error(runner: Runner, start: State) -> float | None:
    model = runner.target.model
    with seeded(runner.target.spec.seed):
        model.zero_grad(set_to_none=True)
        runner.forward_backward(restore_state(runner, start))
    with _reference(runner, start) as (twin, batch):
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


def _outputs(runner: Runner, start: State) -> tuple[list[Tensor], bool]:
    """The floating-point output tensors of the configuration, and whether the model drew random numbers."""
    target = runner.target
    with seeded(target.spec.seed):
        batch = restore_state(runner, start)
        before = _random_states(target.device)
        outputs = _float_tensors(runner.forward(batch))
        after = _random_states(target.device)
    return outputs, not all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


@contextmanager
def _reference(runner: Runner, start: State) -> Iterator[tuple[Target, Batch]]:
    """The target with a float64 copy of its model (and loss), and its batch in float64. Turns benchmark off meanwhile."""
    target = runner.target
    with settings_restored("cudnn.benchmark"), seeded(target.spec.seed), compilation_disabled():
        torch.backends.cudnn.benchmark = False
        batch = map_batch(restore_state(runner, start), _double, _double)
        twin = target.replaced(lambda module: remove_compilation(copy.deepcopy(module)).double(), batch, target.device)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            with _InFloat64():  # type: ignore[no-untyped-call]
                yield twin, batch
        finally:
            torch.set_default_dtype(default)


class _InFloat64(TorchDispatchMode):
    """Makes every new floating-point tensor float64, whatever type it is requested in.

    A model that computes a part in the default type, such as an embedding of the time, or casts with ``float()``, would mix
    types otherwise. Only views that read the bits of another type stay as they are.
    """

    def __torch_dispatch__(
        self, func: OpOverload, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten.view.dtype:
            return func(*args, **kwargs or {})
        return func(*map(_widened, args), **{name: _widened(value) for name, value in (kwargs or {}).items()})


def _widened(argument: object) -> object:
    return torch.float64 if isinstance(argument, torch.dtype) and argument.is_floating_point else argument


@contextmanager
def _without_dropout(model: nn.Module) -> Iterator[None]:
    """Turn off dropout in `model`; batch norms and recurrent layers stay in training mode.

    All other modules leave training mode, which also turns off functional dropout. Recurrent layers of cuDNN only have a
    backward in training mode, so their dropout is set to 0 instead.
    """
    training_modules = [module for module in model.modules() if module.training]
    recurrent = [(module, module.dropout) for module in model.modules() if isinstance(module, nn.RNNBase)]
    try:
        for module in training_modules:
            module.training = isinstance(module, (nn.modules.batchnorm._NormBase, nn.RNNBase))
        for layer, _ in recurrent:
            layer.dropout = 0.0
        yield
    finally:
        for module in training_modules:
            module.training = True
        for layer, dropout in recurrent:
            layer.dropout = dropout


def _distance(values: Sequence[Tensor], exact_values: Sequence[Tensor]) -> tuple[float, float] | None:
    """The relative maximum and L2 differences from `exact_values`; None if either is not finite.

    If `exact_values` are zero everywhere, the distance is 0 for equal `values` and None otherwise.
    """
    # the largest difference, the largest exact value, and the two sums of squares
    sums = torch.zeros(4, dtype=torch.float64, device=exact_values[0].device)
    for value, exact_value in zip(values, exact_values, strict=True):
        for piece, exact in pieces(value, exact_value):
            if exact.numel():
                exact = exact.double()
                difference = piece.double() - exact
                largest = torch.stack([difference.abs().max(), exact.abs().max()])
                squares = torch.stack([difference.square().sum(), exact.square().sum()])
                largest, squares = largest.to(sums.device), squares.to(sums.device)
                sums = torch.cat([torch.maximum(sums[:2], largest), sums[2:] + squares])
    max_difference, max_exact, difference_squares, exact_squares = sums.tolist()
    if max_difference == 0:
        return 0.0, 0.0
    if max_exact == 0 or not all(map(math.isfinite, (max_difference, max_exact, difference_squares, exact_squares))):
        return None
    return max_difference / max_exact, (difference_squares / exact_squares) ** 0.5


def _float_tensors(value: object) -> list[Tensor]:
    return [tensor for tensor in tensors(value) if tensor.is_floating_point()]


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def _random_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states
