"""When a difference between two runs is one: intervals apart, and more than the same configuration differs from itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.diagnose.words import percent
from profiler_kit.records.report import Report, Trial
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval

Verdict = Literal["better", "worse", "same"]

# A change of the step below this is not worth a flag, however surely it was measured: it is less than the clock of a
# device drifts while it warms up.
WORTH: Final = 0.02


@dataclass(frozen=True, slots=True)
class Noise:
    """The A/A gap: how far two fresh processes of one configuration lay apart, as a share of the step.

    `gap` is None where no configuration ran twice; then only the intervals can speak.
    """

    gap: float | None

    def sentence(self) -> str:
        """What the noise was, in words."""
        if self.gap is None:
            return "No configuration was run twice (no A/A run), so the noise between processes is not known."
        return f"The same configuration, run twice, differed by {percent(self.gap)}."


def noise_of(report: Report) -> Noise:
    """The largest A/A gap in `report`: over every run that repeats another."""
    gaps = []
    for again in report.runs:
        if again.config.repeat_of is None or again.step_ns is None or again.failure is not None:
            continue
        first = report.run(again.config.repeat_of)
        if first is not None and first.failure is None and first.step_ns is not None and first.step_ns.median > 0:
            gaps.append(abs(again.step_ns.median - first.step_ns.median) / first.step_ns.median)
    return Noise(max(gaps) if gaps else None)


def saving(before: Interval, after: Interval) -> float:
    """The share of `before` that `after` saves; negative where it is slower, 0 where there is nothing to save from."""
    return (before.median - after.median) / before.median if before.median > 0 else 0.0


def faster(after: Interval, before: Interval, noise: Noise) -> bool:
    """Whether `after` is surely faster: its 95 % interval lies below, and it gains more than the A/A gap."""
    return after.high < before.low and saving(before, after) > (noise.gap or 0.0)


def verdict(before: Interval, after: Interval, noise: Noise) -> Verdict:
    """`after` beside `before`: better, worse, or the same as far as can be told.

    A loss is measured against the same base as a gain would be, the slower one, so that swapping the two swaps the verdict.
    """
    if faster(after, before, noise):
        return "better"
    if faster(before, after, noise):
        return "worse"
    return "same"


def trial(before: ConfigRun, after: ConfigRun | None, noise: Noise) -> Trial | None:
    """The advice tried out, where `after` was run and both have a step time; None otherwise."""
    if after is None or after.failure is not None or before.step_ns is None or after.step_ns is None:
        return None
    return Trial(
        config=after.config.name,
        before_ns=before.step_ns,
        after_ns=after.step_ns,
        verdict=verdict(before.step_ns, after.step_ns, noise),
        note=f'Beside "{before.config.name}". {noise.sentence()}',
    )
