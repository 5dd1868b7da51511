"""A child process ends with its parent; a parent ends the processes that its children leave behind."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # from linux/prctl.h
PR_SET_CHILD_SUBREAPER: Final = 36
END_S: Final = 2.0  # for killed processes to disappear


def exit_with_parent(parent: int | None = None) -> None:
    """Let the system kill this process when its parent process exits. Call it first in a child.

    `parent` is the parent's id where it is known: a parent that has exited already ends this process now.

    A killed parent cannot stop its children, and a hanging child would block the device forever. Works on Linux only;
    on other systems a child notices when it next reads from or writes to its parent.
    """
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if parent is not None and os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> frozenset[int]:
    """Make this process the parent of descendants whose own parent exits. Linux only. Returns the children it has now.

    A shell that has started other jobs may have become this process.
    """
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    return frozenset(_children())


def end_adopted(others: frozenset[int]) -> None:
    """Kill all children of this process except `others`, and those that it adopts from them."""
    until_s = time.monotonic() + END_S
    while (children := _children() - others) and time.monotonic() < until_s:
        for pid in children:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)


def _children() -> set[int]:
    """The ids of this process's children, without those that have ended, which are forgotten. Empty but on Linux."""
    children: set[int] = set()
    if sys.platform != "linux":
        return children
    with contextlib.suppress(ChildProcessError):  # there is none
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        own = str(os.getpid())
        for status in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                state, parent = status.read_text(errors="replace").rpartition(")")[2].split()[:2]
                if parent == own and state != "Z":
                    children.add(int(status.parent.name))
    return children


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # the C library cannot be loaded this way, or lacks the call
            ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
