"""The outermost calls of modules: those that a loop makes itself, and no module that it calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Any

import torch
from torch import nn

from profiler_kit.meta.ownership import Call, wrapped_calls

OnCall = Callable[[nn.Module], None]


def _do_nothing(_: nn.Module) -> None:
    """What happens at a call where nobody listens."""


class OutermostCalls:
    """Notices the outermost calls of modules in the thread that calls `watch`.

    `called`: id of each module that was called -> the module, in the order of the first calls. `before` and `after` receive the
    module of each call. What a backward pass computes again, and what is traced by a compiler, is no call of the loop.
    """

    def __init__(self, before: OnCall = _do_nothing, after: OnCall = _do_nothing) -> None:
        self.called: dict[int, nn.Module] = {}
        self._before, self._after = before, after
        self._modules: dict[int, nn.Module] = {}
        self._thread = self._depth = 0
        self._watch = ExitStack()

    def watch(self, modules: Iterable[nn.Module]) -> None:
        """Notice calls of `modules` from now on."""
        self._thread = threading.get_ident()
        self._modules = {id(module): module for module in modules}
        self._watch.enter_context(wrapped_calls({key: str(key) for key in self._modules}, self._around_call))

    def stop(self) -> None:
        """Notice no further calls, at any time."""
        self._watch.close()
        self._modules = {}

    def _around_call(self, key: str, call: Call) -> Any:
        module = self._modules.get(int(key))
        if module is None or not self._is_watched():
            return call()
        if self._depth == 0:
            self._before(module)
            self.called.setdefault(id(module), module)
        self._depth += 1
        try:
            return call()
        finally:
            self._depth -= 1
            if self._depth == 0:
                self._after(module)

    def _is_watched(self) -> bool:
        is_in_backward = torch._C._current_autograd_node() is not None
        return threading.get_ident() == self._thread and not torch.compiler.is_compiling() and not is_in_backward
