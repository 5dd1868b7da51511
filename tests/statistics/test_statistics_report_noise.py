"""The verdict on the steps of two reports, which are made at different times."""

from __future__ import annotations

from dataclasses import replace

import pytest
from gate_reports import node, report, run
from noise_cases import sweep

from profiler_kit.comparison.compare import compare
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import DRIFT_ALLOWANCE
from profiler_kit.statistics.report_noise import REPORT_DRIFT, noise_between, step_difference

LAYERS = [node("conv", macs=1000)]
DRAWS = 100


def several(*ms: float, name: str = "default", spread_ms: float = 0.01) -> ConfigRun:
    """A run in one process for each of `ms`."""
    steps = [
        Interval(median=round(m * 1e6), low=round((m - spread_ms) * 1e6), high=round((m + spread_ms) * 1e6)) for m in ms
    ]
    return replace(run(name), step_ns=steps[0], further_repeats=tuple(Repeat(step_ns=step) for step in steps[1:]))


def verdict(a: list[ConfigRun], b: list[ConfigRun]) -> tuple[str, str]:
    found = compare(report(LAYERS, runs=a), report(LAYERS, name="b", runs=b))
    row = next(one for one in found.metrics if (one.metric, one.config) == ("step_ns", "default"))
    return row.verdict, row.reason


def test_the_spread_of_both_reports_is_pooled() -> None:
    calm, other = report(LAYERS, runs=[several(10, 10.1)]), report(LAYERS, runs=[several(10, 10.4)])
    noise, swapped = noise_between(calm.runs, other.runs), noise_between(other.runs, calm.runs)
    assert replace(noise, runs=()) == replace(swapped, runs=())
    assert noise.gap == pytest.approx(0.04)
    assert noise.spread().freedom == 2
    assert noise.drift == REPORT_DRIFT > DRIFT_ALLOWANCE


def test_failed_processes_say_nothing_of_noise() -> None:
    failed = run("benchmark", failure=Failure(kind="crash", message="gone"))
    single = run(further_repeats=(Repeat(failure="gone"),))
    assert noise_between(report(LAYERS, runs=[single, failed]).runs, ()).gap is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (several(10, 10.02, 10.01, 10), several(11, 11.02, 11, 11.01), "worse"),
        (several(11, 11.02, 11, 11.01), several(10, 10.02, 10.01, 10), "better"),
        (several(10, 12, 10, 12), several(11, 11.02, 11, 11), "noise"),  # processes differ by more
        (several(10, 10.02, 10.01, 10), several(10.1, 10.12, 10.1, 10.1), "noise"),  # less than the drift
        (several(10), several(11), "unknown"),
        (several(10), several(50), "unknown"),
    ],
)
def test_a_difference_exceeds_spread_and_drift(a: ConfigRun, b: ConfigRun, expected: str) -> None:
    found, reason = verdict([a], [b])
    assert found == expected
    assert bool(reason) == (expected in ("noise", "unknown"))


def test_an_a_a_run_counts_on_either_side() -> None:
    """Both sides call the configuration alike, so its name does not say whose process it is."""
    a = several(10, 10.02, 10.01, 10)
    b = [several(11, 11.02, 11.01), run("default (again)", ms=11.02, repeat_of="default")]
    assert verdict([a], b)[0] == "worse"
    assert verdict(b, [a])[0] == "better"
    slower = [b[0], replace(b[1], step_ns=Interval(median=8 * 10**6, low=8 * 10**6, high=8 * 10**6))]
    assert verdict([a], slower)[0] == "noise"


def test_another_configuration_s_spread_counts() -> None:
    calm = several(10, 10.02, 10.01, 10), several(11, 11.02, 11, 11.01)
    assert verdict([calm[0]], [calm[1]])[0] == "worse"
    assert verdict([calm[0], several(20, 30, 18, 26, name="no-tf32")], [calm[1]])[0] == "noise"


def test_whole_steps_are_compared_whatever_they_hold() -> None:
    small = replace(several(10, 10, 10, 10), samples=8)
    large = replace(several(15, 15, 15, 15), samples=16)
    assert verdict([small], [large])[0] == "worse"


@pytest.mark.parametrize("level", [1.0, 1.005])
def test_equal_runs_of_two_simulated_sweeps_are_not_told_apart(level: float) -> None:
    for seed in range(DRAWS):
        a, b = sweep(seed), sweep(DRAWS + seed, level=level)
        difference = step_difference(a.runs, b.runs, a.runs[0], b.runs[0])
        assert difference is not None
        assert difference.outcome == "same", seed


def test_a_slow_down_of_ten_percent_is_found_between_two_simulated_sweeps() -> None:
    pairs = [(sweep(seed), sweep(DRAWS + seed, level=1.10)) for seed in range(DRAWS)]
    differences = [step_difference(a.runs, b.runs, a.runs[0], b.runs[0]) for a, b in pairs]
    assert [found.outcome for found in differences if found is not None].count("worse") >= 0.98 * DRAWS
