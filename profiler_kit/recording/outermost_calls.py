"""The outermost calls of modules: those that a loop makes itself, and no module that it calls. Also of ``model.forward(x)``."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import torch
from torch import nn

from profiler_kit.meta.compilation import has_compiled
from profiler_kit.meta.ownership import Call
from profiler_kit.recording.guard import Guard
from profiler_kit.recording.phases import replaced

OnCall = Callable[[nn.Module], None]
Represented = Callable[[nn.Module], nn.Module | None]
Around = Callable[[nn.Module, tuple[Any, ...], dict[str, Any], Call], Any]


def _do_nothing(_: nn.Module) -> None:
    """What happens at a call where nobody listens; what a module that is not watched stands for."""


@contextmanager
def wrapped_forwards(modules: Iterable[nn.Module], around: Around, guard: Guard) -> Iterator[None]:
    """Run ``forward`` of all modules of the classes of `modules` as ``around(module, args, kwargs, call)`` inside the block.

    Their classes are changed: copies and files of the modules, which the program may make, have nothing of it. Classes of torch
    are left out, and all where the program compiles, which would compile again.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(self, *args, **kwargs)
            return guard.around(partial(around, self, args, kwargs), lambda: original(self, *args, **kwargs))

        return forward

    kinds = {type(module) for module in modules} if not has_compiled() else set()
    with ExitStack() as changes:
        for kind in kinds:
            if kind.__module__.partition(".")[0] != "torch":
                changes.enter_context(replaced(kind, "forward", wrap))
        yield


def wrapped_calls(around: Around, guard: Guard) -> AbstractContextManager[None]:
    """Run every call of a module as ``around(module, args, kwargs, call)`` inside the block, except where torch compiles."""

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            return guard.around(partial(around, module, args, kwargs), lambda: original(module, *args, **kwargs))

        return call

    return replaced(nn.Module, "__call__", wrap)


class OutermostCalls:
    """Notices the outermost calls of modules in the thread that calls `watch`.

    `called`: id of each module that was called -> the module, in the order of the first calls. `direct`: the ids of those of
    which the loop calls ``forward`` itself. `before` and `after` receive the
    module of each call. What a backward pass computes again, and what is traced by a compiler, is no call of the loop.
    """

    def __init__(self, guard: Guard, before: OnCall = _do_nothing, after: OnCall = _do_nothing) -> None:
        self._guard = guard
        self.called: dict[int, nn.Module] = {}
        self.direct: set[int] = set()
        self._before, self._after = before, after
        self._modules: dict[int, nn.Module] = {}
        self._represented: Represented = _do_nothing
        self._thread = self._depth = 0
        self._watch = ExitStack()

    def watch(self, modules: Iterable[nn.Module], represented: Represented = _do_nothing) -> None:
        """Notice calls of `modules` from now on, and as calls of ``represented(module)`` those of others, if that is one."""
        self._thread = threading.get_ident()
        self._modules = {id(module): module for module in modules}
        self._represented = represented
        self._watch.enter_context(wrapped_calls(self._around, self._guard))
        self._watch.enter_context(wrapped_forwards(self._modules.values(), self._around_forward, self._guard))

    def stop(self) -> None:
        """Notice no further calls, at any time."""
        self._watch.close()
        self._modules, self._represented = {}, _do_nothing

    def _around(self, module: nn.Module, _args: Any, _kwargs: Any, call: Call) -> Any:
        return self._around_call(module, call)

    def _around_call(self, module: nn.Module, call: Call) -> Any:
        if self._depth or not self._is_watched():
            return call()
        known = module if id(module) in self._modules else self._represented(module)
        if known is None:
            return call()
        self._before(known)
        self.called.setdefault(id(known), known)
        try:
            return self._inside(call)
        finally:
            self._after(known)

    def _around_forward(self, module: nn.Module, _args: Any, _kwargs: Any, call: Call) -> Any:
        if self._depth or not self._is_watched():
            return call()
        if id(module) in self._modules:
            self.direct.add(id(module))
            return self._around_call(module, call)
        return call() if self._represented(module) is None else self._inside(call)  # the parts of a copy are no models

    def _inside(self, call: Call) -> Any:
        self._depth += 1
        try:
            return call()
        finally:
            self._depth -= 1

    def _is_watched(self) -> bool:
        is_in_backward = torch._C._current_autograd_node() is not None
        return threading.get_ident() == self._thread and not torch.compiler.is_compiling() and not is_in_backward
