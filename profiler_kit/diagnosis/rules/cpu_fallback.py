"""Operators that compute on the CPU while the device is idle."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    calls_text,
    is_operator,
    launching_operators,
    long_calls,
)
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import HostActivity
from profiler_kit.units import percent, text

HIGH_SHARE: Final = 0.25
# These allocate, copy or wait; they do not compute.
_NOT_COMPUTING: Final = frozenset(
    {
        "aten::to",
        "aten::_to_copy",
        "aten::copy_",
        "aten::item",
        "aten::_local_scalar_dense",
        "aten::is_nonzero",
        "aten::empty",
    }
)

DOC = f"""
Fires if operators keep the device idle for at least {limit_percent(MIN_HOST_SHARE)} of the step, in gaps of at least
{text(LONG_CALL_NS, "ns")}, and launch no work: they compute on the CPU.

- `high`: at least {limit_percent(HIGH_SHARE)} of the step.
- `medium`: below that.

Dispatching an operator to the device takes the host microseconds. Operators inside data loading are not counted (rule
`data_bound`). The rule reads reports and traces.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the trace with the largest share."""
    if (worst := worst_step(idle_steps(report), _operators, _total_ns)) is None:
        return
    step = worst.step
    ns = _total_ns(worst.match)
    share = step.share(ns)
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"The device waits for operators on the CPU for {percent(share)} of the time",
        explanation=join_sentences(
            f"{step.prefix}These operators launch nothing and keep the device idle for {text(ns, 'ns')} {step.per_step}: "
            f"{calls_text(worst.match)}.",
            worst.others_sentence(),
        ),
        advice="Run them on the device: create their inputs there, {code}, and remove .cpu() and .numpy() before them. If the "
        f"operator has no implementation for the device, replace it, or move this work: {step.facts.elsewhere()}.",
        code="x = torch.tensor(data, device=device)",
        evidence=(
            Evidence(
                name="idle time in operators on the CPU, share", value=100.0 * share, unit="percent", where=step.name
            ),
            Evidence(name="idle time in operators on the CPU", value=ns, unit="ns", where=step.name),
        ),
        weight=share,
        claims=("idle:op dispatch",),
    )


def _operators(step: StepWork) -> tuple[HostActivity, ...] | None:
    operators = tuple(
        activity
        for activity in long_calls(step)
        if is_operator(activity.name)
        and activity.name not in launching_operators(step)
        and activity.name not in _NOT_COMPUTING
    )
    return operators if step.on_device and step.share(_total_ns(operators)) >= MIN_HOST_SHARE else None


def _total_ns(calls: tuple[HostActivity, ...]) -> int:
    return sum(activity.long_ns for activity in calls)


RULE = Rule("cpu_fallback", DOC, check, "cause", "both")
