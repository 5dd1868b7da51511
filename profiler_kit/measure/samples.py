"""Samples to a median with its uncertainty, and how many steps a time budget buys."""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Final

from profiler_kit.records.samples import Interval

RESAMPLES: Final = 1000
CONFIDENCE: Final = 0.95
FEWEST_STEPS: Final = 3  # below three samples a median says no more than one of them
MOST_STEPS: Final = 100  # beyond this the interval narrows more slowly than the user waits
MOST_WARMUP_STEPS: Final = 20
STEADY_SPREAD: Final = 0.05  # three warm-up steps within 5 % of each other: caches, clocks and plans have settled


def median_interval(samples_ns: Sequence[int]) -> Interval:
    """The median of `samples_ns` and its 95 % percentile-bootstrap interval; with one sample, that sample thrice.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap, chapter 13. The resampling is seeded, so that the same
    samples give the same report.
    """
    if not samples_ns:
        raise ValueError("no samples")
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(samples_ns, k=len(samples_ns))) for _ in range(RESAMPLES))
    cut = round(RESAMPLES * (1 - CONFIDENCE) / 2)
    return Interval(
        median=round(statistics.median(samples_ns)), low=round(medians[cut]), high=round(medians[RESAMPLES - 1 - cut])
    )


def is_steady(warmup_ns: Sequence[int]) -> bool:
    """Whether the last three warm-up steps lie within 5 % of each other."""
    last = warmup_ns[-3:]
    return len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SPREAD)


def steps_within(budget_ns: int, step_ns: int) -> int:
    """How many timed steps of `step_ns` fit into `budget_ns`: at least three, at most a hundred."""
    return max(FEWEST_STEPS, min(MOST_STEPS, budget_ns // max(1, step_ns)))
