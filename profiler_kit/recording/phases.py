"""Finds the phases of a loop that somebody else wrote, by hooks of PyTorch, and reports each change of phase.

- forward: calls of the model, by its forward hooks;
- loss: from the end of forward to the start of backward; a call of the model without gradients has none. How much of it is
  other work, such as a step of an environment, shows in a trace (`attribution.loss_shares`);
- backward: ``torch.autograd.backward``, which ``Tensor.backward`` and gradient scalers call, and ``torch.autograd.grad``;
- optimizer: the hooks that PyTorch offers for the steps of all optimizers, and ``zero_grad``;
- data: fetching from a ``DataLoader``; transfer: from there to the forward pass, on a GPU;
- other: the rest, such as clipping of gradients, logging, metrics, and evaluations of the model.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch import nn
from torch.utils.data import dataloader

from profiler_kit.meta.ownership import Call
from profiler_kit.recording.guard import Guard, raise_error
from profiler_kit.recording.modules import parameters_of
from profiler_kit.recording.optimizer_steps import STEPS
from profiler_kit.records.counts import Phase

OnForward = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], bool]
OnOptimizer = Callable[[torch.optim.Optimizer], None]

_TARGET: Final = "profiler_kit target"
ENGINE: Final = (
    "_engine_run_backward"  # of torch.autograd: `backward` and `grad` call it, whatever name programs know them by
)
_COMPILED_CALL: Final = "_compiled_call_impl"  # set by module.compile(); hooks are inside of it


class _Hook:
    """A hook on a module of the program. In a copy or a pickle of the module, which is the program's, it does nothing."""

    def __init__(self, action: Callable[..., None]) -> None:
        self._action = action

    def __call__(self, *args: Any) -> None:
        self._action(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, and is in every Python


class PhaseHooks:
    """Calls `mark` at each change of phase in the thread that installed it. `models` are the modules that the loop calls.

    `on_forward` receives each outermost call of a model with its arguments, and says whether it is part of the forward pass, not
    of an evaluation. Calls of `others`, such as a teacher, are forward as well. `on_optimizer` receives each optimizer before its
    step.
    `before_work` is called before data are fetched or a model is called, outside of all phases: a step may end there.
    A loop that calls no model, as within one compiled function, has its backward pass there.
    `guard` runs each hook; without one, the loop has the errors.
    """

    def __init__(
        self,
        models: Sequence[nn.Module],
        mark: Callable[[Phase], None],
        on_forward: OnForward,
        on_optimizer: OnOptimizer,
        others: Sequence[nn.Module] = (),
        guard: Guard | None = None,
    ) -> None:
        self.mark = mark
        self.around_call: Callable[[Call], Any] = _call  # runs each call of ``torch.compile(model)``
        self.before_work: Callable[[], None] = _do_nothing
        self._guard = guard or Guard(raise_error)
        self.models = models
        self._others = others
        self._on_forward = on_forward
        self._on_optimizer = on_optimizer
        self._thread = threading.get_ident()
        self._open: list[Phase] = []
        self._has_calls = self._is_evaluation = False
        self._other_calls = 0  # that run, one inside the other
        self._between: Phase = "other"  # the phase that goes on outside of all calls
        self._after_data: Phase = "transfer" if any(map(_is_on_cuda, models)) else "other"
        self._hooks = ExitStack()

    def install(self, *, around_model: bool = True) -> None:
        """Start to report phases. Without `around_model`, the caller reports calls of the model, with `around_forward`."""
        hook = self._guard.hook
        with contextlib.ExitStack() as hooks:
            hooks.enter_context(replaced(torch.autograd, "backward", partial(self._wrapped, self._around_backward)))
            if hasattr(torch.autograd, ENGINE):
                hooks.enter_context(replaced(torch.autograd, ENGINE, partial(self._wrapped, self._around_engine)))
            iterators = dataloader._BaseDataLoaderIter
            hooks.enter_context(replaced(iterators, "__next__", partial(self._wrapped, self._around_next)))
            hooks.enter_context(
                replaced(torch.optim.Optimizer, "zero_grad", partial(self._wrapped, self._around_zero_grad))
            )
            compiler = sys.modules.get("torch._dynamo.eval_frame")
            if compiler is not None and not any(isinstance(m, compiler.OptimizedModule) for m in self.models):
                hooks.enter_context(replaced(compiler.OptimizedModule, "__call__", self._wrapped_compiled))
            for model in self.models if around_model else ():
                if getattr(model, _COMPILED_CALL, None) is not None:  # a hook would become part of the compiled code
                    hooks.enter_context(replaced(model, _COMPILED_CALL, partial(self._wrapped_forward, model)))
                    continue
                before = model.register_forward_pre_hook(
                    _Hook(hook(self._before_forward)), prepend=True, with_kwargs=True
                )
                hooks.callback(before.remove)
                hooks.callback(model.register_forward_hook(_Hook(hook(self._after_forward)), always_call=True).remove)
            for module in self._others:
                hooks.callback(module.register_forward_pre_hook(_Hook(hook(self._before_other)), prepend=True).remove)
                hooks.callback(module.register_forward_hook(_Hook(hook(self._after_other)), always_call=True).remove)
            hooks.callback(STEPS.listen(before=hook(self._before_optimizer), after=hook(self._after_optimizer)))
            self._hooks = hooks.pop_all()

    def remove(self) -> None:
        """Remove all hooks. The model and torch are as before."""
        self._hooks.close()
        self._hooks = ExitStack()

    def start_step(self) -> None:
        """Report the start of a step."""
        self._open.clear()
        self._is_evaluation, self._other_calls, self._between = False, 0, "other"
        self.mark("other")

    @contextmanager
    def inside(self, phase: Phase) -> Iterator[None]:
        """Report `phase` for the block. What the hooks find inside the block has priority."""
        outer: Phase = self._open[-1] if self._open else "other"
        self._guard.run(self._enter, phase)
        try:
            yield
        finally:
            self._guard.run(self._leave, phase, outer)

    @property
    def is_in_backward(self) -> bool:
        """Whether a backward pass is running."""
        return "backward" in self._open

    @property
    def is_in_call(self) -> bool:
        """Whether a call of a model, or its evaluation, is running."""
        return "forward" in self._open or self._is_evaluation

    def around_other(self, call: Callable[[], Any]) -> Any:
        """The result of `call`, a call of one of the other modules."""
        self._before_other()
        try:
            return call()
        finally:
            self._after_other()

    def around_forward(
        self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], call: Callable[[], Any]
    ) -> Any:
        """The result of `call`, a call of `model` with these arguments, reported as forward."""
        if not self._enter_forward(model, args, kwargs):
            return call()
        try:
            return call()
        finally:
            self._leave_forward()

    def _enter_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Report forward, and whether this is an outermost call of a model. In backward, a checkpointed model runs again."""
        if not self._is_watched() or "forward" in self._open or "backward" in self._open or self._is_evaluation:
            return False
        if not self._still_watches_before_work():
            return False
        self._has_calls = True
        self._is_evaluation = not self._on_forward(model, args, kwargs)
        self._enter("other" if self._is_evaluation else "forward")
        return True

    def _leave_forward(self) -> None:
        if self._is_evaluation:
            self._is_evaluation = False
            self._leave("other", self._between)
        else:
            self._leave("forward", self._after_call())

    def _after_call(self) -> Phase:
        """The phase after a call of a model: the loss, if the call has gradients; else what went on before it."""
        return "loss" if torch.is_grad_enabled() else self._between

    def _still_watches_before_work(self) -> bool:
        """Call `before_work` outside of phases. False if that has replaced the hooks, which begin with the next call.

        An optimizer's closure is outside, too: a loop may do all its work in it.
        """
        installed, is_in_optimizer = self._hooks, self._open == ["optimizer"]
        if is_in_optimizer or not self._open:
            self.before_work()
        if self._hooks is not installed:
            return False
        if is_in_optimizer and not self._open:  # a step has ended in the closure
            self._enter("optimizer")
        return True

    def _enter(self, phase: Phase) -> None:
        self._open.append(phase)
        self.mark(phase)

    def _leave(self, phase: Phase, next_phase: Phase) -> None:
        """Close `phase`. The phase around it continues; without one, `next_phase` begins.

        An optimizer may call forward and backward itself, by a closure. The loss is between the two there, too.
        """
        if phase not in self._open:  # the step ended inside the phase
            return
        while self._open.pop() != phase:
            pass
        outer = self._open[-1] if self._open else None
        if outer is None:
            self._between = next_phase
        is_next = outer == "optimizer" and next_phase == "loss"
        self.mark(next_phase if outer is None or is_next else outer)

    def _is_watched(self) -> bool:
        return threading.get_ident() == self._thread and not self._guard.is_closed

    def _before_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.compiler.is_compiling():  # the loop calls a compiled wrapper: `_wrapped_compiled`
            self._enter_forward(model, args, kwargs)

    def _after_forward(self, *_: Any) -> None:
        if not torch.compiler.is_compiling() and self._is_watched():
            self._leave_forward()

    def _before_other(self, *_: Any) -> None:
        if torch.compiler.is_compiling() or not self._is_watched() or self._is_evaluation:
            return
        if not {"forward", "backward"} & {*self._open} and self._still_watches_before_work():
            self._other_calls += 1
            self._enter("forward")
        elif self._other_calls:
            self._other_calls += 1

    def _after_other(self, *_: Any) -> None:
        if not torch.compiler.is_compiling() and self._is_watched() and self._other_calls:
            self._other_calls -= 1
            if not self._other_calls:
                self._leave("forward", self._after_call())

    def _wrapped_forward(self, model: nn.Module, original: Callable[..., Any]) -> Callable[..., Any]:
        def forward(*args: Any, **kwargs: Any) -> Any:
            around = partial(self.around_forward, model, args, kwargs)
            return self._guard.around(around, lambda: original(*args, **kwargs))

        return forward

    def _wrapped_compiled(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Calls of ``torch.compile(model)``, where the session has `model` itself: hooks on it would be compiled."""

        def call_compiled(wrapper: Any, *args: Any, **kwargs: Any) -> Any:
            around = partial(self._around_compiled, wrapper, args, kwargs)
            return self._guard.around(around, lambda: original(wrapper, *args, **kwargs))

        return call_compiled

    def _around_compiled(self, wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call) -> Any:
        if not any(wrapper._orig_mod is model for model in self.models):
            return call()
        return self.around_forward(wrapper, args, kwargs, lambda: self.around_call(call))

    def _wrapped(self, around: Callable[[Call], Any], original: Callable[..., Any]) -> Callable[..., Any]:
        """A function of torch that does what `original` does, inside of ``around(call)``."""
        return lambda *args, **kwargs: self._guard.around(around, lambda: original(*args, **kwargs))

    def _around_backward(self, call: Call) -> Any:
        if not self._is_watched() or "backward" in self._open:
            return call()
        if not self._has_calls and not self._still_watches_before_work():  # a compiled function calls the models
            return call()
        return self._in_phase("backward", "other", call)

    def _around_engine(self, call: Call) -> Any:
        """The pass of ``torch.autograd.grad``: the loop goes on with what it did before, such as a penalty of the loss."""
        return self._in_phase("backward", self._between, call) if self._is_outside() else call()

    def _around_next(self, call: Call) -> Any:
        """Fetching from a loader."""
        is_fetch = self._is_outside() and self._still_watches_before_work()
        return self._in_phase("data", self._after_data, call) if is_fetch else call()

    def _around_zero_grad(self, call: Call) -> Any:
        """``zero_grad``, where the loop may be computing its loss."""
        return self._in_phase("optimizer", self._between, call) if self._is_outside() else call()

    def _is_outside(self) -> bool:
        return self._is_watched() and not self._open

    def _in_phase(self, phase: Phase, following: Phase, call: Call) -> Any:
        self._enter(phase)
        try:
            return call()
        finally:
            self._leave(phase, following)

    def _before_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if self._is_watched() and "optimizer" not in self._open:
            self._on_optimizer(optimizer)
            self._enter("optimizer")

    def _after_optimizer(self, _: torch.optim.Optimizer) -> None:
        if self._is_watched():
            self._leave("optimizer", "other")


@contextmanager
def replaced(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Replace an attribute of a module, a class or an object by ``wrap(attribute)`` inside the block."""
    original, is_inherited = getattr(owner, name), name not in vars(owner)
    wrapped = wrap(original)
    setattr(owner, name, wrapped)
    try:
        yield
    finally:
        if getattr(owner, name) is wrapped:  # otherwise somebody else has replaced it since
            if is_inherited:  # `__call__` of compiled modules up to torch 2.7, which others replace in its base class
                delattr(owner, name)
            else:
                setattr(owner, name, original)


@contextmanager
def rerouted(function: Any, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """Run `function` as ``wrap(function)`` inside the block, by whatever name the program holds it: its code is replaced."""
    code = function.__code__
    original = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    original.__kwdefaults__ = function.__kwdefaults__
    constants = _forward_to.__code__.co_consts
    function.__code__ = rerouting = _forward_to.__code__.replace(
        co_consts=tuple(wrap(original) if constant == _TARGET else constant for constant in constants)
    )
    try:
        yield
    finally:
        if function.__code__ is rerouting:  # otherwise somebody else has replaced it since
            function.__code__ = code


def _forward_to(*args: Any, **kwargs: Any) -> Any:
    """The code of a rerouted function, in which its target takes the place of a constant."""
    target: Any = "profiler_kit target"
    return target(*args, **kwargs)


def _do_nothing() -> None:
    """What happens between steps where nobody listens."""


def _call(call: Call) -> Any:
    return call()


def _is_on_cuda(model: nn.Module) -> bool:
    return any(parameter.is_cuda for parameter in parameters_of(model))
