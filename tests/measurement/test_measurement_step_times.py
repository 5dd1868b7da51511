"""The step-time check: its order of processes, its looks, and its verdicts."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator

import pytest

from profiler_kit.measurement.step_times import LOOKS, Side, measured_until_sure, verdict_on_steps
from profiler_kit.records.samples import Interval


def interval(ns: int) -> Interval:
    return Interval(median=ns, low=ns - 10, high=ns + 10)


def test_sides_run_in_pairs_of_random_order_until_the_verdict_is_sure() -> None:
    order: list[Side] = []
    pairs: list[int] = []

    @contextlib.contextmanager
    def pair() -> Iterator[None]:
        before = len(order)
        yield
        pairs.append(len(order) - before)

    def step_of(side: Side) -> Interval:
        order.append(side)
        return interval(1_000_000 + 1000 * (len(order) % 3) + 500_000 * side)

    base, change = measured_until_sure(step_of, 0.05, pair=pair, chance=random.Random(1))
    assert [sorted(order[i : i + 2]) for i in range(0, len(order), 2)] == [[0, 1]] * LOOKS[0]
    assert pairs == [2] * LOOKS[0]
    assert len(base) == len(change) == LOOKS[0]
    verdict = verdict_on_steps(base, change, 0.05, "cpu")
    assert (verdict.outcome, verdict.processes) == ("fail", 4)
    assert verdict.reason == "the step takes 50 % more, and 5 % is allowed"
    assert verdict_on_steps(base, change, 0.60, "cpu").outcome == "pass"


def test_the_order_within_pairs_has_no_rhythm() -> None:
    first: list[Side] = []
    order: list[Side] = []

    def step_of(side: Side) -> Interval:
        order.append(side)
        return interval(1_000_000 if side == 0 else 1_050_000)

    for seed in range(20):
        order.clear()
        measured_until_sure(step_of, 0.05, chance=random.Random(seed))
        first += order[::2]
    assert 0 < first.count(0) < len(first)


def test_noise_gives_no_verdict_and_the_smallest_change_that_would_be_seen() -> None:
    samples = [random.Random(seed) for seed in (3, 4)]
    sides = measured_until_sure(lambda side: interval(round(1_000_000 * samples[side].uniform(0.5, 1.5))), 0.05)
    assert len(sides[0]) == LOOKS[-1]
    verdict = verdict_on_steps(*sides, 0.05, "cpu")
    assert verdict.outcome == "inconclusive"
    assert verdict.smallest_visible is not None
    assert verdict.smallest_visible > 0.05
    assert "below the smallest change" in verdict.reason


def outcomes(spread: float, slower: float, checks: int) -> Counter[str]:
    """The verdicts of `checks` checks with 5 % allowed. Processes differ by `spread`, and the change takes `slower` more."""
    chance = random.Random(1)

    def step_of(side: Side) -> Interval:
        ns = 1_000_000 * (1 + chance.gauss(0, spread)) * (1 + slower * side)
        return Interval(median=round(ns), low=round(0.995 * ns), high=round(1.005 * ns))

    sides = (measured_until_sure(step_of, 0.05, chance=chance) for _ in range(checks))
    return Counter(verdict_on_steps(*pair, 0.05, "cpu").outcome for pair in sides)


@pytest.mark.parametrize("spread", [0.01, 0.05])
def test_rates_on_a_quiet_machine(spread: float) -> None:
    assert outcomes(spread, 0.0, 200)["fail"] <= 2
    assert outcomes(spread, 0.2, 200)["fail"] >= 190
