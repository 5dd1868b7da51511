"""Whether the steps of two reports differ: the conditions for runs of one report (`statistics.noise`), and stricter ones.

Two reports are made at different times. No reverse pass cancels the clock drift between them, so a larger difference is
required. Their processes are not paired, so every interval of one side must be disjoint from all intervals of the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from profiler_kit.records.comparison import Verdict
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import Noise, mean_saved_share, noise_of, verdict
from profiler_kit.units import percent

# Of the step. Clocks of one device drift by this much between two recordings. A smaller gap between two processes may be luck.
MIN_REPORT_NOISE: Final = 0.02
# Of the step, assumed without repeats: processes on a shared machine differ by a few percent, and one process does not show it.
ASSUMED_PROCESS_NOISE: Final = 0.05


def noise_between(a: Report, b: Report, *sides: ConfigRun) -> Noise:
    """The noise of two reports: the larger gap of both, and a minimum.

    `sides`: the compared runs, as `side` returns them. The gaps of their own repeats count whatever their flags.
    """
    noises = noise_of(a), noise_of(b)
    noise = Noise(
        max((noise.gap for noise in noises if noise.gap is not None), default=None),
        repeated_configs=sum(noise.repeated_configs for noise in noises),
    )
    return replace(noise, minimum=ASSUMED_PROCESS_NOISE if noise.largest_gap(*sides) is None else MIN_REPORT_NOISE)


def side(report: Report, run: ConfigRun) -> ConfigRun:
    """`run` prepared for a comparison with another report: its second process (possibly a run of its own) becomes its repeat.

    The number of examples is dropped: the table shows whole steps, so the verdict compares whole steps.
    """
    second = noise_of(report).repeat_step(run)
    return replace(run, repeat=Repeat(step_ns=second) if second is not None else None, samples=None)


def within_noise_reason(noise: Noise, *sides: ConfigRun) -> str:
    """Why a difference of at most ``noise.limit`` is noise."""
    limit, gap = percent(noise.limit(*sides), 2), noise.largest_gap(*sides)
    if gap is None:
        return f"less than {limit} apart; without repeats, processes may differ by this much"
    return f"less than {limit} apart; two runs of the same configuration differ by {percent(gap, 2)}"


def step_verdict(a: Report, b: Report, a_run: ConfigRun, b_run: ConfigRun) -> tuple[Verdict, str]:
    """The verdict on the step of `b_run` compared with `a_run`: better, worse, or noise with its reason."""
    sides = before, after = side(a, a_run), side(b, b_run)
    noise = noise_between(a, b, *sides)
    outcome = verdict(before, after, noise)
    is_disjoint = not intervals_overlap(before, after, noise)
    if outcome != "same" and is_disjoint:
        return outcome, ""
    savings = mean_saved_share(before, after, noise), mean_saved_share(after, before, noise)
    if max(share or 0.0 for share in savings) <= noise.limit(*sides):
        return "noise", within_noise_reason(noise, *sides)
    return "noise", "the repeats do not confirm it" if is_disjoint else "the 95 % intervals overlap"


def intervals_overlap(a_run: ConfigRun, b_run: ConfigRun, noise: Noise) -> bool:
    """Whether any 95 % interval of one run's step reaches one of the other's, second processes included."""
    sides = [[step for step in (run.step_ns, noise.repeat_step(run)) if step is not None] for run in (a_run, b_run)]
    if not all(sides):
        return False
    faster, slower = sorted(sides, key=lambda intervals: intervals[0].median)
    return max(interval.high for interval in faster) >= min(interval.low for interval in slower)
