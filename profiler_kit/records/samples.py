"""Summaries of samples, and the outcome of comparing two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# A later time compared with an earlier one. same: no difference is established; unknown: nothing shows how far processes differ.
Outcome = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and its 95 % bootstrap interval, in ns; of a prediction, its 80 % interval."""

    median: int
    low: int
    high: int
