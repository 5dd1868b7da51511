"""Finds the loop of a program that nobody has changed: the models that it calls, and the events that end a step.

- A program whose optimizers step trains. A step ends with an optimizer's step; with several optimizers, with the last one of
  the sequence that repeats.
- A program that only calls ``backward`` trains without an optimizer of PyTorch. A step ends with a backward pass.
- Other programs run inference. A step is a call of a model, or of the method of the model that calls it (``generate``).

What comes first may be a weaker kind: a drawing of the model before its optimizer exists. A stronger one takes its place.

Before the first step, the finder costs a function call per outermost call of a model. It then watches the calls of all modules
for a few steps.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from profiler_kit.recording.copies import OptimizerKeys, model_of_copy
from profiler_kit.recording.cycles import find_cycle
from profiler_kit.recording.guard import Guard
from profiler_kit.recording.modules import (
    attribute_names,
    different_optimizers,
    holders,
    is_model,
    live,
    owners,
    parameters_of,
)
from profiler_kit.recording.optimizer_steps import STEPS
from profiler_kit.recording.outermost_calls import OutermostCalls
from profiler_kit.recording.phases import replaced

Source = Literal["optimizer", "backward", "call"]
SOURCES: Final[tuple[Source, ...]] = ("optimizer", "backward", "call")  # the strongest first

# The numbers of calls, or of backward passes, after which they can be steps if no optimizer exists. Each asks for all objects.
PATIENCE: Final = (3, 10, 30, 100, 300)
# The same if an optimizer exists. It may step later, so calls in training mode are never steps then.
LONG_PATIENCE: Final = 1000
MAX_LATE: Final = 8  # steps of other optimizers before one that has not stepped is not waited for
MAX_EVENTS: Final[dict[Source, int]] = {
    "optimizer": 64,
    "backward": 8,
    "call": 1024,
}  # watched, until a cycle must be found
LONGER: Final = 4  # times as many, where another optimizer steps than the loop seemed to have

_CALLS: Final = frozenset(("__call__", "_call_impl", "_wrapped_call_impl", "forward"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop as the finder sees it.

    - `models`: the modules with parameters that the loop calls itself, in the order of their first call; those that are
      trained, where the loop trains. Empty where it calls none: its models are then those that hold trained parameters.
    - `names`: of the models: the attribute that holds one in another module, else its class.
    - `owners`: the classes of the outermost modules that hold the models, which the loop may never call as a whole.
    - `direct`: those of which it calls ``forward`` itself.
    - `others`: further modules that it calls: teachers, averages of the weights, frozen networks.
    - `cycle`: the events of one step, as keys: those of optimizers, or ids of modules. `steps_before`: steps that are over.
    - `has_copies`: it makes models or optimizers anew, such as a copy of the model for each task.
    - `method`: the method of the model that is one step of inference, such as ``generate``; None for a call of the model.
    """

    source: Source
    models: tuple[nn.Module, ...]
    names: tuple[str, ...]
    owners: tuple[str, ...]
    others: tuple[nn.Module, ...]
    direct: tuple[nn.Module, ...]
    cycle: tuple[int, ...]
    steps_before: int
    has_copies: bool = False
    method: str | None = None


class LoopFinder:
    """Watches a program from the import of torch on, and calls `on_loop` once, in the thread of the loop, as a step begins.

    `on_event`, which `on_loop` sets, receives the events that can end a step. `on_stronger` is called when the steps of the
    program turn out to end with stronger events than those of the loop that it has got; `resume` then looks for its loop.
    `guard` runs everything that the finder does. With `watches_calls`, calls may be the steps.
    """

    def __init__(
        self,
        on_loop: Callable[[Loop], None],
        *,
        on_stronger: Callable[[], None],
        guard: Guard,
        first_step: int = 1,
        watches_calls: bool = True,
    ) -> None:
        self.on_event: Callable[[int], None] | None = None
        self._guard = guard
        self.counts: dict[Source, int] = {"optimizer": 0, "backward": 0, "call": 0}
        self._on_loop, self._on_stronger = on_loop, on_stronger
        self._first_step = first_step
        self._watches_calls = watches_calls
        self._source: Source | None = None
        self._events: dict[tuple[Source, int], list[int]] = {}  # of each source in each thread
        self._thread = 0
        self._running = threading.local()  # `depth`: the number of calls of modules that run in a thread
        self._calls = OutermostCalls(
            guard, self._before_outermost, self._after_outermost
        )  # of the loop, during the watch
        self._methods: set[str | None] = set()
        self._trained: set[int] = set()  # ids of the parameters of optimizers
        self._keys = OptimizerKeys()
        self._copied: set[int] = set()  # ids of models of which copies are called
        self._distinct = 1
        self._cycle: tuple[int, ...] | None = None
        self._patience = 1  # times `MAX_EVENTS`
        self._waits_for_training = False  # the model that was called last is in training mode
        self._hooks, self._call_hooks = ExitStack(), ExitStack()

    @property
    def other_threads(self) -> bool:
        """Whether other threads than that of the loop may compute: it is not the main thread, or they have called models."""
        is_main = self._thread == threading.main_thread().ident
        return not is_main or any(thread != self._thread for _, thread in self._events)

    @property
    def has_copies(self) -> bool:
        """Whether the program makes models or optimizers anew while its loop runs."""
        return bool(self._copied) or self._keys.has_copies

    def install(self) -> None:
        """Wait for steps."""
        self._hooks.callback(STEPS.listen(after=self._guard.hook(self._after_optimizer)))
        self._hooks.enter_context(replaced(torch.autograd, "backward", self._wrapped_backward))
        self._hooks.enter_context(replaced(torch, "compile", self._wrapped_compile))
        if not self._watches_calls:
            return
        self._call_hooks.callback(register_module_forward_pre_hook(self._guard.hook(self._before_call)).remove)
        self._call_hooks.callback(
            register_module_forward_hook(self._guard.hook(self._after_call), always_call=True).remove
        )

    def remove(self) -> None:
        """Remove all hooks, at any time."""
        self._calls.stop()
        self._call_hooks.close()
        self._calls.called.clear()
        self._hooks.close()

    # ---- events

    def _after_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if self._source is not None and self.on_event is None:
            self._trained.update(id(p) for group in optimizer.param_groups for p in group["params"])
        if not self.counts["optimizer"]:
            self._call_hooks.close()  # a program that trains is not taken for inference
        if self._is_far("optimizer"):  # the key of an optimizer costs more than all else here: 9 us of a small step
            self.counts["optimizer"] += 1
            return
        self._handle("optimizer", self._keys.of(optimizer))

    def _wrapped_backward(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def backward(*args: Any, **kwargs: Any) -> Any:
            if not self._calls.called:  # the loop calls no models, whose calls are the earlier place to begin
                self._guard.run(self._begin)
            result = original(*args, **kwargs)
            self._guard.run(self._handle, "backward", 0)
            return result

        return backward

    def _wrapped_compile(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 the name that it replaces
            is_waiting = self._source is None and not self.counts["optimizer"]
            self._call_hooks.close()  # torch.compile warns about hooks on all modules
            compiled = original(*args, **kwargs)
            if is_waiting and isinstance(compiled, nn.Module):
                self._call_hooks.enter_context(replaced(type(compiled), "__call__", self._wrapped_compiled_call))
            return compiled

        compile.__doc__, compile.__wrapped__ = original.__doc__, original  # type: ignore[attr-defined]
        return compile

    def _wrapped_compiled_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            result = original(module, *args, **kwargs)
            self._guard.run(self._handle, "call", id(module))
            return result

        return call

    def _before_call(self, module: nn.Module, _: Any) -> None:
        if not torch.compiler.is_compiling():
            self._running.depth = getattr(self._running, "depth", 0) + 1

    def _after_call(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        self._running.depth = max(0, getattr(self._running, "depth", 0) - 1)
        if not self._running.depth:
            self._note_call(module)

    def _note_call(self, module: nn.Module) -> None:
        if is_model(module):
            self._waits_for_training = module.training
            self._handle("call", id(module))

    def _handle(self, source: Source, key: int) -> None:
        """An event: wait, start to watch, or continue."""
        is_far = self._is_far(source)
        self.counts[source] += 1
        if is_far:
            return
        thread = threading.get_ident()
        if self._source is not None and (source, thread) != (self._source, self._thread):
            if SOURCES.index(source) >= SOURCES.index(self._source) or not self._is_loop(source):
                return
            if self.on_event is not None:
                self._on_stronger()
                return
            self.resume(is_new=True)
        events = self._events.setdefault((source, thread), [])
        events.append(key)
        if len(events) > 2 * self._patience * MAX_EVENTS[source]:
            del events[: self._patience * MAX_EVENTS[source]]
        if self.on_event is not None:
            self.on_event(key)
            return
        if self._source is None:
            if self.counts[source] >= self._first_step and self._is_loop(source):
                self._start_watch(source)
        else:
            self._continue_watch(events)

    def _is_far(self, source: Source) -> bool:
        """Whether an event of `source` comes too early to matter: it costs little then."""
        return self._source is None and self.counts[source] < self._first_step - MAX_EVENTS["optimizer"]

    def _is_loop(self, source: Source) -> bool:
        """Whether steps end with events of `source`, as no stronger one occurs."""
        if source == "optimizer":
            return True
        if self.counts["optimizer"] or (source == "call" and self.counts["backward"]):
            return False
        count = self.counts[source] - self._first_step + 1
        if count in PATIENCE and not live(torch.optim.Optimizer):
            return True
        return count >= LONG_PATIENCE and not (source == "call" and self._waits_for_training)

    # ---- the watch

    def resume(self, *, is_new: bool) -> None:
        """Look for a new loop, or for the same one again, and longer: its steps end with other events than it seemed."""
        self._source = self._cycle = self.on_event = None
        if is_new:
            self._calls.stop()
            self._calls.called.clear()
            self._methods.clear()
        else:
            self._patience = LONGER

    def _start_watch(self, source: Source) -> None:
        self._source, self._thread = source, threading.get_ident()
        self._call_hooks.close()
        self._distinct = different_optimizers() if source == "optimizer" else 1
        known = [module for module in live(nn.Module) if is_model(module)]
        self._calls.watch(known, lambda module: self._represented(module, known))

    def _represented(self, module: nn.Module, known: Iterable[nn.Module]) -> nn.Module | None:
        """What a module stands for that is made during the watch: a model of which it is a copy, if there is one, or itself."""
        if not is_model(module):
            return None
        candidates = [*self._calls.called.values(), *known]  # a trained one before a copy of it that was made earlier
        model = model_of_copy(module, sorted(candidates, key=self._is_trained, reverse=True))
        if model is None:
            return module
        if model is not module:
            self._copied.add(id(model))
        return model

    def _before_outermost(self, module: nn.Module) -> None:
        self._begin()
        if self._source == "call":
            self._methods.add(_calling_method(module))

    def _after_outermost(self, module: nn.Module) -> None:
        if self._source == "call":
            self._handle("call", id(module))

    def _continue_watch(self, events: list[int]) -> None:
        assert self._source is not None
        if self._cycle is not None:
            return
        if self._forgets_earlier_loop(events, LONGER * MAX_EVENTS[self._source] // 2):
            return
        cycle = find_cycle(events, distinct=self._distinct if len(events) < MAX_LATE else 1)
        if cycle is None and len(events) < self._patience * MAX_EVENTS[self._source]:
            return
        if cycle is None:  # a step is the rarest event of those that go on
            recent = events[len(events) // 2 :]
            cycle = (min(set(recent), key=recent.count),)
        self._cycle = cycle

    def _forgets_earlier_loop(self, events: list[int], longest: int) -> bool:
        """Whether the watch begins anew, as another loop was before: some event is not in the last step, however long it is."""
        going_on = {*events[-longest:]}
        if going_on == {*events}:
            return False
        self._distinct = len(going_on)
        events.clear()
        self._calls.called.clear()
        self._trained.clear()
        return True

    def _begin(self) -> None:
        """Hand the loop over, where a step begins."""
        if self._cycle is not None and self.on_event is None and threading.get_ident() == self._thread:
            self._calls.stop()
            self._on_loop(self._loop(self._cycle))

    def _is_trained(self, module: nn.Module) -> bool:
        return any(id(p) in self._trained for p in parameters_of(module))

    def _loop(self, cycle: tuple[int, ...]) -> Loop:
        assert self._source is not None
        called = list(self._calls.called.values())
        copied = [m for m in called if id(m) in self._copied]  # they may stand for what is trained anew each time
        models = [m for m in called if self._is_trained(m)] or copied or called
        if not models and self._trained:
            models = holders(self._trained)
        attributes = attribute_names() if len(models) > 1 else {}
        others = [m for m in called if all(m is not other for other in models)]
        method = next(iter(self._methods)) if len(self._methods) == 1 and len(models) == 1 else None
        return Loop(
            source=self._source,
            models=tuple(models),
            names=tuple(attributes.get(id(model), type(model).__name__) for model in models),
            owners=tuple(type(model).__name__ for model in owners(models, self._trained)),
            others=tuple(others),
            direct=tuple(m for m in called if id(m) in self._calls.direct),
            cycle=cycle,
            steps_before=self.counts[self._source] // len(cycle),
            has_copies=self.has_copies,
            method=method,
        )


def _calling_method(module: nn.Module) -> str | None:
    """The outermost method of `module` that runs: ``generate``. None if its call is not inside of a method of its own."""
    name = None
    frame: FrameType | None = sys._getframe(5)  # past the watch
    while frame is not None:
        code = frame.f_code
        if code.co_argcount and code.co_name not in _CALLS and hasattr(module, code.co_name):
            name = code.co_name if frame.f_locals.get(code.co_varnames[0]) is module else name
        frame = frame.f_back
    return name
