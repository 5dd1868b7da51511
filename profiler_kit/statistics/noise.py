"""The noise of a report, and the difference between two of its runs.

`statistics.differences` has the method. Runs of two reports: `statistics.report_noise`.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference, Interval
from profiler_kit.statistics.differences import (
    DEVICE_BOUND,
    DRIFT_ALLOWANCE,
    HOST_BOUND,
    Spread,
    compare_times,
    mean_step,
    spread_of,
)
from profiler_kit.statistics.host_load import load_allowance
from profiler_kit.statistics.intervals import HOST_QUANTILE, quantile_interval, trimmed_mean_interval
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

# A single process that took turns shows no spread between such processes.
MIN_TAKING_TURNS: Final = 2
MAX_CENTERINGS, CENTERING_TOLERANCE = 100, 1e-9

HOST_REASON: Final = "both run the same kernels for the same time: the difference is the host's"


class Sample(Enum):
    """The estimate of a process's step in a comparison: the median of its timed steps, their lower decile, or their trimmed mean.

    `of_turns`: only processes whose steps were taken in turns, if the configuration has several of them.
    """

    MEDIAN = "median"
    LOW = "low"
    MEDIAN_OF_TURNS = "median of turns"
    LOW_OF_TURNS = "low of turns"
    MEAN_OF_TURNS = "mean of turns"

    @property
    def is_low(self) -> bool:
        """Whether it is the lower decile."""
        return self in (Sample.LOW, Sample.LOW_OF_TURNS)

    @property
    def of_turns(self) -> bool:
        """Whether it is only of processes that took turns."""
        return self in (Sample.MEDIAN_OF_TURNS, Sample.LOW_OF_TURNS, Sample.MEAN_OF_TURNS)


# Of steps that wait for the host; of others, the median. On a quiet host, some turns of every process are undisturbed, which
# their lower deciles show. On a busy one, none is, and the means over all turns vary least. The report's own processes tell.
TURN_SAMPLES: Final = (Sample.LOW_OF_TURNS, Sample.MEAN_OF_TURNS)
# Where those are not known, and for processes that did not take turns: the first that is known.
OTHER_HOST_SAMPLES: Final = (Sample.MEDIAN_OF_TURNS, Sample.LOW, Sample.MEDIAN)


def lower_decile(steps_ns: Sequence[int]) -> Interval:
    """The lower decile of a process's steps, with its 95 % interval."""
    return quantile_interval(steps_ns, HOST_QUANTILE)


# Of a process's steps; a median is part of its record.
ESTIMATORS: Final[Mapping[Sample, Callable[[Sequence[int]], Interval]]] = {
    Sample.LOW: lower_decile,
    Sample.LOW_OF_TURNS: lower_decile,
    Sample.MEAN_OF_TURNS: trimmed_mean_interval,
}


@dataclass(frozen=True, slots=True)
class Noise:
    """How far fresh processes of one configuration differ.

    - `spreads`: of all configurations without benchmark, by sample. With benchmark, a second process may pick other algorithms.
    - `levels`: by sample, the logarithm of how slow the host was during each round, which all processes of the round share.
    - `gap`: the largest difference between two of these processes, as a share of the step; None if nothing was repeated.
    - `repeated_configs`: the number of configurations behind it.
    - `again`: second processes that are runs of their own (A/A runs), by the repeated configuration.
    - `runs`: those behind the spreads, with their A/A runs as repeats.
    - `drift`: the share by which clocks may have drifted between two sides.
    - `turn_sample`: the one of `TURN_SAMPLES` that varies least between processes of one configuration; None without turns.
    """

    spreads: Mapping[Sample, Spread] = field(default_factory=dict)
    levels: Mapping[Sample, Mapping[int, float]] = field(default_factory=dict)
    gap: float | None = None
    repeated_configs: int = 0
    again: Mapping[str, Repeat] = field(default_factory=dict)
    runs: tuple[ConfigRun, ...] = ()
    drift: float = DRIFT_ALLOWANCE
    turn_sample: Sample | None = None

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
        return self.samples(run, Sample.MEDIAN)

    def samples(self, run: ConfigRun, sample: Sample, rounds: Container[int] | None = None) -> tuple[Interval, ...]:
        """The estimates for all processes of the run's configuration, in the order of `processes`.

        Times of processes that took turns are divided by the level of their round. `rounds`: only those of these rounds. Empty
        if something is not known for all processes, or if fewer than two took turns. Steps that get their data from worker
        processes have no lower decile: some of them wait for the workers and others do not, which a lower quantile would not see.
        """
        levels = self.levels.get(sample, {})
        values = self._values(run, sample)
        return tuple(
            step if round_ns is None else _divided(step, levels.get(round_ns, 0.0))
            for round_ns, step in values
            if rounds is None or round_ns in rounds
        )

    def _values(self, run: ConfigRun, sample: Sample) -> tuple[tuple[int | None, Interval], ...]:
        """`samples` before the division, each with its round if `sample` is of turns."""
        has_workers = run.prepared_batches != 0 and any(timing.phase == "data" for timing in run.phases)
        if run.failure is not None or (sample.is_low and has_workers):
            return ()
        again = self.again.get(run.config.name)
        processes = [run.as_repeat, *run.repeats, *([again] if again is not None else [])]
        processes = [process for process in processes if process.failure is None and process.step_ns is not None]
        if sample.of_turns:
            processes = [process for process in processes if process.round_ns is not None]
            if len(processes) < MIN_TAKING_TURNS:
                return ()
        steps = [_step_of(process, sample) for process in processes]
        rounds = [process.round_ns if sample.of_turns else None for process in processes]
        values = tuple((number, step) for number, step in zip(rounds, steps, strict=True) if step is not None)
        return values if len(values) == len(steps) else ()

    def spread(self, sample: Sample = Sample.MEDIAN) -> Spread:
        """The spread of all configurations without benchmark."""
        return self.spreads.get(sample, Spread())

    @property
    def has_turns(self) -> bool:
        """Whether processes took turns, so that their steps are compared."""
        return bool(self.levels.get(Sample.MEDIAN_OF_TURNS))

    def compared_step(self, run: ConfigRun) -> Interval | None:
        """The step of `run` as comparisons see it: what tables and trials show beside a ratio.

        Where processes took turns, it is the mean of the estimates for the configuration's processes, with its 95 % interval. The
        first process was measured alone, at a moment that no other process shares. Elsewhere it is the first one's median.
        """
        if not self.has_turns or fills_step(run, MIN_DEVICE_SPREAD_SHARE):
            return run.step_ns
        sample = self.host_sample(run, run)
        processes = self.samples(run, sample)
        return mean_step(processes, self.spread(sample), HOST_BOUND) if processes else run.step_ns

    def like_processes(self, run: ConfigRun) -> tuple[Interval, ...]:
        """The median steps of the processes that were measured alike: those that took turns, or else all."""
        return self.samples(run, Sample.MEDIAN_OF_TURNS) or self.processes(run)

    def repeat_gap(self, run: ConfigRun) -> float | None:
        """The largest difference between two processes of `run`, as a share of the first one's step; None without two."""
        medians = [step.median for step in self.like_processes(run)]
        return (max(medians) - min(medians)) / medians[0] if len(medians) > 1 and medians[0] > 0 else None

    def with_runs(self, *runs: ConfigRun) -> Noise:
        """The noise with the processes of more runs, as if they were of other configurations. `gap` and `turn_sample` stay."""
        noise = replace(self, runs=(*self.runs, *runs), again={})
        spreads, levels = {}, {}
        for sample in Sample:
            values = [
                [(number, math.log(max(1, step.median))) for number, step in noise._values(run, sample)]
                for run in noise.runs
            ]
            levels[sample] = _round_levels(values)
            centered = replace(noise, levels=levels)
            spreads[sample] = sum((spread_of(centered.samples(run, sample)) for run in noise.runs), Spread())
            lost = max(0, len(levels[sample]) - 1)  # the levels were estimated too
            freedom = max(0, spreads[sample].freedom - lost)
            spreads[sample] = replace(spreads[sample], freedom=freedom) if freedom else Spread()
        turn_sample = self.turn_sample or steadiest({sample: spreads[sample] for sample in TURN_SAMPLES})
        return replace(noise, spreads=spreads, levels=levels, again=self.again, turn_sample=turn_sample)

    def difference(self, before: ConfigRun, after: ConfigRun) -> Difference | None:
        """The step of `after` compared with that of `before`, per example if they differ; None without both steps."""
        if before.step_ns is None or after.step_ns is None or not (self.processes(before) and self.processes(after)):
            return None
        is_device_bound = all(fills_step(run, MIN_DEVICE_SPREAD_SHARE) for run in (before, after))
        sample = Sample.MEDIAN if is_device_bound else self.host_sample(before, after)
        rounds = self._shared_rounds(before, after) if sample.of_turns else None
        sides = self.samples(before, sample, rounds), self.samples(after, sample, rounds)
        pooled = self.spread(sample)
        for run, side in zip((before, after), sides, strict=True):
            pooled += spread_of(side) if run.config.benchmark else Spread()
        outcome = compare_times(
            *sides,
            pooled,
            DEVICE_BOUND if is_device_bound else HOST_BOUND,
            factor=example_factor(before, after),
            drift=self.drift + load_allowance(before, after),
        )
        if outcome.is_sure and is_host_difference(before, after):
            return replace(outcome, outcome="same", reason=HOST_REASON)
        return outcome

    def host_sample(self, before: ConfigRun, after: ConfigRun) -> Sample:
        """The first sample that is known on both sides, and for as many processes of the report as the median."""
        rounds = self._shared_rounds(before, after)
        chosen: tuple[Sample, ...] = () if self.turn_sample is None else (self.turn_sample,)
        for sample in (*chosen, *TURN_SAMPLES, *OTHER_HOST_SAMPLES):
            median = Sample.MEDIAN_OF_TURNS if sample.of_turns else Sample.MEDIAN
            sides = [self.samples(run, sample, rounds if sample.of_turns else None) for run in (before, after)]
            is_known = min(map(len, sides)) >= (MIN_TAKING_TURNS if sample.of_turns else 1)
            if is_known and self.spread(sample).freedom == self.spread(median).freedom:
                return sample
        return Sample.MEDIAN

    def _shared_rounds(self, before: ConfigRun, after: ConfigRun) -> set[int]:
        """The rounds that have processes of both."""
        sides = [{n for n, _ in self._values(run, Sample.MEDIAN_OF_TURNS) if n is not None} for run in (before, after)]
        return sides[0] & sides[1]


def steadiest(spreads: Mapping[Sample, Spread]) -> Sample | None:
    """The sample that varies least between processes of one configuration; None if no spread is known.

    Which of two is chosen depends on the spreads alone, not on the differences that are tested. It adds no false alarms that the
    simulation could show (`scripts.bench.decisions`).
    """
    deviations = {sample: spread.deviation for sample, spread in spreads.items() if spread.deviation is not None}
    return min(deviations, key=deviations.__getitem__, default=None)


def _divided(step: Interval, level: float) -> Interval:
    factor = math.exp(-level)
    return Interval(median=round(step.median * factor), low=round(step.low * factor), high=round(step.high * factor))


def _round_levels(values: Sequence[Sequence[tuple[int | None, float]]]) -> dict[int, float]:
    """The level of each round, with a mean of 0: the least-squares effects of the rounds beside those of the runs.

    `values`: for each run, the logarithms of its times with their rounds. The rows and columns are centered in turns until
    nothing changes (Deming and Stephan 1940; for unequal numbers of processes there is no closed form).
    """
    levels = {number: 0.0 for run in values for number, _ in run if number is not None}
    if len(levels) < 2:
        return levels
    for _ in range(MAX_CENTERINGS):
        means = [statistics.fmean(x - levels.get(n or 0, 0.0) for n, x in run) if run else 0.0 for run in values]
        residuals: dict[int, list[float]] = {number: [] for number in levels}
        for run, mean in zip(values, means, strict=True):
            for number, value in run:
                if number is not None:
                    residuals[number].append(value - mean)
        updated = {number: statistics.fmean(shares) for number, shares in residuals.items()}
        center = statistics.fmean(updated.values())
        updated = {number: level - center for number, level in updated.items()}
        change = max(abs(updated[number] - levels[number]) for number in levels)
        levels = updated
        if change < CENTERING_TOLERANCE:
            break
    return levels


def noise_of(report: Report) -> Noise:
    """The noise of `report`, from its A/A runs and the further processes of its configurations."""
    return noise_of_runs(report.runs)


def noise_of_runs(all_runs: Sequence[ConfigRun]) -> Noise:
    """The noise of `all_runs`, as that of their report."""
    again = {
        run.config.repeat_of: run.as_repeat
        for run in all_runs
        if run.config.repeat_of is not None and run.step_ns is not None and run.failure is None
    }
    runs = [run for run in all_runs if run.config.repeat_of is None and not run.config.benchmark]
    merged = [
        replace(run, further_repeats=(*run.further_repeats, again[run.config.name]))
        if run.config.name in again
        else run
        for run in runs
    ]
    noise = Noise().with_runs(*merged)
    gaps = [gap for run in merged if (gap := noise.repeat_gap(run)) is not None]
    return replace(noise, again=again, gap=max(gaps, default=None), repeated_configs=len(gaps))


def _step_of(process: Repeat, sample: Sample) -> Interval | None:
    """The estimate for a process; None without the steps it needs, or where the process's step is not their median."""
    if sample not in ESTIMATORS or process.step_ns is None:
        return process.step_ns
    if not process.steps_ns:
        return None
    median, estimate = _estimate(process.steps_ns, sample)
    return estimate if median == process.step_ns.median else None


@functools.lru_cache(maxsize=1024)  # a report asks dozens of times for each process
def _estimate(steps_ns: tuple[int, ...], sample: Sample) -> tuple[int, Interval]:
    """The median of the steps, and the estimate."""
    return round(statistics.median(steps_ns)), ESTIMATORS[sample](steps_ns)


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
