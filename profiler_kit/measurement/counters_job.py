"""What the process whose kernels are counted is told and tells: one configuration of one target, as JSON files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersJob(Saved):
    """One step to be counted: what, how, on which device, and where to say that it was run."""

    kind: ClassVar[str] = "counters_job"

    spec: TargetSpec
    config: RunConfig
    device: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersEnd(Saved):
    """How it ended: `failure` None means that the whole step ran between the profiler's start and stop."""

    kind: ClassVar[str] = "counters_end"

    failure: str | None = None
