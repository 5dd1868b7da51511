"""How many steps are run."""

from __future__ import annotations

import pytest

from profiler_kit.worker.steps import MAX_STEPS, MIN_STEPS, is_steady, steps_within


@pytest.mark.parametrize(
    ("warmup", "steady"),
    [([100], False), ([100, 100], False), ([500, 102, 100, 103], True), ([100, 100, 120], False)],
)
def test_steady_means_three_within_five_percent(warmup: list[int], steady: bool) -> None:
    assert is_steady(warmup) is steady


@pytest.mark.parametrize(
    ("budget", "step", "count"),
    [(10, 7, MIN_STEPS), (1000, 10, 100), (10**9, 1, MAX_STEPS), (0, 0, MIN_STEPS)],
)
def test_steps_within_a_budget(budget: int, step: int, count: int) -> None:
    assert steps_within(budget, step) == count
