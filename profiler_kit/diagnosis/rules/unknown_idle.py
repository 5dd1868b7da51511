"""Idle time that no other rule explains."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.idle_time import LARGE_IDLE_SHARE, LAUNCH_CAUSES, calls_text, launch_ns, launch_share
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, limit_percent
from profiler_kit.diagnosis.recorded import BOTH_ACTIVITIES
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import IdleCause, idle_by_cause
from profiler_kit.units import percent, text

# A cause with less than this share of the step has no rule of its own.
MIN_CAUSE_SHARE: Final = 0.05
MIN_SHARE: Final = 0.10
HIGH_SHARE: Final = 0.50
# A shorter call of the host says nothing about the idle time.
MIN_CALL_SHARE: Final = 0.05
_ALWAYS: Final[frozenset[IdleCause]] = frozenset({"unknown", "another stream"})
_ON_DEVICE: Final = (
    "Work was launched and did not begin: the device may have run work that the trace does not hold, launched earlier, "
    "filtered out, or of another process."
)
_ON_HOST: Final = (
    "The main thread waits for a backward pass whose operators are not in the trace: for a model on a device, autograd runs "
    "them in threads of its own."
)

DOC = f"""
Fires if idle time takes at least {limit_percent(LARGE_IDLE_SHARE)} of the step, and at least {limit_percent(MIN_SHARE)} of the
step is idle for an unknown reason or for causes that are too small for a rule of their own.

- `medium`: at least {limit_percent(HIGH_SHARE)} of the step.
- `low`: below that.

Idle time is of unknown cause if work was launched and did not begin, or if the trace has no launches: the device may have run
work that the trace does not hold. Without a device, it is time in a marked backward pass without autograd nodes. The finding
lists the host's activity meanwhile. The rule reads reports and traces.
"""


def _unknown_idle(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    causes = _unexplained(step)
    ns = sum(causes.values())
    share, is_unknown = step.share(ns), causes.keys() == {"unknown"}
    if share < MIN_SHARE:
        return None
    calls = [
        activity
        for activity in step.trace.activities
        if activity.long_ns >= MIN_CALL_SHARE * ns
        and activity.launched == (is_unknown and step.on_device)
        and activity.ns <= ns  # longer ones belong to a cause that has a rule of its own
        and (activity.phase != "data" or "waiting for data" in causes)
    ]
    cause_texts = [f"{cause} {text(cause_ns, 'ns')}" for cause, cause_ns in causes.items()]
    return StepPart(
        share=share,
        share_name="unexplained idle time, share",
        severity=severity_of(share, medium=HIGH_SHARE),
        title=f"{'Idle time' if step.on_device else 'Time outside operators'} "
        f"{'of unknown cause' if is_unknown else 'without a main cause'}: {percent(share)} of the time",
        sentences=(
            f"Idle time by cause: {join_list(cause_texts)}.",
            (_ON_DEVICE if step.on_device else _ON_HOST) if is_unknown else "",
            f"Meanwhile the host was in {calls_text(calls)}." if calls else "",
        ),
        advice=_unknown_advice(step) if is_unknown else _causes_advice(step),
        measures=(("unexplained idle time", ns, "ns"), ("span", step.span_ns, "ns")),
        claims=idle_claims(*causes),
    )


def _unknown_advice(step: StepWork) -> Advice:
    """Return how to record the part that is missing from the trace."""
    if not step.on_device:
        return advise("Record all threads and the device: {code}.", BOTH_ACTIVITIES)
    activities = "" if step.trace.linked else " with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])"
    return advise(
        f"Record a few whole steps{activities}: call {{code}} before the first recorded step. And look for other processes on "
        "the device.",
        "torch.cuda.synchronize()",
    )


def _causes_advice(step: StepWork) -> Advice:
    table = "See the table of idle time for the largest cause."
    if step.trace.with_stack:
        return Advice(table)
    return advise(f"{table} Record with {{code}} to see the lines of code.", "profile(with_stack=True)")


def _unexplained(step: StepWork) -> dict[IdleCause, int]:
    """Return the idle time by cause, without the causes that have a rule of their own; empty below the limit."""
    by_cause = idle_by_cause(step.idle)
    if step.share(sum(by_cause.values())) < LARGE_IDLE_SHARE:
        return {}
    # Before launches, the rules about launches, long calls and waits explain a part; between operators, that about the host.
    launching_ns = step.idle_ns(*LAUNCH_CAUSES)
    is_explained = launch_share(step) is not None if step.on_device else step.share(launching_ns) >= LARGE_IDLE_SHARE
    remaining_ns = launch_ns(step) if step.on_device else launching_ns
    unexplained_part = 0.0 if is_explained or not launching_ns else remaining_ns / launching_ns
    causes: dict[IdleCause, int] = {}
    for cause, ns in by_cause.items():
        if cause in LAUNCH_CAUSES:
            ns = round(ns * unexplained_part)
        elif cause not in _ALWAYS and step.share(ns) > MIN_CAUSE_SHARE:
            continue
        if ns > 0:
            causes[cause] = ns
    return {"unknown": causes["unknown"]} if 2 * causes.get("unknown", 0) > sum(causes.values()) else causes


RULE = step_rule("unknown_idle", DOC, _unknown_idle, "note", steps=idle_steps)
