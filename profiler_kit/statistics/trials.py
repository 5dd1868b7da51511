"""Trials of advice: from the runs of a sweep, or from interleaved processes of one pair.

A sweep has many configurations, so its gains are compared with the noise of all of them. A pair of configurations that was
run for one piece of advice has an interval from its own processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Outcome
from profiler_kit.statistics.intervals import Gain, median_interval, process_gain
from profiler_kit.statistics.noise import Noise, example_factor, mean_saved_share, saving_bounds, verdict

# A smaller gain does not justify a line of code, however precisely it was measured.
MIN_USEFUL_GAIN_PERCENT: Final = 1.0


def sweep_trial(before: ConfigRun, after: ConfigRun | None, noise: Noise) -> Trial | None:
    """The trial of `after` against `before`, two runs of a sweep with this `noise`; None without both step times."""
    if after is None or after.failure is not None or before.step_ns is None or after.step_ns is None:
        return None
    low, high = saving_bounds(before, after, noise)
    trial = Trial(
        config=after.config.name,
        before_ns=before.step_ns,
        after_ns=after.step_ns,
        verdict=verdict(before, after, noise),
        note=f'Compared with "{before.config.name}". {noise.sentence()}',
        per_example=example_factor(before, after) != 1.0,
        gain_percent=_percent(mean_saved_share(before, after, noise)),
        gain_low_percent=_percent(low),
        gain_high_percent=_percent(high),
    )
    return _with_effects(trial, before, after)


def pair_trial(
    config: RunConfig,
    before: Sequence[ConfigRun],
    after: Sequence[ConfigRun],
    swept: tuple[ConfigRun | None, ConfigRun | None],
) -> Trial | None:
    """The trial of `config`: fresh processes `after`, interleaved with the baseline's processes `before`.

    `swept`: the report's runs of the baseline and of `config`, which provide peaks, errors and output digests. None if a side
    was not run. The verdict is ``failed`` if all of `after` failed.
    """
    before_runs, after_runs = [run for run in before if run.steps_ns], [run for run in after if run.steps_ns]
    if not before_runs or not after:
        return None
    before_ns = median_interval([ns for run in before_runs for ns in run.steps_ns])
    if not after_runs:
        failure = next((run.failure for run in after if run.failure is not None), None)
        note = failure.message.partition("\n")[0] if failure is not None else "no samples"
        return Trial(
            config=config.name, before_ns=before_ns, after_ns=before_ns, verdict="failed", note=note, tried=True
        )
    factor = example_factor(before_runs[0], after_runs[0])
    outcome: Outcome = "same"
    gain = process_gain([run.steps_ns for run in before_runs], [run.steps_ns for run in after_runs], factor)
    if gain.is_significant and abs(gain.percent) >= MIN_USEFUL_GAIN_PERCENT:
        outcome = "better" if gain.percent > 0 else "worse"
    processes = f"{len(before_runs)} and {len(after_runs)}"
    trial = Trial(
        config=config.name,
        before_ns=before_ns,
        after_ns=median_interval([ns for run in after_runs for ns in run.steps_ns]),
        verdict=outcome,
        note=f'Compared with "{before_runs[0].config.name}". {processes} fresh processes, interleaved.',
        tried=True,
        per_example=factor != 1.0,
        gain_percent=gain.percent,
        gain_low_percent=gain.low,
        gain_high_percent=gain.high,
    )
    return _with_effects(trial, *swept)


def is_undecided(trial: Trial | None) -> bool:
    """Whether more processes may decide: a gain or loss of useful size whose interval includes zero."""
    if trial is None or trial.gain_percent is None or trial.gain_low_percent is None or trial.gain_high_percent is None:
        return False
    gain = Gain(percent=trial.gain_percent, low=trial.gain_low_percent, high=trial.gain_high_percent)
    return abs(gain.percent) >= MIN_USEFUL_GAIN_PERCENT and not gain.is_significant


def _with_effects(trial: Trial, before: ConfigRun | None, after: ConfigRun | None) -> Trial:
    """`trial` with the runs' peaks and errors, and whether their outputs are equal if both steps hold the same examples."""
    digests = [run.output_digest if run is not None else None for run in (before, after)]
    return replace(
        trial,
        before_peak_bytes=before.peak_allocated_bytes if before is not None else None,
        after_peak_bytes=after.peak_allocated_bytes if after is not None else None,
        before_error=before.max_relative_error if before is not None else None,
        after_error=after.max_relative_error if after is not None else None,
        same_bits=digests[0] == digests[1] if None not in digests and not trial.per_example else None,
    )


def _percent(share: float | None) -> float | None:
    return round(100.0 * share, 3) if share is not None else None
