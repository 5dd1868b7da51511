"""A started process: its exit, its process group, its pipes.

`subprocess.Popen.poll` and `wait` share a lock, and an exception of a signal handler inside them can leave it locked, so that
the next call waits forever. `Command` asks the system instead, and collects a process only once, at the end.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import IO, Final

POLL_S: Final = 0.2  # delay before noticing the exit of a child whose own child keeps the pipe open
GRACE_S: Final = 5.0  # from SIGTERM to SIGKILL: enough to remove temporary files, also on a busy machine
KILL_S: Final = 5.0  # a killed process may stay in a call to a device or a dead file system; do not wait for it forever


class Started(ABC):
    """A process that leads its own process group. `pid` is the id of both."""

    pid: int
    stdin: IO[bytes] | None
    stdout: IO[bytes]

    @abstractmethod
    def current_exit_code(self) -> int | None:
        """The exit code, negative for a signal; None if the process still runs."""

    @abstractmethod
    def exit_events(self) -> contextlib.AbstractContextManager[int | None]:
        """A descriptor that becomes readable when the process exits; None where the system has none."""

    @abstractmethod
    def collect(self) -> None:
        """Let the system forget the process, which has exited, and its id. Does nothing the second time."""

    def exit_code(self, timeout_s: float = 0.0) -> int | None:
        """The exit code, negative for a signal; None if the process still runs after `timeout_s` seconds.

        The system keeps the id until `close`, so that `kill_group` cannot reach an unrelated process.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            code = self.current_exit_code()
            if code is not None or (left_s := deadline - time.monotonic()) <= 0:
                return code
            with self.exit_events() as events:
                select.select([events] if events is not None else [], [], [], min(POLL_S, left_s))

    def kill_group(self, number: signal.Signals) -> None:
        """Send the signal `number` to the process group, if it still has processes."""
        # The system does not reuse a group id while the group has a process. macOS reports EPERM for a group of zombies.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def stop_group(self) -> int:
        """Stop the group: SIGTERM, a grace period, SIGKILL. A second Ctrl-C ends the grace period. Returns the exit code."""
        try:
            self.kill_group(signal.SIGTERM)
            self.exit_code(GRACE_S)
        finally:
            self.kill_group(signal.SIGKILL)
            code = self.exit_code(KILL_S)
        return code if code is not None else -signal.SIGKILL

    def close(self) -> None:
        """Collect the process, which has exited, and close its pipes. One that cannot be killed is left to the system."""
        if self.exit_code() is not None:
            self.collect()
        for pipe in (self.stdin, self.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()


class Command(Started):
    """A program started by this process, with a pipe as stdout."""

    def __init__(self, popen: subprocess.Popen[bytes]) -> None:
        assert popen.stdout is not None
        self.popen = popen
        self.pid, self.stdin, self.stdout = popen.pid, popen.stdin, popen.stdout

    def current_exit_code(self) -> int | None:
        """The exit code, negative for a signal; None if the process still runs."""
        if self.popen.returncode is not None or not hasattr(os, "waitid"):  # macOS has it from Python 3.13 on
            return self.popen.poll()
        try:
            status = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # collected by the user's code, which waited for any child; as Popen, assume success
            return 0
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    @contextlib.contextmanager
    def exit_events(self) -> Iterator[int | None]:
        """A descriptor that becomes readable when the process exits; None where the system has none."""
        descriptor = None
        if sys.platform == "linux":
            with contextlib.suppress(
                OSError
            ):  # a kernel before 5.3, a container that forbids the call, no free descriptor
                descriptor = os.pidfd_open(self.pid)
        try:
            yield descriptor
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def collect(self) -> None:
        """Let the system forget the process, which has exited, and its id. Does nothing the second time."""
        if self.popen.returncode is None:
            # first, so that an interruption cannot lead to a signal for an id that is free again
            self.popen.returncode = self.current_exit_code()
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, os.WNOHANG)
