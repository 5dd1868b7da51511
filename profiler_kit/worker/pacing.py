"""How many steps are run: warm-up until they are steady, then as many timed ones as a budget buys."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

FEWEST_STEPS: Final = 3  # below three samples a median says no more than one of them
MOST_STEPS: Final = 100  # beyond this the interval narrows more slowly than the user waits
MOST_WARMUP_STEPS: Final = 20
STEADY_SPREAD: Final = 0.05  # three warm-up steps within 5 % of each other: caches, clocks and plans have settled


def is_steady(warmup_ns: Sequence[int]) -> bool:
    """Whether the last three warm-up steps lie within 5 % of each other."""
    last = warmup_ns[-3:]
    return len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SPREAD)


def steps_within(budget_ns: int, step_ns: int) -> int:
    """How many timed steps of `step_ns` fit into `budget_ns`: at least three, at most a hundred."""
    return max(FEWEST_STEPS, min(MOST_STEPS, budget_ns // max(1, step_ns)))
