"""The median, a lower quantile or the trimmed mean of samples, with its 95 % interval."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from typing import Final

from profiler_kit.records.samples import Interval

RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95
# Of the timed steps of a process whose step waits for the host. Other work lengthens steps and never shortens them.
HOST_QUANTILE: Final = 0.10
LONGEST_SHARE: Final = 0.10  # of the samples: left out of a trimmed mean
_SIGMAS: Final = 1.96  # of the interval


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


def quantile_interval(samples_ns: Sequence[int], quantile: float) -> Interval:
    """The lower `quantile` of `samples_ns` (0 to 0.5), with its 95 % interval from order statistics, in `median`, `low`, `high`.

    Raises:
        ValueError: there are no samples.
    Source: David and Nagaraja, Order Statistics, section 7.1 (the number of samples below a quantile is binomial).
    """
    if not samples_ns:
        raise ValueError("no samples")
    ordered = sorted(samples_ns)
    last = len(ordered) - 1
    if quantile == 0.5:
        middle = statistics.median(ordered)
    else:
        place = quantile * last
        below = math.floor(place)
        middle = ordered[below] + (place - below) * (ordered[min(last, below + 1)] - ordered[below])
    half = _SIGMAS * math.sqrt(len(ordered) * quantile * (1 - quantile))
    low, high = (math.floor(quantile * last - half), math.ceil(quantile * last + half))
    return Interval(median=round(middle), low=ordered[max(0, low)], high=ordered[min(last, high)])


def trimmed_mean_interval(samples_ns: Sequence[int]) -> Interval:
    """The mean of `samples_ns` without the longest tenth, with its 95 % interval, in `median`, `low`, `high`.

    The interval is that of independent samples; steps of one moment are not, so it is rather too narrow.

    Raises:
        ValueError: there are no samples.
    Source: Tukey and McLaughlin, Less vulnerable confidence and significance procedures for location, 1963 (the standard error
    of a trimmed mean from the winsorized samples).
    """
    if not samples_ns:
        raise ValueError("no samples")
    ordered = sorted(samples_ns)
    cut = int(len(ordered) * LONGEST_SHARE)
    shorter = ordered[: len(ordered) - cut]
    mean = statistics.fmean(shorter)
    winsorized = statistics.stdev([*shorter, *[shorter[-1]] * cut]) if len(ordered) > 1 else 0.0
    half = _SIGMAS * winsorized * math.sqrt(len(ordered)) / len(shorter)
    return Interval(median=round(mean), low=round(mean - half), high=round(mean + half))


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
