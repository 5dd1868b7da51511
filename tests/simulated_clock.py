"""Clocks that a test moves, in place of the machine's: durations and time limits do not depend on how busy the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

READING_NS = 1_000  # so that a loop that waits for a time ends
_real_monotonic_ns = time.monotonic_ns


@dataclass(kw_only=True)
class SimulatedClock:
    """The clock of this process: it moves by what is slept, which takes no time, and by a microsecond with each reading.

    `on_sleep` is called after each sleep.
    """

    now_ns: int = 10**12
    on_sleep: Callable[[], object] = lambda: None

    def read_ns(self) -> int:
        """The current time."""
        self.now_ns += READING_NS
        return self.now_ns

    def sleep(self, seconds: float) -> None:
        """Let `seconds` pass."""
        self.now_ns += round(seconds * 1e9)
        self.on_sleep()

    def install(self, patch: pytest.MonkeyPatch) -> SimulatedClock:
        """Replace the clocks and `sleep` of the module `time`."""
        for name in ("perf_counter_ns", "monotonic_ns"):
            patch.setattr(time, name, self.read_ns)
        for name in ("perf_counter", "monotonic"):
            patch.setattr(time, name, lambda: self.read_ns() * 1e-9)
        patch.setattr(time, "sleep", self.sleep)
        return self


def let_time_pass_once(condition: Callable[[], bool], seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let `seconds` pass in this process once `condition` is true: a generous time limit is reached at an event.

    Other processes keep their clocks. On a busy machine, the event may precede the two readings that begin a wait (its start
    and its deadline), so the time passes at the third reading after the event.
    """
    passed_ns = readings = 0

    def now_ns() -> int:
        nonlocal passed_ns, readings
        if not passed_ns and condition():
            readings += 1
            passed_ns = round(seconds * 1e9) if readings == 3 else 0
        return _real_monotonic_ns() + passed_ns

    patch.setattr(time, "monotonic_ns", now_ns)
    patch.setattr(time, "monotonic", lambda: now_ns() * 1e-9)
