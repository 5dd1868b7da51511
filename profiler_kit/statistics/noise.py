"""When a difference between two runs is one: intervals apart, beyond the noise between processes, and found twice.

The runs of one report are told apart by this, and those of two reports (the gate, which asks for more). Trials ask another
question, of one pair and its own processes: `statistics.intervals.gain_of_processes` answers it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.units import percent

# A change of the step below this is not worth a flag, however surely it was measured: it is less than the clock of a
# device drifts while it warms up.
WORTH: Final = 0.02
# Clocks drift by about this much while a sweep runs, and the few gaps that it sees leave the rare large one out: so it is
# added to the largest of them. With it, 8,000 simulated comparisons of equal runs gave one false claim (0.5 % between
# processes, 1 % of drift), and one of 1,000 slow-downs of 5 % was missed.
FLOOR: Final = 0.01
# A gain is there twice where the weaker of both rounds shows at least this part of their mean.
AGREES: Final = 0.5


@dataclass(frozen=True, slots=True)
class Noise:
    """How far two fresh processes of one configuration lay apart, as a share of the step.

    `gap` is the largest of all configurations without benchmark, whose search may end otherwise the second time; None where
    none ran twice: then the intervals and `FLOOR` decide. `seconds`: the steps of second processes that are runs of their own
    (A/A runs), by the name of the configuration that they repeat; the others stand in their runs. `twice`: how many
    configurations the gap is of. `least`: what a gain has to exceed in any case.
    """

    gap: float | None
    seconds: Mapping[str, Interval] = field(default_factory=dict)
    twice: int = 1
    least: float = 0.0

    def sentence(self, significant: int | None = None) -> str:
        """What the noise was, in words; the gap with at most `significant` digits, else with one decimal."""
        if self.gap is None:
            return "No configuration was run twice (no A/A run), so the noise between processes is not known."
        if self.twice < 2:
            return f"The same configuration, run twice, differed by {percent(self.gap, significant)}."
        gap = percent(self.gap, significant)
        return f"Run twice, each of {self.twice} configurations differed from itself by at most {gap}."

    def second(self, run: ConfigRun) -> Interval | None:
        """The step of the run's second process, where it has one."""
        if run.config.name in self.seconds:
            return self.seconds[run.config.name]
        if run.failure is not None or run.repeat is None or run.repeat.failure is not None:
            return None
        return run.repeat.step_ns

    def own_gap(self, run: ConfigRun) -> float | None:
        """How far the run's own two processes lie apart."""
        first, second = run.step_ns, self.second(run)
        if first is None or second is None or first.median <= 0:
            return None
        return abs(second.median - first.median) / first.median

    def limit(self, *runs: ConfigRun) -> float:
        """The gain that a comparison of `runs` has to exceed: `FLOOR` beyond the largest gap, their own ones included."""
        return max(self.least, FLOOR + (self.largest_gap(*runs) or 0.0))

    def largest_gap(self, *runs: ConfigRun) -> float | None:
        """The largest gap known, those of `runs` included; None where there is none."""
        return max((gap for gap in (self.gap, *map(self.own_gap, runs)) if gap is not None), default=None)


def noise_of(report: Report) -> Noise:
    """The noise of `report`: its A/A runs, and the second processes of its configurations."""
    again = {
        run.config.repeat_of: run.step_ns
        for run in report.runs
        if run.config.repeat_of is not None and run.step_ns is not None and run.failure is None
    }
    noise = Noise(None, again, 0)
    gaps = [
        gap
        for run in report.runs
        if run.failure is None and run.config.repeat_of is None and not run.config.benchmark
        if (gap := noise.own_gap(run)) is not None
    ]
    return replace(noise, gap=max(gaps, default=None), twice=len(gaps))


def saving(before: Interval, after: Interval) -> float:
    """The share of `before` that `after` saves; negative where it is slower, 0 where there is nothing to save from."""
    return _saved(before.median, after.median)


def _saved(before_ns: int, after_ns: int) -> float:
    return (before_ns - after_ns) / before_ns if before_ns > 0 else 0.0


def break_even_steps(tuning_ns: int | None, before: Interval, after: Interval) -> int | None:
    """The steps of `after` that pay back what tuning cost; None where they save nothing, or the cost is not known."""
    saved_ns = before.median - after.median
    return -(-max(0, tuning_ns) // saved_ns) if tuning_ns is not None and saved_ns > 0 else None


def example_factor(before: ConfigRun, after: ConfigRun) -> float:
    """What a step of `after` is multiplied by to hold as many examples as one of `before`: 1.0 where it does, or none is known.

    Times are compared per example where this is not 1.0.
    """
    return before.samples / after.samples if before.samples and after.samples else 1.0


def rounds(before: ConfigRun, after: ConfigRun, noise: Noise) -> tuple[tuple[Interval, Interval], ...]:
    """(before, after) in the first processes, and in the second ones where both have one; `after` as if of equal examples."""
    factor = example_factor(before, after)
    pairs = ((before.step_ns, after.step_ns), (noise.second(before), noise.second(after)))
    return tuple((was, _scaled(now, factor)) for was, now in pairs if was is not None and now is not None)


def _scaled(value: Interval, factor: float) -> Interval:
    if factor == 1.0:
        return value
    return Interval(median=round(value.median * factor), low=round(value.low * factor), high=round(value.high * factor))


def mean_saving(before: ConfigRun, after: ConfigRun, noise: Noise) -> float | None:
    """The share of the time (per example, where the steps hold different numbers) that `after` saves, over all rounds."""
    savings = [saving(was, now) for was, now in rounds(before, after, noise)]
    return sum(savings) / len(savings) if savings and before.step_ns is not None and after.step_ns is not None else None


def saving_bounds(before: ConfigRun, after: ConfigRun, noise: Noise) -> tuple[float, float]:
    """The least and the largest share that `after` may save, by the ends of the intervals of all rounds.

    Raises ValueError where there is no round.
    """
    both = rounds(before, after, noise)
    return min(_saved(was.low, now.high) for was, now in both), max(_saved(was.high, now.low) for was, now in both)


def faster(after: ConfigRun, before: ConfigRun, noise: Noise) -> bool:
    """Whether `after` is surely faster: its 95 % interval lies below, it gains more than the noise, and did so twice."""
    both = rounds(before, after, noise)
    mean = mean_saving(before, after, noise)
    if mean is None:
        return False
    was, now = both[0]
    savings = [saving(a, b) for a, b in both]
    return now.high < was.low and mean > noise.limit(before, after) and min(savings) >= AGREES * mean


def verdict(before: ConfigRun, after: ConfigRun, noise: Noise) -> Outcome:
    """`after` beside `before`: better, worse, or the same as far as can be told.

    A loss is measured against the same base as a gain would be, the slower one, so that swapping the two swaps the verdict.
    """
    if faster(after, before, noise):
        return "better"
    if faster(before, after, noise):
        return "worse"
    return "same"
