"""Sample runs in two processes, and simulated sweeps."""

from __future__ import annotations

import random
import statistics
from dataclasses import replace

from sample_reports import count_only
from traced_runs import with_traced

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval

MS = 1_000_000
NAMES = (
    "default", "benchmark", "deterministic", "benchmark+deterministic", "no-tf32", "benchmark+no-tf32", "deterministic+no-tf32",
    "benchmark+deterministic+no-tf32", "cudnn-off",
)  # fmt: skip
STEP_NS = 10 * MS
BY_PROCESS, BY_STEP, DRIFT = 0.005, 0.003, 0.01  # standard deviations, and the clock drift over the sweep
STEPS = 20
SLOWER = 1.05


def steps(chance: random.Random, position: float, factor: float) -> tuple[tuple[int, ...], Interval]:
    """Simulate the steps of one process at `position` of the sweep (0 to 1); return them and the interval of their median."""
    level = STEP_NS * factor * (1 + DRIFT * position) * (1 + chance.gauss(0, BY_PROCESS))
    steps_ns = tuple(round(level * (1 + chance.gauss(0, BY_STEP))) for _ in range(STEPS))
    median = statistics.median(steps_ns)
    half = 1.96 * 1.2533 * statistics.stdev(steps_ns) / STEPS**0.5  # of a median of normal samples
    return steps_ns, Interval(median=round(median), low=round(median - half), high=round(median + half))


def sweep(seed: int, slow: str | None = None, *, back: bool = True, level: float = 1.0) -> Report:
    """Simulate a sweep of equal configurations; only `slow` is slower.

    With `back`, a second pass in reverse order gives the repeats. `level` scales all steps.
    """
    chance = random.Random(seed)
    last = 2 * len(NAMES) - 1
    runs = []
    for i, name in enumerate(NAMES):
        factor = level * (SLOWER if name == slow else 1.0)
        steps_ns, step_ns = steps(chance, i / last, factor)
        _, second = steps(chance, (last - i) / last, factor)
        repeat = Repeat(step_ns=second) if back and i > 0 else None
        run = ConfigRun(config=config(name), steps_ns=steps_ns, step_ns=step_ns, repeat=repeat)
        runs.append(with_traced(run, clock="kernel", unattributed_ns=step_ns.median))  # kernels fill the step
        if i == 0:
            again = replace(config(name), name="default (again)", repeat_of=name)
            baseline = ConfigRun(config=again, step_ns=second)
    return report(*runs, baseline)


def around(median_ns: int, spread: float = 0.003) -> Interval:
    return Interval(median=median_ns, low=round(median_ns * (1 - spread)), high=round(median_ns * (1 + spread)))


def config(name: str) -> RunConfig:
    return RunConfig(name=name, benchmark="benchmark" in name.split("+"))


def of(name: str, value: Interval, second: Interval | None = None, samples: int | None = None) -> ConfigRun:
    """Return a run with step `value`, and with `second` as the step of its second process."""
    repeat = Repeat(step_ns=second) if second is not None else None
    return ConfigRun(config=config(name), step_ns=value, repeat=repeat, samples=samples)


def again(run: ConfigRun, factor: float = 1.002) -> ConfigRun:
    """Return the A/A run of `run`, with a step longer by `factor`."""
    assert run.step_ns is not None
    name = run.config.name
    value = around(round(run.step_ns.median * factor))
    return replace(run, config=replace(run.config, name=f"{name} (again)", repeat_of=name), step_ns=value)


def report(*runs: ConfigRun) -> Report:
    return replace(count_only(), runs=runs)
