"""Kinds of tensors to run a step on without a device, the cheapest first: meta, meta with values at hand, fake, and real."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parameter import is_lazy

from profiler_kit.errors import KitError, TargetError
from profiler_kit.loading.batch import map_batch
from profiler_kit.loading.failure import NeedsDataError, explain_forward_failure
from profiler_kit.loading.meta import copy_with
from profiler_kit.loading.model import Target
from profiler_kit.loading.ownership import Call, wrapped_calls
from profiler_kit.loading.place import first_line, is_out_of_memory, user_place
from profiler_kit.loading.surroundings import seeded
from profiler_kit.loading.values import Shadowed, remember_like
from profiler_kit.records.counts import CountPhase

# Weights and their gradients; a step needs more, but less is certainly too little.
_COPIES_OF_WEIGHTS: Final = 2
_CPU: Final = torch.device("cpu")
# phases that forward's explanations do not cover: what raised, and what to do
_AFTER_FORWARD: Final[dict[str, tuple[str, str]]] = {
    "backward": ("backward", "check in-place changes and custom autograd functions, or take --mode infer"),
    "optimizer": ("the optimizer", "mend configure_optimizer(model), or take --optimizer adamw"),
}

T = TypeVar("T")
Attempt = Callable[[Target], T]


class StepError(Exception):
    """The model raised `error` in `phase`."""

    def __init__(self, phase: CountPhase | Literal["optimizer"], error: Exception) -> None:
        super().__init__(f"{phase}: {error}")
        self.phase = phase
        self.error = error


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[T]):
    """What an attempt returned, the kind of tensors it ran on (``meta``, ``fake``, ``cpu``), and why not an earlier kind."""

    value: T
    kind: str
    note: str | None = None


@contextmanager
def telling(phase: CountPhase | Literal["optimizer"]) -> Iterator[None]:
    """Raises StepError around what the block raises, but for errors that tell themselves."""
    try:
        yield
    except KitError:
        raise
    except Exception as error:
        raise StepError(phase, error) from error


def on_first_kind(target: Target, attempt: Attempt[T]) -> Found[T]:
    """What ``attempt(target)`` returns, on the first kind of tensors that the model runs on.

    `attempt` raises StepError where the model fails. A model that asks for values gets those of small tensors that follow
    from shapes, constants and integer inputs; if it asks for more, or mixes devices, it runs on fake tensors of the CPU;
    if that fails too, on real ones, where the target can be built anew. What is returned is always of one whole attempt.

    Raises: TargetError where no kind of tensors will do.
    """
    # Layers that are left out by chance are the same ones every time. What is compiled runs as it is written: a compiler
    # would step aside for the modes that watch, but not within what they do themselves.
    with seeded(target.spec.seed), torch.compiler.set_stance("force_eager"):
        return _on_first_kind(target, attempt)


def _on_first_kind(target: Target, attempt: Attempt[T]) -> Found[T]:
    try:
        return Found(value=attempt(target), kind=target.device.type)
    except StepError as failed:
        told = explained(target, failed)
    if target.device.type != "meta" or not isinstance(told, NeedsDataError):
        raise told
    first = told
    for in_backward in (False, True):
        try:
            with _shadowing(target, in_backward=in_backward):
                note = f"on meta tensors with the values of small ones at hand: {_why(first)}"
                return Found(value=attempt(target), kind="meta", note=note)
        except StepError as failed:
            told = explained(target, failed)
            if not isinstance(told, NeedsDataError):
                raise told from failed.error
            if failed.phase != "backward":
                break
    faked = _on_fakes(target, attempt, f"on fake tensors of the CPU: {_why(told)}")
    return faked if faked is not None else _on_the_cpu(target, attempt, told)


def explained(target: Target, failed: StepError) -> TargetError:
    """The TargetError that tells in the user's terms why the step failed; its cause is what the model raised."""
    told = explain_forward_failure(target, failed.error)
    if failed.phase in _AFTER_FORWARD and not isinstance(told, NeedsDataError):
        what, hint = _AFTER_FORWARD[failed.phase]
        where = user_place(failed.error) or target.spec.spec
        told = TargetError(f"{what} raised {first_line(failed.error)}", where=where, hint=hint)
    told.__cause__ = failed.error
    return told


def _on_fakes(target: Target, attempt: Attempt[T], note: str) -> Found[T] | None:
    """The attempt on fake tensors, which know shapes and a device but no values; None where the model does not run on them."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        with _quiet(), mode:
            faked = _as_fake(target)
            with _shadowing(faked):
                found = attempt(faked)
        target.adopt(faked)
        return Found(value=found, kind="fake", note=note)
    except StepError as failed:
        if is_out_of_memory(failed.error):
            raise explained(target, failed) from failed.error
        return None
    except TargetError:
        return None  # the loss or a copy failed: real tensors will tell better


@contextmanager
def _quiet() -> Iterator[None]:
    """Keeps torch from logging an op that has no fake version as an error: the next kind of tensors is the answer to it."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _on_the_cpu(target: Target, attempt: Attempt[T], told: NeedsDataError) -> Found[T]:
    needs = _COPIES_OF_WEIGHTS * sum(tensor.nbytes for tensor in target.model.parameters())
    if target.again is None:
        raise told
    if needs > free_bytes():
        raise TargetError(
            f"{told.message}; on the CPU its weights and gradients alone would need {needs / 1e9:.1f} GB",
            where=told.where,
            hint=f"take a smaller configuration, or keep what it asks for out of forward; or else {told.hint}",
        ) from told
    real = target.again("cpu")
    try:
        found = attempt(real)
        target.adopt(real)
        return Found(value=found, kind="cpu", note=f"on the CPU, with real compute: {_why(told)}")
    except StepError as failed:
        raise explained(real, failed) from failed.error


def free_bytes() -> int:
    """Memory of this machine that nobody uses."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _why(told: NeedsDataError) -> str:
    return f"{told.where or 'the model'}: {told.message}"


def _as_fake(target: Target) -> Target:
    """A copy of a `target` on meta whose tensors are fake ones of the CPU.

    Tensors that its code makes without naming a device then meet their like. To be called, and the copy to be run, under a
    FakeTensorMode that allows real inputs. Raises TargetError when the model cannot be copied.
    """
    batch = map_batch(target.batch, _fake_of, _fake_of)
    return target.replaced(lambda model: copy_with(model, _fake_of), batch, _CPU)


def _fake_of(tensor: Tensor) -> Tensor:
    """A fake tensor of the CPU like `tensor`; a parameter stays one, with its marks. Lazy ones have nothing to fake.

    Raises: TargetError for a sparse or nested tensor, which would come out as a dense one.
    """
    if is_lazy(tensor):
        return tensor
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise TargetError("a sparse or nested tensor has no fake version", hint="take --device cpu")
    made = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_CPU)
    if not isinstance(tensor, nn.Parameter):
        return remember_like(made, tensor).requires_grad_(tensor.requires_grad)
    parameter = nn.Parameter(made, requires_grad=tensor.requires_grad)
    vars(parameter).update(vars(tensor))
    return parameter


@contextmanager
def _shadowing(target: Target, *, in_backward: bool = True) -> Iterator[None]:
    """While it lasts, `target`'s model knows the values of small tensors that follow from known ones; a backward pass too.

    The shadow is entered within the call, inside whatever watches the step's ops: it sees an op before they do, and what
    it computes on the side is not seen by them. It is that of the last forward in backward, where a recomputation may ask
    for a mask again. Few do, and the shadow of half a step takes time: without `in_backward` such a question fails.
    """
    last = [Shadowed()]
    backward = Tensor.backward

    def around(path: str, call: Call) -> object:
        last[0] = Shadowed()
        with last[0]:
            return call()

    def shadowed_backward(loss: Tensor, *args: Any, **kwargs: Any) -> None:
        with last[0].values:
            backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]

    if in_backward:
        Tensor.backward = shadowed_backward  # type: ignore[method-assign, assignment]
    try:
        with wrapped_calls({id(target.model): ""}, around):
            yield
    finally:
        Tensor.backward = backward  # type: ignore[method-assign]
