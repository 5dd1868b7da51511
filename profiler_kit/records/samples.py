"""Samples, summed up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and its 95 % bootstrap interval, in ns."""

    median: int
    low: int
    high: int
