"""The usual explanations of why one model is slower or needs more memory, each tested on two runs.

An explanation is tested only if both reports have its figures and if the difference is large enough for anyone to propose it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from profiler_kit.comparison.memory_explanations import explain_by_activations, explain_by_checkpointing
from profiler_kit.comparison.ratios import Case, differs, judge_prediction, larger_first
from profiler_kit.records.comparison import Explanation, ExplanationVerdict
from profiler_kit.records.report import Evidence
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# Of the step. A loss with a smaller share by stopwatch misleads nobody. If the stopwatch share exceeds the kernel share by
# this much, the stopwatch shows where the host waited and not where the time went.
MIN_LOSS_SHARE: Final = 0.2


def explanations(cases: Sequence[Case]) -> tuple[Explanation, ...]:
    """The tested explanations, grouped by explanation, each group in the order of `cases`."""
    tests: tuple[Callable[[Case], Explanation | None], ...] = (
        explain_by_loss,
        explain_by_parameters,
        explain_by_flops,
        explain_by_activations,
        explain_by_checkpointing,
    )
    return tuple(explanation for test in tests for case in cases if (explanation := test(case)) is not None)


def explain_by_loss(case: Case) -> Explanation | None:
    """Test "the loss is the bottleneck": its share by stopwatch against its share of kernel time."""
    if case.runs is None or case.same_time:
        return None
    stopwatch = [share for run in case.runs if (share := _loss_share(run, "stopwatch_ns")) is not None]
    device = [share for run in case.runs if (share := _loss_share(run, "kernel_ns")) is not None]
    if len(stopwatch) < 2 or len(device) < 2 or max(stopwatch) < MIN_LOSS_SHARE:
        return None
    is_wrong = any(
        by_stopwatch - by_kernels >= MIN_LOSS_SHARE for by_stopwatch, by_kernels in zip(stopwatch, device, strict=True)
    )
    clock = "operators" if case.runs[0].clock == "operator" else "kernels"
    stopwatch_text, device_text = [percent(share, 2) for share in stopwatch], [percent(share, 2) for share in device]
    lead = "The loss is not the cause" if is_wrong else "The loss takes a large share"
    return Explanation(
        key="loss",
        config=case.config,
        explanation="The loss is the bottleneck",
        predicts=f"{stopwatch_text[0]} and {stopwatch_text[1]} of a step",
        measured=f"{clock}: {device_text[0]} and {device_text[1]}",
        verdict="wrong" if is_wrong else "right",
        sentence=(
            f"{lead}: a stopwatch attributes {stopwatch_text[0]} of {case.label(0)}'s step and {stopwatch_text[1]} of "
            f"{case.label(1)}'s to it, {'but' if is_wrong else 'and'} its {clock} take {device_text[0]} and {device_text[1]}."
            f"{f' The host waits there for {clock} launched earlier.' if is_wrong else ''}"
        ),
        numbers=(
            *case.evidence("loss by stopwatch", [100 * share for share in stopwatch], "percent"),
            *case.evidence(f"loss by its {clock}", [100 * share for share in device], "percent"),
        ),
    )


def _loss_share(run: ConfigRun, clock: Literal["stopwatch_ns", "kernel_ns"]) -> float | None:
    times = {timing.phase: value for timing in run.phases if (value := getattr(timing, clock)) is not None}
    total_ns = sum(times.values())
    return times["loss"] / total_ns if "loss" in times and total_ns > 0 else None


def explain_by_parameters(case: Case) -> Explanation | None:
    """Test "more parameters are slower": the ratio of parameters against the ratio of times, per example if these differ."""
    if case.a.static is None or case.b.static is None or case.time is None:
        return None
    params = (case.a.static.params, case.b.static.params)
    if min(params) <= 0 or not differs(params):
        return None
    large, small = larger_first(params)
    b_over_a = case.time.per_sample_ratio or case.time.time_ratio
    unit_text = " per example" if case.time.per_sample_ratio is not None else ""
    predicted, measured = params[large] / params[small], b_over_a if large == 1 else 1 / b_over_a
    verdict, error_factor = _time_verdict(case, predicted, measured)
    sentence = (
        f"{case.label(large)} has {text(predicted, 'ratio')} the parameters of {case.label(small)} and takes "
        f"{_time_text(case, measured)}{'' if case.same_time else unit_text}."
    )
    return Explanation(
        key="parameters",
        config=case.config,
        explanation="More parameters are slower",
        predicts=f"{text(predicted, 'ratio')} for {case.label(large)}",
        measured=_measured_text(case, measured, unit_text),
        verdict=verdict,
        sentence=f"The number of parameters is not the cause: {sentence}" if verdict == "wrong" else sentence,
        numbers=(
            *case.evidence("parameters", params, "count"),
            Evidence(name="time ratio", value=measured, unit="ratio", where=case.label(large)),
        ),
        off_by=error_factor,
    )


def explain_by_flops(case: Case) -> Explanation | None:
    """Test "FLOPs predict the time": the work ratio against the time ratio; their quotient is the efficiency ratio."""
    time = case.time
    if time is None or time.work_ratio is None or not differs((time.a_flops, time.b_flops)):
        return None
    more, less = larger_first((time.a_flops, time.b_flops))
    work_ratio, time_ratio = time.work_ratio, time.time_ratio
    predicted, measured = (work_ratio, time_ratio) if more == 1 else (1 / work_ratio, 1 / time_ratio)
    verdict, error_factor = _time_verdict(case, predicted, measured)
    return Explanation(
        key="flops",
        config=case.config,
        explanation="FLOPs predict the time",
        predicts=f"{text(predicted, 'ratio')} for {case.label(more)}",
        measured=_measured_text(case, measured),
        verdict=verdict,
        sentence=(
            f"{case.label(more)} has {text(predicted, 'ratio')} the FLOPs of {case.label(less)} and takes "
            f"{_time_text(case, measured)}."
        ),
        numbers=(
            *case.evidence("FLOPs, step", (time.a_flops, time.b_flops), "flops"),
            Evidence(name="work ratio", value=predicted, unit="ratio", where=case.label(more)),
            Evidence(name="time ratio", value=measured, unit="ratio", where=case.label(more)),
        ),
        off_by=error_factor,
    )


def _time_verdict(case: Case, predicted: float, measured: float) -> tuple[ExplanationVerdict, float | None]:
    """The verdict on a predicted ratio above 1: no difference and a ratio below 1 are wrong."""
    return ("wrong", None) if case.same_time or measured <= 1 else judge_prediction(predicted, measured)


def _time_text(case: Case, ratio: float) -> str:
    return "the same time" if case.same_time else f"{text(ratio, 'ratio')} its time"


def _measured_text(case: Case, ratio: float, unit_text: str = "") -> str:
    return "no difference beyond noise" if case.same_time else f"{text(ratio, 'ratio')}{unit_text}"
