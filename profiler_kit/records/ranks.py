"""What `inspect` says of the ranks of one job beside each other: how each spends its steps, and who waits for whom."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One rank in the steps that all ranks share, per step: `compute_ns` is work that is no collective (union), `exposed_ns`
    communication that no computation covers, `wait_ns` of the collectives' time what this rank waited for later ranks.
    """

    rank: int
    file: str
    steps: int
    step_ns: int
    compute_ns: int
    communication_ns: int
    exposed_ns: int
    wait_ns: int
    idle_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Straggler:
    """A rank that others wait for: in how many of the collectives it came last, and what it did meanwhile.

    Per step: `late_ns` is how much later than the median other rank it comes to the collective that it comes to latest (or the
    waits it causes, where it is late at several places so that these are more); `cost_ns` is what the median other rank stands
    in collectives for it with nothing else to do; `doing` the phase (with a module or operator), or the idle cause, that it
    spent most on beyond the median other rank, and how much more (`doing_excess_ns`); `idle_excess_ns` how much longer its
    device was idle, whatever for.
    """

    rank: int
    last: int
    collectives: int
    late_ns: int
    cost_ns: int
    doing: str
    doing_excess_ns: int
    idle_excess_ns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """Ranks beside each other. `imbalance`: the largest rank's compute time over the mean's, minus one."""

    ranks: tuple[RankTime, ...]
    common_steps: int
    step_ns: int | None
    imbalance: float
    stragglers: tuple[Straggler, ...] = ()
    notes: tuple[str, ...] = ()
