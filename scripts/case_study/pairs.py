"""Two runs of one model that differ in one setting: which is faster, how surely, and when tuning is paid back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from profiler_kit.records.samples import Interval
from scripts.case_study.figures import Figures, RunFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Runs without and with a setting. `noise` is how far two fresh processes of the default lay apart, None if unknown."""

    before: RunFigures
    after: RunFigures
    noise: float | None

    @property
    def before_ns(self) -> int:
        """The median step without the setting."""
        return steady(self.before).median

    @property
    def after_ns(self) -> int:
        """The median step with it."""
        return steady(self.after).median

    @property
    def saving(self) -> float:
        """The share of the step saved by the setting; negative where it costs."""
        return 1 - self.after_ns / self.before_ns

    @property
    def faster(self) -> bool:
        """Whether the setting surely saves: the 95 % intervals are apart and the gain is larger than the noise."""
        return steady(self.after).high < steady(self.before).low and self.saving > (self.noise or 0.0)

    @property
    def slower(self) -> bool:
        """Whether the setting surely costs, by the same test."""
        return steady(self.after).low > steady(self.before).high and -self.saving > (self.noise or 0.0)

    def break_even_steps(self, least_saving: float) -> int | None:
        """Steps until the setting's tuning is paid back; None (never) where it surely saves less than `least_saving`."""
        if not self.faster or self.saving < least_saving or self.after.tuning_ns is None:
            return None
        return max(0, math.ceil(self.after.tuning_ns / (self.before_ns - self.after_ns)))


def steady(run: RunFigures) -> Interval:
    """The interval of the step, of a run that is known to have one."""
    assert run.step_ns is not None
    return run.step_ns


def pairs(figures: Figures, configs: Sequence[tuple[str, str]]) -> list[Pair]:
    """The pairs (without, with) of all models, by the names of their configurations, where both have samples."""
    found = []
    for model in figures.models():
        noise = noise_of(figures, model)
        for without, with_it in configs:
            before, after = figures.run(model, without), figures.run(model, with_it)
            if before is not None and after is not None and before.step_ns and after.step_ns:
                found.append(Pair(before=before, after=after, noise=noise))
    return found


def noise_of(figures: Figures, model: str) -> float | None:
    """How far two fresh processes of the same configuration lay apart, as a share of the step; None if none ran twice."""
    gaps = []
    for again in figures.runs:
        if again.model != model or again.process != 1 or again.repeat_of is None or again.step_ns is None:
            continue
        first = figures.run(model, again.repeat_of)
        if first is not None and first.step_ns is not None:
            gaps.append(abs(again.step_ns.median / first.step_ns.median - 1))
    return max(gaps, default=None)
