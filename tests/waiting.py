"""Waiting for events, in tests with several processes. The limits are generous: they only end a test that would hang."""

from __future__ import annotations

import os
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
