"""Runs in two processes, made up, and simulated sweeps of them."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

from sample_reports import count_only

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval

MS = 1_000_000
NAMES = (
    "default", "benchmark", "deterministic", "benchmark+deterministic", "no-tf32", "benchmark+no-tf32", "deterministic+no-tf32",
    "benchmark+deterministic+no-tf32", "cudnn-off",
)  # fmt: skip
STEP_NS = 10 * MS
BY_PROCESS, BY_STEP, DRIFT = 0.005, 0.003, 0.01  # standard deviations, and the clock's change over the whole sweep
STEPS = 20
SLOWER = 1.05


def steps(chance: random.Random, position: float, factor: float) -> tuple[tuple[int, ...], Interval]:
    """The steps of one process at a place of the sweep (0 to 1), and their median with its 95 % interval."""
    level = STEP_NS * factor * (1 + DRIFT * position) * (1 + chance.gauss(0, BY_PROCESS))
    found = tuple(round(level * (1 + chance.gauss(0, BY_STEP))) for _ in range(STEPS))
    median = statistics.median(found)
    half = 1.96 * 1.2533 * statistics.stdev(found) / STEPS**0.5  # of a median of normal samples
    return found, Interval(median=round(median), low=round(median - half), high=round(median + half))


def sweep(seed: int, slow: str | None = None, *, back: bool = True, level: float = 1.0) -> Report:
    """A sweep of equal configurations, but for `slow`; with the way back as their repeats. `level`: of all its steps."""
    chance = random.Random(seed)
    last = 2 * len(NAMES) - 1
    runs = []
    for i, name in enumerate(NAMES):
        factor = level * (SLOWER if name == slow else 1.0)
        taken, step_ns = steps(chance, i / last, factor)
        _, second = steps(chance, (last - i) / last, factor)
        repeat = Repeat(step_ns=second) if back and i > 0 else None
        runs.append(ConfigRun(config=config(name), steps_ns=taken, step_ns=step_ns, repeat=repeat))
        if i == 0:
            again = replace(config(name), name="default (again)", repeat_of=name)
            baseline = ConfigRun(config=again, step_ns=second)
    return report(*runs, baseline)


def around(median_ns: int, spread: float = 0.003) -> Interval:
    return Interval(median=median_ns, low=round(median_ns * (1 - spread)), high=round(median_ns * (1 + spread)))


def config(name: str) -> RunConfig:
    return RunConfig(name=name, benchmark="benchmark" in name.split("+"))


def of(name: str, value: Interval, second: Interval | None = None, samples: int | None = None) -> ConfigRun:
    """A run of that step, with `second` in its second process."""
    repeat = Repeat(step_ns=second) if second is not None else None
    return ConfigRun(config=config(name), step_ns=value, repeat=repeat, samples=samples)


def again(run: ConfigRun, factor: float = 1.002) -> ConfigRun:
    """The A/A run of `run`, its step so much longer."""
    assert run.step_ns is not None
    name = run.config.name
    value = around(round(run.step_ns.median * factor))
    return replace(run, config=replace(run.config, name=f"{name} (again)", repeat_of=name), step_ns=value)


def report(*runs: ConfigRun) -> Report:
    return replace(count_only(), runs=runs)
