"""Whether the steps of two reports differ: as for runs of one report, with more drift.

Two reports are made at different times, so no interleaved order cancels the drift of clocks between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.statistics.noise import Noise, noise_of_runs

# Of the step. Clocks of one device drift by this much between two recordings.
REPORT_DRIFT: Final = 0.02


def noise_between(a: Sequence[ConfigRun], b: Sequence[ConfigRun]) -> Noise:
    """The noise of two reports' runs: the spread of both, their larger gap, and the drift between them."""
    noises = noise_of_runs(a), noise_of_runs(b)
    return replace(
        Noise(drift=REPORT_DRIFT).with_runs(*noises[0].runs, *noises[1].runs),
        gap=max((noise.gap for noise in noises if noise.gap is not None), default=None),
        repeated_configs=sum(noise.repeated_configs for noise in noises),
    )


def step_difference(
    a: Sequence[ConfigRun], b: Sequence[ConfigRun], a_run: ConfigRun, b_run: ConfigRun
) -> Difference | None:
    """The step of `b_run`, one of `b`, compared with that of `a_run`, as whole steps; None without both steps."""
    noise, before, after = compared_sides(a, b, a_run, b_run)
    return noise.difference(before, after)


def compared_sides(
    a: Sequence[ConfigRun], b: Sequence[ConfigRun], a_run: ConfigRun, b_run: ConfigRun
) -> tuple[Noise, ConfigRun, ConfigRun]:
    """The noise of both reports, and `a_run` and `b_run` as it compares them."""
    return noise_between(a, b), _side(a, a_run), _side(b, b_run)


def _side(runs: Sequence[ConfigRun], run: ConfigRun) -> ConfigRun:
    """`run` prepared for another report's noise: its processes become its repeats, whole steps are compared."""
    again = [other for other in runs if other.config.repeat_of == run.config.name and other.failure is None]
    further = [
        *(repeat for repeat in run.repeats if repeat.failure is None),
        *(other.as_repeat for other in again),
    ]
    repeats = tuple(repeat for repeat in further if repeat.step_ns is not None)
    return replace(run, repeat=None, further_repeats=repeats, samples=None)
