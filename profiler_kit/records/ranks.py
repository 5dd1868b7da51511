"""Records of `inspect` for the ranks of one job: the time per step of each rank, and stragglers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankTime:
    """One rank, averaged over the steps that all ranks share. All times are ns per step.

    - `compute_ns`: busy time outside collectives, each instant counted once.
    - `communication_ns`: time in collectives. `exposed_ns`: the part of it that no computation overlaps.
    - `wait_ns`: the part of the collectives in which this rank waits for later ranks.
    - `idle_ns`: time in which the device runs nothing.
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
    """A rank that others wait for. All times are ns per step.

    - `last`: the number of collectives that it entered last, out of `collectives`.
    - `late_ns`: its delay relative to the median other rank, at the collective with the largest delay. Where it is late at
      several collectives and the waits it causes are longer, these waits.
    - `cost_ns`: the time that the median other rank spends in collectives waiting for it, with nothing else to run.
    - `doing`: the phase (with a module or operator) or the idle cause with the largest excess over the median other rank.
    - `doing_excess_ns`: that excess.
    - `idle_excess_ns`: the excess of its idle time over the median other rank, whatever the cause.
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
class StepCollective:
    """One collective of the step: a bucket of gradients, the parameters of a unit. Times are of the median rank, in ns per step.

    - `number`: its place among the collectives of the step. `group`: its process group. `bytes`: its message; None if unknown.
    - `start_ns`: from the start of the step. `duration_ns`: its duration. `exposed_ns`: the part that no computation overlaps.
    - `wait_ns`: the part in which the rank waits for later ranks.
    """

    number: int
    kind: str
    group: str
    bytes: int | None
    start_ns: int
    duration_ns: int
    exposed_ns: int
    wait_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """The ranks of one job. `imbalance`: the largest compute time of a rank divided by the mean, minus one.

    - `common_steps`: the number of steps that all ranks share. `step_ns`: their duration; None where unknown.
    - `collectives`: the collectives that ranks share in each of these steps.
    """

    ranks: tuple[RankTime, ...]
    common_steps: int
    step_ns: int | None
    imbalance: float
    stragglers: tuple[Straggler, ...] = ()
    notes: tuple[str, ...] = ()
    collectives: tuple[StepCollective, ...] = ()

    @property
    def slowest(self) -> RankTime:
        """The rank that the others wait for most; without waits, the one that computes longest."""
        late = max(self.stragglers, key=lambda straggler: straggler.cost_ns, default=None)
        if late is not None:
            return next(rank for rank in self.ranks if rank.rank == late.rank)
        return max(self.ranks, key=lambda rank: rank.compute_ns)
