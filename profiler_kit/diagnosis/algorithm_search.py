"""The cost of the algorithm search of ``cudnn.benchmark``, and the time of a planned number of steps with and without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import ConfigRun

# A search that takes more than this share of the planned run is reported, even if the run is faster with it.
LARGE_SEARCH_SHARE: Final = 0.10


def start_up_ns(run: ConfigRun) -> int | None:
    """Return how much longer the first step takes than a median step; None if either is unknown."""
    return run.first_step_ns - run.step_ns.median if run.first_step_ns is not None and run.step_ns is not None else None


def tuning_ns(off: ConfigRun, on: ConfigRun) -> int | None:
    """Return the time of the algorithm search of `on`: its start-up minus that of `off`, at least 0; None if unknown."""
    if on.tuning_ns is not None:
        return max(0, on.tuning_ns)
    on_ns, off_ns = start_up_ns(on), start_up_ns(off)
    return max(0, on_ns - off_ns) if on_ns is not None and off_ns is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTime:
    """A planned number of steps of one input shape: their time without the search, and with it including the search."""

    steps: int
    off_ns: int
    on_ns: int
    tuning_ns: int

    @property
    def breaks_even(self) -> bool:
        """Whether the planned steps take less time with the search, that is, reach break-even."""
        return self.on_ns < self.off_ns

    @property
    def share(self) -> float:
        """The share of the search in the time with it."""
        return self.tuning_ns / self.on_ns if self.on_ns > 0 else 0.0


def planned_time(off: ConfigRun, on: ConfigRun, steps: int | None) -> PlannedTime | None:
    """Return the time of `steps` steps with the flags of `off` and `on`; None without `steps`, or if a time is unknown."""
    cost_ns = tuning_ns(off, on)
    if not steps or steps < 1 or cost_ns is None or off.step_ns is None or on.step_ns is None:
        return None
    start_ns = max(0, start_up_ns(off) or 0)
    return PlannedTime(
        steps=steps,
        off_ns=start_ns + steps * off.step_ns.median,
        on_ns=start_ns + cost_ns + steps * on.step_ns.median,
        tuning_ns=cost_ns,
    )
