"""Simulated sweeps, there and back: equal configurations are never told apart, and a slow-down of 5 % always is."""

from __future__ import annotations

from noise_cases import NAMES, sweep

from profiler_kit.records.report import Report
from profiler_kit.statistics.noise import noise_of, verdict

DRAWS = 200


def verdicts(source: Report) -> dict[str, str]:
    """Of every configuration beside the baseline."""
    noise, base = noise_of(source), source.runs[0]
    return {r.config.name: verdict(base, r, noise) for r in source.runs[1:] if r.config.repeat_of is None}


def test_equal_configurations_are_never_told_apart() -> None:
    for seed in range(DRAWS):
        assert set(verdicts(sweep(seed)).values()) == {"same"}, seed


def test_no_pair_of_equal_configurations_is_told_apart() -> None:
    for seed in range(DRAWS // 10):
        source = sweep(seed)
        noise = noise_of(source)
        runs = [r for r in source.runs if r.config.repeat_of is None]
        assert {verdict(a, b, noise) for a in runs for b in runs} == {"same"}, seed


def test_a_slow_down_of_five_percent_is_always_found() -> None:
    for seed in range(DRAWS):
        slow = NAMES[1 + seed % (len(NAMES) - 1)]
        found = verdicts(sweep(seed, slow))
        assert found.pop(slow) == "worse", (seed, slow)
        assert set(found.values()) == {"same"}, seed


def test_a_baseline_that_is_slower_is_found_in_all_others() -> None:
    """All eight at once, 400 comparisons: one process that is off by three standard deviations may hide one of them."""
    found = [outcome for seed in range(DRAWS // 4) for outcome in verdicts(sweep(seed, "default")).values()]
    assert set(found) <= {"better", "same"}
    assert found.count("better") >= 0.99 * len(found)


def test_without_a_way_back_the_way_there_still_finds_more_than_the_drift() -> None:
    """A report of before: one process each, and the A/A run at the end, which is as far away as it can be."""
    found = [verdicts(sweep(seed, "cudnn-off", back=False)) for seed in range(DRAWS)]
    assert sum(each["cudnn-off"] == "worse" for each in found) > 0.95 * DRAWS
