"""Functions that the tests of the process pool run."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from profiler_kit.errors import TraceError


def square(number: int) -> int:
    if number < 0:
        raise TraceError("is negative", where=str(number), hint="give another")
    return number * number


def slow_first(number: int) -> int:
    time.sleep(0.3 if number == 0 else 0)
    print("noise on stdout")
    return number


def dies_at_three(number: int) -> int:
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def quits_at_one(number: int) -> int:
    if number == 1:
        os._exit(5)
    return number


def broken(number: int) -> int:
    return number // 0


def large(number: int) -> bytes:
    return bytes([number]) * 5_000_000


def leaves_its_id(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(300)
