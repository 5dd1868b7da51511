"""Jobs for worker processes, and answers that are not part of a report. Both are JSON files."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.configs import RunConfig
from profiler_kit.records.parallel import Member
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.saved import Saved
from profiler_kit.records.target import TargetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetJob(Saved):
    """The fields of every job on a target: the target, the configuration and the device."""

    spec: TargetSpec
    config: RunConfig
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How a process divides its timed steps into turns.

    - `round_ns`: when its round of processes was composed (Unix time), which identifies the round.
    - `count`: the number of turns. `turn_ns`: the time of each. `fewest`, `most`: the number of its steps, whatever the time.
    - `untimed`: the number of steps at its start that are not timed.
    """

    round_ns: int
    count: int
    turn_ns: int
    fewest: int
    most: int
    untimed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RunJob(TargetJob, kind="run_job"):
    """One measured run. The answer is a `ConfigRun`.

    - `budget_s`: the time for steps, without start-up and import of the model. `steps`: a fixed number of timed steps instead.
    - `trace`, `parts_trace`: the files for the trace and for the trace of the convolutions' parts; None writes neither.
    - `checks`: also run the memory probe, the reproducibility check and the comparison with float64.
    - `again`: a second process of a configuration, which only times steps, and hashes results if `hashes`.
    - `building_threads`: the largest number of threads of PyTorch while the target is loaded; None does not limit it.
    - `waits`: load the target, then wait for `START_LINE` on stdin before using the device.
    - `turns`: time the steps in turns, each of which starts like the run, with a line on stdin; None times one series of steps.
    - `member`: the rank that this process is; None for a run in one process.
    """

    budget_s: float
    trace: str | None = None
    parts_trace: str | None = None
    steps: int | None = None
    checks: bool = True
    again: bool = False
    hashes: bool = True
    building_threads: int | None = None
    waits: bool = False
    turns: Turns | None = None
    member: Member | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenJob(TargetJob, kind="screen_job"):
    """A process that compares configurations of a target, each request a line on stdin. It appends a line to the file `answers`
    after each one.
    """

    answers: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenRequest(Saved, kind="screen_request"):
    """A configuration to compare with `base`; without `base`, only its results are checked.

    - `budget_s`: the time for the steps of both. `checks`: check the results of `config` if it is better.
    """

    base: RunConfig | None
    config: RunConfig
    budget_s: float
    checks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Screened(Saved, kind="screened"):
    """The answer to a `ScreenRequest`: the median steps of both sides in each of their turns, and the run of the configuration.

    - `before_samples`: the examples in a step of `base`. `is_over`: the process ends, because a failure has broken the device.
    """

    run: ConfigRun
    before_ns: tuple[int, ...] = ()
    after_ns: tuple[int, ...] = ()
    before_samples: int | None = None
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenEnd(Saved, kind="screen_end"):
    """The end of a screen: nothing is requested any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleJob(TargetJob, kind="schedule_job"):
    """A run over the shapes that `text` describes. The worker appends a line to the file `steps` after each step."""

    text: str
    steps: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEnd(Saved, kind="schedule_end"):
    """The end of a run over changing shapes: notes on the schedule, and why it stopped early (None: it completed)."""

    notes: tuple[str, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CeilingsJob(Saved, kind="ceilings_job"):
    """A device to measure peaks of, and the time for it. The answer is a `Ceilings`."""

    device: str
    budget_s: float
