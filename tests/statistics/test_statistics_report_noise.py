"""A difference of times counts only beyond what two processes of one configuration differ by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_reports import node, report, run
from noise_cases import sweep

from profiler_kit.comparison.compare import compare
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.noise import DRIFT_ALLOWANCE, Noise
from profiler_kit.statistics.report_noise import (
    ASSUMED_PROCESS_NOISE,
    MIN_REPORT_NOISE,
    intervals_overlap,
    noise_between,
    side,
    step_verdict,
)

LAYERS = [node("conv", macs=1000)]


def twice(ms: float, again_ms: float, name: str = "default", spread_ms: float = 0.01) -> ConfigRun:
    median, spread = round(again_ms * 1e6), round(spread_ms * 1e6)
    repeat = Repeat(step_ns=Interval(median=median, low=median - spread, high=median + spread))
    return replace(run(name, ms=ms, spread_ms=spread_ms), repeat=repeat)


def verdict(a: list[ConfigRun], b: list[ConfigRun]) -> tuple[str, str]:
    found = compare(report(LAYERS, runs=a), report(LAYERS, name="b", runs=b))
    row = next(one for one in found.metrics if (one.metric, one.config) == ("step_ns", "default"))
    return row.verdict, row.reason


def gap(*runs: ConfigRun) -> float | None:
    """The noise between a report of `runs` and one without any, either way around, which is the same."""
    sides = report(LAYERS, runs=runs), report(LAYERS)
    assert noise_between(*sides) == noise_between(*reversed(sides))
    return noise_between(*sides).gap


def test_the_largest_gap_of_all_configurations_of_either_side_counts() -> None:
    assert gap(twice(10, 10.1), twice(20, 23, "benchmark")) == pytest.approx(0.15)
    assert gap(run(), run("default (again)", ms=10.5, repeat_of="default")) == pytest.approx(0.05)
    calm, other = report(LAYERS, runs=[twice(10, 10.1)]), report(LAYERS, runs=[twice(10, 10.4)])
    assert noise_between(calm, other).gap == pytest.approx(0.04)
    assert noise_between(calm, other).limit() == pytest.approx(0.04 + DRIFT_ALLOWANCE)


def test_a_failed_run_or_repetition_says_nothing_of_noise() -> None:
    failed = run("benchmark", failure=Failure(kind="crash", message="gone"))
    assert gap(replace(run(), repeat=Repeat(failure="gone")), failed) is None
    assert gap(run()) is None


def test_where_nothing_ran_twice_processes_are_taken_to_differ() -> None:
    assert verdict([run(ms=10)], [run(ms=10 * (1 + 0.9 * ASSUMED_PROCESS_NOISE))])[0] == "noise"
    assert verdict([run(ms=10)], [run(ms=10 * (1 + 1.2 * ASSUMED_PROCESS_NOISE))])[0] == "worse"


def test_the_second_process_of_each_side_is_found_whether_it_is_a_run_or_not() -> None:
    """Both sides call the configuration alike, so its name doesn't say whose second process it is."""
    a, b = twice(10, 10.02), [run(ms=11), run("default (again)", ms=11.02, repeat_of="default")]
    assert verdict([a], b)[0] == "worse"
    assert verdict(b, [a])[0] == "better"
    assert verdict([a], [b[0], replace(b[1], step_ns=a.step_ns)])[0] == "noise"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (twice(10, 10.02), twice(11, 11.02), "worse"),
        (twice(10, 11.5), twice(11, 11.02), "noise"),  # the gap between processes is larger than the gain
        (twice(10, 10.02), twice(10.1, 10.12), "noise"),  # less than anything is claimed for
        (twice(10, 10.02, spread_ms=0.6), twice(11, 11.02, spread_ms=0.6), "noise"),
        (twice(11, 11.02), twice(10, 10.02), "better"),
    ],
)
def test_a_gain_is_beyond_intervals_and_gaps(a: ConfigRun, b: ConfigRun, expected: str) -> None:
    found, reason = verdict([a], [b])
    assert found == expected
    assert bool(reason) == (expected == "noise")


def test_another_configuration_s_gap_bounds_what_is_claimed() -> None:
    calm = [twice(10, 10.01)], [twice(11, 11.01)]
    assert verdict(*calm)[0] == "worse"
    assert verdict([*calm[0], twice(20, 25, "benchmark")], calm[1])[0] == "noise"


def test_a_search_that_ends_otherwise_is_noise_of_its_own_configuration_only() -> None:
    searched = twice(20, 25, "benchmark")
    searched = replace(searched, config=replace(searched.config, benchmark=True))
    plain = [twice(10, 10.01), searched], [twice(11, 11.01)]
    assert verdict(*plain)[0] == "worse"
    other = replace(twice(22, 22.1, "benchmark"), config=searched.config)
    found = compare(report(LAYERS, runs=plain[0]), report(LAYERS, name="b", runs=[*plain[1], other]))
    row = next(one for one in found.metrics if (one.metric, one.config) == ("step_ns", "benchmark"))
    assert row.verdict == "noise"


def test_the_second_process_s_interval_counts_too() -> None:
    first, second = twice(10, 10.02), twice(10.5, 10.01)
    assert intervals_overlap(first, second, Noise(None))
    assert not intervals_overlap(first, run(ms=10.5), Noise(None))
    assert not intervals_overlap(run(ms=10), replace(run(ms=11), step_ns=None), Noise(None))
    wide = replace(
        twice(10.5, 10.5), repeat=Repeat(step_ns=Interval(median=10_500_000, low=10_000_000, high=11_000_000))
    )
    assert verdict([first], [wide]) == ("noise", "the 95 % intervals overlap")


def test_a_gain_has_to_be_there_twice() -> None:
    """Each process of one side is faster than each of the other, but hardly so the second time."""
    slow, quick = twice(10.8, 10.476), twice(9.936, 10.266)  # 8 % and 2 %
    assert not intervals_overlap(slow, quick, Noise(None))
    assert verdict([slow], [quick]) == ("noise", "the repeats do not confirm it")
    assert verdict([slow], [twice(9.936, 9.8)])[0] == "better"


def test_a_row_compares_the_steps_as_they_are_whatever_they_hold() -> None:
    small, large = replace(twice(10, 10), samples=8), replace(twice(15, 15), samples=16)
    assert verdict([small], [large])[0] == "worse"
    assert side(report(LAYERS, runs=[large]), large).samples is None


def test_a_gain_is_never_claimed_below_the_least_noise() -> None:
    assert (
        verdict([twice(10, 10)], [twice(10 * (1 + MIN_REPORT_NOISE / 2), 10 * (1 + MIN_REPORT_NOISE / 2))])[0]
        == "noise"
    )


DRAWS = 200


@pytest.mark.parametrize("level", [1.0, 1.005])
def test_equal_runs_of_two_simulated_sweeps_are_never_told_apart(level: float) -> None:
    for seed in range(DRAWS):
        a, b = sweep(seed), sweep(DRAWS + seed, level=level)
        assert step_verdict(a, b, a.runs[0], b.runs[0])[0] == "noise", seed


def test_a_slow_down_of_five_percent_is_found_between_two_simulated_sweeps() -> None:
    pairs = [(sweep(seed), sweep(DRAWS + seed, level=1.05)) for seed in range(DRAWS)]
    found = [step_verdict(a, b, a.runs[0], b.runs[0])[0] for a, b in pairs]
    assert set(found) <= {"worse", "noise"}
    assert found.count("worse") >= 0.98 * DRAWS
