"""Whether one side takes longer than another, by how much, and the smallest change that would have been reported.

This is the only verdict on two measured times. Tables, findings, trials, comparisons and reviews all use it.

A side is a configuration in one or more fresh processes. Each process has an offset (memory addresses, clocks, the cores it
runs on) that more steps do not average out, so processes are the samples, and their logarithms are compared:

- The spread between processes of one configuration is pooled over all configurations of the report.
- Few processes estimate a spread badly. The estimate is moderated by what other steps showed, as if it had a few more degrees
  of freedom: `DEVICE_BOUND` for steps that kernels fill, and `HOST_BOUND` for others, whose processes differ by 1 % on one
  host and by 20 % on another. The second does not replace a repetition: without one, the outcome is unknown.
- A difference counts if it exceeds Student's t at `DEVICE_LEVEL` times its standard error, plus the drift of clocks. If kernels
  do not fill the step, the level is `HOST_LEVEL`, because the noise of hosts is not normal, and because a sweep looks again after
  each further process; from `MAX_PROCESSES` on, the last look, it is `DEVICE_LEVEL` (most of the false alarms are spent on the
  last look, as by O'Brien and Fleming). With fewer than `MIN_PROCESSES` processes on a side, all processes of one side must also
  be faster than all of the other.

**Source**: Georges, Buytaert, Eeckhout, Statistically rigorous Java performance evaluation, OOPSLA 2007 (few runs); Kalibera,
Jones, Rigorous benchmarking in reasonable time, ISMM 2013 (sample at the highest level that varies); Smyth, Linear models and
empirical Bayes methods, 2004 (moderated t); O'Brien, Fleming, A multiple testing procedure for clinical trials, 1979. Rates
of false and missed differences: ``python -m scripts.bench.decisions``.
"""

from __future__ import annotations

import bisect
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.samples import Difference, Interval, Outcome
from profiler_kit.units import percent

DEVICE_LEVEL: Final = 0.99
HOST_LEVEL: Final = 0.999
SHOWN_LEVEL: Final = 0.95
# Two-sided: a true change that exceeds the limit by this quantile is found in 9 of 10 comparisons.
VISIBLE_LEVEL: Final = 0.80
# Of the step. Clocks drift by 1 % during a sweep. An interleaved order cancels a steady drift, and part of any other.
DRIFT_ALLOWANCE: Final = 0.005
MIN_PROCESSES: Final = 4
# Of the step: by how much two equal sides of one process differ, because of where their tensors are.
PLACEMENT_ALLOWANCE: Final = 0.01
TRIMMED_SHARE: Final = 0.2  # of the pairs of turns, at each end
# Of a configuration whose comparison is open (`statistics.sequential`). The last look has the larger part of the false alarms.
MAX_PROCESSES: Final = 12
_FREEDOMS: Final = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 30, 60)
_STUDENT: Final[Mapping[float, tuple[float, ...]]] = {
    HOST_LEVEL: (
        636.62,
        31.599,
        12.924,
        8.610,
        6.869,
        5.959,
        5.408,
        5.041,
        4.781,
        4.587,
        4.318,
        4.073,
        3.850,
        3.646,
        3.460,
    ),
    SHOWN_LEVEL: (
        12.706,
        4.303,
        3.182,
        2.776,
        2.571,
        2.447,
        2.365,
        2.306,
        2.262,
        2.228,
        2.179,
        2.131,
        2.086,
        2.042,
        2.000,
    ),
    VISIBLE_LEVEL: (
        3.078,
        1.886,
        1.638,
        1.533,
        1.476,
        1.440,
        1.415,
        1.397,
        1.383,
        1.372,
        1.356,
        1.341,
        1.325,
        1.310,
        1.296,
    ),
    DEVICE_LEVEL: (
        63.657,
        9.925,
        5.841,
        4.604,
        4.032,
        3.707,
        3.499,
        3.355,
        3.250,
        3.169,
        3.055,
        2.947,
        2.845,
        2.750,
        2.660,
    ),
}
MAX_LOG_RATIO: Final = 700.0  # larger ones exceed a float
MIN_FACTOR: Final = 2.0
SIGMAS_OF_INTERVAL: Final = 2 * 1.96  # the width of a 95 % interval in standard errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The spread between processes of one configuration: the sum of squared deviations of their logarithms, and its freedom."""

    squares: float = 0.0
    freedom: int = 0

    def __add__(self, other: Spread) -> Spread:
        return Spread(squares=self.squares + other.squares, freedom=self.freedom + other.freedom)

    @property
    def deviation(self) -> float | None:
        """The standard deviation, as a share of the step; None without repeated processes."""
        return math.sqrt(self.squares / self.freedom) if self.freedom else None


# Recorded on H100 hosts: 0.7 % where kernels fill the step, 1 to 20 % elsewhere (scripts/bench/recorded_noise.json).
DEVICE_BOUND: Final = Spread(squares=6 * 0.007**2, freedom=6)
HOST_BOUND: Final = Spread(squares=0.03**2, freedom=1)


def spread_of(processes: Sequence[Interval]) -> Spread:
    """The spread of one configuration's `processes`."""
    logs = [math.log(step.median) for step in processes if step.median > 0]
    if len(logs) < 2:
        return Spread()
    mean = statistics.fmean(logs)
    return Spread(squares=math.fsum((value - mean) ** 2 for value in logs), freedom=len(logs) - 1)


def compare_times(
    before: Sequence[Interval],
    after: Sequence[Interval],
    pooled: Spread,
    moderation: Spread,
    *,
    factor: float = 1.0,
    drift: float = DRIFT_ALLOWANCE,
) -> Difference:
    """Compare two sides, each the median steps of its processes. `after` is multiplied by `factor`.

    `pooled`: the spread of all configurations of the report, those of both sides included. `moderation`: see above.

    Swapping the sides swaps the outcome.

    Raises:
        ValueError: a side has no process.
    """
    if not before or not after:
        raise ValueError("no samples")
    sides = before, after
    means = [statistics.fmean(math.log(max(1, step.median)) for step in side) for side in sides]
    change = means[1] - means[0] + math.log(factor)
    counts = len(before), len(after)
    ratio = _ratio(change)
    if pooled.freedom == 0 and moderation is not DEVICE_BOUND:
        reason = "one process a side: the noise between processes is unknown"
        return Difference(
            ratio=ratio, low=ratio, high=ratio, outcome="unknown", reason=reason,
            before_processes=len(before), after_processes=len(after),
        )  # fmt: skip
    pooled += moderation
    error = math.sqrt(math.fsum(_variance(side, pooled) / len(side) for side in sides))
    half = student(SHOWN_LEVEL, pooled.freedom) * error
    is_last_look = min(counts) >= MAX_PROCESSES
    level = HOST_LEVEL if moderation is HOST_BOUND and not is_last_look else DEVICE_LEVEL
    limit = student(level, pooled.freedom) * error + drift
    outcome: Outcome = "same"
    reason = ""
    if abs(change) <= limit:
        reason = f"changes {_size(_ratio(limit))} are noise here"
    elif min(counts) < MIN_PROCESSES and not _is_separate(before, after, factor):
        reason = "the processes of the two sides overlap"
    else:
        outcome = "better" if change < 0 else "worse"
    return Difference(
        ratio=ratio,
        low=_ratio(change - half),
        high=_ratio(change + half),
        limit=_ratio(limit) - 1.0,
        smallest_visible=_ratio(limit + student(VISIBLE_LEVEL, pooled.freedom) * error) - 1.0,
        outcome=outcome,
        reason=reason,
        before_processes=len(before),
        after_processes=len(after),
    )


def compare_turns(before_ns: Sequence[int], after_ns: Sequence[int], *, factor: float = 1.0) -> Difference:
    """Compare two sides of one process that took turns, from the median step of each turn. `after_ns` is multiplied by `factor`.

    Both sides of a pair of turns see the same moment, so the pairs are the samples. Their mean leaves out a fifth at both ends,
    which other work has hit.

    Raises:
        ValueError: there are fewer than two pairs.
    Source: Yuen, The two-sample trimmed t for unequal population variances, 1974 (the standard error of a trimmed mean).
    """
    if min(len(before_ns), len(after_ns)) < 2:
        raise ValueError("no pairs of turns")
    pairs = sorted(math.log(max(1, new) * factor / max(1, old)) for old, new in zip(before_ns, after_ns, strict=True))
    cut = int(len(pairs) * TRIMMED_SHARE)
    middle = pairs[cut : len(pairs) - cut]
    change = statistics.fmean(middle)
    winsorized = statistics.stdev([middle[0]] * cut + middle + [middle[-1]] * cut)
    error = winsorized * math.sqrt(len(pairs)) / len(middle)
    freedom = len(middle) - 1
    half = student(SHOWN_LEVEL, freedom) * error + PLACEMENT_ALLOWANCE
    limit = student(HOST_LEVEL, freedom) * error + PLACEMENT_ALLOWANCE
    is_sure = abs(change) > limit
    return Difference(
        ratio=_ratio(change),
        low=_ratio(change - half),
        high=_ratio(change + half),
        limit=_ratio(limit) - 1.0,
        smallest_visible=_ratio(limit + student(VISIBLE_LEVEL, freedom) * error) - 1.0,
        outcome=("better" if change < 0 else "worse") if is_sure else "same",
        reason="" if is_sure else f"changes {_size(_ratio(limit))} are noise here",
    )


def mean_step(processes: Sequence[Interval], pooled: Spread, moderation: Spread) -> Interval:
    """The geometric mean of `processes`, with its 95 % interval. `pooled` and `moderation` as in `compare_times`.

    Raises:
        ValueError: there is no process.
    """
    if not processes:
        raise ValueError("no samples")
    mean = statistics.fmean(math.log(max(1, step.median)) for step in processes)
    pooled += moderation
    half = student(SHOWN_LEVEL, pooled.freedom) * math.sqrt(_variance(processes, pooled) / len(processes))
    median, low, high = (round(_ratio(value)) for value in (mean, mean - half, mean + half))
    return Interval(median=median, low=low, high=high)


def _size(ratio: float) -> str:
    """The size of a change up to `ratio`, as a percentage, or as a factor if it is large: a saving of 100 % is impossible."""
    return f"below {percent(ratio - 1.0, 2)}" if ratio < MIN_FACTOR else f"by less than a factor of {ratio:.2g}"


def _ratio(log_change: float) -> float:
    return math.exp(min(log_change, MAX_LOG_RATIO))


def _variance(side: Sequence[Interval], pooled: Spread) -> float:
    """The variance of a process of `side`: the pooled one, or that of the side itself or of its steps if larger.

    With cudnn.benchmark, a process may pick other algorithms than the next one, which no other configuration shows.
    """
    own = spread_of(side)
    steps = statistics.fmean(
        ((step.high - step.low) / (SIGMAS_OF_INTERVAL * max(1, step.median))) ** 2 for step in side
    )
    return max(pooled.squares / pooled.freedom, own.squares / own.freedom if own.freedom else 0.0, steps)


def _is_separate(before: Sequence[Interval], after: Sequence[Interval], factor: float) -> bool:
    """Whether all processes of one side are faster than all of the other."""
    old = [step.median for step in before]
    new = [step.median * factor for step in after]
    return max(new) < min(old) or max(old) < min(new)


def student(level: float, freedom: int) -> float:
    """The two-sided quantile of Student's t at `level`, for the largest tabulated degrees of freedom up to `freedom`."""
    index = bisect.bisect_right(_FREEDOMS, freedom) - 1
    return _STUDENT[level][index]
