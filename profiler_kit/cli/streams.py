"""The standard streams as the command needs them, whatever it was started with, and an end that waits for nobody."""

from __future__ import annotations

import io
import os
import sys
import threading
from typing import NoReturn


def make_usable() -> None:
    """Gives every closed standard stream a place to go, and lets no character that a stream cannot write be an error.

    A descriptor that is closed would be given to the next file that is opened, which would then be printed into.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free: this one
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 it is open as long as the process
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "surrogateescape"):
            stream.reconfigure(errors="backslashreplace")


def printable(text: str) -> str:
    """`text` with control characters escaped, all but the ends of lines: a name from a file must not steer the terminal."""
    return "".join(one if one.isprintable() or one == "\n" else repr(one)[1:-1] for one in text)


def to_nowhere() -> None:
    """Lets what is left of stdout go nowhere: Python flushes it once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def leave(status: int) -> NoReturn:
    """Ends the process with `status`, also where the user's code has left threads running that would keep it for ever."""
    waiting = [
        thread for thread in threading.enumerate() if thread is not threading.main_thread() and not thread.daemon
    ]
    if waiting:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    sys.exit(status)
