"""A step in which the host is busy with other work than launching and running operators: Python, autograd."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.disturbance import is_disturbed
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    IdleStep,
    WorstIdle,
    call_name,
    calls_text,
    is_operator,
    is_own_call,
    worst_idle,
)
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import HostActivity, idle_by_cause
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
Fires on a CPU if the self time of operators leaves at least {limit_percent(MAX_OUTSIDE_SHARE)} of the median timed step. The rest
is Python and autograd.

- `high`: at least {limit_percent(HIGH_SHARE)}.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that.
- Operator time comes from traced steps. The profiler makes operators look slower than they are, so the share outside
  operators is a lower bound. On a busy machine timed and traced steps differ, so it is at most the idle share of the traced ones.
  The rule is silent on a CPU if threads waited for a core (rule `busy_host`), or if timed steps take much longer than traced
  ones (rule `unsteady`): other work on the machine looks like Python there.
  If operators even take longer than the timed step, the bound is empty, and the share of Python in the traced steps counts, at
  most as `medium`: the profiler slows Python down too.
- Data loading is not counted: the data phase is subtracted from the step, and its operators from the operator time. Rule
  `data_bound` covers it. The severity is that of the share of the whole step, which has to be {limit_percent(MIN_HOST_SHARE)}.
  Waiting for other ranks and compilation are not counted either.
- In a trace without device events, the limit holds for the span from the first operator to the last. Times of operators in
  several threads add up.

Fires on a device if Python keeps it idle for at least {limit_percent(MIN_HOST_SHARE)} of the step, in gaps of at least
{text(LONG_CALL_NS, "ns")}. A gap before a usual launch is shorter (rule `launch_bound`). A long one is other work of the loop:
metrics, logging, saving, preprocessing. A trace with Python calls (`with_stack=True`) names it. A single long gap of a trace
without steps is at most `medium`: it may happen once. Gaps of the first step only do not count, and neither does a single gap
that takes most of the time in Python (rule `cold_start`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "operator" or run.step_ns is None or run.device_ns is None:
        yield from _long_calls(report)
        return
    if is_disturbed(run):
        return
    data_ns = sum(timing.stopwatch_ns or 0 for timing in run.phases if timing.phase == "data")
    step_ns = run.step_ns.median - data_ns
    operators_ns = run.device_ns - sum(item.kernel_ns for item in run.modules if item.phase == "data")
    operator_share = ratio(operators_ns, step_ns)
    if operator_share is not None and operator_share >= 1.0:
        yield from _traced_overhead(run, facts_of(report))
    if operator_share is None:
        return
    outside_share = 1.0 - operator_share
    if run.span_ns:  # timed and traced steps differ on a busy machine
        idle = idle_by_cause(run.idle)
        outside_share = min(
            outside_share, idle.get("python", 0) / max(1, run.span_ns - idle.get("waiting for data", 0))
        )
    share = outside_share * step_ns / run.step_ns.median  # of the whole step
    if outside_share <= MAX_OUTSIDE_SHARE or share < MIN_HOST_SHARE:
        return
    without_data = " (without data loading)" if data_ns else ""
    yield RULE.finding(
        severity=_severity(share),
        title=f"Host overhead: at least {percent(outside_share)} of the step{without_data} runs outside operators",
        explanation=f"In {quoted_name(run)}, a step{without_data} takes {text(step_ns, 'ns')}. Python, autograd and waiting "
        f"threads take at least {text(round(outside_share * step_ns), 'ns')} of it.",
        advice=_advice(facts_of(report), compiled=False),
        evidence=evidence_of(
            run.config.name,
            ("share outside operators", 100.0 * outside_share, "percent"),
            ("median step", run.step_ns.median, "ns"),
            ("data phase", data_ns or None, "ns"),
            ("operator time", operators_ns, "ns"),
        ),
        weight=share,
        claims=("idle:python",),
    )


def _traced_overhead(run: ConfigRun, facts: Facts) -> Iterator[Finding]:
    """Yield a finding for a run whose traced operators take longer than its timed step."""
    python_ns = sum(part.ns for part in run.idle if part.cause == "python" and part.phase != "data")
    share = ratio(python_ns, run.span_ns)
    if share is None or share < MEDIUM_SHARE:
        return
    calls = sum(kernel.calls for kernel in run.kernels)
    yield RULE.finding(
        severity="medium",
        title=f"Host overhead: {percent(share)} of a traced step is spent outside operators",
        explanation=join_sentences(
            f"In {quoted_name(run)}, Python and autograd take {text(python_ns, 'ns')} of a traced step of "
            f"{text(run.span_ns, 'ns')}, with {plural(calls, 'call')} of operators.",
            "The profiler slows both down, so the share without it is uncertain.",
        ),
        advice=_advice(facts, compiled=False),
        evidence=evidence_of(
            run.config.name,
            ("share outside operators", 100.0 * share, "percent"),
            ("traced step", run.span_ns, "ns"),
            ("calls of operators", calls, "count"),
        ),
        weight=share,
        claims=("idle:python",),
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding for traces without a device, and one for traces with a device."""
    yield from _long_calls(report)
    if (worst := worst_idle(report, _outside_share, lambda share: share)) is None:
        return
    step, share = worst.step, worst.match
    python_ns = step.idle_ns("python") - step.single_ns
    calls = [a for a in step.activities if a.phase not in ("data", "communication") and is_own_call(a)]
    main = next((a for a in calls if a.ns >= MAIN_CALL_SHARE * python_ns), None)
    yield RULE.finding(
        severity=_severity(share),
        title=f"Host overhead: {percent(share)} of the time is spent outside operators",
        explanation=join_sentences(
            f"{step.prefix}Python, autograd and waiting threads take {text(python_ns, 'ns')} of {text(step.span_ns, 'ns')}; "
            f"operators take {text(step.busy_ns, 'ns')}.",
            f"Most of it passes in {call_name(main)} ({text(main.ns, 'ns')})." if main else "",
            "The profiler adds to it." if main is None else "",
            worst.others_sentence(),
        ),
        advice=_long_call_advice(step.facts) if main is not None else _advice(step.facts, compiled=step.compiled),
        evidence=(
            Evidence(name="share outside operators", value=100.0 * share, unit="percent", where=step.where),
            Evidence(name="span", value=step.span_ns, unit="ns", where=step.where),
            Evidence(name="operator time", value=step.busy_ns, unit="ns", where=step.where),
        ),
        weight=share,
        claims=("idle:python",),
    )


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


def _outside_share(step: IdleStep) -> float | None:
    share = step.share(step.idle_ns("python") - step.single_ns)
    return share if not step.on_device and share >= MAX_OUTSIDE_SHARE else None


def _long_calls(report: Report | TraceReport) -> Iterator[Finding]:
    worst: WorstIdle[tuple[HostActivity, ...]] | None = worst_idle(report, _python_calls, _total_ns)
    if worst is None:
        return
    step = worst.step
    calls_ns = _total_ns(worst.match)
    share = step.share(calls_ns)
    main = max(worst.match, key=lambda activity: activity.long_ns)
    is_once = step.steps == 0 and main.calls == 1
    # ranges of a phase, such as one around backward, do not say what runs in them
    is_named = any(activity.source for activity in worst.match) or (main.name != "" and main.phase in ("", "other"))
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE and not is_once else "medium",
        title=f"The device waits for Python for {percent(share)} of the time",
        explanation=join_sentences(
            f"{step.prefix}Gaps of at least {text(LONG_CALL_NS, 'ns')} keep the device idle for {text(calls_ns, 'ns')} "
            f"{step.per_step}. Meanwhile the host is in {calls_text(worst.match)}.",
            "Record with with_stack=True to see the lines of code." if not step.with_stack else "",
            worst.others_sentence(),
        ),
        advice=_long_call_advice(step.facts) if is_named else _see_code_advice(step.facts),
        evidence=(
            Evidence(name="idle time in Python, share", value=100.0 * share, unit="percent", where=step.where),
            Evidence(name="idle time in Python", value=calls_ns, unit="ns", where=step.where),
        ),
        weight=share,
        claims=("idle:python", "idle:op dispatch"),
    )


def _python_calls(step: IdleStep) -> tuple[HostActivity, ...] | None:
    """Return the long calls of a device's step that are not operators; None below the limit."""
    calls = tuple(activity for activity in step.long_calls() if not is_operator(activity.name))
    return calls if step.on_device and step.repeats(_total_ns(calls)) and not step.single_ns else None


def _total_ns(calls: tuple[HostActivity, ...]) -> int:
    return sum(activity.long_ns for activity in calls)


RULE = Rule("host_overhead", DOC, check, "place", check_trace)
