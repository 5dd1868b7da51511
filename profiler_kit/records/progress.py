"""Progress through the processes of a measurement."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStart:
    """A process that starts to measure, or several that take turns.

    - `number` of `count`: its place among the processes that are planned at the moment, counted from 1. `last`: the place of the
      last one of several that take turns.
    - `name`: its configuration and purpose.
    - `left_ns`: the estimated time until the last of them ends, from the processes that have ended; None if unknown.
    - `is_bound`: the estimate is an upper bound, because no second process of a configuration has ended. It takes less time than
      the first one.
    """

    number: int
    count: int
    name: str
    left_ns: int | None = None
    is_bound: bool = False
    last: int | None = None

    @property
    def place(self) -> str:
        """Its place, or those of processes that take turns: ``3/8`` or ``3-6/8``."""
        return f"{self.number}{f'-{self.last}' if self.last is not None else ''}/{self.count}"


OnProcess = Callable[
    ["ProcessStart | None"], None
]  # called when a process starts to measure, and with None after the last


def ignore_processes(_: ProcessStart | None) -> None:
    """Ignore processes."""
