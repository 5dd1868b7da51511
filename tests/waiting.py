"""Waiting for events, and meeting places, in tests with several processes. The limits only end a test that would hang."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep  # the machine's, also in tests that replace those of the module
from typing import TypeVar

T = TypeVar("T")
AMPLE_S = 180.0  # less than the time limit of a test


def wait_until(condition: Callable[[], T]) -> T:
    """The first true value of `condition`."""
    until_s = monotonic() + AMPLE_S
    while not (value := condition()):
        assert monotonic() < until_s, "this did not happen"
        sleep(0.01)
    return value


def is_running(pid: int) -> bool:
    """Whether the process exists and is no zombie, which nobody may have collected yet."""
    try:
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")
        return not Path("/proc/self").exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for_end(pid: int) -> None:
    """Return when the process has ended."""
    wait_until(lambda: not is_running(pid))


def is_written(file: Path) -> bool:
    """Whether a process has written the first line of `file`."""
    return file.exists() and "\n" in file.read_text()


def written_number(file: Path) -> int:
    """The number that a process writes as the line of `file`."""
    wait_until(lambda: is_written(file))
    return int(file.read_text())


def free_port() -> int:
    """A port on which nothing listens, and that the system gives to nobody who asks for any port, such as gloo."""
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    highest = int(ephemeral.read_text().split()[0]) if ephemeral.exists() else 49152
    while True:
        port = random.SystemRandom().randrange(10_000, highest)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port
