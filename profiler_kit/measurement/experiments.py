"""Optional experiments of `analyze`: a memory limit, changing shapes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit import process, units
from profiler_kit.configurations import shapes
from profiler_kit.configurations.naming import with_name
from profiler_kit.measurement.plan import with_memory_limit
from profiler_kit.measurement.session import Session, measure_more
from profiler_kit.measurement.worker_process import run_worker
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.experiments import ExperimentOptions, ShapeSchedule, ShapeStep
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob
from profiler_kit.records.progress import ProcessStart
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import from_json
from profiler_kit.records.target import TargetInfo, TargetSpec
from profiler_kit.temporary_files import temporary_folder

# A large network needs about 15 s of algorithm search per shape, and a generated schedule has 13 shapes.
LIMIT_S: Final = 1800.0


def measure_with_memory_limit(session: Session, limit_bytes: int | None, folder: Path) -> None:
    """Run every configuration that exceeds the memory limit again under the limit. A note lists those that fit without it."""
    if limit_bytes is None or session.interrupted:
        return
    limit = units.text(limit_bytes, "bytes")
    sizes = [
        (run.config, size)
        for run in session.runs
        if (size := _peak_bytes(run)) is not None and not run.config.repeat_of
    ]
    if not session.device.startswith("cuda"):
        session.notes.append(f"No runs with a memory limit of {limit}: only CUDA devices support a limit.")
        return
    if not sizes:
        session.notes.append(
            f"No runs with a memory limit of {limit}: no configuration was measured without the limit."
        )
        return
    fitting = [config.name for config, size in sizes if size <= limit_bytes]
    if fitting:
        session.notes.append(
            f"Not repeated with a memory limit of {limit}, because they need less: {', '.join(fitting)}."
        )
    exceeding = [with_memory_limit(config, limit_bytes) for config, size in sizes if size > limit_bytes]
    if exceeding:
        measure_more(session, exceeding, folder)


def check_shapes(experiments: ExperimentOptions, info: TargetInfo) -> None:
    """Raise UsageError if the schedule of shapes is invalid for the target. Called before anything is measured."""
    if experiments.shapes is not None and info.inputs:
        shapes.parse_schedule(experiments.shapes, info.inputs)


def run_schedules(session: Session, text: str | None) -> tuple[ShapeSchedule, ...]:
    """Run the schedule `text` under the baseline, and under the baseline with benchmark. Empty if `text` is None."""
    if text is None or session.interrupted:
        return ()
    base = next((run.config for run in session.runs if run.failure is None and run.config.repeat_of is None), None)
    if base is None:
        return ()
    configs = [base]
    if base.benchmark is False and base.enabled:
        configs.append(with_name(replace(base, benchmark=True)))
    schedules: list[ShapeSchedule] = []
    try:
        for number, config in enumerate(configs, 1):
            name = f"changing shapes, {config.name}"
            session.on_process(ProcessStart(number=number, count=len(configs), name=name))
            schedules.append(
                run_schedule(
                    session.spec,
                    config,
                    device=session.device,
                    text=text,
                    timeout_s=session.timeout_s,
                    on_progress=_with_label(session, name),
                )
            )
    except KeyboardInterrupt:
        session.interrupted = True
        session.notes.append(f'Interrupted during changing shapes, under "{configs[len(schedules)].name}".')
    session.on_process(None)
    return tuple(schedules)


def run_schedule(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    text: str,
    timeout_s: float | None = None,
    on_progress: OnProgress = ignore_progress,
) -> ShapeSchedule:
    """Run the schedule in `text` (see `shapes.parse_schedule`) under `config` in a separate process.

    If the model rejects a shape, crashes or hangs, the completed steps are returned and `failure` has the reason.
    `timeout_s` limits the process (default: 30 minutes). On KeyboardInterrupt it is terminated.
    """
    limit_s = timeout_s if timeout_s is not None else LIMIT_S
    with temporary_folder("worker") as folder:
        steps = folder / "steps.jsonl"
        job = ScheduleJob(spec=spec, config=config, device=device, text=text, steps=str(steps))
        end, outcome = run_worker(
            "schedule_run", job, folder, ScheduleEnd, timeout_s=limit_s, on_progress=on_progress
        )  # fmt: skip
        schedule = ShapeSchedule(
            config=config.name,
            source=shapes.schedule_source(text),
            steps=_read_steps(steps),
            benchmark=config.benchmark,
            device=device.partition(":")[0],
        )
    if end is None:
        return replace(schedule, failure=_failure(outcome, limit_s, len(schedule.steps)))
    return replace(schedule, notes=end.notes, failure=end.failure)


def _read_steps(file: Path) -> tuple[ShapeStep, ...]:
    """The completed steps. The last line may be incomplete if the process was terminated."""
    if not file.exists():
        return ()
    lines = file.read_text(encoding="utf-8").split("\n")[:-1]
    return tuple(from_json(ShapeStep, json.loads(line), f"the worker's step {i}") for i, line in enumerate(lines))


def _failure(outcome: process.Outcome, limit_s: float, done: int) -> str:
    after = f"after {done} {'step' if done == 1 else 'steps'}"
    if outcome.timed_out:
        return (
            f"no result after {limit_s:g} s: the process was terminated {after}; raise --timeout, or give fewer shapes"
        )
    if outcome.signal_name == "SIGKILL":
        return f"killed (SIGKILL) {after}: the system does this when host memory runs out; give smaller shapes"
    last = f": {outcome.last_log_line}" if outcome.last_log_line else ""
    return f"the process ended ({outcome.ending}) {after}{last}"


def _with_label(session: Session, label: str) -> OnProgress:
    return lambda progress: session.on_progress(f"{label}: {progress}")


def _peak_bytes(run: ConfigRun) -> int | None:
    """The peak of device memory of a run, the first step included; None if it was not measured."""
    peaks = [size for size in (run.first_step_peak_bytes, run.peak_reserved_bytes) if size is not None]
    return max(peaks, default=None)
