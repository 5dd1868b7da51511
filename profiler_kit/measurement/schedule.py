"""The parent's side of a run over changing shapes: a fresh process, whose steps are kept however it ends."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.configurations import shapes
from profiler_kit.measurement.worker_process import run_worker, worker_folder
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob
from profiler_kit.records.laboratory import ShapeSchedule, ShapeStep
from profiler_kit.records.serde import from_json
from profiler_kit.records.target import TargetSpec

# A large network searches its algorithms for a quarter of a minute per shape, and a generated schedule has 13 shapes.
LIMIT_S: Final = 1800.0


def run_schedule(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    text: str,
    timeout_s: float | None = None,
    on_progress: OnProgress = silent,
) -> ShapeSchedule:
    """The steps of the schedule that `text` names (see `shapes.schedule`), under `config`, in a process of its own.

    A shape that the model cannot take, a crash or a hang ends it: the steps up to there stay, and `failure` says why.
    `timeout_s` limits the process (default: half an hour). Raises KeyboardInterrupt, the process ended.
    """
    limit_s = timeout_s if timeout_s is not None else LIMIT_S
    with worker_folder() as folder:
        steps = folder / "steps.jsonl"
        job = ScheduleJob(spec=spec, config=config, device=device, text=text, steps=str(steps))
        end, outcome = run_worker(
            "schedule_run", job, folder, ScheduleEnd, timeout_s=limit_s, on_progress=on_progress
        )  # fmt: skip
        schedule = ShapeSchedule(
            config=config.name,
            source=shapes.source_of(text),
            steps=_steps(steps),
            benchmark=config.benchmark,
            device=device.partition(":")[0],
        )
    if end is None:
        return replace(schedule, failure=_failure(outcome, limit_s, len(schedule.steps)))
    return replace(schedule, notes=end.notes, failure=end.failure)


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
    last = f": {outcome.last_words}" if outcome.last_words else ""
    return f"the process ended ({outcome.ending}) {after}{last}"
