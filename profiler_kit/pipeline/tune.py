"""Tuning: load a target, search the settings that apply to it, and return the configuration that is surely better."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.errors import TargetError, UsageError
from profiler_kit.measurement.plan import make_plan
from profiler_kit.measurement.screening import Screen
from profiler_kit.measurement.tuning import MIN_TUNING_PROCESSES, Search
from profiler_kit.measurement.tuning_candidates import first_changes
from profiler_kit.measurement.tuning_processes import TuningProcesses
from profiler_kit.measurement.tuning_result import measure_result
from profiler_kit.measurement.worker_process import worker_forks
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.python_options import python_text, target_in_python
from profiler_kit.pipeline.reports import TOOL, now
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.progress import OnProcess, ignore_processes
from profiler_kit.records.report import Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import IN_PYTHON, TargetSpec
from profiler_kit.records.tuning import (
    DEFAULT_TOLERANCE,
    GOALS,
    Goal,
    Tuning,
    TuningOptions,
    parse_tolerance,
)
from profiler_kit.temporary_files import temporary_folder

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import StepModel

DEFAULT_TUNING_BUDGET_S: Final = 120.0
MIN_DEFAULT_BUDGET_S: Final = 40.0  # on a CPU, for short steps
BUDGET_STEPS: Final = 10_000
MAX_CHECKPOINTS: Final = 3  # modules that the goal memory tries to recompute, largest saved tensors first
_NOTES: Final = {  # limits of their measurement, and requirements
    "amp_fp16": "float16 was measured without a gradient scaler, which takes a little time in every step.",
    "batch": "Another batch size changes the training: adapt the learning rate, and check convergence.",
    "cuda_graph": "A CUDA graph replays one input shape: use drop_last=True.",
    "dtype": "All weights are cast. Check the accuracy of the model on real data.",
    "amp_bf16": "One step does not show whether training converges: check it with bfloat16.",
    "checkpoint": "Recomputed modules run their forward twice in each step.",
}


def tune(
    target: Any,
    inputs: Any = None,
    *,
    goal: Goal | None = None,
    loss_fn: Callable[..., Any] | None = None,
    optimizer: Any = None,
    labels: Any = (),
    kwargs: Any = None,
    device: str = "auto",
    processes: int | None = None,
    budget_s: float = DEFAULT_TUNING_BUDGET_S,
    tolerance: str | float = DEFAULT_TOLERANCE,
    max_slowdown: float = 0.1,
    changes: Sequence[str] = (),
    timeout_s: float | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Tuning:
    """Search the settings that apply to a target, and return the configuration that is surely better for `goal`.

    `goal` None is ``throughput`` for training whose batch size nothing states, otherwise ``time``.

    `target`, `inputs`, `loss_fn`, `optimizer`, `labels`, `kwargs` and `options` are those of `analyze`. The other arguments are
    the fields of `TuningOptions`. The model is not changed: ``tuning.code`` has the lines that apply the result.

    Nothing better is a result, not an error. Ctrl-C ends the search and returns the finished measurements.

    Raises:
        TargetError: the target cannot be loaded, or its baseline cannot run.
        UsageError: an argument is invalid.
    """
    tuning_goals = tuning_options(
        goal=goal,
        processes=processes,
        budget_s=budget_s,
        tolerance=str(tolerance),
        max_slowdown=max_slowdown,
        changes=changes,
    )
    with target_in_python(
        target, inputs, kwargs=kwargs, labels=labels, loss_fn=loss_fn, optimizer=optimizer, options=options
    ) as spec:
        tuning = tune_spec(
            spec,
            options=tuning_goals,
            chooses_goal=goal is None,
            device=device,
            timeout_s=timeout_s,
            on_progress=on_progress or ignore_progress,
        )
    if spec.spec != IN_PYTHON:
        return tuning
    return replace(
        tuning,
        notes=tuple(map(python_text, tuning.notes)),
        attempts=tuple(replace(attempt, reason=python_text(attempt.reason)) for attempt in tuning.attempts),
    )


def tuning_options(
    *,
    goal: Goal | None,
    processes: int | None,
    budget_s: float,
    tolerance: str,
    max_slowdown: float,
    changes: Sequence[str],
) -> TuningOptions:
    """The checked options. Raises UsageError."""
    goal = goal or "time"
    if goal not in GOALS:
        raise UsageError(f"unknown goal {goal!r}", hint=f"choose one of: {', '.join(GOALS)}")
    if processes is not None and processes < MIN_TUNING_PROCESSES:
        raise UsageError(
            f"{processes} processes are too few: a change must be measured, confirmed, and measured again",
            hint=f"use --processes {MIN_TUNING_PROCESSES} or more",
        )
    if not budget_s > 0 or not max_slowdown >= 0:
        raise UsageError("a budget must be positive, and a slowdown at least zero", hint="--budget 5m")
    try:
        tolerance = parse_tolerance(tolerance)
    except ValueError as error:
        raise UsageError(str(error), hint="--tolerance 0.01") from error
    return TuningOptions(
        goal=goal,
        processes=processes,
        budget_s=budget_s,
        tolerance=tolerance,
        max_slowdown=max_slowdown,
        changes=tuple(changes),
    )


def tune_spec(
    spec: TargetSpec,
    *,
    options: TuningOptions,
    chooses_goal: bool = False,
    device: str = "auto",
    timeout_s: float | None = None,
    on_progress: OnProgress = ignore_progress,
    on_process: OnProcess = ignore_processes,
) -> Tuning:
    """Do the work of `tune` for a target. `chooses_goal`: the batch size decides the goal. Raises TargetError, UsageError."""
    require_torch()
    from profiler_kit.worker import environment

    device_name = environment.pick_device(device)
    if options.goal == "memory" and not device_name.startswith("cuda"):
        raise UsageError(
            f"the goal memory needs a CUDA device: the peak of tensors is not measured on {device_name}",
            hint="use --goal time",
        )
    with worker_forks(spec):  # it imports while the target is counted
        return _tuned(
            spec,
            options=options,
            chooses_goal=chooses_goal,
            device_name=device_name,
            timeout_s=timeout_s,
            on_progress=on_progress,
            on_process=on_process,
        )


def _tuned(
    spec: TargetSpec,
    *,
    options: TuningOptions,
    chooses_goal: bool,
    device_name: str,
    timeout_s: float | None,
    on_progress: OnProgress,
    on_process: OnProcess,
) -> Tuning:
    from profiler_kit.diagnosis import diagnose
    from profiler_kit.loading.progress import progress_to
    from profiler_kit.pipeline.analyze import computes_float32, uses_cudnn
    from profiler_kit.pipeline.batch_choice import is_one_example
    from profiler_kit.pipeline.memory_prediction import counted_if_possible
    from profiler_kit.pipeline.run_traces import attribute_run_trace
    from profiler_kit.worker import environment

    start_s = time.monotonic()
    on_progress("counting")
    with progress_to(on_progress):
        counted = counted_if_possible(spec, DEFAULT_CONVENTION, device_name, timeout_s)
    backend = environment.backend(device_name)
    info = counted.info
    if chooses_goal and info.mode == "train" and is_one_example(spec, info):
        options = replace(options, goal="throughput")
    plan_of = partial(
        make_plan,
        backend,
        has_tf32=environment.has_tf32(device_name),
        float32=computes_float32(info),
        uses_cudnn=uses_cudnn(counted.by_kit),
        info=info,
        again=False,
    )
    baseline = plan_of(only=["default"]).configs[0]

    def read_config(name: str) -> RunConfig | str:
        plan = plan_of(only=[name])
        if plan.configs[0] != baseline or name == baseline.name:
            return plan.configs[0]
        reasons = [note.text for note in plan.notes if note.code == "skipped"]
        return reasons[-1].rstrip(".") if reasons else "no effect here"

    changes = options.changes or first_changes(
        backend, options.goal, info.mode, _checkpoint_paths(counted.by_kit), has_loader=info.has_loader
    )
    for change in options.changes:
        read_config(change)  # raises UsageError before anything is measured

    models: dict[str, StepModel] = {}

    def read_trace(run: ConfigRun, trace: Path) -> ConfigRun:
        attributed = attribute_run_trace(run, trace)
        if attributed.model is not None:
            models[run.config.name] = attributed.model
        return attributed.run

    with temporary_folder("traces") as folder:
        pinned = counted.target.spec if counted.target is not None else spec
        screen = Screen(spec=pinned, device=device_name, baseline=baseline, on_progress=on_progress)
        processes = TuningProcesses(
            spec=pinned,
            device=device_name,
            screen=screen,
            folder=folder,
            budget_s=options.budget_s,
            read_trace=read_trace,
            on_progress=on_progress,
            on_process=on_process,
            max_count=options.processes,
            timeout_s=timeout_s,
            start_s=start_s,
        )
        search = Search(
            processes=processes,
            options=options,
            info=info,
            baseline=baseline,
            read_config=read_config,
            can_screen=not (info.has_note("compiled") or info.has_note("compiled_whole")),
        )
        base = search.measure_baseline()
        if base is None:
            raise KeyboardInterrupt  # nothing was measured
        if base.failure is not None:
            raise TargetError(f"the baseline failed: {base.failure.message}", hint=base.failure.hint)
        processes.budget_s = budget_for(options, base, device_name)
        findings = diagnose(Report(tool=TOOL, created=now(), target=info, static=counted.by_kit, runs=(base,)), models)
        search.expected = expected_savings(findings)
        with contextlib.closing(screen):
            search.run(changes)
            tuning = measure_result(search, tool=TOOL, created=now())
    return replace(
        tuning,
        environment=base.environment,
        reachable=max((search.expected[change] for change in changes if change in search.expected), default=None),
        wall_ns=round((time.monotonic() - start_s) * 1e9),
        notes=(*_notes(tuning), *tuning.notes),
    )


def expected_savings(findings: Sequence[Finding]) -> dict[str, float]:
    """The share of the step that each change may save, by the replay of the finding that advises it."""
    expected: dict[str, float] = {}
    for finding in findings:
        for name in finding.tries if finding.saving is not None else ():
            assert finding.saving is not None
            expected[name] = max(expected.get(name, 0.0), finding.saving.median)
    if "cuda_graph" in expected:
        expected["cuda_graph=step"] = expected["cuda_graph"]
    return expected


def budget_for(options: TuningOptions, base: ConfigRun, device: str) -> float:
    """The time of the search: by default less on a CPU, where short steps need little. Other work lengthens some steps only."""
    if options.budget_s != DEFAULT_TUNING_BUDGET_S or device.startswith("cuda") or not base.steps_ns:
        return options.budget_s
    return min(options.budget_s, max(MIN_DEFAULT_BUDGET_S, BUDGET_STEPS * min(base.steps_ns) * 1e-9))


def _notes(result: Tuning) -> Iterator[str]:
    for change in (*result.changes, *(result.reduced.changes if result.reduced is not None else ())):
        note = _NOTES.get(change.partition("=")[0])
        if note is not None:
            yield note


def _checkpoint_paths(static: StaticCount | None) -> tuple[str, ...]:
    """The modules with the most saved bytes, not nested in each other, the largest first: blocks, not single layers."""
    if static is None:
        return ()
    totals: dict[str, int] = {}
    children: dict[str, int] = {}
    for module in static.modules:
        parts = module.path.split(".") if module.path else []
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            totals[path] = totals.get(path, 0) + module.saved_bytes
        if len(parts) > 1:
            parent = ".".join(parts[:-1])
            children[parent] = children.get(parent, 0) + 1
    paths: list[str] = []
    for path in sorted((path for path in totals if children.get(path, 0) > 1), key=lambda path: -totals[path]):
        if len(paths) < MAX_CHECKPOINTS and not any(
            path.startswith(f"{p}.") or p.startswith(f"{path}.") for p in paths
        ):
            paths.append(path)
    return tuple(paths)
