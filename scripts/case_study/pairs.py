"""Pairs of runs that differ in one setting: their difference, its significance and the break-even of the algorithm search."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from profiler_kit.records.samples import Interval
from scripts.case_study.figures import Figures, RunFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One model's runs without (`before`) and with (`after`) a setting.

    `noise` is the relative difference between two fresh processes of one configuration, or None if it is unknown.
    """

    before: RunFigures
    after: RunFigures
    noise: float | None

    @property
    def before_ns(self) -> int:
        """The median step without the setting."""
        return step_interval(self.before).median

    @property
    def after_ns(self) -> int:
        """The median step with the setting."""
        return step_interval(self.after).median

    @property
    def saving(self) -> float:
        """The share of the step that the setting saves; negative if the step gets slower."""
        return 1 - self.after_ns / self.before_ns

    @property
    def faster(self) -> bool:
        """Whether the setting is significantly faster: the 95 % intervals do not overlap and the gain exceeds the noise."""
        return step_interval(self.after).high < step_interval(self.before).low and self.saving > (self.noise or 0.0)

    @property
    def slower(self) -> bool:
        """Whether the setting is significantly slower, by the same test."""
        return step_interval(self.after).low > step_interval(self.before).high and -self.saving > (self.noise or 0.0)

    def break_even_steps(self, min_saving: float) -> int | None:
        """Return the number of steps after which the algorithm search breaks even.

        None means never: the setting is not significantly faster, or it saves a smaller share than `min_saving`.
        """
        if not self.faster or self.saving < min_saving or self.after.tuning_ns is None:
            return None
        return max(0, math.ceil(self.after.tuning_ns / (self.before_ns - self.after_ns)))


def step_interval(run: RunFigures) -> Interval:
    """Return the step interval of a run that has samples."""
    assert run.step_ns is not None
    return run.step_ns


def make_pairs(figures: Figures, configs: Sequence[tuple[str, str]]) -> list[Pair]:
    """Return the pairs of all models. `configs` names the two configurations; both need samples."""
    pairs = []
    for model in figures.models():
        noise = noise_of(figures, model)
        for name_before, name_after in configs:
            before, after = figures.run(model, name_before), figures.run(model, name_after)
            if before is not None and after is not None and before.step_ns and after.step_ns:
                pairs.append(Pair(before=before, after=after, noise=noise))
    return pairs


def noise_of(figures: Figures, model: str) -> float | None:
    """Return the largest relative step difference between two fresh processes of one configuration of `model`.

    None if no configuration ran twice.
    """
    gaps = []
    for repeat in figures.runs:
        if repeat.model != model or repeat.process != 1 or repeat.repeat_of is None or repeat.step_ns is None:
            continue
        first = figures.run(model, repeat.repeat_of)
        if first is not None and first.step_ns is not None:
            gaps.append(abs(repeat.step_ns.median / first.step_ns.median - 1))
    return max(gaps, default=None)
