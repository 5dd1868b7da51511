"""Summaries of samples, and the outcome of comparing two of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from profiler_kit.units import percent

# A later time compared with an earlier one. same: no difference is established; unknown: nothing shows how far processes differ.
Outcome = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A figure of one side over that of another: the time of a step or of an example, or peak memory.

    - `ratio`: after over before; of times, from the geometric means of the processes' medians. `low`, `high`: its 95 % interval,
      both equal to `ratio` where it is unknown; for memory, the smallest and largest ratio of two processes.
    - `limit`: the smallest change that counts, as a share of the figure before; None where it is unknown, and in older files.
    - `smallest_visible`: the smallest true change that counts in 9 of 10 such comparisons; None where it is unknown. Of true
      changes as large as `limit`, half are missed.
    - `outcome`: better, worse, same (no difference is established) or unknown. `reason`: why it is not better or worse.
    - `before_processes`, `after_processes`: the numbers of fresh processes behind it.
    """

    ratio: float
    low: float
    high: float
    limit: float | None = None
    smallest_visible: float | None = None
    outcome: Outcome
    reason: str = ""
    before_processes: int = 1
    after_processes: int = 1

    @property
    def is_sure(self) -> bool:
        """Whether a difference is established."""
        return self.outcome in ("better", "worse")

    def sentence(self) -> str:
        """Why no difference is established, as a sentence; empty if one is."""
        return f"{self.reason[0].upper()}{self.reason[1:]}." if self.reason else ""

    @property
    def saved(self) -> float:
        """The share of the figure before that is saved; negative if it grows."""
        return 1.0 - self.ratio

    @property
    def saved_range(self) -> tuple[float, float]:
        """The 95 % interval of `saved`."""
        return 1.0 - self.high, 1.0 - self.low

    @property
    def saved_text(self) -> str:
        """The share that is saved, with its interval: ``34.9 % less (33.0 to 36.6 %)``."""
        is_less = self.ratio <= 1
        share = f"{percent(abs(self.saved))} {'less' if is_less else 'more'}"
        if self.low == self.high:
            return share
        ends = self.saved_range if is_less else (self.low - 1.0, self.high - 1.0)
        return f"{share} ({100 * ends[0]:.1f} to {100 * ends[1]:.1f} %)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A median and its 95 % bootstrap interval, in ns; of a prediction, its 80 % interval."""

    median: int
    low: int
    high: int
