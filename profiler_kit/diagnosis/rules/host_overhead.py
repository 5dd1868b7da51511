"""A step in which the host is busy with other work than launching and running operators: Python, autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.disturbance import is_disturbed
from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    call_name,
    calls_text,
    is_operator,
    is_own_call,
    long_calls,
    repeats,
    single_ns,
)
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, WorstStep, idle_steps, worst_step
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.traces import HostActivity
from profiler_kit.units import percent, text

# Every step has some Python and dispatch. Above this share, reducing them saves more than a faster operator.
MAX_OUTSIDE_SHARE: Final = 0.20
# Half of the step is more than any operator can save.
HIGH_SHARE: Final = 0.50
# The profiler itself adds to the time outside operators, so a smaller share is uncertain.
MEDIUM_SHARE: Final = 0.30
# A call that takes more than half of the time outside operators is the cause; many short ones are overhead of the framework.
MAIN_CALL_SHARE: Final = 0.5

_NO_OPERATOR: Final = "A faster operator saves little here."

DOC = f"""
Fires on a CPU if at least {limit_percent(MAX_OUTSIDE_SHARE)} of the time without data loading passes outside operators, in Python
and autograd, and at least {limit_percent(MIN_HOST_SHARE)} of the whole step.

- `high`: at least {limit_percent(HIGH_SHARE)}.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that.
- In a report, the share is at most what the operators of the traced steps leave of the timed step. If they leave nothing, it has
  to be {limit_percent(MEDIUM_SHARE)}, and the finding is `medium`: the profiler slows Python down too.
- The rule is silent on a CPU if threads waited for a core (rule `busy_host`), or if timed steps take much longer than traced
  ones (rule `unsteady`): other work on the machine looks like Python there.
- Waiting for data (rule `data_bound`), waiting for other ranks and compilation are not counted.

Fires on a device if Python keeps it idle for at least {limit_percent(MIN_HOST_SHARE)} of the step, in gaps of at least
{text(LONG_CALL_NS, "ns")}. A gap before a usual launch is shorter (rule `launch_bound`). A long one is other work of the loop:
metrics, logging, saving, preprocessing. A trace with Python calls (`with_stack=True`) names it. A single long gap of a trace
without steps is at most `medium`: it may happen once. Gaps of the first step only do not count, and neither does a single gap
that takes most of the time in Python (rule `cold_start`).
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding for long calls that a device waits for, and one for a step without a device."""
    yield from _long_calls(report)
    if (
        worst := worst_step(idle_steps(report), lambda step: _outside_share(report, step), lambda share: share)
    ) is None:
        return
    step, share = worst.step, worst.match
    calls = [a for a in step.trace.activities if a.phase not in ("data", "communication") and is_own_call(a)]
    main = next((a for a in calls if a.ns >= MAIN_CALL_SHARE * _python_ns(step)), None)
    is_uncertain = isinstance(report, Report) and _timed_share(report) is None
    yield RULE.finding(
        severity="medium" if is_uncertain else _severity(share),
        title=f"Host overhead: {percent(share)} of the time is spent outside operators",
        explanation=join_sentences(
            f"{step.prefix}Python, autograd and waiting threads take {text(_python_ns(step), 'ns')} of "
            f"{text(step.span_ns, 'ns')}; operators take {text(step.busy_ns, 'ns')}.",
            f"Most of it passes in {call_name(main)} ({text(main.ns, 'ns')})." if main else "The profiler adds to it.",
            worst.others_sentence(),
        ),
        advice=_long_call_advice(step.facts) if main is not None else _advice(step.facts, compiled=step.trace.compiled),
        evidence=(
            Evidence(name="share outside operators", value=100.0 * share, unit="percent", where=step.name),
            Evidence(name="span", value=step.span_ns, unit="ns", where=step.name),
            Evidence(name="operator time", value=step.busy_ns, unit="ns", where=step.name),
        ),
        weight=share,
        claims=idle_claims("python"),
    )


def _outside_share(report: Report | TraceReport, step: StepWork) -> float | None:
    """Return the share of a step on a CPU outside operators; None below the limits, and where other work disturbs it."""
    run = report.baseline() if isinstance(report, Report) else None
    if step.on_device or (run is not None and is_disturbed(run)):
        return None
    share, least = step.share(_python_ns(step)), MAX_OUTSIDE_SHARE
    if isinstance(report, Report):
        timed_share = _timed_share(report)
        share, least = (share, MEDIUM_SHARE) if timed_share is None else (min(share, timed_share), least)
    is_large = share >= least * (1.0 - step.share(step.idle_ns("waiting for data")))
    return share if is_large and share >= MIN_HOST_SHARE else None


def _timed_share(report: Report) -> float | None:
    """Return the part of the timed step that traced operators and data loading leave; None if they leave nothing."""
    run = report.baseline()
    if run is None or run.step_ns is None or run.device_ns is None:
        return None
    data_ns = sum(timing.stopwatch_ns or 0 for timing in run.phases if timing.phase == "data")
    operators_ns = run.device_ns - sum(item.kernel_ns for item in run.modules if item.phase == "data")
    outside_ns = run.step_ns.median - data_ns - operators_ns
    return outside_ns / run.step_ns.median if outside_ns > 0 else None


def _python_ns(step: StepWork) -> int:
    return step.idle_ns("python") - single_ns(step)


def _advice(facts: Facts, *, compiled: bool) -> Advice:
    """Return the advice against many short operators, without what the program uses already and what it does not have."""
    options = ["a larger batch"]
    options += [] if compiled else ["{code}", "fewer small modules"]
    options += ["torch.optim.AdamW(..., fused=True)"] if facts.has_optimizer and not compiled else []
    advice = f"Use larger{'' if compiled else ' or fewer'} operators: {', '.join(options)}. {_NO_OPERATOR}"
    return advise(advice, "" if compiled else "model = torch.compile(model)")


def _long_call_advice(facts: Facts) -> str:
    return (
        f"Move this work out of the loop: {facts.elsewhere()}. If it computes on tensors, do it with torch operators on the "
        "device."
    )


def _see_code_advice(facts: Facts) -> Advice:
    return advise(
        f"See which code runs meanwhile: {{code}}. Then move what a step does not need: {facts.elsewhere()}.",
        "torch.profiler.profile(with_stack=True)",
    )


def _severity(share: float) -> Severity:
    if share >= HIGH_SHARE:
        return "high"
    return "medium" if share >= MEDIUM_SHARE else "low"


def _long_calls(report: Report | TraceReport) -> Iterator[Finding]:
    worst: WorstStep[tuple[HostActivity, ...]] | None = worst_step(idle_steps(report), _python_calls, _total_ns)
    if worst is None:
        return
    step = worst.step
    calls_ns = _total_ns(worst.match)
    share = step.share(calls_ns)
    main = max(worst.match, key=lambda activity: activity.long_ns)
    is_once = step.marked_steps == 0 and main.calls == 1
    # ranges of a phase, such as one around backward, do not say what runs in them
    is_named = any(activity.source for activity in worst.match) or (main.name != "" and main.phase in ("", "other"))
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE and not is_once else "medium",
        title=f"The device waits for Python for {percent(share)} of the time",
        explanation=join_sentences(
            f"{step.prefix}Gaps of at least {text(LONG_CALL_NS, 'ns')} keep the device idle for {text(calls_ns, 'ns')} "
            f"{step.per_step}. Meanwhile the host is in {calls_text(worst.match)}.",
            "Record with with_stack=True to see the lines of code." if not step.trace.with_stack else "",
            worst.others_sentence(),
        ),
        advice=_long_call_advice(step.facts) if is_named else _see_code_advice(step.facts),
        evidence=(
            Evidence(name="idle time in Python, share", value=100.0 * share, unit="percent", where=step.name),
            Evidence(name="idle time in Python", value=calls_ns, unit="ns", where=step.name),
        ),
        weight=share,
        claims=idle_claims("python", "op dispatch"),
    )


def _python_calls(step: StepWork) -> tuple[HostActivity, ...] | None:
    """Return the long calls of a device's step that are not operators; None below the limit."""
    calls = tuple(activity for activity in long_calls(step) if not is_operator(activity.name))
    return calls if step.on_device and repeats(step, _total_ns(calls)) and not single_ns(step) else None


def _total_ns(calls: tuple[HostActivity, ...]) -> int:
    return sum(activity.long_ns for activity in calls)


RULE = Rule("host_overhead", DOC, check, "place", "both")
