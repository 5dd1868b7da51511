"""What a child process does about its parent."""

from __future__ import annotations

import contextlib
import ctypes
import signal
import sys
from typing import Final

PR_SET_PDEATHSIG: Final = 1  # from linux/prctl.h


def exit_with_parent() -> None:
    """Let the system kill this process when its parent process exits. Call it first in a child.

    A killed parent cannot stop its children, and a hanging child would block the device forever. Works on Linux only;
    on other systems a child notices when it next reads from or writes to its parent.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # the C library cannot be loaded this way, or lacks the call
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
