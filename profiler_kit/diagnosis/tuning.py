"""What a search for algorithms costs, and what a run of so many steps takes with it and without."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import ConfigRun

# A search that takes more of a run than this is a cost of its own, whatever the steps gain.
TUNING_SHARE: Final = 0.10


def start_up_ns(run: ConfigRun) -> int | None:
    """What the first step takes beyond a steady one; None where either is not known."""
    return run.first_step_ns - run.step_ns.median if run.first_step_ns is not None and run.step_ns is not None else None


def tuning_ns(off: ConfigRun, on: ConfigRun) -> int | None:
    """What the search of `on` costs: its start-up less that of `off`, which searches nothing; never below 0."""
    with_it, without = start_up_ns(on), start_up_ns(off)
    if on.tuning_ns is not None:
        return max(0, on.tuning_ns)
    return max(0, with_it - without) if with_it is not None and without is not None else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """So many steps of one input shape: their time without the search and with it, the search included, in ns."""

    steps: int
    off_ns: int
    on_ns: int
    tuning_ns: int

    @property
    def pays(self) -> bool:
        """Whether the search is paid back within the steps."""
        return self.on_ns < self.off_ns

    @property
    def share(self) -> float:
        """The tuning's share of the time with it."""
        return self.tuning_ns / self.on_ns if self.on_ns > 0 else 0.0


def planned(off: ConfigRun, on: ConfigRun, steps: int | None) -> Planned | None:
    """The time of `steps` steps under both; None where no number is planned, or a time is not known."""
    cost_ns = tuning_ns(off, on)
    if not steps or steps < 1 or cost_ns is None or off.step_ns is None or on.step_ns is None:
        return None
    start_ns = max(0, start_up_ns(off) or 0)
    return Planned(
        steps=steps,
        off_ns=start_ns + steps * off.step_ns.median,
        on_ns=start_ns + cost_ns + steps * on.step_ns.median,
        tuning_ns=cost_ns,
    )
