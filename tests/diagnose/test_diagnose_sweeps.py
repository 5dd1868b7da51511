"""Simulated sweeps, there and back: equal configurations are never told apart, and a slow-down of 5 % always is."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

from diagnose_cases import MS, config, report

from profiler_kit.diagnose.noise import noise_of, verdict
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval

NAMES = (
    "default", "benchmark", "deterministic", "benchmark+deterministic", "no-tf32", "benchmark+no-tf32", "deterministic+no-tf32",
    "benchmark+deterministic+no-tf32", "cudnn-off",
)  # fmt: skip
STEP_NS = 10 * MS
BY_PROCESS, BY_STEP, DRIFT = 0.005, 0.003, 0.01  # standard deviations, and the clock's change over the whole sweep
STEPS, DRAWS = 20, 200
SLOWER = 1.05


def steps(chance: random.Random, position: float, factor: float) -> tuple[tuple[int, ...], Interval]:
    """The steps of one process at a place of the sweep (0 to 1), and their median with its 95 % interval."""
    level = STEP_NS * factor * (1 + DRIFT * position) * (1 + chance.gauss(0, BY_PROCESS))
    found = tuple(round(level * (1 + chance.gauss(0, BY_STEP))) for _ in range(STEPS))
    median = statistics.median(found)
    half = 1.96 * 1.2533 * statistics.stdev(found) / STEPS**0.5  # of a median of normal samples
    return found, Interval(median=round(median), low=round(median - half), high=round(median + half))


def sweep(seed: int, slow: str | None = None, *, back: bool = True) -> Report:
    """A sweep of equal configurations, but for `slow`; with the way back as their repeats."""
    chance = random.Random(seed)
    last = 2 * len(NAMES) - 1
    runs = []
    for i, name in enumerate(NAMES):
        factor = SLOWER if name == slow else 1.0
        taken, step_ns = steps(chance, i / last, factor)
        _, second = steps(chance, (last - i) / last, factor)
        repeat = Repeat(step_ns=second) if back and i > 0 else None
        runs.append(ConfigRun(config=config(name), steps_ns=taken, step_ns=step_ns, repeat=repeat))
        if i == 0:
            again = replace(config(name), name="default (again)", repeat_of=name)
            baseline = ConfigRun(config=again, step_ns=second)
    return report(*runs, baseline)


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
