"""What the process whose kernels are counted is told and tells: one configuration of one target, as JSON files."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersJob(Saved, kind="counters_job"):
    """One step to be counted: what, how, on which device, and where to say that it was run."""

    spec: TargetSpec
    config: RunConfig
    device: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersEnd(Saved, kind="counters_end"):
    """How it ended: `failure` None means that the whole step ran between the profiler's start and stop."""

    failure: str | None = None
