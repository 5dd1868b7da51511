"""Simulated sweeps in interleaved order: equal configurations are not told apart, and a slower one is found."""

from __future__ import annotations

from noise_cases import NAMES, sweep

from profiler_kit.records.report import Report
from profiler_kit.statistics.noise import noise_of

DRAWS = 100


def outcomes(source: Report) -> dict[str, str]:
    """The outcome of every configuration beside the baseline."""
    noise, base = noise_of(source), source.runs[0]
    differences = {r.config.name: noise.difference(base, r) for r in source.runs[1:] if r.config.repeat_of is None}
    return {name: found.outcome for name, found in differences.items() if found is not None}


def test_equal_configurations_are_not_told_apart() -> None:
    for seed in range(DRAWS):
        assert set(outcomes(sweep(seed)).values()) == {"same"}, seed


def test_a_slow_down_of_five_percent_is_found() -> None:
    hits = 0
    for seed in range(DRAWS):
        slow = NAMES[1 + seed % (len(NAMES) - 1)]
        found = outcomes(sweep(seed, slow))
        hits += found.pop(slow) == "worse"
        assert set(found.values()) == {"same"}, seed
    assert hits >= 0.9 * DRAWS


def test_a_slower_baseline_is_found_in_all_others() -> None:
    found = [outcome for seed in range(DRAWS // 4) for outcome in outcomes(sweep(seed, "default")).values()]
    assert set(found) <= {"better", "same"}
    assert found.count("better") >= 0.97 * len(found)
