"""The report on steps that a recorder saw in a training loop: count, attribute, explain."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from profiler_kit.diagnosis.roofline import rooflines
from profiler_kit.errors import KitError
from profiler_kit.pipeline.memory_prediction import EXPECTED, simulated_device, with_memory
from profiler_kit.pipeline.python_options import for_python
from profiler_kit.pipeline.repairs import with_repair
from profiler_kit.pipeline.reports import new_report, with_findings
from profiler_kit.pipeline.run_traces import attribute_run_trace, with_counted_work
from profiler_kit.pipeline.seen_runs import loss_name
from profiler_kit.records.counts import DEFAULT_CONVENTION, Phase, StaticCount
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.mean_step import LossShares
from profiler_kit.records.notes import Note, plain_notes
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, Evaluation
from profiler_kit.records.seen import SeenRun
from profiler_kit.records.target import IN_PYTHON, InputInfo, TargetInfo
from profiler_kit.records.traces import PhaseTime
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.units import duration

if TYPE_CHECKING:
    from torch import nn

    from profiler_kit.loading import Target
    from profiler_kit.recording.loss_terms import Terms
    from profiler_kit.recording.observations import Observations

LOOP: Final = "loop"  # the name of the run
OF_LOOP: Final = "of the loop"  # a loss without a name


class LoopReport(NamedTuple):
    """The report, and one step of the trace over time."""

    report: Report
    timeline: StepTimeline | None


def loop_report(
    models: Sequence[nn.Module],
    observed: Observations,
    *,
    loss_fn: Callable[..., Any] | None = None,
    labels: Any = (),
    convention: str = DEFAULT_CONVENTION,
    program: str | None = None,
    seen: SeenRun | None = None,
    losses: Sequence[Terms] = (),
    config: str | None = None,
) -> LoopReport:
    """The report on the steps in `observed`, in which the loop called `models`, with the counts for the inputs of the loop.

    `program` is the script or module that was run unchanged; None for a session in the user's code, whose advice is for
    Python. `seen` is what its run showed. `losses` are the terms of its losses. `config` is the name of its configuration.

    A single model is counted. It is not changed: a copy on the meta device is counted. Nothing runs on the model's device.
    """
    is_program = program is not None
    evaluation = _evaluation(observed)
    notes = [
        *observed.notes,
        *_loop_notes(observed, evaluation, is_program=is_program, counts_all_calls=_counts_all_calls(models)),
    ]
    info, static, by_kit = _counted(models, observed, loss_fn, labels, convention, notes, seen)
    info = replace(info, seen=seen, loss=loss_name(losses) or (OF_LOOP if losses else info.loss))
    run = replace(_run(observed, models, config or LOOP), evaluation=evaluation)
    timeline, models_of_steps = None, {}
    if observed.trace is not None:
        run, _, timeline, model, loss = attribute_run_trace(run, observed.trace, whole_marks=True)
        if observed.has_backward and not observed.is_loss_stated:
            run = replace(run, timed_phases=_phases(observed, loss))
        models_of_steps = {run.config.name: model} if model is not None else {}
    runs = with_counted_work([run], by_kit)
    report = new_report(info, static, runs=runs, notes=plain_notes(notes))
    # peaks of the device are not measured here, because the loop needs it
    report = with_findings(report, by_kit, lambda bare: replace(bare, roofline=rooflines(bare, None)), models_of_steps)
    if timeline is not None:
        timeline = with_repair(timeline, report.findings, models_of_steps.get(run.config.name))
    if program is None:
        return LoopReport(for_python(report), timeline)
    return LoopReport(replace(report, target=replace(report.target, spec=program)), timeline)


def _run(observed: Observations, models: Sequence[nn.Module], name: str) -> ConfigRun:
    from profiler_kit.worker import environment
    from profiler_kit.worker.device_state import device_state

    device = observed.device
    return ConfigRun(
        config=environment.current_config(name, device),
        environment=environment.describe(device),
        first_step_ns=observed.first_step_ns,
        warmup_steps=observed.warmup_steps,
        steps_ns=tuple(observed.steps_ns),
        step_ns=median_interval(observed.steps_ns),
        timed_phases=_phases(observed),
        samples=_examples(observed, models),
        peak_allocated_bytes=observed.peak_allocated_bytes,
        peak_reserved_bytes=observed.peak_reserved_bytes,
        peak_rss_bytes=None if device.type == "cuda" else environment.peak_rss_bytes(),
        device_state=device_state(device),
        traced_steps=observed.traced_steps,
        trace=str(observed.trace) if observed.trace is not None else None,
    )


def _evaluation(observed: Observations) -> Evaluation | None:
    import statistics

    if not observed.evaluated_ns or not observed.kept_ns:
        return None
    added_ns = statistics.median(observed.evaluated_ns) - statistics.median(observed.kept_ns)
    steps = len(observed.kept_ns) + len(observed.evaluated_ns)
    return Evaluation(count=len(observed.evaluated_ns), steps=steps, ns=max(0, round(added_ns)))


def _phases(observed: Observations, loss: LossShares | None = None) -> tuple[PhaseTime, ...]:
    """Each phase in a step of median length, so that the phases are the step: the mean of the middle half of its times, scaled.

    Each phase has a middle half of its own: other processes may disturb a short phase in any step. Without a backward pass there
    is no loss: what follows forward is other work. `loss`: how much of it is the loss.
    """
    import statistics

    from profiler_kit.records.counts import TRACE_PHASES

    shares = (loss or LossShares()) if observed.has_backward else LossShares(0.0, 0.0)
    samples_ns = _with_loss_split(observed.stopwatch_ns, observed.between_calls_ns, shares)
    event_ns = _with_loss_split(observed.event_ns, observed.between_calls_event_ns, shares)
    means_ns = sum(map(_middle_mean, (event_ns or samples_ns).values()))
    scale = statistics.median(observed.steps_ns) / means_ns if means_ns else 0.0
    return tuple(
        PhaseTime(
            phase=phase,
            stopwatch_ns=round(scale * _middle_mean(samples_ns[phase])),
            event_ns=round(scale * _middle_mean(event_ns[phase])) if phase in event_ns else None,
        )
        for phase in TRACE_PHASES
        if phase in samples_ns
    )


def _middle_mean(values: Sequence[int]) -> float:
    """The mean of the middle half of `values`."""
    middle = sorted(values)[len(values) // 4 : len(values) - len(values) // 4]
    return sum(middle) / len(middle)


def _with_loss_split(
    samples_ns: Mapping[Phase, list[int]], between_calls_ns: Sequence[int], shares: LossShares
) -> dict[Phase, list[int]]:
    """The times of the phases in each step, where only these shares of the time after calls are the loss, the rest is other."""
    if "loss" not in samples_ns:
        return dict(samples_ns)
    times = zip(samples_ns["loss"], between_calls_ns, strict=True)
    loss_ns = [round(b * shares.between_calls + (ns - b) * shares.after_last_call) for ns, b in times]
    other_ns = samples_ns.get("other", [0] * len(loss_ns))
    rest_ns = [other + ns - loss for other, ns, loss in zip(other_ns, samples_ns["loss"], loss_ns, strict=True)]
    result: dict[Phase, list[int]] = {**samples_ns, "loss": loss_ns, "other": rest_ns}
    return {phase: ns for phase, ns in result.items() if phase != "loss" or any(ns)}


def _examples(observed: Observations, models: Sequence[nn.Module]) -> int | None:
    """The examples of a step: those of the inputs, times the calls of the model per step, as long as each has a backward pass.

    Further calls, as of a recurrent network, have the same examples. None where they are unknown, as with several models.
    """
    from profiler_kit.loading import Batch, example_count

    if observed.arguments is None or _counts_all_calls(models):
        return None
    batch = Batch(args=observed.arguments.args, kwargs=observed.arguments.kwargs)
    count = example_count(batch, models[0])
    calls = observed.forward_calls
    if observed.has_backward:
        calls = min(calls, observed.backward_passes)
    return round(count * calls / len(observed.steps_ns)) if count is not None and observed.steps_ns else count


def _counts_all_calls(models: Sequence[nn.Module]) -> bool:
    """Whether `models` stand for several models, of which all calls of a step are counted together."""
    from profiler_kit.recording.called_models import CalledModels

    return isinstance(models[0], CalledModels)


def _loop_notes(
    observed: Observations, evaluation: Evaluation | None, *, is_program: bool, counts_all_calls: bool
) -> Iterator[str]:
    steps = len(observed.steps_ns)
    yield (
        f"Recorded in a running loop: {observed.warmup_steps} steps without a clock, {steps} timed, {observed.traced_steps} "
        "traced. Data, logging and other work of the loop are part of its steps."
    )
    if observed.forward_calls > steps and not counts_all_calls:
        calls = observed.forward_calls / steps
        yield f"The loop calls the model {calls:.3g} times per step. The counts are those of one call."
    if not is_program and observed.has_backward and 0 < observed.optimizer_steps < steps:
        yield (
            f"An optimizer stepped in {observed.optimizer_steps} of {steps} timed steps. For gradient accumulation, call "
            "step() once per optimizer step."
        )
    if evaluation is not None:
        yield (
            f"An evaluation of the model ran in {evaluation.count} of {evaluation.steps} steps and took "
            f"{duration(evaluation.ns)}. These steps are not part of the times."
        )
    shapes = max(map(len, observed.signatures.values()), default=0)
    if shapes > 1:
        yield f"The shapes of the inputs change: {shapes} were recorded. The last one is counted."


def _counted(
    models: Sequence[nn.Module],
    observed: Observations,
    loss_fn: Callable[..., Any] | None,
    labels: Any,
    convention: str,
    notes: list[str],
    seen: SeenRun | None,
) -> tuple[TargetInfo, StaticCount | None, StaticCount | None]:
    """The target with its counts in `convention` and in the kit's; without counts, and with a note, if that fails."""
    from profiler_kit.counting import count_by_conventions
    from profiler_kit.recording.loop import inner_model
    from profiler_kit.user_code.environment import seeded
    from profiler_kit.user_code.locations import one_line_message
    from profiler_kit.user_code.process_settings import callers_modes_disabled

    inner = inner_model(models[0])
    if len(models) > 1 or observed.arguments is None:
        names = ", ".join(type(part).__name__ for part in models) if not _counts_all_calls(models) else "a model"
        reason = f"the loop calls several models: {names}" if len(models) > 1 else f"the loop did not call {names}"
        notes.append(f"Not counted: {reason}. Start a session with the model that it calls.")
        return _info_without_target(inner, observed), None, None
    simulated = simulated_device(torch_device=str(observed.device))
    try:
        with callers_modes_disabled(), seeded(0):  # the random state of the loop is restored
            target = _target(inner, observed, loss_fn, labels, seen)
            static, by_kit = with_memory(
                *count_by_conventions(target, convention, device=simulated), target, simulated, is_measured=True
            )
    except EXPECTED as error:
        reason = error.message if isinstance(error, KitError) else one_line_message(error)
        notes.append(f"Not counted; the measurements are not affected: {reason}")
        return _info_without_target(inner, observed), None, None
    info = _loop_info(target.info, counts_all_calls=_counts_all_calls([inner]))
    if observed.optimizer is None:
        others = tuple(note for note in info.notes if note.subject != "optimizer")  # it would announce the default
        info = replace(info, optimizer=None, notes=others)
    return info, static, by_kit


def _target(
    model: nn.Module, observed: Observations, loss_fn: Callable[..., Any] | None, labels: Any, seen: SeenRun | None
) -> Target:
    from profiler_kit.errors import UsageError
    from profiler_kit.loading import from_model
    from profiler_kit.loading.live.live_models import optimizer_settings
    from profiler_kit.recording.called_models import CalledModels, sum_of_outputs

    assert observed.arguments is not None
    args, kwargs = observed.arguments.args, observed.arguments.kwargs
    if isinstance(model, CalledModels):
        args, kwargs, loss_fn = model.calls(observed.calls), {}, sum_of_outputs
    configure = None
    if observed.optimizer is not None:
        with contextlib.suppress(UsageError):  # it trains other parameters; the default optimizer is then announced
            configure = optimizer_settings(observed.optimizer, model)
    amp = observed.arguments.amp
    return from_model(
        model,
        args,
        kwargs,
        loss_fn=loss_fn,
        labels=labels,
        configure_optimizer=configure,
        mode="train" if observed.has_backward else "infer",
        amp=str(amp).removeprefix("torch.") if amp is not None else None,
        command=("count", ""),
        seen=seen,
    )


def _loop_info(info: TargetInfo, *, counts_all_calls: bool) -> TargetInfo:
    """`info` of the counted copy in terms of the loop, which has its own loss and labels.

    `counts_all_calls`: the copy stands for several models.
    """
    info = replace(info, inputs_from="loop")
    if not info.has_note("default_loss") and not counts_all_calls:
        return info
    counted = "the sum of the outputs" if counts_all_calls else info.loss
    text = f"The loss of the loop is not counted; {counted} takes its place. A session with loss_fn counts it."
    notes = (*(note for note in info.notes if note.code != "default_loss"), Note(text=text))
    return replace(info, loss=OF_LOOP, notes=notes)


def _info_without_target(model: nn.Module, observed: Observations) -> TargetInfo:
    signature = observed.arguments.signature if observed.arguments is not None else ()
    inputs = tuple(
        InputInfo(name=f"input {i}", shape=shape, dtype=str(dtype).removeprefix("torch."))
        for i, (shape, dtype) in enumerate(signature)
    )
    optimizer = observed.optimizer
    return TargetInfo(
        spec=IN_PYTHON,
        inputs_from="loop",
        name=type(model).__name__,
        inputs=inputs,
        mode="train" if observed.has_backward else "infer",
        loss=None,
        optimizer=type(optimizer).__name__ if optimizer is not None else None,
    )
