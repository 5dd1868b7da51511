"""Whether two runs differ: disjoint intervals, a difference beyond the noise between processes, and confirmation by repeats.

This applies to the runs of one report. Runs of two reports must meet further conditions (`statistics.report_noise`). Trials
compare the processes of a single pair instead: see `statistics.intervals.process_gain`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.units import percent

# Of the step. A smaller saving does not justify a flag, however precisely it was measured: a device's clock drifts by more
# while the device warms up.
MIN_USEFUL_SAVING: Final = 0.02
# Of the step, added to the largest gap: clocks drift by about this much during a sweep, and a sweep's few gaps miss rare large
# ones. With this allowance, 8,000 simulated comparisons of equal runs gave one false claim (0.5 % between processes, 1 %
# drift), and one of 1,000 slow-downs of 5 % was missed.
DRIFT_ALLOWANCE: Final = 0.01
# The repeat confirms a gain if the smaller saving of both rounds is at least this part of their mean.
MIN_REPEAT_AGREEMENT: Final = 0.5


@dataclass(frozen=True, slots=True)
class Noise:
    """The difference between two fresh processes of one configuration, as a share of the step.

    `gap`: the largest gap of all configurations without benchmark (with benchmark, the second process may pick other
    algorithms); None if no configuration was repeated: then the intervals and `DRIFT_ALLOWANCE` decide. `repeat_steps`: the
    steps of second processes that are runs of their own (A/A runs), by the name of the repeated configuration; other second
    processes are in their run's `repeat`. `repeated_configs`: the number of configurations behind `gap`. `minimum`: the lowest
    limit.
    """

    gap: float | None
    repeat_steps: Mapping[str, Interval] = field(default_factory=dict)
    repeated_configs: int = 1
    minimum: float = 0.0

    def sentence(self, significant: int | None = None) -> str:
        """The noise in words, with at most `significant` digits of the gap, else with one decimal."""
        if self.gap is None:
            return "No configuration was repeated (no A/A run), so the noise between processes is unknown."
        gap = percent(self.gap, significant)
        if self.repeated_configs < 2:
            return f"Two runs of the same configuration differ by {gap}."
        return f"Two runs of the same configuration differ by at most {gap} ({self.repeated_configs} configurations)."

    def repeat_step(self, run: ConfigRun) -> Interval | None:
        """The step time of the run's second process; None without one."""
        if run.config.name in self.repeat_steps:
            return self.repeat_steps[run.config.name]
        if run.failure is not None or run.repeat is None or run.repeat.failure is not None:
            return None
        return run.repeat.step_ns

    def repeat_gap(self, run: ConfigRun) -> float | None:
        """The difference between the run's two processes, as a share of the step; None without a second process."""
        first, second = run.step_ns, self.repeat_step(run)
        if first is None or second is None or first.median <= 0:
            return None
        return abs(second.median - first.median) / first.median

    def limit(self, *runs: ConfigRun) -> float:
        """The saving that comparing `runs` must exceed: `DRIFT_ALLOWANCE` beyond the largest gap, those of `runs` included."""
        return max(self.minimum, DRIFT_ALLOWANCE + (self.largest_gap(*runs) or 0.0))

    def largest_gap(self, *runs: ConfigRun) -> float | None:
        """The largest gap, those of `runs` included; None without any."""
        return max((gap for gap in (self.gap, *map(self.repeat_gap, runs)) if gap is not None), default=None)


def noise_of(report: Report) -> Noise:
    """The noise of `report`, from its A/A runs and the second processes of its configurations."""
    repeat_steps = {
        run.config.repeat_of: run.step_ns
        for run in report.runs
        if run.config.repeat_of is not None and run.step_ns is not None and run.failure is None
    }
    noise = Noise(None, repeat_steps, 0)
    gaps = [
        gap
        for run in report.runs
        if run.failure is None and run.config.repeat_of is None and not run.config.benchmark
        if (gap := noise.repeat_gap(run)) is not None
    ]
    return replace(noise, gap=max(gaps, default=None), repeated_configs=len(gaps))


def saved_share(before: Interval, after: Interval) -> float:
    """The share of `before` that `after` saves; negative if `after` is slower, 0 if `before` is 0."""
    return _saved_share(before.median, after.median)


def _saved_share(before_ns: int, after_ns: int) -> float:
    return (before_ns - after_ns) / before_ns if before_ns > 0 else 0.0


def break_even_steps(tuning_ns: int | None, before: Interval, after: Interval) -> int | None:
    """The number of steps of `after` that offset the algorithm search; None if they save nothing or the cost is unknown."""
    saved_ns = before.median - after.median
    return -(-max(0, tuning_ns) // saved_ns) if tuning_ns is not None and saved_ns > 0 else None


def example_factor(before: ConfigRun, after: ConfigRun) -> float:
    """Examples per step of `before` over those of `after`: scales `after`'s step time to equal work.

    1.0 if the steps hold the same number of examples or the numbers are unknown; otherwise times are compared per example.
    """
    return before.samples / after.samples if before.samples and after.samples else 1.0


def rounds(before: ConfigRun, after: ConfigRun, noise: Noise) -> tuple[tuple[Interval, Interval], ...]:
    """(before, after) of the first processes, and of the second ones if both have one; `after` is scaled to equal examples."""
    factor = example_factor(before, after)
    pairs = ((before.step_ns, after.step_ns), (noise.repeat_step(before), noise.repeat_step(after)))
    return tuple((old, _scaled(new, factor)) for old, new in pairs if old is not None and new is not None)


def _scaled(value: Interval, factor: float) -> Interval:
    if factor == 1.0:
        return value
    return Interval(median=round(value.median * factor), low=round(value.low * factor), high=round(value.high * factor))


def mean_saved_share(before: ConfigRun, after: ConfigRun, noise: Noise) -> float | None:
    """The share of the time that `after` saves, as the mean over all rounds; per example if the steps hold different numbers."""
    savings = [saved_share(old, new) for old, new in rounds(before, after, noise)]
    return (
        math.fsum(savings) / len(savings)
        if savings and before.step_ns is not None and after.step_ns is not None
        else None
    )


def saving_bounds(before: ConfigRun, after: ConfigRun, noise: Noise) -> tuple[float, float]:
    """The smallest and the largest share that `after` may save, by the interval ends of all rounds.

    Raises:
        ValueError: there are no rounds.
    """
    pairs = rounds(before, after, noise)
    lowest = min(_saved_share(old.low, new.high) for old, new in pairs)
    return lowest, max(_saved_share(old.high, new.low) for old, new in pairs)


def is_significantly_faster(after: ConfigRun, before: ConfigRun, noise: Noise) -> bool:
    """Whether `after` is significantly faster: lower disjoint 95 % interval, saving above the noise, confirmed by the repeat."""
    pairs = rounds(before, after, noise)
    mean = mean_saved_share(before, after, noise)
    if mean is None:
        return False
    old, new = pairs[0]
    savings = [saved_share(*pair) for pair in pairs]
    return new.high < old.low and mean > noise.limit(before, after) and min(savings) >= MIN_REPEAT_AGREEMENT * mean


def verdict(before: ConfigRun, after: ConfigRun, noise: Noise) -> Outcome:
    """The verdict on `after` compared with `before`: better, worse, or same (no significant difference).

    Both directions are relative to the slower run, so swapping the runs swaps the verdict.
    """
    if is_significantly_faster(after, before, noise):
        return "better"
    if is_significantly_faster(before, after, noise):
        return "worse"
    return "same"
