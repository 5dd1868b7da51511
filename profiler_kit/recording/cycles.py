"""The events that make one step: of several optimizers or models, those that repeat in the same order."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


def find_cycle(events: Sequence[Key], *, distinct: int = 1) -> tuple[Key, ...] | None:
    """The shortest sequence with all events that differ, at least `distinct`, that the end of `events` repeats.

    ``D G D G`` is ``D G`` twice; ``D D G D D G`` is ``D D G`` twice, and ``D D G D D G D`` is in the middle of a cycle. Events
    of one kind are a cycle of one. None while nothing has repeated.
    """
    kinds = set(events)
    if len(kinds) < distinct:
        return None
    if len(kinds) == 1:
        return (events[0],)
    for length in range(len(kinds), len(events) // 2 + 1):
        cycle = events[-length:]
        if len(events) % length == 0 and set(cycle) == kinds and cycle == events[-2 * length : -length]:
            return tuple(cycle)
    return None


class StepEnds(Generic[Key]):
    """Tells which event ends a step: the last one of a cycle, by its number of occurrences.

    An irregular event, such as an optimizer that skips a step, does not shift the ends of later steps.
    """

    def __init__(self, cycle: Sequence[Key]) -> None:
        self._last = cycle[-1]
        self._each = cycle.count(self._last)
        self._seen = 0

    def ends(self, event: Key) -> bool:
        """Whether `event`, the next one, ends a step."""
        self._seen += event == self._last
        return event == self._last and self._seen % self._each == 0
