"""Measured reports: count, measure every configuration, attribute, explain, and try what the findings advise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from profiler_kit.errors import KitError, TargetError
from profiler_kit.measurement import experiments, trials
from profiler_kit.measurement.session import Session, measure_plan, trace_folder
from profiler_kit.pipeline import roofs
from profiler_kit.pipeline.forecast import Counted, counted_if_possible, with_measured_scratch
from profiler_kit.pipeline.packages import require_torch
from profiler_kit.pipeline.reports import explained, new_report
from profiler_kit.pipeline.run_traces import attributed, with_counted_work, with_parts
from profiler_kit.process.protocol import OnProgress, silent
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import DEFAULT_CONVENTION
from profiler_kit.records.laboratory import LaboratoryQuestions, ShapeSchedule
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, Span
from profiler_kit.records.target import TargetInfo, TargetSpec

DEFAULT_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A trace that `analyze` kept: the configuration, the file, and the lanes to annotate it with."""

    config: str
    file: Path
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """The result of `analyze`: the report, its traces, and whether Ctrl-C cut it short."""

    report: Report
    traces: tuple[Traced, ...]
    interrupted: bool = False


def analyze(
    target: str | TargetSpec,
    *,
    device: str = "auto",
    configs: Sequence[str] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    steps: int | None = None,
    timeout_s: float | None = None,
    traces: Path | str | None = None,
    say: OnProgress | None = None,
    convention: str = DEFAULT_CONVENTION,
    asked: LaboratoryQuestions | None = None,
    **options: Any,
) -> Report:
    """The whole report of a target: counted, measured under each cuDNN configuration, attributed and explained.

    `target` is a TARGET text, whose further `options` are those of `TargetSpec` (``inputs``, ``mode``, ``batch`` …), or a
    `TargetSpec`. `traces` is a folder for the Chrome traces, which are dropped without one. Ctrl-C ends the run in hand and
    gives the report of what was measured before; the other runs stand in it as ``interrupted``. `asked`: further
    configurations, trials of the findings' advice, schedules of shapes and more.

    Raises TargetError, UsageError.
    """
    spec = target if isinstance(target, TargetSpec) else TargetSpec(spec=target, **options)
    folder = Path(traces) if traces is not None else None
    return analyze_spec(
        spec,
        device=device,
        configs=configs,
        budget_s=budget_s,
        steps=steps,
        timeout_s=timeout_s,
        traces=folder,
        say=say,
        convention=convention,
        asked=asked,
    ).report


def analyze_spec(
    spec: TargetSpec,
    *,
    device: str = "auto",
    configs: Sequence[str] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    steps: int | None = None,
    timeout_s: float | None = None,
    traces: Path | None = None,
    say: OnProgress | None = None,
    convention: str = DEFAULT_CONVENTION,
    asked: LaboratoryQuestions | None = None,
) -> Analysis:
    """`analyze` with its traces. Ctrl-C ends the run in hand; what was measured before stands in the report."""
    require_torch()
    from profiler_kit.measurement import plan as configurations
    from profiler_kit.worker import environment

    asked = asked or LaboratoryQuestions()
    on_progress = say or silent
    place = environment.pick_device(device)
    on_progress("counting")
    counted = counted_if_possible(spec, convention, place)
    by_kit = counted.by_kit
    experiments.check_shapes(asked, counted.info)
    plan_of = partial(
        configurations.plan,
        environment.backend(place),
        has_tf32=environment.has_tf32(place),
        float32=_computes_float32(counted.info),
        uses_cudnn=by_kit is None or any(_is_cudnn_op(total.op) for total in by_kit.ops),
        info=counted.info,
    )
    plan = plan_of(only=configs, also=asked.also)
    kept: list[Traced] = []

    def read_trace(run: ConfigRun, trace: Path) -> ConfigRun:
        run, spans = attributed(run, trace)
        if traces is not None:
            kept.append(Traced(config=run.config.name, file=trace, spans=spans))
        return run

    session = Session(
        spec=spec,
        device=place,
        budget_s=budget_s,
        on_progress=on_progress,
        read_trace=read_trace,
        read_parts_trace=with_parts,
        steps=steps,
        timeout_s=timeout_s,
        keep_traces=traces is not None,
    )
    with trace_folder(traces) as folder:
        measure_plan(session, plan, folder)
        experiments.measure_under_cap(session, asked.memory_limit_bytes, folder)
        schedules = experiments.run_schedules(session, asked.shapes)
        experiments.count_operations(session, asked.counters)

        def explain_all() -> Report:
            try:
                return _measured_report(session, counted, plan.notes, asked, schedules)
            except KeyboardInterrupt:  # a second's work that saves what may have taken an hour: once more
                session.interrupted = True
                return _measured_report(session, counted, plan.notes, asked, schedules)

        def read(name: str) -> RunConfig | None:
            config = plan_of(only=[name], again=False).configs[0]
            return None if config == plan.configs[0] else config

        report = explain_all()
        if asked.trials and not session.interrupted:
            report = trials.try_advice(session, report, read, folder, explain_all)
    return Analysis(report=report, traces=tuple(kept), interrupted=session.interrupted)


def _measured_report(
    session: Session,
    counted: Counted,
    notes: Sequence[str],
    asked: LaboratoryQuestions,
    schedules: tuple[ShapeSchedule, ...],
) -> Report:
    """What was measured so far as a report, explained. What Ctrl-C cuts off here is left out: `session.interrupted`."""
    from profiler_kit.measurement import plan as configurations

    try:
        session.runs[:] = with_measured_scratch(session.runs, counted, session.device)
    except KeyboardInterrupt:
        session.interrupted = True
    runs = with_counted_work(configurations.with_tuning(session.runs), counted.by_kit)
    report = replace(
        new_report(counted.info, counted.shown, runs=runs, notes=(*notes, *session.notes)),
        asked=asked if asked != LaboratoryQuestions() else None,
        schedules=schedules,
        sweep=session.time,
    )

    def bounded(unbound: Report) -> Report:
        if not session.interrupted:
            try:
                return roofs.under_own_device(unbound, session.device, session.on_progress)
            except KeyboardInterrupt:
                session.interrupted = True
        return unbound

    return explained(report, counted.by_kit, bounded)


def all_failed(report: Report) -> KitError | None:
    """The error to end with where every run failed: the first failure's message; None while any run has samples."""
    if not report.runs or any(run.failure is None for run in report.runs):
        return None
    first = report.runs[0].failure
    assert first is not None
    message, _, hint = first.message.partition("\nhint: ")
    if not hint:
        hint = "the end of its log stands in the report" if first.log_tail else "see the report"
    what = "nothing was measured" if len(report.runs) == 1 else "every configuration failed, the first one so"
    return TargetError(f"{what}: {message}", hint=hint)


def _computes_float32(info: TargetInfo) -> bool:
    return info.amp is None and info.dtype in (None, "float32")


_CUDNN_OPS = ("convolution", "conv", "cudnn", "miopen", "rnn", "lstm", "gru", "batch_norm", "ctc_loss")


def _is_cudnn_op(op: str) -> bool:
    return any(word in op for word in _CUDNN_OPS)
