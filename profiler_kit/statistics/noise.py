"""The noise of a report, and the difference between two of its runs.

`statistics.differences` has the method. Runs of two reports: `statistics.report_noise`.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.statistics.differences import (
    DEVICE_BOUND,
    DRIFT_ALLOWANCE,
    HOST_BOUND,
    Difference,
    Spread,
    compare_times,
    spread_of,
)
from profiler_kit.statistics.host_load import load_allowance
from profiler_kit.statistics.intervals import HOST_QUANTILE, quantile_interval
from profiler_kit.units import percent

# Of the step. A smaller saving does not justify a flag, however precisely it was measured: a device's clock drifts by more
# while the device warms up.
MIN_USEFUL_SAVING: Final = 0.02
# Of the step. Below this share of kernels, the host decides the length of the step.
MIN_DEVICE_BOUND_SHARE: Final = 0.9
# Of the step. Between the two shares, a device waits for the host at times, but its kernels set the spread between processes.
MIN_DEVICE_SPREAD_SHARE: Final = 0.8
# Of the device time. Kernels of two processes that differ by less took the same time.
MAX_DEVICE_CHANGE: Final = 0.02

HOST_REASON: Final = "both run the same kernels for the same time: the difference is the host's"


@dataclass(frozen=True, slots=True)
class Noise:
    """How far fresh processes of one configuration differ.

    - `spread`: of all configurations without benchmark. With benchmark, a second process may pick other algorithms.
    - `gap`: the largest difference between two of these processes, as a share of the step; None if nothing was repeated.
    - `repeated_configs`: the number of configurations behind both.
    - `low_spread`: the same spread of lower deciles, which steps that wait for the host are compared by.
    - `repeat_steps`: the steps of second processes that are runs of their own (A/A runs), by the repeated configuration.
      `repeat_lows`: their lower deciles.
    - `drift`: the share by which clocks may have drifted between two sides.
    """

    spread: Spread = field(default_factory=Spread)
    gap: float | None = None
    repeated_configs: int = 0
    low_spread: Spread = field(default_factory=Spread)
    repeat_steps: Mapping[str, Interval] = field(default_factory=dict)
    repeat_lows: Mapping[str, Interval | None] = field(default_factory=dict)
    drift: float = DRIFT_ALLOWANCE

    def sentence(self, significant: int | None = None) -> str:
        """The noise in words, with at most `significant` digits of the gap, else with one decimal."""
        if self.gap is None:
            return "No configuration was repeated (no A/A run), so the noise between processes is unknown."
        gap = percent(self.gap, significant)
        if self.repeated_configs < 2:
            return f"Two runs of the same configuration differ by {gap}."
        return f"Two runs of the same configuration differ by at most {gap} ({self.repeated_configs} configurations)."

    def processes(self, run: ConfigRun) -> tuple[Interval, ...]:
        """The median steps of all processes of the run's configuration, the first one first."""
        if run.failure is not None:
            return ()
        repeats = [repeat.step_ns for repeat in run.repeats if repeat.failure is None]
        steps = (run.step_ns, *repeats, self.repeat_steps.get(run.config.name))
        return tuple(step for step in steps if step is not None)

    def low_steps(self, run: ConfigRun) -> tuple[Interval, ...]:
        """The lower deciles of the steps of all processes, in the order of `processes`.

        Empty where a process has no samples, and for steps that load data: a loader makes some steps wait and others not, and a
        lower quantile would not see the wait.
        """
        if run.failure is not None or any(timing.phase == "data" for timing in run.phases):
            return ()
        lows = [low_step(run.steps_ns, run.step_ns)]
        lows += [low_step(repeat.steps_ns, repeat.step_ns) for repeat in run.repeats if repeat.step_ns is not None]
        lows += [self.repeat_lows.get(name) for name in self.repeat_steps if name == run.config.name]
        return tuple(low for low in lows if low is not None) if None not in lows else ()

    def repeat_gap(self, run: ConfigRun) -> float | None:
        """The largest difference between two processes of `run`, as a share of the first one's step; None without two."""
        medians = [step.median for step in self.processes(run)]
        return (max(medians) - min(medians)) / medians[0] if len(medians) > 1 and medians[0] > 0 else None

    def difference(self, before: ConfigRun, after: ConfigRun) -> Difference | None:
        """The step of `after` compared with that of `before`, per example if they differ; None without both steps."""
        sides = self.processes(before), self.processes(after)
        if not all(sides) or before.step_ns is None or after.step_ns is None:
            return None
        pooled = self.spread
        is_device_bound = all(fills_step(run, MIN_DEVICE_SPREAD_SHARE) for run in (before, after))
        moderation = DEVICE_BOUND if is_device_bound else HOST_BOUND
        lows = self.low_steps(before), self.low_steps(after)
        if not is_device_bound and all(lows) and self.low_spread.freedom == self.spread.freedom:
            sides, pooled = lows, self.low_spread
        for run, processes in zip((before, after), sides, strict=True):
            pooled += spread_of(processes) if run.config.benchmark else Spread()
        factor = example_factor(before, after)
        drift = self.drift + load_allowance(before, after)
        outcome = compare_times(*sides, pooled, moderation, factor=factor, drift=drift)
        if outcome.is_sure and is_host_difference(before, after):
            return replace(outcome, outcome="same", reason=HOST_REASON)
        return outcome


def noise_of(report: Report) -> Noise:
    """The noise of `report`, from its A/A runs and the further processes of its configurations."""
    return noise_of_runs(report.runs)


def noise_of_runs(all_runs: Sequence[ConfigRun]) -> Noise:
    """The noise of `all_runs`, as that of their report."""
    repeat_steps = {
        run.config.repeat_of: run.step_ns
        for run in all_runs
        if run.config.repeat_of is not None and run.step_ns is not None and run.failure is None
    }
    repeat_lows = {
        run.config.repeat_of: low_step(run.steps_ns, run.step_ns)
        for run in all_runs
        if run.config.repeat_of is not None and run.failure is None
    }
    noise = Noise(repeat_steps=repeat_steps, repeat_lows=repeat_lows)
    runs = [run for run in all_runs if run.config.repeat_of is None and not run.config.benchmark]
    gaps = [gap for run in runs if (gap := noise.repeat_gap(run)) is not None]
    spread = sum((spread_of(noise.processes(run)) for run in runs), Spread())
    low_spread = sum((spread_of(noise.low_steps(run)) for run in runs), Spread())
    gap = max(gaps, default=None)
    return replace(noise, spread=spread, low_spread=low_spread, gap=gap, repeated_configs=len(gaps))


def low_step(steps_ns: Sequence[int], step_ns: Interval | None) -> Interval | None:
    """The lower decile of a process's steps; None without samples, or where `step_ns` is not their median."""
    if step_ns is None or not steps_ns or round(statistics.median(steps_ns)) != step_ns.median:
        return None
    return quantile_interval(steps_ns, HOST_QUANTILE)


def is_host_difference(before: ConfigRun, after: ConfigRun) -> bool:
    """Whether only the host can be the cause of different steps: cuDNN flags differ, and the kernels and their time do not.

    Settings other than flags, such as CUDA graphs, may change the host's work and nothing else.
    """
    if before.clock != "kernel" or after.clock != "kernel" or before.config.settings != after.config.settings:
        return False
    if (fills_step(before) and fills_step(after)) or not before.device_ns or not after.device_ns:
        return False
    launches = [{(kernel.name, kernel.calls) for kernel in run.kernels} for run in (before, after)]
    if launches[0] != launches[1] or not launches[0]:
        return False
    return abs(after.device_ns - before.device_ns) <= MAX_DEVICE_CHANGE * before.device_ns


def fills_step(run: ConfigRun, share: float = MIN_DEVICE_BOUND_SHARE) -> bool:
    """Whether kernels take at least `share` of the step, so that the host hardly lengthens it."""
    if run.clock != "kernel" or run.device_ns is None or run.step_ns is None:
        return False
    return run.device_ns >= share * run.step_ns.median


def break_even_steps(tuning_ns: int | None, before: Interval, after: Interval) -> int | None:
    """The number of steps of `after` that offset the algorithm search; None if they save nothing or the cost is unknown."""
    saved_ns = before.median - after.median
    return -(-max(0, tuning_ns) // saved_ns) if tuning_ns is not None and saved_ns > 0 else None


def example_factor(before: ConfigRun, after: ConfigRun) -> float:
    """Examples per step of `before` over those of `after`: scales `after`'s step time to equal work.

    1.0 if the steps hold the same number of examples or the numbers are unknown; otherwise times are compared per example.
    """
    return before.samples / after.samples if before.samples and after.samples else 1.0
