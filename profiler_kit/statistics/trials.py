"""Trials of advice: from the runs of a sweep, or from interleaved processes of one pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.host_load import load_sentence
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.statistics.noise import Noise, example_factor

# A smaller gain does not justify a line of code, however precisely it was measured.
MIN_USEFUL_GAIN_PERCENT: Final = 1.0


def sweep_trial(before: ConfigRun, after: ConfigRun | None, noise: Noise) -> Trial | None:
    """The trial of `after` against `before`, two runs of a sweep with this `noise`; None without both step times."""
    if after is None or after.failure is not None or before.step_ns is None or after.step_ns is None:
        return None
    difference = noise.difference(before, after)
    if difference is None:
        return None
    note = f'Compared with "{before.config.name}". {noise.sentence()}'
    return _with_effects(_trial(before, after, difference, note, noise), before, after)


def pair_trial(
    config: RunConfig,
    before: Sequence[ConfigRun],
    after: Sequence[ConfigRun],
    noise: Noise,
    swept: tuple[ConfigRun | None, ConfigRun | None],
) -> Trial | None:
    """The trial of `config`: fresh processes `after`, interleaved with the baseline's processes `before`.

    `noise`: of the report. `swept`: the report's runs of the baseline and of `config`, which provide kernels, peaks, errors and
    output digests. None if a side was not run. The verdict is ``failed`` if all of `after` failed.
    """
    before_runs, after_runs = [run for run in before if run.steps_ns], [run for run in after if run.steps_ns]
    if not before_runs or not after:
        return None
    if not after_runs:
        failure = next((run.failure for run in after if run.failure is not None), None)
        note = failure.first_line if failure is not None else "no samples"
        before_ns = median_interval([ns for run in before_runs for ns in run.steps_ns])
        return Trial(
            config=config.name, before_ns=before_ns, after_ns=before_ns, verdict="failed", note=note, tried=True
        )
    sides = [_as_one_run(runs, run) for runs, run in zip((before_runs, after_runs), swept, strict=True)]
    # with benchmark, the difference adds the spread
    trial_noise = replace(noise.with_runs(*(side for side in sides if not side.config.benchmark)), again={})
    difference = trial_noise.difference(sides[0], sides[1])
    if difference is None:
        return None
    processes = f"{len(before_runs)} and {len(after_runs)}"
    note = f'Compared with "{before_runs[0].config.name}". {processes} fresh processes, interleaved.'
    trial = replace(_trial(sides[0], sides[1], difference, note, trial_noise), config=config.name, tried=True)
    if not trial_noise.has_turns:
        all_ns = [[ns for run in runs for ns in run.steps_ns] for runs in (before_runs, after_runs)]
        trial = replace(trial, before_ns=median_interval(all_ns[0]), after_ns=median_interval(all_ns[1]))
    if trial.verdict in ("better", "worse") and abs(trial.gain_percent or 0.0) < MIN_USEFUL_GAIN_PERCENT:
        trial = replace(trial, verdict="same")
    return _with_effects(trial, *swept)


def is_undecided(trial: Trial | None) -> bool:
    """Whether more processes may decide: a gain or loss of useful size that is not established."""
    if trial is None or trial.gain_percent is None:
        return False
    return trial.verdict in ("same", "unknown") and abs(trial.gain_percent) >= MIN_USEFUL_GAIN_PERCENT


def _trial(before: ConfigRun, after: ConfigRun, difference: Difference, note: str, noise: Noise) -> Trial:
    low, high = difference.saved_range
    before_ns, after_ns = noise.compared_step(before), noise.compared_step(after)
    if before_ns is None or after_ns is None:
        raise ValueError("a difference has two step times")
    return Trial(
        config=after.config.name,
        before_ns=before_ns,
        after_ns=after_ns,
        verdict=difference.outcome,
        note=" ".join(part for part in (note, difference.sentence(), load_sentence(before, after)) if part),
        per_example=example_factor(before, after) != 1.0,
        gain_percent=_percent(difference.saved),
        gain_low_percent=_percent(low),
        gain_high_percent=_percent(high),
    )


def _as_one_run(runs: Sequence[ConfigRun], swept: ConfigRun | None) -> ConfigRun:
    """Several processes of one configuration as one run with repeats, with the kernels of the `swept` run."""
    first, *others = [replace(run, step_ns=median_interval(run.steps_ns)) for run in runs]
    base = swept if swept is not None and swept.failure is None else first
    return replace(
        base,
        step_ns=first.step_ns,
        steps_ns=first.steps_ns,
        round_ns=first.round_ns,
        host_load=first.host_load,
        samples=first.samples,
        repeat=None,
        further_repeats=tuple(run.as_repeat for run in others),
    )


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


def _percent(share: float) -> float:
    return round(100.0 * share, 3)
