"""Operators that work on the host for milliseconds before they launch, again and again: plans for new shapes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    calls_text,
    launching_operators,
    long_calls,
    repeats,
)
from profiler_kit.diagnosis.phrases import advise, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import HostActivity
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


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace whose operators prepare longest."""
    if (worst := worst_step(idle_steps(report), _preparing, _total_ns)) is None:
        return
    step, calls = worst.step, worst.match
    share = step.share(_total_ns(calls))
    main = calls[0]
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"The device waits for {percent(share)} of the time while {main.name} prepares on the host",
        explanation=join_sentences(
            f"{step.prefix}Gaps of at least {text(LONG_CALL_NS, 'ns')} keep it idle for {text(_total_ns(calls), 'ns')} "
            f"{step.per_step}, in {calls_text(calls)}.",
            "A library that meets a new combination of shapes searches an algorithm, builds a plan or compiles a kernel.",
            worst.others_sentence(),
        ),
        advice=_ATTENTION_ADVICE
        if _CUDNN_ATTENTION.search(main.name)
        else _ADVICE.format(drop=_DROP if step.facts.has_loader else ""),
        evidence=(
            Evidence(name="preparation, share of the time", value=100.0 * share, unit="percent", where=step.name),
            Evidence(name="preparation", value=_total_ns(calls), unit="ns", where=step.name),
            Evidence(name="longest call", value=main.longest_ns, unit="ns", where=main.name),
        ),
        weight=share,
        claims=("idle:op dispatch",),
    )


def _preparing(step: StepWork) -> tuple[HostActivity, ...] | None:
    """Return the operators with several long calls before launches, longest first; None below the limit."""
    if not step.on_device or step.marked_steps < 2:
        return None
    calls = [
        activity
        for activity in long_calls(step)
        if activity.name in launching_operators(step) and activity.longest_ns < MAX_LONGEST_SHARE * activity.long_ns
    ]
    calls.sort(key=lambda activity: -activity.long_ns)
    return tuple(calls) if repeats(step, _total_ns(calls)) else None


def _total_ns(calls: tuple[HostActivity, ...] | list[HostActivity]) -> int:
    return sum(activity.long_ns for activity in calls)


RULE = Rule("slow_preparation", DOC, check, "place", "both")
