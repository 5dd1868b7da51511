"""Operators that work on the host for milliseconds before they launch, again and again: plans for new shapes."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    calls_text,
    launching_operators,
    long_calls,
    repeats,
)
from profiler_kit.diagnosis.phrases import advise, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.units import percent, text

HIGH_SHARE: Final = 0.25
# One call that takes most of the time happens once: a cold start. Preparation for shapes happens in several calls.
MAX_LONGEST_SHARE: Final = 0.8
_CUDNN_ATTENTION: Final = re.compile(r"cudnn_attention")

DOC = f"""
Fires for a trace of several steps if operators that launch device work keep the device idle for at least
{limit_percent(MIN_HOST_SHARE)} of the time, in gaps of at least {text(LONG_CALL_NS, "ns")}, in more than one call. `high` from
{limit_percent(HIGH_SHARE)} on, `medium` below.

An operator needs some microseconds to launch a kernel. If it takes milliseconds, its library prepares: it searches an algorithm
(`cudnn.benchmark`), builds a plan, or compiles a kernel. Libraries keep the result for each combination of shapes, so a steady
loop pays once. A loop whose shapes change, such as generation with a growing key-value cache, pays in each step. Rule
`cold_start` covers operators with a single long call, and long calls of the first step only.
"""

_ADVICE: Final = (
    "Keep shapes equal: pad to a few sizes, or use a key-value cache of fixed length{drop}. Leave "
    "torch.backends.cudnn.benchmark at False while shapes change."
)
_DROP: Final = ", and drop a smaller last batch (drop_last=True)"
_ATTENTION_ADVICE: Final = advise(
    "Use another attention kernel, which needs no plan for each length: {code}. Or keep shapes equal: pad to a few lengths, or "
    "use a key-value cache of fixed length.",
    "torch.backends.cuda.enable_cudnn_sdp(False)",
)


def _preparation(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    """Return the operators with several long calls before launches; None below the limit."""
    launching = launching_operators(step)
    calls = [
        activity
        for activity in long_calls(step)
        if activity.name in launching and activity.longest_ns < MAX_LONGEST_SHARE * activity.long_ns
    ]
    ns = sum(activity.long_ns for activity in calls)
    if not step.on_device or step.marked_steps < 2 or not repeats(step, ns):
        return None
    share, main = step.share(ns), max(calls, key=lambda activity: activity.long_ns)
    return StepPart(
        share=share,
        share_name="preparation, share of the time",
        severity=severity_of(share, high=HIGH_SHARE),
        title=f"The device waits for {percent(share)} of the time while {main.name} prepares on the host",
        sentences=(
            f"Gaps of at least {text(LONG_CALL_NS, 'ns')} keep it idle for {text(ns, 'ns')} {step.per_step}, in "
            f"{calls_text(calls)}.",
            "A library that meets a new combination of shapes searches an algorithm, builds a plan or compiles a kernel.",
        ),
        advice=_ATTENTION_ADVICE
        if _CUDNN_ATTENTION.search(main.name)
        else _ADVICE.format(drop=_DROP if step.facts.has_loader else ""),
        measures=(("preparation", ns, "ns"),),
        evidence=(Evidence(name="longest call", value=main.longest_ns, unit="ns", where=main.name),),
        claims=idle_claims("op dispatch"),
    )


RULE = step_rule("slow_preparation", DOC, _preparation, "place", steps=idle_steps)
