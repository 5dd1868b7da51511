"""The median of samples with its 95 % interval, and the gain between two sets of processes with its interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.samples import Interval

RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95

# Student's t at 97.5 % by degrees of freedom, from 1. The last value also serves more degrees: the interval is then too wide.
_STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The share of the time that is saved, in percent, with its 95 % interval; negative if time is lost."""

    percent: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def median_interval(samples_ns: Sequence[int]) -> Interval:
    """The median of `samples_ns` and its 95 % percentile-bootstrap interval. A single sample is its own interval.

    The resampling is seeded: the same samples give the same report.

    Raises:
        ValueError: there are no samples.
    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13.
    """
    if not samples_ns:
        raise ValueError("no samples")
    generator = random.Random(0)
    ordered = sorted(samples_ns)
    low, high = _percentile_interval(sorted(_resampled_median(ordered, generator) for _ in range(RESAMPLES)))
    return Interval(median=round(statistics.median(samples_ns)), low=round(low), high=round(high))


def process_gain(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], factor: float = 1.0) -> Gain:
    """The share of the median step of `before` that `after` saves. Each side is a sequence of processes with steps in ns.

    A side's step is the geometric mean of its processes' medians. `after` is multiplied by `factor`.

    The interval is the wider of two:

    - Student's t over the logarithms of the processes' medians, with the spread pooled over both sides. Each process has an
      offset that its steps cannot average out, so processes are the samples.
    - A bootstrap of the steps within each process, because two processes may agree by chance more closely than their steps
      allow.

    With two processes per side, a bootstrap over processes would be far too narrow: drawing two out of two loses half of
    their variance. With one process per side, offsets are unknown and only the steps give an interval.

    Raises:
        ValueError: a side or a process has no steps.
    Source: Georges, Buytaert, Eeckhout, Statistically rigorous Java performance evaluation, OOPSLA 2007 (3.2: few runs);
    Kalibera, Jones, Rigorous benchmarking in reasonable time, ISMM 2013 (sampling at the highest level that varies).
    """
    if not before or not after or not all((*before, *after)):
        raise ValueError("no samples")
    before_logs, after_logs = ([math.log(statistics.median(steps)) for steps in side] for side in (before, after))
    shift = math.log(factor)
    change = statistics.fmean(after_logs) - statistics.fmean(before_logs) + shift
    low, high = _bootstrap_interval(before, after)
    half_width = _student_half_width(before_logs, after_logs)
    low, high = min(low + shift, change - half_width), max(high + shift, change + half_width)
    return Gain(percent=_saved_percent(change), low=_saved_percent(high), high=_saved_percent(low))


def _saved_percent(log_change: float) -> float:
    return -100.0 * math.expm1(log_change)


def _student_half_width(before: Sequence[float], after: Sequence[float]) -> float:
    """Half the width of the Student interval of the difference of two means; 0 with one value per side."""
    freedom = len(before) + len(after) - 2
    if freedom == 0:
        return 0.0
    squares = math.fsum((value - statistics.fmean(side)) ** 2 for side in (before, after) for value in side)
    error = math.sqrt(squares / freedom * (1 / len(before) + 1 / len(after)))
    return _STUDENT[min(freedom, len(_STUDENT)) - 1] * error


def _bootstrap_interval(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> tuple[float, float]:
    """The bootstrap interval of the logarithm of after over before. Steps are resampled within each process."""
    generator = random.Random(0)
    sides = [[sorted(steps) for steps in side] for side in (before, after)]

    def resampled_mean(side: Sequence[Sequence[int]]) -> float:
        return statistics.fmean(math.log(_resampled_median(ordered, generator)) for ordered in side)

    return _percentile_interval(sorted(resampled_mean(sides[1]) - resampled_mean(sides[0]) for _ in range(RESAMPLES)))


def _percentile_interval(ordered: Sequence[float]) -> tuple[float, float]:
    cut = round(len(ordered) * (1 - CONFIDENCE) / 2)
    return ordered[cut], ordered[len(ordered) - 1 - cut]


def _resampled_median(ordered: Sequence[int], generator: random.Random) -> float:
    """The median of a bootstrap resample of `ordered`, drawn directly from its exact distribution.

    The k-th smallest of n draws is the sample at the k-th smallest of n uniform numbers, which is Beta(k, n + 1 - k). For an
    even n, the median lies between two samples: k - 1 uniform numbers lie below the upper one, and the lower one is the
    largest of them.
    """
    count = len(ordered)
    rank = count // 2 + 1
    upper_quantile = generator.betavariate(rank, count + 1 - rank)
    upper = ordered[min(count - 1, int(count * upper_quantile))]  # betavariate may return 1.0
    if count % 2:
        return upper
    lower_quantile = upper_quantile * generator.random() ** (1 / (rank - 1))
    return (upper + ordered[min(count - 1, int(count * lower_quantile))]) / 2
