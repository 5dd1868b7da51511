"""How a model is trained on several devices, and what each rank of such a job measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.records.samples import Interval

Strategy = Literal["ddp", "fsdp2", "tp"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("ddp", "fsdp2")
DEFAULT_BUCKET_MIB: Final = 25  # of DistributedDataParallel, for its gradients


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPlan:
    """A way to train on several devices, and the number of ranks.

    `strategy`: ``ddp`` (DistributedDataParallel) or ``fsdp2`` (``fully_shard``). Only older reports have ``tp``, tensor
    parallelism.
    """

    strategy: Strategy
    ranks: int

    @property
    def text(self) -> str:
        """The plan in a few words: ``2 ranks with ddp``."""
        return f"{self.ranks} rank{'' if self.ranks == 1 else 's'} with {self.strategy}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRun:
    """One rank of a run on several: its median step, and its peak memory as in `ConfigRun`.

    `host`: the name of its machine. `trace`: the file of its trace; None without one.
    """

    rank: int
    host: str
    device_name: str
    step_ns: Interval | None
    peak_allocated_bytes: int | None = None
    peak_reserved_bytes: int | None = None
    peak_rss_bytes: int | None = None
    trace: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """The place of one process in a job that measures one run: where the ranks meet, and the name of this meeting."""

    plan: ParallelPlan
    rank: int
    address: str
    port: int
    meeting: str
