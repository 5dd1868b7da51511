"""How much the steps of two reports must differ: what tells the runs of one report apart (`statistics.noise`), and more.

Two reports are made at different times. No reverse pass makes up for a clock that drifted between them, so that a gain has to be
larger, and their processes are no pairs, so that each interval of one side has to lie apart from all of the other's.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.records.comparison import Verdict
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import Noise, mean_saving, noise_of, verdict
from profiler_kit.units import percent

# What was measured at different times on one device is taken to differ by this much: clocks drift by as much from minute to
# minute, and two processes agree by luck now and then, so that a small gap between them proves little.
LEAST_NOISE: Final = 0.02
# Without a repeated run: steps of one process are no replicates, processes on a shared machine differ by a few percent.
ASSUMED_NOISE: Final = 0.05


def noise_between(a: Report, b: Report, *sides: ConfigRun) -> Noise:
    """The noise of two reports: the larger gap of both, and what is never claimed less of.

    `sides`: those that are compared, as `side` gives them; what they differ from themselves counts whatever their flags.
    """
    both = noise_of(a), noise_of(b)
    noise = Noise(max((one.gap for one in both if one.gap is not None), default=None), twice=sum(n.twice for n in both))
    return replace(noise, least=ASSUMED_NOISE if noise.largest_gap(*sides) is None else LEAST_NOISE)


def side(report: Report, run: ConfigRun) -> ConfigRun:
    """`run` as it is held against one of another report: with its second process, which may be a run of its own.

    Steps are compared as they are, whatever they hold: the row beside a verdict shows them so.
    """
    second = noise_of(report).second(run)
    return replace(run, repeat=Repeat(step_ns=second) if second is not None else None, samples=None)


def within(noise: Noise, *sides: ConfigRun) -> str:
    """Why a time that differs by no more than ``noise.limit`` is not said to differ."""
    limit, gap = percent(noise.limit(*sides), 2), noise.largest_gap(*sides)
    if gap is None:
        return f"less than {limit} apart, and no configuration was run twice, so processes may differ by as much"
    return f"less than {limit} apart; the same configuration, run twice, differed by {percent(gap, 2)}"


def step_verdict(a: Report, b: Report, one: ConfigRun, other: ConfigRun) -> tuple[Verdict, str]:
    """The step of `other`, a run of `b`, beside that of `one`, of `a`: better, worse, or noise and why."""
    sides = before, after = side(a, one), side(b, other)
    noise = noise_between(a, b, *sides)
    outcome = verdict(before, after, noise)
    apart = not overlap(before, after, noise)
    if outcome != "same" and apart:
        return outcome, ""
    savings = mean_saving(before, after, noise), mean_saving(after, before, noise)
    if max(saved or 0.0 for saved in savings) <= noise.limit(*sides):
        return "noise", within(noise, *sides)
    return "noise", "second processes do not show it again" if apart else "the 95 % intervals overlap"


def overlap(one: ConfigRun, other: ConfigRun, noise: Noise) -> bool:
    """Whether a 95 % interval of one run's step reaches one of the other's, second processes included."""
    sides = [[step for step in (run.step_ns, noise.second(run)) if step is not None] for run in (one, other)]
    if not all(sides):
        return False
    faster, slower = sorted(sides, key=lambda intervals: intervals[0].median)
    return max(interval.high for interval in faster) >= min(interval.low for interval in slower)
