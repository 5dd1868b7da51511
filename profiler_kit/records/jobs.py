"""What a worker process is told, and what it answers where that is no record of a report. Both go as JSON files."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetJob(Saved):
    """What every job on a target says: the target, the configuration it runs under and the device."""

    spec: TargetSpec
    config: RunConfig
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob(TargetJob, kind="run_job"):
    """One run: for how long, and where its traces go. Its answer is a `ConfigRun`.

    `budget_s` is the time for steps (start-up and the model's import excluded); `steps` fixes the number of timed steps
    instead. `checks` asks for the memory probe, the repeated pass and the float64 comparison after the steps. `parts_trace`
    is where the trace of convolutions' parts goes. `again`: the second process of a configuration, which times steps and
    takes digests, and nothing more. `waits`: it loads the target, and waits for `GO` on stdin before it touches the device.
    """

    budget_s: float
    trace: str | None = None
    parts_trace: str | None = None
    steps: int | None = None
    checks: bool = True
    again: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleJob(TargetJob, kind="schedule_job"):
    """A run over the shapes that `text` names. `steps`: the file to which a line is added after each step."""

    text: str
    steps: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEnd(Saved, kind="schedule_end"):
    """How a run over changing shapes ended: notes on the schedule, and why it broke off (None: it did not)."""

    notes: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersJob(TargetJob, kind="counters_job"):
    """One step, to be run under a profiler of hardware counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CountersEnd(Saved, kind="counters_end"):
    """How the counted step ended: `failure` None means that all of it ran between the profiler's start and stop."""

    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingsJob(Saved, kind="ceilings_job"):
    """The device whose ceilings are measured, and the time for it. Its answer are `Ceilings`."""

    device: str
    budget_s: float
