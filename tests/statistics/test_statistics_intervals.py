"""Medians, their intervals, steadiness, and steps bought by a budget."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.records.samples import Interval
from profiler_kit.statistics import intervals
from profiler_kit.statistics.intervals import median_interval, quantile_interval

SAMPLES = st.lists(st.integers(1, 10**12), min_size=1, max_size=60)


@given(SAMPLES)
def test_the_interval_holds_the_median_and_lies_within_the_samples(values: list[int]) -> None:
    found = median_interval(values)
    assert min(values) <= found.low <= found.median <= found.high <= max(values)
    assert abs(found.median - statistics.median(values)) <= 0.5


@given(SAMPLES)
def test_the_same_samples_give_the_same_interval(values: list[int]) -> None:
    assert median_interval(values) == median_interval(values)


def test_more_samples_of_the_same_spread_narrow_the_interval() -> None:
    few = median_interval([90, 100, 110] * 2)
    many = median_interval([90, 95, 100, 105, 110] * 40)
    assert many.high - many.low < few.high - few.low


def test_no_samples_is_an_error() -> None:
    with pytest.raises(ValueError, match="no samples"):
        median_interval([])


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9])
def test_medians_are_resampled_as_if_all_were_drawn(count: int) -> None:
    """The short cut has the distribution of drawing `count` of `count` samples and taking their median."""
    ordered, draws = [10 * i for i in range(count)], 20_000
    short, long = random.Random(1), random.Random(2)
    quick = [intervals._resampled_median(ordered, short) for _ in range(draws)]
    slow = [statistics.median(long.choices(ordered, k=count)) for _ in range(draws)]
    for value in {*quick, *slow}:
        shares = [sum(one <= value for one in of) / draws for of in (quick, slow)]
        assert abs(shares[0] - shares[1]) < 0.015  # three standard errors of a share of 20,000


@pytest.mark.parametrize(("quantile", "expected"), [(0.0, 10), (0.1, 11), (0.25, 12), (0.5, 15)])
def test_a_lower_quantile_lies_in_its_interval(quantile: float, expected: int) -> None:
    steps = [20, 19, 18, 17, 16, 15, 14, 13, 12, 11, 10]
    found = quantile_interval(steps, quantile)
    assert found.median == pytest.approx(expected, abs=0.5)
    assert found.low <= found.median <= found.high
    assert quantile_interval(steps[::-1], quantile) == found


def test_the_interval_of_a_quantile_narrows_with_samples_and_covers_it() -> None:
    chance = random.Random(3)
    covered, widths = 0, []
    for _ in range(300):
        found = quantile_interval([round(chance.gauss(1000, 100)) for _ in range(100)], 0.1)
        covered += found.low <= 1000 - 1.2816 * 100 <= found.high
        widths.append(found.high - found.low)
    assert covered >= 0.93 * 300
    few = quantile_interval([round(chance.gauss(1000, 100)) for _ in range(10)], 0.1)
    assert few.high - few.low > sum(widths) / len(widths)


def test_a_quantile_of_one_sample_is_the_sample() -> None:
    assert quantile_interval([7], 0.1) == Interval(median=7, low=7, high=7)
    with pytest.raises(ValueError, match="no samples"):
        quantile_interval([], 0.1)
