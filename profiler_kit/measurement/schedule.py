"""The parent's side of a run over changing shapes: a fresh process, whose steps are kept however it ends."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.configurations import shapes
from profiler_kit.measurement.launcher import child_environment
from profiler_kit.process.protocol import hears
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.laboratory import ShapeSchedule, ShapeStep
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.records.target import TargetSpec

# A large network searches its algorithms for a quarter of a minute per shape, and a generated schedule has 13 shapes.
LIMIT_S: Final = 1800.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleJob(Saved, kind="schedule_job"):
    """What the process is told. `steps`: the file that it adds a line to after each step; `result`: the one it ends with."""

    spec: TargetSpec
    config: RunConfig
    device: str
    text: str
    steps: str
    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending(Saved, kind="schedule_end"):
    """How the process's own part ended: what is to be said of the schedule, and why it broke off."""

    notes: tuple[str, ...] = ()
    failure: str | None = None


def run_schedule(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    text: str,
    timeout_s: float | None = None,
    say: Callable[[str], None] | None = None,
) -> ShapeSchedule:
    """The steps of the schedule that `text` names (see `shapes.schedule`), under `config`, in a process of its own.

    A shape that the model cannot take, a crash or a hang ends it: the steps up to there stay, and `failure` says why.
    `timeout_s` limits the process (default: half an hour). Raises KeyboardInterrupt, the process ended.
    """
    limit_s = timeout_s if timeout_s is not None else LIMIT_S
    with tempfile.TemporaryDirectory(prefix="profiler_kit_") as folder:
        steps, result, file = (Path(folder) / name for name in ("steps.jsonl", "result.json", "job.json"))
        job = ScheduleJob(
            spec=spec, config=config, device=device, text=text, steps=str(steps), result=str(result)
        )  # fmt: skip
        file.write_text(dumps(job), encoding="utf-8")

        outcome = process.run(
            [sys.executable, "-m", "profiler_kit.worker.schedule_run", str(file)],
            env=child_environment(),
            timeout_s=limit_s,
            log=Path(folder) / "log.txt",
            on_line=hears(say),
        )
        found = ShapeSchedule(
            config=config.name,
            source=shapes.source_of(text),
            steps=_steps(steps),
            benchmark=config.benchmark,
            device=device.partition(":")[0],
        )
        if not result.exists():
            return replace(found, failure=_failure(outcome, limit_s, len(found.steps)))
        ending = from_json(Ending, json.loads(result.read_text(encoding="utf-8")), "the worker's result")
        return replace(found, notes=ending.notes, failure=ending.failure)


def _steps(file: Path) -> tuple[ShapeStep, ...]:
    """The steps whose lines are whole: a process that was ended may have left half of one."""
    if not file.exists():
        return ()
    whole = file.read_text(encoding="utf-8").split("\n")[:-1]
    return tuple(from_json(ShapeStep, json.loads(line), f"the worker's step {i}") for i, line in enumerate(whole))


def _failure(outcome: process.Outcome, limit_s: float, done: int) -> str:
    after = f"after {done} {'step' if done == 1 else 'steps'}"
    if outcome.timed_out:
        return f"not done after {limit_s:g} s: the process was ended {after}; raise --timeout, or give fewer shapes"
    if outcome.signal_name == "SIGKILL":
        return f"killed (SIGKILL) {after}, which is what the system does when host memory runs out"
    last = next((line.strip() for line in reversed(outcome.log_tail.splitlines()) if line.strip()), "")
    how = outcome.signal_name or f"exit status {outcome.returncode}"
    return f"the process ended ({how}) {after}" + (f": {last}" if last else "")
