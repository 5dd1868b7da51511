"""Operators that compute on the CPU while the device is idle."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    calls_text,
    is_operator,
    launching_operators,
    long_calls,
)
from profiler_kit.diagnosis.phrases import limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Report, TraceReport
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


def _cpu_operators(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    launching = launching_operators(step)
    calls = [
        activity
        for activity in long_calls(step)
        if is_operator(activity.name) and activity.name not in launching and activity.name not in _NOT_COMPUTING
    ]
    ns = sum(activity.long_ns for activity in calls)
    share = step.share(ns)
    if not step.on_device or share < MIN_HOST_SHARE:
        return None
    return StepPart(
        share=share,
        share_name="idle time in operators on the CPU, share",
        severity=severity_of(share, high=HIGH_SHARE),
        title=f"The device waits for operators on the CPU for {percent(share)} of the time",
        sentences=(
            f"These operators launch nothing and keep the device idle for {text(ns, 'ns')} {step.per_step}: "
            f"{calls_text(calls)}.",
        ),
        advice="Run them on the device: create their inputs there, {code}, and remove .cpu() and .numpy() before them. If the "
        f"operator has no implementation for the device, replace it, or move this work: {step.facts.elsewhere()}.",
        code="x = torch.tensor(data, device=device)",
        measures=(("idle time in operators on the CPU", ns, "ns"),),
        claims=idle_claims("op dispatch"),
    )


RULE = step_rule("cpu_fallback", DOC, _cpu_operators, steps=idle_steps)
