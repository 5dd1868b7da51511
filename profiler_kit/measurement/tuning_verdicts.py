"""The verdicts of a search: the gain of one configuration over another, and whether it is accepted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Screened
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Difference
from profiler_kit.records.tuning import ANY_ERROR, AttemptOutcome, TuningOptions, error_text
from profiler_kit.statistics.differences import compare_turns
from profiler_kit.statistics.noise import Noise
from profiler_kit.statistics.trials import MIN_USEFUL_GAIN_PERCENT
from profiler_kit.units import percent, text

MIN_USEFUL: Final = MIN_USEFUL_GAIN_PERCENT / 100


@dataclass(slots=True, kw_only=True)
class Verdicts:
    """The runs of a search, and verdicts on them.

    - `groups`: the fresh processes of each comparison, and of the final measurement. Only runs of one group are compared.
    - `first_runs`: the first fresh process of each configuration by name, with its kernels, and its error if it was checked.
    - `screened`: the same of its run in the process that compares configurations, without kernels.
    """

    options: TuningOptions
    baseline: RunConfig
    first_runs: dict[str, ConfigRun]
    screened: dict[str, ConfigRun]
    groups: list[list[ConfigRun]] = field(default_factory=list)
    _noise_of_runs: tuple[int, Noise] | None = None  # of how many runs

    def checked_run(self, config: RunConfig) -> ConfigRun | None:
        """The run of `config` with its error; the first one if it was never checked, None if it has not run."""
        runs = [runs[config.name] for runs in (self.first_runs, self.screened) if config.name in runs]
        return next(
            (run for run in runs if run.max_relative_error is not None or run.error_note), next(iter(runs), None)
        )

    def judge(
        self, base: RunConfig, config: RunConfig, gain: Difference | None, group: Sequence[ConfigRun], *, reduced: bool
    ) -> tuple[AttemptOutcome, str]:
        """The outcome so far of a candidate on top of `base`, and the reason where it is not better.

        `reduced`: changes that reduce the precision are accepted.
        """
        failure = next(
            (run.failure for run in group if run.config.name == config.name and run.failure is not None), None
        )
        if failure is not None:
            return "failed", failure.first_line
        if gain is None:
            return "failed", "no samples"
        if gain.outcome == "worse":
            return "worse", f"{gain.saved_text} {self._figure}"
        if gain.outcome == "better" and (problem := self.error_problem(config, reduced)):
            return "inaccurate", problem
        slowdown = self._slowdown(base, config, group)
        if slowdown:
            return "too slow", slowdown
        if gain.outcome == "better" and gain.ratio > 1 - MIN_USEFUL:
            return "same", f"the gain is below {percent(MIN_USEFUL)}"
        return ("better", "") if gain.outcome == "better" else ("same", gain.reason)

    @property
    def _figure(self) -> str:
        return "memory" if self.options.goal == "memory" else "time"

    def error_problem(self, config: RunConfig, reduced: bool) -> str:
        """Why the error of `config` is not accepted; empty if it is."""
        if self.options.tolerance == ANY_ERROR:
            return ""
        base, run = self.checked_run(self.baseline), self.checked_run(config)
        assert base is not None
        assert run is not None
        limit = self.options.error_limit(base.max_relative_error, reduced=reduced)
        error = run.max_relative_error
        if limit is None:
            reason = "the error of the baseline against float64 is unknown (--tolerance any accepts all errors)"
            return f"{reason}. {base.error_note}".strip()
        if error is None:
            return f"its error against float64 is unknown. {run.error_note}".strip()
        if error > limit:
            allowed = f"the limit of {error_text(limit)} (baseline {error_text(base.max_relative_error)})"
            return f"error {error_text(error)}, above {allowed}"
        return ""

    def _slowdown(self, base: RunConfig, config: RunConfig, group: Sequence[ConfigRun]) -> str:
        """With the goal memory: by how much `config` is surely slower than allowed; empty if it is not."""
        if self.options.goal != "memory":
            return ""
        time = self._time_gain(base, config, group)
        accepted = self._time_gain(self.baseline, base, [run for runs in self.groups for run in runs])
        factor = accepted.ratio if accepted is not None and base != self.baseline else 1.0
        if time is None or time.low * factor <= 1 + self.options.max_slowdown:
            return ""
        return f"{percent(time.ratio * factor - 1)} more time, above the limit of {percent(self.options.max_slowdown)}"

    def gain(self, before: RunConfig, after: RunConfig, group: Sequence[ConfigRun]) -> Difference | None:
        """The goal's figure of `after` compared with that of `before`, from their runs in `group`; None without runs of both."""
        if self.options.goal == "memory":
            return _memory_gain(completed(before, group), completed(after, group))
        return self._time_gain(before, after, group)

    def _time_gain(self, before: RunConfig, after: RunConfig, group: Sequence[ConfigRun]) -> Difference | None:
        if not all(any(run.round_ns is not None for run in completed(config, group)) for config in (before, after)):
            group = [run for run in group if run.round_ns is None]  # processes in turns are compared with their like
        sides = self.side(before, group), self.side(after, group)
        if sides[0] is None or sides[1] is None:
            return None
        return self._noise().difference(sides[0], sides[1])

    def side(self, config: RunConfig, group: Sequence[ConfigRun]) -> ConfigRun | None:
        """The processes of `config` in `group` as one run with repeats, with the kernels of its first process."""
        runs = completed(config, group)
        if not runs:
            return None
        first = self.first_runs[config.name]
        return replace(
            first,
            step_ns=runs[0].step_ns,
            round_ns=runs[0].round_ns,
            samples=runs[0].samples,
            host_load=runs[0].host_load,
            repeat=None,
            further_repeats=tuple(run.as_repeat for run in runs[1:]),
        )

    def _noise(self) -> Noise:
        """The noise between processes of all configurations without benchmark, each within its group."""
        runs = sum(map(len, self.groups))
        if self._noise_of_runs is None or self._noise_of_runs[0] != runs:
            sides = [
                self.side(config, group)
                for group in self.groups
                for config in dict.fromkeys(run.config for run in group)
                if not config.benchmark
            ]
            self._noise_of_runs = runs, Noise().with_runs(*(side for side in sides if side is not None))
        return self._noise_of_runs[1]


def screened_gain(answer: Screened) -> Difference | None:
    """The gain of a configuration over the other one in the same process; None if one of them failed."""
    run = answer.run
    if run.failure is not None or len(answer.before_ns) < 2:
        return None
    factor = answer.before_samples / run.samples if answer.before_samples and run.samples else 1.0
    return compare_turns(answer.before_ns, answer.after_ns, factor=factor)


def completed(config: RunConfig, runs: Sequence[ConfigRun]) -> list[ConfigRun]:
    """The runs of `config` with samples."""
    return [run for run in runs if run.config == config and run.failure is None and run.step_ns is not None]


def product(gains: Sequence[Difference]) -> Difference | None:
    """The gain of independent changes one after the other; None without any. Logarithms of ratios add up, so do variances."""
    if not gains:
        return None
    ratio = math.prod(gain.ratio for gain in gains)
    half = math.sqrt(math.fsum(math.log(gain.high / gain.ratio) ** 2 for gain in gains))
    return Difference(
        ratio=ratio,
        low=ratio / math.exp(half),
        high=ratio * math.exp(half),
        smallest_visible=None,
        outcome="better",
        before_processes=min(gain.before_processes for gain in gains),
        after_processes=min(gain.after_processes for gain in gains),
    )


def _memory_gain(before: Sequence[ConfigRun], after: Sequence[ConfigRun]) -> Difference | None:
    """The peak of `after` compared with that of `before`, by the worst process of each. Peaks hardly vary between processes."""
    sides = [[run.peak_allocated_bytes for run in runs if run.peak_allocated_bytes] for runs in (before, after)]
    if not all(sides):
        return None
    old, new = sides
    ratio, low, high = max(new) / max(old), min(new) / max(old), max(new) / min(old)
    reason = "" if high < 1 - MIN_USEFUL or low > 1 else f"{text(max(old), 'bytes')} -> {text(max(new), 'bytes')}"
    return Difference(
        ratio=ratio,
        low=min(low, ratio),
        high=max(high, ratio),
        smallest_visible=MIN_USEFUL,
        outcome="better" if high < 1 - MIN_USEFUL else "worse" if low > 1 else "same",
        reason=reason,
        before_processes=len(old),
        after_processes=len(new),
    )
