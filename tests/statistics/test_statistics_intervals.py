"""Medians, their intervals, steadiness, and steps bought by a budget."""

from __future__ import annotations

import math
import random
import statistics
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.statistics import intervals
from profiler_kit.statistics.intervals import median_interval, process_gain

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


def process(draw: random.Random, mean_ns: float, offset: float, steps: int = 100) -> list[int]:
    """A process's steps: its own offset, and noise to one side, as interruptions make it."""
    own = mean_ns * math.exp(draw.gauss(0, offset))
    return [round(own * (1 + abs(draw.gauss(0, 0.02)))) for _ in range(steps)]


@pytest.mark.parametrize("processes", [2, 3])
def test_the_gain_is_within_its_interval_as_often_as_it_says(processes: int) -> None:
    """Nominally 95 %, with offsets of 0.5 % between processes: at least 90 % of 120 draws, and not all of them."""
    draw = random.Random(0)
    truth, covered = 5.0, 0
    for _ in range(120):
        before = [process(draw, 1e7, 0.005) for _ in range(processes)]
        after = [process(draw, 1e7 * (1 - truth / 100), 0.005) for _ in range(processes)]
        found = process_gain(before, after)
        covered += found.low <= truth <= found.high
    assert 108 <= covered < 120


def test_no_gain_is_seldom_claimed_and_five_percent_nearly_always() -> None:
    draw = random.Random(1)
    claimed = {0.0: 0, 5.0: 0}
    for truth in claimed:
        for _ in range(60):
            before = [process(draw, 1e7, 0.003) for _ in range(2)]
            after = [process(draw, 1e7 * (1 - truth / 100), 0.003) for _ in range(2)]
            claimed[truth] += process_gain(before, after).is_significant
    assert claimed[0.0] <= 6
    assert claimed[5.0] >= 58


def test_processes_that_agree_by_chance_do_not_make_it_surer_than_their_steps() -> None:
    before, after = [[90, 100, 110] * 5] * 2, [[85, 99, 113] * 5] * 2
    found = process_gain(before, after)
    assert found.percent == pytest.approx(1)
    assert found.low < 0 < found.high


def test_processes_that_disagree_widen_it() -> None:
    near = process_gain([[1000] * 9, [1001] * 9], [[950] * 9, [951] * 9])
    far = process_gain([[1000] * 9, [1050] * 9], [[950] * 9, [1000] * 9])
    assert near.is_significant
    assert not far.is_significant
    assert far.high - far.low > 10 * (near.high - near.low)


def test_one_process_a_side_has_the_interval_of_its_steps() -> None:
    found = process_gain([[90, 100, 110] * 10], [[45, 50, 55] * 10])
    assert found.percent == pytest.approx(50)
    assert found.low < 50 < found.high


def test_a_gain_of_unequal_steps_is_per_example() -> None:
    found = process_gain([[100] * 5] * 2, [[150] * 5] * 2, factor=8 / 16)
    assert (found.percent, found.low, found.high) == pytest.approx((25, 25, 25))
    assert process_gain([[100] * 5] * 2, [[150] * 5] * 2).percent == pytest.approx(-50)


SIDES = st.lists(st.lists(st.integers(1, 10**12), min_size=1, max_size=20), min_size=1, max_size=3)


@given(SIDES, SIDES)
def test_the_gain_lies_in_its_interval_and_the_same_steps_give_the_same(
    before: list[list[int]], after: list[list[int]]
) -> None:
    found = process_gain(before, after)
    assert found.low <= found.percent <= found.high <= 100
    assert found == process_gain(before, after)


def test_a_side_without_steps_is_an_error() -> None:
    for before, after in (([], [[1]]), ([[1]], []), ([[1], []], [[1]])):
        with pytest.raises(ValueError, match="no samples"):
            process_gain(before, after)


def test_uncertainty_costs_next_to_nothing() -> None:
    draw = random.Random(0)
    side = [process(draw, 1e7, 0.005) for _ in range(2)]
    took = []
    for _ in range(5):
        begin = time.perf_counter()
        process_gain(side, side)
        took.append(time.perf_counter() - begin)
    assert min(took) < 0.05
