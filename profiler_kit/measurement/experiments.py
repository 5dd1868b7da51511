"""Experiments beyond the configurations, each where it is asked for: a cap on memory, changing shapes, executed operations."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Final

from profiler_kit import process, units
from profiler_kit.configurations import shapes
from profiler_kit.configurations.naming import named
from profiler_kit.measurement import counters
from profiler_kit.measurement.plan import capped
from profiler_kit.measurement.session import Session, measure_more
from profiler_kit.measurement.worker_process import run_worker, worker_folder
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob
from profiler_kit.records.laboratory import ConvolutionTiming, LaboratoryQuestions, ShapeSchedule, ShapeStep
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.serde import from_json
from profiler_kit.records.target import TargetInfo, TargetSpec

# A large network searches its algorithms for a quarter of a minute per shape, and a generated schedule has 13 shapes.
LIMIT_S: Final = 1800.0


def measure_under_cap(session: Session, limit_bytes: int | None, folder: Path) -> None:
    """Runs again, under a cap on memory, every configuration that took more: a note says which fit anyway."""
    if limit_bytes is None or session.interrupted:
        return
    limit = units.text(limit_bytes, "bytes")
    measured = [
        (run, held) for run in session.runs if (held := _held_bytes(run)) is not None and run.config.repeat_of is None
    ]
    if not session.device.startswith("cuda"):
        session.notes.append(f"Nothing was run under a limit of {limit}: only a CUDA device's memory can be capped.")
        return
    if not measured:
        session.notes.append(f"Nothing was run under a limit of {limit}: no configuration was measured without one.")
        return
    fits = [run.config.name for run, held in measured if held <= limit_bytes]
    if fits:
        session.notes.append(f"Not run again under a limit of {limit}, as they take less anyway: {', '.join(fits)}.")
    over = [capped(run.config, limit_bytes) for run, held in measured if held > limit_bytes]
    if over:
        measure_more(session, over, folder)


def check_shapes(asked: LaboratoryQuestions, info: TargetInfo) -> None:
    """Raises UsageError for a schedule of shapes that makes no sense for the target: before anything is measured."""
    if asked.shapes is not None and info.inputs:
        shapes.schedule(asked.shapes, info.inputs)


def run_schedules(session: Session, text: str | None) -> tuple[ShapeSchedule, ...]:
    """Runs over changing shapes, under the baseline and its twin with benchmark, where they are asked for."""
    if text is None or session.interrupted:
        return ()
    base = next((run.config for run in session.runs if run.failure is None and run.config.repeat_of is None), None)
    if base is None:
        return ()
    configs = [base]
    if base.benchmark is False and base.enabled:
        configs.append(named(replace(base, benchmark=True)))
    schedules: list[ShapeSchedule] = []
    try:
        for config in configs:
            schedules.append(
                run_schedule(
                    session.spec,
                    config,
                    device=session.device,
                    text=text,
                    timeout_s=session.timeout_s,
                    on_progress=_labelled(session, f"changing shapes, {config.name}"),
                )
            )
    except KeyboardInterrupt:
        session.interrupted = True
        session.notes.append(f'Interrupted while shapes changed, under "{configs[len(schedules)].name}".')
    return tuple(schedules)


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


def count_operations(session: Session, asked: bool) -> None:
    """Adds what hardware counters say to the runs whose convolutions are done differently from those counted before."""
    if not asked or session.interrupted:
        return
    if not any(run.convolutions for run in session.runs):
        lacking = "no run has convolutions whose kernels are known"
        of_device = f"{session.device} has none that this tool knows, only NVIDIA's devices"
        why = lacking if session.device.startswith("cuda") else of_device
        session.notes.append(f"Hardware counters were not read: {why}.")
        return
    seen: dict[tuple[tuple[str, str, str], ...], tuple[ConvolutionTiming, ...]] = {}
    try:
        for at, run in enumerate(session.runs):
            kernels = tuple((part.path, part.part, part.kernel) for part in run.convolutions)
            if not kernels or run.failure is not None:
                continue
            if kernels not in seen:
                counted, notes = counters.count(
                    session.spec,
                    run.config,
                    device=session.device,
                    timeout_s=session.timeout_s,
                    on_progress=_labelled(session, f"counting operations, {run.config.name}"),
                )
                if counted is not None:
                    notes = (*notes, *counters.otherwise_done(run.convolutions, counted))
                for note in notes:
                    session.note(note)
                if counted is None:
                    return
                seen[kernels] = counters.with_counters(run.convolutions, counted)
            counted_parts = {(part.path, part.part): part for part in seen[kernels]}
            same_kernels = ((part, counted_parts[part.path, part.part]) for part in run.convolutions)
            convolutions = tuple(
                replace(part, counters=other.counters, counted_kernels=other.counted_kernels)
                for part, other in same_kernels
            )
            session.runs[at] = replace(run, convolutions=convolutions)
    except KeyboardInterrupt:
        session.interrupted = True
        session.notes.append("Interrupted while hardware counters were read.")


def _labelled(session: Session, label: str) -> OnProgress:
    return lambda progress: session.on_progress(f"{label}: {progress}")


def _held_bytes(run: ConfigRun) -> int | None:
    """The most memory that a run took from the device; None where that was not measured."""
    held = [size for size in (run.first_step_peak_bytes, run.peak_reserved_bytes) if size is not None]
    return max(held, default=None)
