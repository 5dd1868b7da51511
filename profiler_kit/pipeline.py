"""The only file that knows the order of the stages: target, count, measure, attribute, report, diagnose."""

from __future__ import annotations

import contextlib
import datetime
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from profiler_kit import roofs
from profiler_kit._version import VERSION
from profiler_kit.errors import KitError, TargetError, TraceError, UsageError
from profiler_kit.forecast import counted_if_possible, ends_told, with_measured_scratch, with_memory, with_what_ifs
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import DEFAULT_CONVENTION, PHASES, MemoryQuestions, Phase, StaticCount
from profiler_kit.records.laboratory import LaboratoryQuestions
from profiler_kit.records.machine import Machine
from profiler_kit.records.report import SCHEMA, Report, Tool
from profiler_kit.records.runs import Attribution, ConfigRun, PhaseTiming, Span
from profiler_kit.records.strict import require_counted
from profiler_kit.records.target import Mode, TargetInfo, TargetSpec

Say = Callable[[str], None]

DEFAULT_BUDGET_S = 60.0
LEAST_RUN_BUDGET_S = 2.0  # a configuration's share below this would leave fast models without a steady state


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """A trace that `analyze` kept: the configuration, the file, and the lanes to annotate it with."""

    config: str
    file: Path
    spans: tuple[Span, ...]


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

    tell = say or _silent
    place = environment.pick_device(device)
    tell("counting")
    counted = counted_if_possible(spec, convention, place)
    info, static, by_kit = counted.info, counted.shown, counted.by_kit
    plan = configurations.plan(
        environment.backend(place),
        has_tf32=environment.has_tf32(place),
        float32=_computes_float32(info),
        uses_cudnn=by_kit is None or any(_is_cudnn_op(total.op) for total in by_kit.ops),
        only=configs,
    )
    runs, traced, cut = _measured(spec, plan.configs, place, budget_s, steps, timeout_s, traces, tell)
    try:
        runs = with_measured_scratch(runs, counted, place)
    except KeyboardInterrupt:
        cut = True
    report = _report(info, static, runs=configurations.with_tuning(runs), notes=plan.notes)

    def bounded(unbound: Report) -> Report:
        nonlocal cut
        if not cut:
            try:
                return roofs.under_own_device(unbound, place, tell)
            except KeyboardInterrupt:
                cut = True
        return unbound

    explained = _explained(report, by_kit, bounded)  # first: it may be interrupted
    return Analysis(report=explained, traces=traced, interrupted=cut)


def _measured(
    spec: TargetSpec,
    configs: Sequence[RunConfig],
    device: str,
    budget_s: float,
    steps: int | None,
    timeout_s: float | None,
    traces: Path | None,
    tell: Say,
) -> tuple[list[ConfigRun], tuple[Traced, ...], bool]:
    from profiler_kit.measure import launcher

    runs: list[ConfigRun] = []
    kept: list[Traced] = []
    share_s = max(LEAST_RUN_BUDGET_S, budget_s / len(configs))
    with _trace_folder(traces) as folder:
        for number, config in enumerate(configs, 1):
            label = f"[{number}/{len(configs)}] {config.name}"
            file = folder / f"{config.name.replace(' ', '_').replace('(', '').replace(')', '')}.json.gz"
            try:
                file.unlink(missing_ok=True)  # an earlier report's, which a failing run would leave in this one
                run = launcher.measure(
                    spec,
                    config,
                    device=device,
                    budget_s=share_s,
                    trace=file,
                    steps=steps,
                    timeout_s=timeout_s,
                    say=lambda text, label=label: tell(f"{label}: {text}"),  # type: ignore[misc]
                )
                runs.append(replace(run, trace=f"traces/{file.name}" if traces is not None and run.trace else None))
                if run.failure is not None:
                    tell(f"{label}: failed: {run.failure.message}")
                    continue
                if run.trace is None:  # the traced steps failed, and a note says so
                    continue
                tell(f"{label}: reading the trace")
                runs[-1], spans = _attributed(runs[-1], file)
            except KeyboardInterrupt:
                rest = configs[len(runs) :]  # the one in hand among them, unless it was only its trace that was read
                runs.extend(launcher.interrupted(other, started=other is config) for other in rest)
                return runs, tuple(kept), True
            if traces is not None:
                kept.append(Traced(config=config.name, file=file, spans=spans))
    return runs, tuple(kept), False


@contextlib.contextmanager
def _trace_folder(given: Path | None) -> Iterator[Path]:
    """The folder for traces: the one given, or one that goes when the work is done."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="profiler_kit_traces_") as made:
            yield Path(made)
        return
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(given), hint="give another folder with --out"
        ) from error
    yield given.resolve()


def _attributed(run: ConfigRun, trace: Path) -> tuple[ConfigRun, tuple[Span, ...]]:
    """`run` with its trace's device time by phase and layer; a trace that can't be read is a note, the timings stand."""
    from profiler_kit.attribute import attribute

    try:
        found = attribute(trace)
    except TraceError as error:
        return replace(run, notes=(*run.notes, f"The trace could not be attributed: {error}")), ()
    return (
        replace(
            run,
            clock=found.clock,
            phases=_with_kernel_clock(run.phases, found),
            modules=found.layers,
            kernels=found.kernels,
            unattributed_ns=found.unattributed_ns,
            notes=(*run.notes, *found.notes),
        ),
        found.spans,
    )


def _with_kernel_clock(phases: Sequence[PhaseTiming], found: Attribution) -> tuple[PhaseTiming, ...]:
    timed = {timing.phase: timing for timing in phases}
    spent: dict[Phase, int] = {}
    for layer in found.layers:
        spent[layer.phase] = spent.get(layer.phase, 0) + layer.kernel_ns
    return tuple(
        replace(timed.get(phase, PhaseTiming(phase=phase)), kernel_ns=spent.get(phase, 0))
        for phase in PHASES
        if phase in timed or phase in spent
    )


def _report(
    info: TargetInfo, static: StaticCount | None, runs: Sequence[ConfigRun] = (), notes: Sequence[str] = ()
) -> Report:
    now = datetime.datetime.now(datetime.timezone.utc)
    return Report(
        schema=SCHEMA,
        tool=Tool(name="profiler_kit", version=VERSION),
        created=now.isoformat(timespec="seconds"),
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


def _silent(_: str) -> None:
    pass
