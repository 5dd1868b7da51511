"""Ends of a program that Python does not announce: SIGTERM and ``os._exit``."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn


class Endings:
    """Calls `action` before this process ends by SIGTERM or ``os._exit``. The process ends in the same way then.

    A program that handles SIGTERM itself is left alone, also if it begins to later. Forks of the process end at once: it has no
    handler while it forks, because Python forgets signals that a fork gets before it runs.
    """

    def __init__(self, action: Callable[[], None]) -> None:
        self._action, self._process = action, os.getpid()
        self._exit = os._exit
        self._watches = False

    def watch(self) -> None:
        """Call the action from now on. SIGTERM needs the main thread."""
        os._exit = self._exit_after_action
        self._watches = True
        self.handle_signal()

    def stop(self) -> None:
        """Leave all to the program."""
        if os._exit == self._exit_after_action:
            os._exit = self._exit
        self.leave_signal()
        self._watches = False

    def handle_signal(self) -> None:
        """Handle SIGTERM where the program does not. Only the main thread can."""
        is_main = threading.current_thread() is threading.main_thread()
        if self._watches and is_main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._on_signal)

    def leave_signal(self) -> None:
        """Handle SIGTERM no more. In another thread than the main one the handler stays, and only ends the process."""
        if self._watches and signal.getsignal(signal.SIGTERM) == self._on_signal:
            with suppress(ValueError):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _exit_after_action(self, status: int) -> NoReturn:
        self._act()
        self._exit(status)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._act()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def _act(self) -> None:
        if os.getpid() == self._process:
            self._action()
