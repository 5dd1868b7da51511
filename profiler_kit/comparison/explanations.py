"""The usual explanations of why one model is slower or takes more memory, each put to the test on two runs.

An explanation is kept only where both reports have its numbers, and where somebody might give it at all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Literal

from profiler_kit.comparison.cases import Case, apart, judged, larger_first
from profiler_kit.comparison.memory_explanations import activations, checkpointing
from profiler_kit.records.comparison import Explanation, ExplanationVerdict
from profiler_kit.records.report import Evidence
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text

# Of the step: a stopwatch that gives the loss less tempts nobody; and where it gives it this much more than its kernels
# take, it shows where the host waited, not where the time went.
LOSS_SHARE: Final = 0.2


def explanations(cases: Sequence[Case]) -> tuple[Explanation, ...]:
    """What becomes of the usual explanations in each case: explanation by explanation, each in the order of `cases`."""
    tests: tuple[Callable[[Case], Explanation | None], ...] = (loss, parameters, flops, activations, checkpointing)
    return tuple(found for test in tests for case in cases if (found := test(case)) is not None)


def loss(case: Case) -> Explanation | None:
    """What becomes of "it is the loss": a stopwatch's share of it beside its share of device time."""
    if case.runs is None or case.same_time:
        return None
    watched = [_loss_share(run, "stopwatch_ns") for run in case.runs]
    timed = [_loss_share(run, "kernel_ns") for run in case.runs]
    stopwatch, device = [one for one in watched if one is not None], [one for one in timed if one is not None]
    if len(stopwatch) < 2 or len(device) < 2 or max(stopwatch) < LOSS_SHARE:
        return None
    wrong = any(one - other >= LOSS_SHARE for one, other in zip(stopwatch, device, strict=True))
    what = "operators" if case.runs[0].clock == "operator" else "kernels"
    read, took = [percent(one, 2) for one in stopwatch], [percent(one, 2) for one in device]
    return Explanation(
        key="loss",
        config=case.config,
        explanation="It is the loss",
        predicts=f"{read[0]} and {read[1]} of a step",
        measured=f"{what}: {took[0]} and {took[1]}",
        verdict="wrong" if wrong else "right",
        sentence=(
            f"{'It is not the loss' if wrong else 'The loss does take long'}: a stopwatch gives it {read[0]} of "
            f"{case.label(0)}'s step and {read[1]} of {case.label(1)}'s, its {what} take {took[0]} and {took[1]}"
            f"{'; the host only waits there for what it launched before' if wrong else ''}."
        ),
        numbers=(
            *case.evidence("loss by stopwatch", [100 * one for one in stopwatch], "percent"),
            *case.evidence(f"loss by its {what}", [100 * one for one in device], "percent"),
        ),
    )


def _loss_share(run: ConfigRun, clock: Literal["stopwatch_ns", "kernel_ns"]) -> float | None:
    times = {timing.phase: value for timing in run.phases if (value := getattr(timing, clock)) is not None}
    whole = sum(times.values())
    return times["loss"] / whole if "loss" in times and whole > 0 else None


def parameters(case: Case) -> Explanation | None:
    """What becomes of "more parameters are slower": the ratio of parameters beside that of times, per example."""
    if case.a.static is None or case.b.static is None or case.time is None:
        return None
    params = (case.a.static.params, case.b.static.params)
    if min(params) <= 0 or not apart(params):
        return None
    large, small = larger_first(params)
    ratio = case.time.per_sample_ratio or case.time.time_ratio
    each = " for an example" if case.time.per_sample_ratio is not None else ""
    expected, found = params[large] / params[small], ratio if large == 1 else 1 / ratio
    verdict, off_by = _time_verdict(case, expected, found)
    more = f"{case.label(large)} has {text(expected, 'ratio')} the parameters of {case.label(small)}"
    took = "takes as long" if case.same_time else f"takes {text(found, 'ratio')} its time{each}"
    return Explanation(
        key="parameters",
        config=case.config,
        explanation="More parameters are slower",
        predicts=f"{text(expected, 'ratio')} for {case.label(large)}",
        measured=_measured(case, found, each),
        verdict=verdict,
        sentence=f"It is not the parameters: {more} and {took}." if verdict == "wrong" else f"{more} and {took}.",
        numbers=(
            *case.evidence("parameters", params, "count"),
            Evidence(name="time ratio", value=found, unit="ratio", where=case.label(large)),
        ),
        off_by=off_by,
    )


def flops(case: Case) -> Explanation | None:
    """What becomes of "FLOPs predict the time": the work ratio beside the time ratio; between them is efficiency."""
    time = case.time
    if time is None or not apart((time.a_flops, time.b_flops)):
        return None
    more, less = larger_first((time.a_flops, time.b_flops))
    work, ratio = time.work_ratio, time.time_ratio
    expected, found = (work, ratio) if more == 1 else (1 / work, 1 / ratio)
    verdict, off_by = _time_verdict(case, expected, found)
    took = "takes as long" if case.same_time else f"takes {text(found, 'ratio')}"
    return Explanation(
        key="flops",
        config=case.config,
        explanation="FLOPs predict the time",
        predicts=f"{text(expected, 'ratio')} for {case.label(more)}",
        measured=_measured(case, found),
        verdict=verdict,
        sentence=(
            f"By its FLOPs {case.label(more)} would take {text(expected, 'ratio')} the time of {case.label(less)}; it {took}."
        ),
        numbers=(
            *case.evidence("FLOPs, step", (time.a_flops, time.b_flops), "flops"),
            Evidence(name="work ratio", value=expected, unit="ratio", where=case.label(more)),
            Evidence(name="time ratio", value=found, unit="ratio", where=case.label(more)),
        ),
        off_by=off_by,
    )


def _time_verdict(case: Case, expected: float, found: float) -> tuple[ExplanationVerdict, float | None]:
    """A ratio above 1 was predicted: no difference, or the opposite, makes it wrong."""
    return ("wrong", None) if case.same_time or found <= 1 else judged(expected, found)


def _measured(case: Case, found: float, each: str = "") -> str:
    return "no difference beyond noise" if case.same_time else f"{text(found, 'ratio')}{each}"
