"""How a supervised process ended, and the facts it leaves for its parent: activity, deadline, stack. Signals that must wait."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import mmap
import os
import re
import signal
import struct
import sys
import sysconfig
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
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


STAGE_BYTES: Final = 1000
STACK_BYTES: Final = 64 * 1024
_DEADLINE: Final = struct.Struct("@q")  # monotonic nanoseconds; 0 for none
_SIGNALS: Final = struct.Struct("@q")
_STAGE: Final = struct.Struct("@H")
_FRAME: Final = re.compile(r'^  File "(.*)", line (\d+) in (.*)$', re.MULTILINE)
_PACKAGE: Final = str(Path(__file__).resolve().parent.parent)
_LIBRARIES: Final = tuple(
    {sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), _PACKAGE}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a command ended that handed over no result.

    `status` is its exit status, negative for a signal. `stage` is the last activity that it noted. `file`, `line` and
    `function` are the innermost line of the user's code, None where the stack is not available. `limit_s` is the time limit
    that it did not keep.
    """

    status: int
    stage: str
    file: str | None = None
    line: int = 0
    function: str = ""
    limit_s: float | None = None

    @property
    def text(self) -> str:
        """The ending in words: ``ended with exit status 0``."""
        if self.limit_s is not None:
            return f"was still running after {self.limit_s:g} s"
        if self.status >= 0:
            return f"ended with exit status {self.status}"
        try:
            return f"was ended by {signal.Signals(-self.status).name}"
        except ValueError:
            return f"was ended by signal {-self.status}"


class ChildReport:
    """Memory that the child writes and the parent reads: stage and deadline in shared memory, the stack of a crash in a file."""

    def __init__(self) -> None:
        self.memory = mmap.mmap(-1, mmap.PAGESIZE)
        self.stack: int | None = None
        with contextlib.suppress(OSError):  # no memory file and no folder for temporary files: the place stays unknown
            if hasattr(os, "memfd_create"):
                self.stack = os.memfd_create("stack")
            else:
                with tempfile.TemporaryFile() as file:
                    self.stack = os.dup(file.fileno())

    @property
    def deadline_ns(self) -> int:
        """When the parent ends the child, in monotonic nanoseconds; 0 for never."""
        return int(_DEADLINE.unpack_from(self.memory, 0)[0])

    @deadline_ns.setter
    def deadline_ns(self, value: int) -> None:
        _DEADLINE.pack_into(self.memory, 0, value)

    @property
    def limit_s(self) -> float:
        """The time limit in the words of the user, which the deadline enforces."""
        return int(_DEADLINE.unpack_from(self.memory, _DEADLINE.size)[0]) * 1e-9

    @limit_s.setter
    def limit_s(self, value: float) -> None:
        _DEADLINE.pack_into(self.memory, _DEADLINE.size, round(value * 1e9))

    @property
    def signals(self) -> int:
        """How many signals the parent has got, and passes on."""
        return int(_SIGNALS.unpack_from(self.memory, 2 * _DEADLINE.size)[0])

    @signals.setter
    def signals(self, value: int) -> None:
        _SIGNALS.pack_into(self.memory, 2 * _DEADLINE.size, value)

    @property
    def stage(self) -> str:
        """The current activity."""
        start = 2 * _DEADLINE.size + _SIGNALS.size
        size = min(_STAGE.unpack_from(self.memory, start)[0], STAGE_BYTES)
        start += _STAGE.size
        return self.memory[start : start + size].decode(errors="replace")

    @stage.setter
    def stage(self, text: str) -> None:
        start = 2 * _DEADLINE.size + _SIGNALS.size
        content = text.encode(errors="replace")[:STAGE_BYTES]
        _STAGE.pack_into(self.memory, start, len(content))
        start += _STAGE.size
        self.memory[start : start + len(content)] = content

    def user_frame(self) -> tuple[str, int, str] | None:
        """(file, line, function) of the innermost frame of user code in the stack; None without one."""
        if self.stack is None:
            return None
        text = os.pread(self.stack, STACK_BYTES, 0).decode(errors="replace")
        for match in _FRAME.finditer(text):
            file = match[1]
            if not file.startswith(("<", *_LIBRARIES)) and "site-packages" not in file:
                return file, int(match[2]), match[3]
        return None


def write_stack_at_exit(stack: int, pid: int) -> Any:
    """Write the Python stack when native code calls ``exit``. Returns the handler, which must stay alive."""

    def write_stack(status: int, argument: object) -> None:
        if os.getpid() == pid:
            faulthandler.dump_traceback(stack, all_threads=False)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p)(write_stack)
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # a C library without on_exit
            ctypes.CDLL(None).on_exit(handler, None)
    return handler
