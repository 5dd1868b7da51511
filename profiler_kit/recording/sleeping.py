"""A hook on all optimizers that costs a comparison per step until somebody listens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

Listener = Callable[[torch.optim.Optimizer, Any, Any], None]


class SleepingHook:
    """Stays installed. A listener can be set at any time, from any thread: hooks themselves must not change while they run.

    `has_fired`: whether an optimizer has made a step.
    """

    def __init__(self) -> None:
        self.has_fired = False
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
