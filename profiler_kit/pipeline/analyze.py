"""Measured reports: count, measure every configuration, attribute, explain, and try the advice of the findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler_kit.errors import KitError, TargetError
from profiler_kit.measurement import experiments as experiment_runs
from profiler_kit.measurement import trials
from profiler_kit.measurement.session import Session, measure_plan, trace_folder
from profiler_kit.measurement.worker_process import worker_forks
from profiler_kit.pipeline import rooflines
from profiler_kit.pipeline.batch_choice import with_chosen_batch
from profiler_kit.pipeline.memory_prediction import Counted, counted_if_possible, with_measured_workspaces
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.python_options import for_python, target_in_python
from profiler_kit.pipeline.ranks import JoinedJob, counted_for_ranks, trace_report
from profiler_kit.pipeline.repairs import with_repair
from profiler_kit.pipeline.reports import new_report, with_findings, with_verdict
from profiler_kit.pipeline.run_traces import attribute_run_trace, with_convolution_parts, with_counted_work
from profiler_kit.process.protocol import OnProgress, ignore_progress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import DEFAULT_CONVENTION, StaticCount
from profiler_kit.records.experiments import ExperimentOptions, ShapeSchedule
from profiler_kit.records.lanes import Annotation, StepTimeline
from profiler_kit.records.notes import Note, plain_notes
from profiler_kit.records.progress import OnProcess, ignore_processes
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import IN_PYTHON, TargetInfo, TargetSpec

if TYPE_CHECKING:
    from profiler_kit.simulation.step_model import StepModel

DEFAULT_BUDGET_S = 60.0
# called with the names of the configurations measured so far, and the sentences of the verdict on them
OnAnswer = Callable[[tuple[str, ...], tuple[str, ...]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A saved trace: its configuration, its file, its annotation, and the timeline of one step."""

    config: str
    file: Path
    annotation: Annotation
    timeline: StepTimeline | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The result of `analyze_spec`: the report, the saved traces, and whether Ctrl-C interrupted it.

    `spec`: the target with the choices of its first load, to measure the same again.
    """

    report: Report
    spec: TargetSpec
    traces: tuple[Traced, ...]
    interrupted: bool = False

    @property
    def timeline(self) -> StepTimeline | None:
        """One step of the baseline's trace; None without a trace."""
        baseline = self.report.baseline()
        name = baseline.config.name if baseline is not None else None
        return next((traced.timeline for traced in self.traces if traced.config == name), None)


def analyze(
    target: Any,
    inputs: Any = None,
    *,
    loss_fn: Callable[..., Any] | None = None,
    optimizer: Any = None,
    labels: Any = (),
    kwargs: Any = None,
    device: str = "auto",
    configs: Sequence[str] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    steps: int | None = None,
    timeout_s: float | None = None,
    traces: Path | str | None = None,
    on_progress: OnProgress | None = None,
    convention: str = DEFAULT_CONVENTION,
    experiments: ExperimentOptions | None = None,
    **options: Any,
) -> Report:
    """Count a target, measure it under each cuDNN configuration, attribute the time, and return the explained report.

    `target` is a model that exists in this process, a TARGET text, or a `TargetSpec`. `options` are fields of `TargetSpec`
    (``mode``, ``batch``, ``dtype`` …). For a model:

    - `inputs` is a tensor, a tuple of positional inputs, or a dict of keyword inputs; `kwargs` are further keyword inputs.
    - `labels` are those of ``loss_fn(output, *labels)``. `optimizer` is an optimizer of the model's parameters, a function
      ``configure_optimizer(model)``, or a name.
    - Every process measures its own copy of the model, with the same weights. The model itself is not changed.

    For a TARGET text, `inputs`, `kwargs` and `optimizer` are the fields of `TargetSpec`.

    `traces` is a folder for the Chrome traces; without it they are deleted. `experiments` requests experiments: more
    configurations, trials of the findings' advice, changing shapes and others. `on_progress` receives progress texts. Ctrl-C
    stops the current run and returns a report of the finished runs, in which the other runs have failed as ``interrupted``.

    Raises:
        TargetError: the target cannot be loaded, or a model cannot be sent to another process.
        UsageError: an argument is invalid.
    """
    with target_in_python(
        target, inputs, kwargs=kwargs, labels=labels, loss_fn=loss_fn, optimizer=optimizer, options=options
    ) as spec:
        report = analyze_spec(
            spec,
            device=device,
            configs=configs,
            budget_s=budget_s,
            steps=steps,
            timeout_s=timeout_s,
            traces=Path(traces) if traces is not None else None,
            on_progress=on_progress or ignore_progress,
            convention=convention,
            experiments=experiments,
        ).report
    return for_python(report) if spec.spec == IN_PYTHON else report


def analyze_spec(
    spec: TargetSpec,
    *,
    device: str = "auto",
    configs: Sequence[str] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    steps: int | None = None,
    timeout_s: float | None = None,
    traces: Path | None = None,
    on_progress: OnProgress = ignore_progress,
    on_process: OnProcess = ignore_processes,
    on_answer: OnAnswer | None = None,
    convention: str = DEFAULT_CONVENTION,
    experiments: ExperimentOptions | None = None,
    job: JoinedJob | None = None,
) -> Analysis:
    """Do the work of `analyze`, and return the saved traces and the state of interruption as well.

    `job`: measure on all ranks of it, of which this process is rank 0. `on_answer` is called as soon as one configuration is
    measured, and again when each has been measured once.
    """
    require_torch()
    from profiler_kit.loading.progress import progress_to
    from profiler_kit.measurement import plan as configurations
    from profiler_kit.worker import environment

    experiments = experiments or ExperimentOptions()
    with worker_forks(spec):
        device_name = job.device if job is not None else environment.pick_device(device)
        on_progress("counting")
        with progress_to(on_progress):
            counted = counted_if_possible(spec, convention, device_name, timeout_s)
        by_kit = counted.by_kit
        experiment_runs.check_shapes(experiments, counted.info)
        plan_of = partial(
            configurations.make_plan,
            environment.backend(device_name),
            has_tf32=environment.has_tf32(device_name),
            float32=computes_float32(counted.info),
            uses_cudnn=uses_cudnn(by_kit),
            info=counted.info,
        )
        plan = plan_of(only=configs, also=experiments.also)
        first_count = counted
        counted = with_chosen_batch(
            counted, spec, convention, device_name, configs=len(plan.configs), budget_s=budget_s
        )
        if job is not None:
            counted = counted_for_ranks(counted, job.plan)
        if counted is not first_count:
            plan_of = partial(plan_of, info=counted.info)
            plan = plan_of(only=configs, also=experiments.also)
        if counted.target is not None:
            spec = counted.target.spec  # with the choices of this load, so that every process loads the same
        notes = (*plan.notes, *plain_notes(_missing_device_note(counted, device_name)))
        traced_runs: list[Traced] = []
        models: dict[str, StepModel] = {}

        def attribute_trace(run: ConfigRun, trace: Path) -> ConfigRun:
            run, annotation, timeline, model, _ = attribute_run_trace(run, trace)
            if model is not None:
                models[run.config.name] = model
            if traces is not None:
                traced_runs.append(Traced(config=run.config.name, file=trace, annotation=annotation, timeline=timeline))
            return run

        session = Session(
            spec=spec,
            device=device_name,
            budget_s=budget_s,
            on_progress=on_progress,
            on_process=on_process,
            read_trace=attribute_trace,
            read_parts_trace=with_convolution_parts,
            steps=steps,
            timeout_s=timeout_s,
            keep_traces=traces is not None,
            ranks=job.ranks if job is not None else None,
        )
        if on_answer is not None:
            session.on_first_results = partial(_answer, session, counted, on_answer, models)
        with trace_folder(traces) as folder:
            measure_plan(session, plan, folder)
            experiment_runs.measure_with_memory_limit(session, experiments.memory_limit_bytes, folder)
            schedules = experiment_runs.run_schedules(session, experiments.shapes)

            def build_report() -> Report:
                try:
                    return _measured_report(session, counted, notes, experiments, schedules, models)
                except KeyboardInterrupt:  # this takes a second and saves up to an hour of measurements: try again
                    session.interrupted = True
                    return _measured_report(session, counted, notes, experiments, schedules, models)

            def parse_config(name: str) -> RunConfig | None:
                config = plan_of(only=[name], again=False).configs[0]
                return None if config == plan.configs[0] else config

            report = build_report()
            if experiments.trials and not session.interrupted:
                with_trials = trials.run_trials(session, report, parse_config, folder, build_report)
                report = with_verdict(replace(with_trials, verdict=None))
        drawn = (_with_repair(traced, report, models) for traced in traced_runs)
        return Analysis(report=report, spec=spec, traces=tuple(drawn), interrupted=session.interrupted)


def _with_repair(traced: Traced, report: Report, models: Mapping[str, StepModel]) -> Traced:
    """`traced` with what its timeline would be once the main finding is repaired, if it is the trace of the baseline."""
    baseline = report.baseline()
    if traced.timeline is None or baseline is None or baseline.config.name != traced.config:
        return traced
    return replace(traced, timeline=with_repair(traced.timeline, report.findings, models.get(traced.config)))


def _answer(session: Session, counted: Counted, on_answer: OnAnswer, models: Mapping[str, StepModel]) -> None:
    """Call `on_answer` with the verdict on the runs so far. Rooflines are left out: measuring peaks would use the device."""
    runs = with_counted_work(session.runs, counted.by_kit)
    if any(run.failure is None for run in runs):
        report = with_findings(
            new_report(counted.info, counted.static, runs=runs), counted.by_kit, lambda report: report, models
        )
        on_answer(
            tuple(run.config.name for run in runs), report.verdict.sentences if report.verdict is not None else ()
        )


def _measured_report(
    session: Session,
    counted: Counted,
    notes: Sequence[Note],
    experiments: ExperimentOptions,
    schedules: tuple[ShapeSchedule, ...],
    models: Mapping[str, StepModel],
) -> Report:
    """The explained report of the finished runs. Ctrl-C skips the current step and sets `session.interrupted`."""
    from profiler_kit.measurement import plan as configurations

    try:
        session.runs[:] = with_measured_workspaces(session.runs, counted, session.device)
    except KeyboardInterrupt:
        session.interrupted = True
    runs = with_counted_work(configurations.with_tuning(session.runs), counted.by_kit)
    report = replace(
        new_report(counted.info, counted.static, runs=runs, notes=(*notes, *plain_notes(session.notes))),
        asked=experiments if experiments != ExperimentOptions() else None,
        schedules=schedules,
        sweep=session.time,
    )
    baseline = report.baseline()
    if baseline is not None and (rank_files := session.rank_traces.get(baseline.config.name)):
        report = replace(report, ranks=trace_report(rank_files))

    def with_roofline(report: Report) -> Report:
        if not session.interrupted:
            try:
                return rooflines.with_measured_roofline(report, session.device, session.on_progress)
            except KeyboardInterrupt:
                session.interrupted = True
        return report

    return with_findings(report, counted.by_kit, with_roofline, models)


def _missing_device_note(counted: Counted, device: str) -> tuple[str, ...]:
    """The note of a model that asks for a GPU and runs on the CPU."""
    target = counted.target
    if device != "cpu" or target is None or not target.requested_devices:
        return ()
    from profiler_kit.meta.missing_accelerators import is_available

    names = " and ".join(sorted(kind.upper() for kind in target.requested_devices))
    if any(is_available(kind) for kind in target.requested_devices):
        return (f"The model asks for {names}; it runs on the CPU because of --device cpu.",)
    return (f"The model asks for {names}; this machine has none, so it runs on the CPU.",)


def all_failed(report: Report) -> KitError | None:
    """The first failure as an error if every run failed; None if any run has samples."""
    if not report.runs or any(run.failure is None for run in report.runs):
        return None
    first = report.runs[0].failure
    assert first is not None
    hint = first.hint or ("see the log in the report" if first.log_tail else "see the report")
    summary = "the run failed" if len(report.runs) == 1 else "every configuration failed; the first error is"
    return TargetError(f"{summary}: {first.message}", hint=hint)


def computes_float32(info: TargetInfo) -> bool:
    """Whether the target's arithmetic is float32."""
    return info.amp is None and info.dtype in (None, "float32")


_CUDNN_OPS = ("convolution", "conv", "cudnn", "miopen", "rnn", "lstm", "gru", "batch_norm", "ctc_loss")


def uses_cudnn(static: StaticCount | None) -> bool:
    """Whether the target has an op that cuDNN runs; True without a count."""
    return static is None or any(word in total.op for total in static.ops for word in _CUDNN_OPS)
