"""Postpones Ctrl-C and termination signals during work that must not stop halfway."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

SIGNALS: Final = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))

Handler = Callable[[int, "FrameType | None"], Any]


class deferred_interrupts:  # noqa: N801 used as a block
    """Calls the Python handlers of signals that arrive inside the block at its end.

    A generator cannot do this: an exception could be raised between its steps. Does nothing outside the main thread, where
    Python runs no handlers.
    """

    def __init__(self) -> None:
        self._active = False
        self._handlers: dict[int, Handler] = {}
        self._pending: list[int] = []

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        self._active = True
        try:
            for number in SIGNALS:
                handler = signal.getsignal(number)
                if callable(handler):  # ignored signals and the system's default action need no delay
                    self._handlers[number] = handler
                    signal.signal(number, self._handle)
        except BaseException:  # from the handler of a signal that was not replaced yet
            self._active = False
            self._restore()
            raise

    def __exit__(self, *_: object) -> None:
        self._active = False
        self._restore()
        for number in self._pending:
            self._handlers[number](number, None)

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        # A handler that stays installed, because another signal's handler raised in `_restore`, passes its signals on.
        if self._active:
            return self._pending.append(number)
        return self._handlers[number](number, frame)

    def _restore(self) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
