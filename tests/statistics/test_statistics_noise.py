"""When a difference between two runs is one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from noise_cases import MS, again, around, of, report

from profiler_kit.records.runs import Failure
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import (
    DRIFT_ALLOWANCE,
    Noise,
    is_significantly_faster,
    mean_saved_share,
    noise_of,
    saved_share,
    verdict,
)


def test_the_gap_is_between_a_run_and_its_repetition() -> None:
    first = of("default", around(10 * MS))
    assert noise_of(report(first, again(first, 1.03))).gap is not None
    assert round(noise_of(report(first, again(first, 1.03))).gap or 0.0, 4) == 0.03
    assert round(noise_of(report(first, again(first, 0.97))).gap or 0.0, 4) == 0.03


def test_without_a_repetition_the_noise_is_unknown_and_said_to_be() -> None:
    noise = noise_of(report(of("default", around(10 * MS)), of("benchmark", around(5 * MS))))
    assert noise.gap is None
    assert noise.repeated_configs == 0
    assert "unknown" in noise.sentence()


def test_a_failed_run_makes_no_gap() -> None:
    first = of("default", around(10 * MS))
    failed = replace(again(first), failure=Failure(kind="crash", message="gone"))
    assert noise_of(report(first, failed)).gap is None
    assert noise_of(report(replace(first, failure=Failure(kind="crash", message="gone")), again(first))).gap is None


def test_faster_needs_disjoint_intervals() -> None:
    slow, overlapping, apart = (
        of("default", Interval(median=100, low=90, high=110)),
        of("benchmark", Interval(median=85, low=80, high=91)),
        of("deterministic", Interval(median=70, low=65, high=75)),
    )
    assert not is_significantly_faster(overlapping, slow, Noise(0.0))
    assert is_significantly_faster(apart, slow, Noise(0.0))
    assert is_significantly_faster(apart, slow, Noise(None))


def test_faster_needs_more_gain_than_the_noise_and_the_floor() -> None:
    slow = of("default", Interval(median=1000, low=999, high=1001))
    quick = of("benchmark", Interval(median=900, low=899, high=901))
    assert is_significantly_faster(quick, slow, Noise(0.089))
    assert not is_significantly_faster(quick, slow, Noise(0.091))
    assert verdict(slow, quick, Noise(0.091)) == "same"
    assert DRIFT_ALLOWANCE == 0.01
    barely, more = (of("benchmark", Interval(median=m, low=m, high=m)) for m in (991, 989))
    assert not is_significantly_faster(barely, slow, Noise(None))
    assert is_significantly_faster(more, slow, Noise(0.0))


@pytest.mark.parametrize(("again_ms", "outcome"), [(9.0, "better"), (9.4, "better"), (9.8, "same"), (10.5, "same")])
def test_the_second_round_has_to_say_the_same(again_ms: float, outcome: str) -> None:
    off = of("default", around(10 * MS, 0.0001), around(10 * MS, 0.0001))
    on = of("deterministic", around(9 * MS, 0.0001), around(round(again_ms * MS), 0.0001))
    assert verdict(off, on, Noise(0.0, noise_of(report(off, on)).repeat_steps)) == outcome


def test_a_search_that_ends_otherwise_makes_no_noise_for_others_but_for_its_own_pair() -> None:
    off = of("default", around(10 * MS), around(round(10.02 * MS)))
    strict = of("deterministic", around(9 * MS), around(9 * MS))
    other = of("benchmark", around(8 * MS), around(round(9.5 * MS)))
    noise = noise_of(report(off, strict, other))
    assert noise.gap == pytest.approx(0.002)
    assert noise.repeat_gap(other) == pytest.approx(0.1875)
    assert verdict(off, strict, noise) == "better"
    assert verdict(off, other, noise) == "same"  # 12.5 % on average, less than its own gap


def test_steps_of_different_sizes_are_compared_per_example() -> None:
    small, large = of("default", around(10 * MS), samples=8), of("batch", around(15 * MS), samples=16)
    assert verdict(small, large, Noise(0.0)) == "better"
    assert mean_saved_share(small, large, Noise(0.0)) == pytest.approx(0.25)
    assert verdict(small, replace(large, samples=None), Noise(0.0)) == "worse"


intervals = st.builds(
    lambda median, below, above: Interval(median=median, low=max(0, median - below), high=median + above),
    st.integers(0, 10**12), st.integers(0, 10**10), st.integers(0, 10**10),
)  # fmt: skip
noises = st.one_of(st.just(Noise(None)), st.floats(0, 2).map(Noise))


@given(a=intervals, b=intervals, noise=noises, seconds=st.none() | st.tuples(intervals, intervals))
def test_swapping_two_runs_swaps_the_verdict(
    a: Interval, b: Interval, noise: Noise, seconds: tuple[Interval, Interval] | None
) -> None:
    swapped = {"better": "worse", "worse": "better", "same": "same"}
    repeat_steps = dict(zip(("default", "deterministic"), seconds, strict=True)) if seconds is not None else {}
    noise = replace(noise, repeat_steps=repeat_steps)
    one, other = of("default", a), of("deterministic", b)
    assert verdict(one, other, noise) == swapped[verdict(other, one, noise)]


@given(a=intervals, noise=noises)
def test_a_run_is_the_same_as_itself(a: Interval, noise: Noise) -> None:
    assert verdict(of("default", a), of("default", a), noise) == "same"


def test_saving_is_a_share_of_what_was_before() -> None:
    assert saved_share(around(200 * MS), around(150 * MS)) == 0.25
    assert saved_share(around(150 * MS), around(200 * MS)) < 0
    assert saved_share(Interval(median=0, low=0, high=0), around(1)) == 0.0
