"""Hooks on all optimizers: one that costs a comparison per step until somebody listens, and one that ends the program."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

Listener = Callable[[torch.optim.Optimizer, Any, Any], None]


class SleepingHook:
    """Stays installed. A listener can be set at any time, from any thread: hooks themselves must not change while they run.

    `has_fired`: whether an optimizer has made a step.
    """

    def __init__(self, *, has_fired: bool = False) -> None:
        self.has_fired = has_fired
        self._listener: Listener | None = None
        register_optimizer_step_post_hook(self._after_step)

    def listen(self, listener: Listener) -> None:
        """Call `listener` after each step of an optimizer."""
        self._listener = listener

    def sleep(self) -> None:
        """Call nobody."""
        self._listener = None

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.has_fired = True
        listener = self._listener
        if listener is not None:
            listener(optimizer, args, kwargs)


def end_at_next_step() -> None:
    """Raise SystemExit in this process before each further step of an optimizer."""
    process = os.getpid()

    def end(*_: Any) -> None:
        if os.getpid() == process:
            raise SystemExit(0)

    register_optimizer_step_pre_hook(end)
