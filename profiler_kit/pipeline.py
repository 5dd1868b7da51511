"""The only file that knows the order of the stages: target, count, measure, attribute, report, diagnose."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from profiler_kit import roofs
from profiler_kit._version import VERSION
from profiler_kit.errors import KitError, TargetError
from profiler_kit.forecast import (
    Counted,
    counted_if_possible,
    ends_told,
    with_measured_scratch,
    with_memory,
    with_what_ifs,
)
from profiler_kit.inquiry import Inspection, read_all, trace_files
from profiler_kit.inquiry import annotate_trace as annotate_trace  # for cli: what inspect writes beside its report
from profiler_kit.inquiry import check_steps as check_steps
from profiler_kit.inquiry import export_events as export_events
from profiler_kit.laboratory import further, trials
from profiler_kit.laboratory.bench import Bench, Traced, measure_plan, trace_folder
from profiler_kit.laboratory.reading import with_counted_work
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import DEFAULT_CONVENTION, MemoryQuestions, StaticCount
from profiler_kit.records.laboratory import LaboratoryQuestions, ShapeSchedule
from profiler_kit.records.machine import Machine
from profiler_kit.records.report import SCHEMA, Report, Tool
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.strict import require_counted
from profiler_kit.records.target import Mode, TargetInfo, TargetSpec
from profiler_kit.records.traces import TraceReport

Say = Callable[[str], None]

DEFAULT_BUDGET_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """What `analyze` leaves: the report, its traces, and whether Ctrl-C cut it short."""

    report: Report
    traces: tuple[Traced, ...]
    interrupted: bool = False


def count(
    target: Any,
    *args: Any,
    loss_fn: Callable[..., Any] | None = None,
    mode: Mode = "train",
    kwargs: Mapping[str, Any] | None = None,
    convention: str = DEFAULT_CONVENTION,
    cross_check: bool = False,
    strict: bool = False,
    hardware: str | None = None,
) -> Report:
    """The static report of `target`: a model with its example inputs, a TARGET text, or a `TargetSpec`.

    A model is never changed: it is counted as a copy on the meta device. `convention` says what counts as work: ``kit``,
    ``torch``, ``fvcore`` or ``model-flops``. `cross_check` runs other counters on the model, and explains each difference.
    `hardware`: as in `count_spec`. Raises TargetError, UsageError, and with `strict` UncountedError where an op has no
    formula.
    """
    roofs.check(hardware)
    from profiler_kit.counting import count_both
    from profiler_kit.target import from_model

    if isinstance(target, (str, TargetSpec)):
        spec = target
        if isinstance(spec, str):
            spec = TargetSpec(spec=spec, mode=mode, command=("count", ""))
        report = count_spec(spec, convention=convention, cross_check=cross_check, hardware=hardware)
    else:
        with ends_told(type(target).__name__):
            live = from_model(target, args, kwargs, loss_fn=loss_fn, mode=mode, device="meta")
            static, by_kit = with_memory(*count_both(live, convention, cross_check=cross_check), live)
        report = _explained(_report(live.info, static), by_kit, _under(hardware, _silent))
    if strict:
        require_counted(report)
    return report


def count_spec(
    spec: TargetSpec,
    *,
    convention: str = DEFAULT_CONVENTION,
    cross_check: bool = False,
    hardware: str | None = None,
    gpu: str | None = None,
    asked: MemoryQuestions | None = None,
    say: Say | None = None,
) -> Report:
    """The static report of the target that `spec` names; with `hardware`, bounded by its roofline.

    `gpu` names the device whose memory is predicted (None: the one that is here); `asked`: what else is asked about it.

    `hardware` is a device's name, as in the datasheet table, or ``here`` for what this machine's device reaches: measured
    once, for some seconds, which `say` is told. Raises TargetError, UsageError.
    """
    roofs.check(hardware)
    from profiler_kit.counting import count_both
    from profiler_kit.target import load

    with ends_told(spec.spec):
        target = load(spec, device="meta")
        static, by_kit = with_memory(*count_both(target, convention, cross_check=cross_check), target, gpu=gpu)
        if asked is not None:
            price = roofs.recompute_price(hardware, target.info, say or _silent)
            static = with_what_ifs(static, target, gpu=gpu, asked=asked, price=price, say=say or _silent)
    report = _report(target.info, static)  # now the info names the loss, which the first output settled
    return _explained(report, by_kit, _under(hardware, say or _silent))


def env(device: str = "auto", *, fresh: bool = False, say: Say | None = None) -> Machine:
    """What this machine is for the tool: devices, versions, what `device` reaches, which configurations mean something.

    Ceilings are measured once and kept; `fresh` measures them again. Raises UsageError for a device that is not there.
    """
    from profiler_kit import machine

    return machine.machine(device, fresh=fresh, say=say or _silent)


def inspect(traces: str | Path | Iterable[str | Path], *, say: Say | None = None) -> Inspection:
    """Where the time of `traces` went: one file, several, or folders of them, one file per rank or not.

    A file that can't be read stands in `Inspection.errors` where another one can. Ctrl-C gives what was read before.

    Raises UsageError where there is no such file, TraceError where none of them can be read.
    """
    from profiler_kit.diagnose import diagnose_traces

    meant = trace_files([traces] if isinstance(traces, (str, Path)) else traces)
    read = read_all(meant.files, say or _silent)
    report = TraceReport(
        schema=SCHEMA,
        tool=Tool(name="profiler_kit", version=VERSION),
        created=_now(),
        traces=read.traces,
        ranks=read.ranks,
        notes=(*(f"left out: {error.where}: {error.message}" for error in read.errors), *meant.notes, *read.notes),
    )
    return Inspection(
        report=replace(report, findings=diagnose_traces(report)),
        files=read.files,
        errors=read.errors,
        interrupted=read.interrupted,
    )


def analyze(
    target: str | TargetSpec,
    *,
    device: str = "auto",
    configs: Sequence[str] | None = None,
    budget_s: float = DEFAULT_BUDGET_S,
    steps: int | None = None,
    timeout_s: float | None = None,
    traces: Path | str | None = None,
    say: Say | None = None,
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
    say: Say | None = None,
    convention: str = DEFAULT_CONVENTION,
    asked: LaboratoryQuestions | None = None,
) -> Analysis:
    """`analyze` with its traces. Ctrl-C ends the run in hand; what was measured before stands in the report."""
    from profiler_kit.measure import configs as configurations
    from profiler_kit.measure import environment

    asked = asked or LaboratoryQuestions()
    tell = say or _silent
    place = environment.pick_device(device)
    tell("counting")
    counted = counted_if_possible(spec, convention, place)
    by_kit = counted.by_kit
    further.check(asked, counted.info)
    plan_of = partial(
        configurations.plan,
        environment.backend(place),
        has_tf32=environment.has_tf32(place),
        float32=_computes_float32(counted.info),
        uses_cudnn=by_kit is None or any(_is_cudnn_op(total.op) for total in by_kit.ops),
        info=counted.info,
    )
    plan = plan_of(only=configs, also=asked.also)
    bench = Bench(
        spec=spec,
        device=place,
        budget_s=budget_s,
        say=tell,
        steps=steps,
        timeout_s=timeout_s,
        keep_traces=traces is not None,
    )
    with trace_folder(traces) as folder:
        measure_plan(bench, plan, folder)
        further.measure_under_cap(bench, asked.memory_limit_bytes, folder)
        schedules = further.schedules(bench, asked.shapes)
        further.count_operations(bench, asked.counters)

        def explained() -> Report:
            try:
                return _measured_report(bench, counted, plan.notes, asked, schedules)
            except KeyboardInterrupt:  # a second's work that saves what may have taken an hour: once more
                bench.interrupted = True
                return _measured_report(bench, counted, plan.notes, asked, schedules)

        def read(name: str) -> RunConfig | None:
            config = plan_of(only=[name], again=False).configs[0]
            return None if config == plan.configs[0] else config

        report = explained()
        if asked.trials and not bench.interrupted:
            report = trials.tried(bench, report, read, folder, explained)
    return Analysis(report=report, traces=tuple(bench.traced), interrupted=bench.interrupted)


def _measured_report(
    bench: Bench,
    counted: Counted,
    notes: Sequence[str],
    asked: LaboratoryQuestions,
    schedules: tuple[ShapeSchedule, ...],
) -> Report:
    """What was measured so far as a report, explained. What Ctrl-C cuts off here is left out: `bench.interrupted`."""
    from profiler_kit.measure import configs as configurations

    try:
        bench.runs[:] = with_measured_scratch(bench.runs, counted, bench.device)
    except KeyboardInterrupt:
        bench.interrupted = True
    runs = with_counted_work(configurations.with_tuning(bench.runs), counted.by_kit)
    report = replace(
        _report(counted.info, counted.shown, runs=runs, notes=(*notes, *bench.notes)),
        asked=asked if asked != LaboratoryQuestions() else None,
        schedules=schedules,
        sweep=bench.time,
    )

    def bounded(unbound: Report) -> Report:
        if not bench.interrupted:
            try:
                return roofs.under_own_device(unbound, bench.device, bench.say)
            except KeyboardInterrupt:
                bench.interrupted = True
        return unbound

    return _explained(report, counted.by_kit, bounded)


def _report(
    info: TargetInfo, static: StaticCount | None, runs: Sequence[ConfigRun] = (), notes: Sequence[str] = ()
) -> Report:
    return Report(
        schema=SCHEMA,
        tool=Tool(name="profiler_kit", version=VERSION),
        created=_now(),
        target=info,
        static=static,
        runs=tuple(runs),
        notes=tuple(notes),
    )


def _explained(report: Report, by_kit: StaticCount | None, bounded: Callable[[Report], Report]) -> Report:
    """`report` with floors and findings, which rest on the kit's own count whatever convention is shown."""
    from profiler_kit.diagnose import diagnose

    found = bounded(replace(report, static=by_kit))
    return replace(found, static=report.static, findings=diagnose(found))


def _under(hardware: str | None, say: Say) -> Callable[[Report], Report]:
    return lambda report: roofs.under_hardware(report, hardware, say)


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


def _now() -> str:
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")


def _silent(_: str) -> None:
    pass
