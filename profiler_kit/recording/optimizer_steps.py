"""The steps of all optimizers: calls listeners before and after each. Without listeners, a step costs a few comparisons."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Listener = Callable[[torch.optim.Optimizer], None]


class OptimizerSteps:
    """Listeners may come and go at any time, in any thread; hooks of torch must not, while it iterates over them.

    So torch has one hook before and one after a step. They are removed with the last listener if all steps were those of this
    thread and none is running; else they stay, and call nobody.
    """

    def __init__(self) -> None:
        self._before: tuple[Listener, ...] = ()
        self._after: tuple[Listener, ...] = ()
        self._hooks: list[Any] = []
        self._threads: set[int] = set()
        self._is_calling = self._stays = False
        self.count = 0  # of the steps since `install`

    def install(self, *, stays: bool = False) -> None:
        """Notice steps from now on. With `stays`, also while nobody listens."""
        self._stays |= stays
        if not self._hooks:
            self._hooks = [
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ]

    def listen(self, *, before: Listener | None = None, after: Listener | None = None) -> Callable[[], None]:
        """Call `before` and `after` around each step, until the result is called."""
        self.install()
        self._before += (before,) if before is not None else ()
        self._after += (after,) if after is not None else ()

        def stop() -> None:
            self._before = tuple(other for other in self._before if other is not before)
            self._after = tuple(other for other in self._after if other is not after)
            self._remove_unused()

        return stop

    def _remove_unused(self) -> None:
        is_used = self._before or self._after or self._stays
        if not is_used and not self._is_calling and self._threads <= {threading.get_ident()}:
            while self._hooks:
                self._hooks.pop().remove()

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._before:
            self._call(self._before, optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self._threads.add(threading.get_ident())
        self.count += 1
        if self._after:
            self._call(self._after, optimizer)

    def _call(self, listeners: tuple[Listener, ...], optimizer: torch.optim.Optimizer) -> None:
        self._is_calling = True
        try:
            for listener in listeners:
                listener(optimizer)
        finally:
            self._is_calling = False


STEPS: Final = OptimizerSteps()  # of this process


def end_at_next_step(is_due: Callable[[], bool] = lambda: True) -> None:
    """Raise SystemExit in this process before each further step of an optimizer that is due."""
    process = os.getpid()

    def end(_: torch.optim.Optimizer) -> None:
        if os.getpid() == process and is_due():
            raise SystemExit(0)

    STEPS.listen(before=end)
