"""Medians, their intervals, steadiness, and steps bought by a budget."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.measure import samples

SAMPLES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


@given(SAMPLES)
def test_the_interval_holds_the_median_and_lies_within_the_samples(values: list[int]) -> None:
    found = samples.median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert abs(found.median - statistics.median(values)) <= 0.5


@given(SAMPLES)
def test_the_same_samples_give_the_same_interval(values: list[int]) -> None:
    assert samples.median_interval(values) == samples.median_interval(values)


def test_more_samples_of_the_same_spread_narrow_the_interval() -> None:
    few = samples.median_interval([90, 100, 110] * 2)
    many = samples.median_interval([90, 95, 100, 105, 110] * 40)
    assert many.high - many.low < few.high - few.low


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        samples.median_interval([])


@pytest.mark.parametrize(
    ("warmup", "steady"),
    [([100], False), ([100, 100], False), ([500, 102, 100, 103], True), ([100, 100, 120], False)],
)
def test_steady_means_three_within_five_percent(warmup: list[int], steady: bool) -> None:
    assert samples.is_steady(warmup) is steady


@pytest.mark.parametrize(
    ("budget", "step", "count"),
    [(10, 7, samples.FEWEST_STEPS), (1000, 10, 100), (10**9, 1, samples.MOST_STEPS), (0, 0, samples.FEWEST_STEPS)],
)
def test_steps_within_a_budget(budget: int, step: int, count: int) -> None:
    assert samples.steps_within(budget, step) == count
