"""A difference of times counts only beyond what two processes of one configuration differ by."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_reports import node, report, run

from profiler_kit.gate.compare import compare
from profiler_kit.gate.noise import LEAST_NOISE, overlap, process_noise
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval

LAYERS = [node("conv", macs=1000)]


def twice(ms: float, again_ms: float, name: str = "default", spread_ms: float = 0.01) -> ConfigRun:
    median, spread = round(again_ms * 1e6), round(spread_ms * 1e6)
    repeat = Repeat(step_ns=Interval(median=median, low=median - spread, high=median + spread))
    return replace(run(name, ms=ms, spread_ms=spread_ms), repeat=repeat)


def verdict(a: list[ConfigRun], b: list[ConfigRun]) -> tuple[str, str]:
    found = compare(report(LAYERS, runs=a), report(LAYERS, name="b", runs=b))
    row = next(one for one in found.metrics if (one.metric, one.config) == ("step_ns", "default"))
    return row.verdict, row.reason


def test_the_largest_gap_of_all_configurations_counts() -> None:
    runs = [twice(10, 10.1), twice(20, 23, "benchmark"), run("default (again)", ms=10.5, repeat_of="default")]
    assert process_noise(report(LAYERS, runs=runs)) == pytest.approx(0.15)
    assert process_noise(report(LAYERS, runs=[run()])) is None


def test_a_failed_run_or_repetition_says_nothing_of_noise() -> None:
    failed = run("benchmark", failure=Failure(kind="crash", message="gone"))
    without = replace(run(), repeat=Repeat(failure="gone"))
    assert process_noise(report(LAYERS, runs=[without, failed])) is None


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
    assert overlap(first, second)
    assert not overlap(first, run(ms=10.5))
    assert not overlap(run(ms=10), replace(run(ms=11), step_ns=None))


def test_a_gain_is_never_claimed_below_the_least_noise() -> None:
    assert verdict([twice(10, 10)], [twice(10 * (1 + LEAST_NOISE / 2), 10 * (1 + LEAST_NOISE / 2))])[0] == "noise"
