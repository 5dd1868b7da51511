"""Samples to a median with its uncertainty, and the processes of two sides to a gain with its own."""

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

# Student's t at 97.5 % by degrees of freedom, from 1; from the last one on it stays, which errs towards a wider interval.
_STUDENT: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The share of the time that is saved, in percent, with its 95 % interval; negative where time is lost."""

    percent: float
    low: float
    high: float

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves out no gain at all."""
        return self.low > 0 or self.high < 0


def median_interval(samples_ns: Sequence[int]) -> Interval:
    """The median of `samples_ns` and its 95 % percentile-bootstrap interval; with one sample, that sample thrice.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13. The resampling is seeded, so that the same
    samples give the same report.
    """
    if not samples_ns:
        raise ValueError("no samples")
    draw = random.Random(0)
    ordered = sorted(samples_ns)
    low, high = _middle(sorted(_resampled_median(ordered, draw) for _ in range(RESAMPLES)))
    return Interval(median=round(statistics.median(samples_ns)), low=round(low), high=round(high))


def gain_of_processes(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]], factor: float = 1.0) -> Gain:
    """What `after` saves of the median step of `before`; each is a sequence of processes, a process its steps in ns.

    A side's step is the geometric mean of its processes' medians; `after` is multiplied by `factor`.

    The interval is the wider of two. Student's t over the processes' medians, in logarithms, the spread pooled over both
    sides: a process has an offset that no number of steps in it averages out, so processes are the samples. And a bootstrap of
    the steps within each process: two processes may agree by chance more closely than their steps allow. With two processes
    a side a bootstrap over processes would be far too narrow (half of their variance is lost in drawing two out of two).
    With one process a side nothing is known of offsets, and the interval is that of the steps alone.

    Raises ValueError where a side or a process has no steps.
    Source: Georges, Buytaert, Eeckhout, Statistically rigorous Java performance evaluation, OOPSLA 2007 (3.2: few runs);
    Kalibera, Jones, Rigorous benchmarking in reasonable time, ISMM 2013 (the highest level that varies is what is sampled).
    """
    if not before or not after or not all((*before, *after)):
        raise ValueError("no samples")
    off, on = ([math.log(statistics.median(steps)) for steps in side] for side in (before, after))
    shift = math.log(factor)
    change = statistics.fmean(on) - statistics.fmean(off) + shift
    low, high = _by_steps(before, after)
    half = _half_width_by_processes(off, on)
    low, high = min(low + shift, change - half), max(high + shift, change + half)
    return Gain(percent=_saved_percent(change), low=_saved_percent(high), high=_saved_percent(low))


def _saved_percent(change: float) -> float:
    return -100.0 * math.expm1(change)


def _half_width_by_processes(off: Sequence[float], on: Sequence[float]) -> float:
    freedom = len(off) + len(on) - 2
    if freedom == 0:
        return 0.0
    squares = sum((value - statistics.fmean(side)) ** 2 for side in (off, on) for value in side)
    error = math.sqrt(squares / freedom * (1 / len(off) + 1 / len(on)))
    return _STUDENT[min(freedom, len(_STUDENT)) - 1] * error


def _by_steps(before: Sequence[Sequence[int]], after: Sequence[Sequence[int]]) -> tuple[float, float]:
    """The bootstrap interval of the logarithm of after over before, steps drawn within each process."""
    draw = random.Random(0)
    sides = [[sorted(steps) for steps in side] for side in (before, after)]

    def resampled(side: Sequence[Sequence[int]]) -> float:
        return statistics.fmean(math.log(_resampled_median(ordered, draw)) for ordered in side)

    return _middle(sorted(resampled(sides[1]) - resampled(sides[0]) for _ in range(RESAMPLES)))


def _middle(ordered: Sequence[float]) -> tuple[float, float]:
    cut = round(len(ordered) * (1 - CONFIDENCE) / 2)
    return ordered[cut], ordered[len(ordered) - 1 - cut]


def _resampled_median(ordered: Sequence[int], draw: random.Random) -> float:
    """The median of as many draws, with replacement, from `ordered`: exactly so distributed, without drawing them all.

    The k-th smallest of n draws is the sample at the k-th smallest of n uniform numbers, and that one is Beta(k, n + 1 - k).
    Of an even number the median lies between two: below the upper one are k - 1 uniform numbers, of which the lower one is
    the largest.
    """
    count = len(ordered)
    rank = count // 2 + 1
    at = draw.betavariate(rank, count + 1 - rank)
    upper = ordered[min(count - 1, int(count * at))]  # 1.0 may come, if rarely
    if count % 2:
        return upper
    below = at * draw.random() ** (1 / (rank - 1))
    return (upper + ordered[min(count - 1, int(count * below))]) / 2
