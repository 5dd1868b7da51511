"""Many models x batch sizes x configurations: the tasks, and one result for each."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Literal

from profiler_kit.records.report import Tool
from profiler_kit.records.samples import Interval, Outcome
from profiler_kit.records.saved import Saved
from profiler_kit.records.views import Views

SweepVerb = Literal["analyze", "count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepTask:
    """One model with one batch size, which one process analyzes or counts.

    - `model`: the TARGET text. `argv`: the options of the command `verb`, without the device.
    - `batch`: the requested batch size; None for the model's own inputs.
    - `device`: the kind of device to measure on, ``cpu`` or ``cuda``; empty for counts.
    """

    model: str
    verb: SweepVerb
    argv: tuple[str, ...] = ()
    batch: int | None = None
    device: str = ""

    @property
    def key(self) -> str:
        """Equal for tasks that give the same result."""
        return shlex.join((self.verb, self.model, *self.argv, *((f"--device={self.device}",) if self.device else ())))


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRun:
    """One configuration of a task.

    - `step_ns`: the median step. `processes`: the number of fresh processes behind it.
    - `ratio`: the step over that of the task's first configuration, `outcome` whether the difference is established; None for the
      first one, and where it is unknown.
    - `peak_bytes`: peak memory allocated on the device; None on a CPU.
    """

    config: str
    failure: str = ""
    step_ns: Interval | None = None
    processes: int = 0
    ratio: float | None = None
    outcome: Outcome | None = None
    examples_per_s: float | None = None
    flops_per_s: float | None = None
    peak_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepResult(Saved, kind="sweep_result"):
    """The result of a task: its counts, its runs, or why it failed.

    - `finished`: when, in UTC. `wall_ns`: the duration. `place`: where it ran, such as ``cuda:1`` or a node of a cluster.
    - `attempts`: how often it was started; more than once if its worker was lost.
    - `failure`, `hint`: the reason of an incomplete result, and advice; empty after a success.
    - `inputs`: the model's inputs, such as ``8x3x64x64 float32``. `inputs_are_guessed`: their shapes were found by trying.
      `examples`: their number in one step.
    - `macs`, `forward_flops`: of the forward pass. `flops`: of the step. `saved_bytes`: saved for backward.
    - `predicted_bytes`: the peak memory of tensors. `uncounted`: calls of ops without a formula.
    - `kernel_ns`, `step_ns`: the predicted kernel time and time of a step on the device of `--gpu`; None without.
    - `report`: the file of the whole report, relative to the sweep's folder; empty without one.
    """

    task: SweepTask
    finished: str
    wall_ns: int
    place: str = ""
    attempts: int = 1
    failure: str = ""
    hint: str = ""
    name: str = ""
    device_name: str = ""
    inputs: str = ""
    examples: int | None = None
    inputs_are_guessed: bool = False
    params: int | None = None
    macs: int | None = None
    forward_flops: int | None = None
    flops: int | None = None
    saved_bytes: int | None = None
    predicted_bytes: int | None = None
    uncounted: int = 0
    kernel_ns: int | None = None
    step_ns: int | None = None
    runs: tuple[SweepRun, ...] = ()
    report: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep(Views, Saved, kind="sweep"):
    """The results of a sweep, in the order of its tasks. `planned`: the number of tasks; more than `results` after Ctrl-C.

    `notes`: remarks about the sweep as a whole.
    """

    tool: Tool
    created: str
    planned: int
    results: tuple[SweepResult, ...]
    notes: tuple[str, ...] = ()
