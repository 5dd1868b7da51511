"""Kinds of tensors for running a step without a GPU, the cheapest first: meta, meta with known values, fake, real.

Where real ones would take too much memory or time, meta tensors with drawn values take their place.
"""

from __future__ import annotations

import contextlib
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.failure import DeviceMoveError, NeedsDataError, explain_forward_failure
from profiler_kit.loading.model import Target
from profiler_kit.meta.batch import map_batch
from profiler_kit.meta.control_flow import control_flow_in_python
from profiler_kit.meta.copies import copy_with_tensors
from profiler_kit.meta.device_moves import moves_redirected
from profiler_kit.meta.drawn_values import DrawnShadow
from profiler_kit.meta.eager import compilation_disabled
from profiler_kit.meta.garbage_collection import older_objects_frozen
from profiler_kit.meta.ownership import Call, wrapped_calls
from profiler_kit.meta.values import ValueShadow, ValueTracking, copy_values, readable_values
from profiler_kit.records.counts import CountPhase
from profiler_kit.user_code.boundary import error_text, user_boundary
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message, user_place
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

# Weights and gradients: a lower bound of the memory that a step needs.
_COPIES_OF_WEIGHTS: Final = 2
_SHARE_OF_MEMORY: Final = 0.5  # of the free memory, for weights and gradients: activations need the rest
REAL_STEP_S: Final = 10.0  # on the CPU; a step that takes longer is not worth the wait
_CPU: Final = torch.device("cpu")
# phases after forward: (name for the message, hint)
_AFTER_FORWARD: Final[dict[str, tuple[str, str]]] = {
    "backward": ("backward", "check in-place operations and custom autograd functions, or use --mode infer"),
    "optimizer": ("the optimizer", "fix configure_optimizer(model), or use --optimizer adamw"),
}

T = TypeVar("T")
Attempt = Callable[[Target], T]


class StepError(Exception):
    """An exception of the model, with the phase that raised it, and the message for the user if there is one."""

    def __init__(
        self, phase: CountPhase | Literal["optimizer"], error: Exception, message: TargetError | None = None
    ) -> None:
        super().__init__(f"{phase}: {error_text(error)}")
        self.phase = phase
        self.error = error
        self.message = message


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult(Generic[T]):
    """The result of an attempt, its kind of tensors (``meta``, ``fake``, ``cpu``), and why earlier kinds did not work."""

    value: T
    kind: str
    note: str | None = None


@contextmanager
def as_step_errors(phase: CountPhase | Literal["optimizer"]) -> Iterator[None]:
    """Wrap exceptions of the block in StepError; a KitError passes through, except the message about a failed loss."""
    try:
        with user_boundary():
            yield
    except KitError as error:
        cause = error.__cause__
        if phase == "loss" and isinstance(error, TargetError) and isinstance(cause, Exception):
            raise StepError(phase, cause, error) from cause
        raise
    except Exception as error:
        raise StepError(phase, error) from error


def run_on_first_kind(target: Target, attempt: Attempt[T]) -> AttemptResult[T]:
    """Run ``attempt(target)`` on the first kind of tensors that works for the model.

    `attempt` raises StepError if the model fails. The kinds are: meta tensors; meta tensors with moves to other devices
    redirected, if the model makes such moves; meta tensors with the values of small tensors that follow from shapes,
    constants and integer inputs; fake tensors of the CPU; real tensors on the CPU, if the target can be rebuilt, fits and is
    fast; and meta tensors with drawn values. The result always comes from one complete attempt.

    Raises:
        TargetError: no kind of tensors works.
    """
    # The seed makes randomly skipped layers (stochastic depth) the same in every attempt. Compiled functions run
    # uncompiled, because dispatch modes do not disable compilation inside their own handlers.
    with seeded(target.spec.seed), compilation_disabled(), control_flow_in_python(), older_objects_frozen():
        return _on_first_kind(target, attempt)


def _on_first_kind(target: Target, attempt: Attempt[T]) -> AttemptResult[T]:
    # Meta tensors report a move to another device as an error, so only the CPU needs the mode in the first attempt. Under a
    # function mode torch's attention takes another path, so it is entered only for a model whose constructor asked for a GPU.
    moves_itself = target.device.type == "cpu" and target.requested_devices
    moves = _redirected(target) if moves_itself else contextlib.nullcontext()
    try:
        with moves, readable_values(None):
            return AttemptResult(value=attempt(target), kind=target.device.type)
    except StepError as step_error:
        error = explain_step_error(target, step_error)
    if target.device.type != "meta" or not isinstance(error, NeedsDataError):
        raise error
    if isinstance(error, DeviceMoveError):
        try:
            with _redirected(target, join=True), readable_values(None):
                return AttemptResult(value=attempt(target), kind="meta")
        except StepError as step_error:
            error = explain_step_error(target, step_error)
            if not isinstance(error, NeedsDataError):
                raise error from step_error.error
    first_error = error
    join, in_backward = isinstance(error, DeviceMoveError), False
    while True:
        try:
            with _redirected(target, join=join), _shadowing(target, in_backward=in_backward):
                note = f"on meta tensors with known values of small tensors: {_reason(first_error)}"
                return AttemptResult(value=attempt(target), kind="meta", note=note)
        except StepError as step_error:
            error = explain_step_error(target, step_error)
            if not isinstance(error, NeedsDataError):
                raise error from step_error.error
            if isinstance(error, DeviceMoveError) and not join:
                join = True
            elif step_error.phase == "backward" and not in_backward:
                in_backward = True
            else:
                break
    result = _on_fake_tensors(target, attempt, f"on fake tensors of the CPU: {_reason(error)}")
    if result is not None:
        return result
    if target.rebuild is not None and _needed_bytes(target) < _SHARE_OF_MEMORY * free_bytes():
        limit = None  # until another limit, which may end first, lets this one begin
        try:
            with time_limit(REAL_STEP_S) as limit:
                return _on_cpu(target, attempt, error)
        except TimeLimitError as late:
            if late.limit is not limit:
                raise
    return _on_drawn_values(target, attempt, error) or _on_cpu(target, attempt, error)


def _redirected(target: Target, *, join: bool = False) -> AbstractContextManager[object]:
    """The context in which the target's code may name a device that this run does not use."""
    return moves_redirected(target.device, join=join, requested=target.requested_devices)


def explain_step_error(target: Target, step_error: StepError) -> TargetError:
    """A TargetError that explains the failed step; its cause is the model's exception, whose frames lose their variables."""
    error = explain_forward_failure(target, step_error.error)
    _clear_frames(step_error.error)
    if step_error.message is not None and not isinstance(error, NeedsDataError):
        return step_error.message
    if step_error.phase in _AFTER_FORWARD and not isinstance(error, NeedsDataError):
        phase, hint = _AFTER_FORWARD[step_error.phase]
        where = user_place(step_error.error) or target.spec.spec
        error = TargetError(f"{phase} raised {one_line_message(step_error.error)}", where=where, hint=hint)
    error.__cause__ = step_error.error
    return error


def _clear_frames(error: BaseException | None) -> None:
    """Clear local variables of the failed step. A suspended checkpoint among them would keep its hooks for saved tensors."""
    cleared: list[BaseException] = []
    while error is not None and error not in cleared:
        traceback.clear_frames(error.__traceback__)
        cleared.append(error)
        error = error.__cause__ or error.__context__


def _on_fake_tensors(target: Target, attempt: Attempt[T], note: str) -> AttemptResult[T] | None:
    """Run the attempt on fake tensors, which have shapes and a device but no values; None if the model fails on them."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _without_fake_tensor_log(), mode:
            fake_target = _as_fake(target)
            with _redirected(fake_target), _shadowing(fake_target):
                value = attempt(fake_target)
        target.copy_info_from(fake_target)
        return AttemptResult(value=value, kind="fake", note=note)
    except StepError as step_error:
        if is_out_of_memory(step_error.error):
            raise explain_step_error(target, step_error) from step_error.error
        return None
    except TargetError:
        return None  # the loss or a copy failed: real tensors give a better message


@contextmanager
def on_fake_tensors(target: Target) -> Iterator[Target]:
    """A copy of the meta `target` with fake CPU tensors, which have shapes and no values, to be run inside the block.

    Raises TargetError if the model cannot be copied.
    """
    with _without_fake_tensor_log(), FakeTensorMode(allow_non_fake_inputs=True), compilation_disabled():
        fake_target = _as_fake(target)
        with seeded(target.spec.seed), _redirected(fake_target):
            yield fake_target


@contextmanager
def _without_fake_tensor_log() -> Iterator[None]:
    """Suppress torch's log messages about ops without a fake version: the next kind of tensors handles these ops."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _on_drawn_values(target: Target, attempt: Attempt[T], meta_error: NeedsDataError) -> AttemptResult[T] | None:
    """Run the attempt on meta tensors whose values are drawn where nothing determines them; None if the model fails so."""
    try:
        with _redirected(target, join=True), _shadowing(target, shadow=DrawnShadow):
            note = f"on meta tensors with random values in place of real ones: {_reason(meta_error)}"
            return AttemptResult(value=attempt(target), kind="meta", note=note)
    except StepError as step_error:
        _clear_frames(step_error.error)
        return None


def _needed_bytes(target: Target) -> int:
    """A lower bound of the memory of a step on the CPU."""
    return _COPIES_OF_WEIGHTS * sum(tensor.nbytes for tensor in target.model.parameters())


def _on_cpu(target: Target, attempt: Attempt[T], meta_error: NeedsDataError) -> AttemptResult[T]:
    needed_bytes = _needed_bytes(target)
    if target.rebuild is None:
        raise meta_error
    if needed_bytes > free_bytes():
        raise TargetError(
            f"{meta_error.message}; on the CPU its weights and gradients would need {needed_bytes / 1e9:.1f} GB",
            where=meta_error.where,
            hint="use a smaller configuration, or remove the code that reads tensor values from forward; "
            f"with enough memory, run {meta_error.hint}",
        ) from meta_error
    real = target.rebuild("cpu")
    try:
        with _redirected(real):
            value = attempt(real)
        target.copy_info_from(real)
        return AttemptResult(value=value, kind="cpu", note=f"on the CPU, with real computation: {_reason(meta_error)}")
    except StepError as step_error:
        raise explain_step_error(real, step_error) from step_error.error


def free_bytes() -> int:
    """Unused memory of this machine."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _reason(error: NeedsDataError) -> str:
    return f"{error.where or 'the model'}: {error.message}"


def _as_fake(target: Target) -> Target:
    """A copy of a meta `target` with fake CPU tensors, which match tensors that the model creates without a device.

    Call it, and run the copy, under a FakeTensorMode that allows real inputs. Raises TargetError if the model cannot be
    copied.
    """
    batch = map_batch(target.batch, _fake_of, _fake_of)
    return target.replaced(lambda model: copy_with_tensors(model, _fake_of), batch, _CPU)


def _fake_of(tensor: Tensor) -> Tensor:
    """A fake CPU tensor like `tensor`. Parameters stay parameters and keep their attributes; lazy tensors are unchanged.

    Raises:
        TargetError: `tensor` is sparse or nested, and its fake version would be dense.
    """
    if is_lazy(tensor):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise TargetError("sparse and nested tensors have no fake version", hint="use --device cpu")
    fake = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU)
    if not isinstance(tensor, nn.Parameter):
        return copy_values(fake, tensor).requires_grad_(tensor.requires_grad)
    parameter = nn.Parameter(fake, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))
    return parameter


@contextmanager
def _shadowing(target: Target, *, in_backward: bool = True, shadow: type[ValueShadow] = ValueShadow) -> Iterator[None]:
    """Track the values of small tensors in calls of the target's model inside the block; with `in_backward` in backward too.

    The shadow is entered inside the call, below the modes that watch the step's ops: it sees an op first, and its own
    computations stay invisible to them. Backward uses the shadow of the last forward, because a recomputation may read a
    mask again. Few models need that, and it takes time.
    """
    latest = [ValueTracking(shadow)]
    backward = Tensor.backward

    def around(path: str, call: Call) -> object:
        latest[0] = ValueTracking(shadow)
        with latest[0]:
            return call()

    def shadowed_backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        with latest[0].values:
            backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]

    if in_backward:
        Tensor.backward = shadowed_backward  # type: ignore[method-assign, assignment]
    try:
        with wrapped_calls({id(target.model): ""}, around), readable_values(lambda: latest[0].values):
            yield
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]
