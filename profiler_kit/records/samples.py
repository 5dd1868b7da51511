"""Samples summed up, and what came of comparing two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Outcome = Literal["better", "worse", "same"]  # a later time beside an earlier one; same: as far as can be told


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and its 95 % bootstrap interval, in ns."""

    median: int
    low: int
    high: int
