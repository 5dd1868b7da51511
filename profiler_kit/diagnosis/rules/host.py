"""Work of the host that the device waits for, or that a CPU spends outside operators: Python, operators, plans for new shapes."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.advice import NO_TRIALS, trials_of
from profiler_kit.diagnosis.disturbance import is_disturbed
from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.idle_time import (
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    call_name,
    calls_text,
    is_operator,
    is_own_call,
    launching_operators,
    long_calls,
    repeats,
    single_ns,
)
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import Claim, idle_claims, long_claims
from profiler_kit.records.report import Evidence, Report, TraceReport
from profiler_kit.records.traces import HostActivity
from profiler_kit.units import percent, text

# Every step has some Python and dispatch. Above this share, reducing them saves more than a faster operator.
MAX_OUTSIDE_SHARE: Final = 0.20
# The profiler itself adds to the time outside operators, so a smaller share is uncertain.
SURE_OUTSIDE_SHARE: Final = 0.30
# A call that takes more than half of the time outside operators is the cause; many short ones are overhead of the framework.
MAIN_CALL_SHARE: Final = 0.5

_NO_OPERATOR: Final = "A faster operator saves little here."


def _host_overhead(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    return _long_python(step) if step.on_device else _outside_operators(report, step)


def _outside_operators(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    """Return the time of a step on a CPU outside operators; None below the limits."""
    if (share := _outside_share(report, step)) is None:
        return None
    calls = [a for a in step.trace.activities if a.phase not in ("data", "communication") and is_own_call(a)]
    main = next((a for a in calls if a.ns >= MAIN_CALL_SHARE * _python_ns(step)), None)
    gaps_ns = sum(activity.long_ns for activity in long_calls(step) if not is_operator(activity.name))
    is_uncertain = isinstance(report, Report) and _timed_share(report) is None
    where = "The profiler adds to it."
    advice: str | Advice = _overhead_advice(step.facts, compiled=step.trace.compiled)
    if main is not None:
        where = f"Most of it passes in {call_name(main)} ({text(main.ns, 'ns')})."
        advice = _long_call_advice(step.facts)
    elif gaps_ns >= MAIN_CALL_SHARE * _python_ns(step):  # no framework takes a millisecond between two operators
        where = f"{text(gaps_ns, 'ns')} of it pass in gaps of at least {text(LONG_CALL_NS, 'ns')}: work of the loop, or waiting."
        advice = _see_code_advice(step.facts)
    return StepPart(
        share=share,
        share_name="share outside operators",
        most="medium" if is_uncertain else "high",
        title=f"Host overhead: {percent(share)} of the time is spent outside operators"
        + (f", most of it in {call_name(main)}" if main is not None else ""),
        sentences=(
            f"Python, autograd and waiting threads take {text(_python_ns(step), 'ns')} of "
            f"{text(step.span_ns, 'ns')}; operators take {text(step.busy_ns, 'ns')}.",
            where,
        ),
        advice=advice,
        measures=(("span", step.span_ns, "ns"), ("operator time", step.busy_ns, "ns")),
        trials=trials_of(report, "batch=2x", "compile") if main is None else NO_TRIALS,
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
        share, least = (share, SURE_OUTSIDE_SHARE) if timed_share is None else (min(share, timed_share), least)
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


def _overhead_advice(facts: Facts, *, compiled: bool) -> Advice:
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
        facts.stacks,
    )


def _long_python(step: StepWork) -> StepPart | None:
    """Return the long calls of Python that a device waits for; None below the limit."""
    calls = tuple(activity for activity in long_calls(step) if not is_operator(activity.name))
    ns = sum(activity.long_ns for activity in calls)
    if not calls or not repeats(step, ns) or single_ns(step):
        return None
    main = max(calls, key=lambda activity: activity.long_ns)
    # ranges of a phase, such as one around backward, do not say what runs in them
    is_named = any(activity.source for activity in calls) or (main.name != "" and main.phase in ("", "other"))
    names_neighbors = main.name == "" and main.after != ""
    return StepPart(
        ns=ns,
        share_name="idle time in Python, share",
        least="medium",
        most="medium" if step.marked_steps == 0 and main.calls == 1 else "high",
        title=f"The device waits for Python for {percent(step.share(ns))} of the time"
        f"{_main_text(main, ns) if is_named or names_neighbors else ''}",
        sentences=(
            f"Gaps of at least {text(LONG_CALL_NS, 'ns')} keep the device idle for {text(ns, 'ns')} "
            f"{step.per_step}. Meanwhile the host is in {calls_text(calls)}.",
            "Record with with_stack=True to see the lines of code." if not step.trace.with_stack else "",
        ),
        advice=_long_call_advice(step.facts) if is_named else _see_code_advice(step.facts),
        measures=(("idle time in Python", ns, "ns"),),
        claims=long_claims("python", "op dispatch"),
    )


def _main_text(main: HostActivity, ns: int) -> str:
    """Return the call that takes most of `ns`, as the end of a title; empty if none does."""
    return (
        f", most of it {'in ' if main.name else 'is '}{call_name(main)}" if main.long_ns >= MAIN_CALL_SHARE * ns else ""
    )


HOST_OVERHEAD = step_rule(
    "host_overhead",
    _host_overhead,
    Shares(MIN_HOST_SHARE, medium=SURE_OUTSIDE_SHARE, high=0.50),  # half of the step is more than any operator can save
    f"""
Fires on a CPU if at least {limit_percent(MAX_OUTSIDE_SHARE)} of the time without data loading passes outside operators, in Python
and autograd.

- In a report, the share is at most what the operators of the traced steps leave of the timed step. If they leave nothing, it has
  to be {limit_percent(SURE_OUTSIDE_SHARE)}, and the finding is `medium`: the profiler slows Python down too.
- The rule is silent on a CPU if threads waited for a core (rule `busy_host`), or if timed steps take much longer than traced
  ones (rule `unsteady`): other work on the machine looks like Python there.
- Waiting for data (rule `data_bound`), waiting for other ranks and compilation are not counted.

Fires on a device if Python keeps it idle in gaps of at least {text(LONG_CALL_NS, "ns")}, at least as `medium`. A gap before a
usual launch is shorter (rule `launch_bound`). A long one is other work of the loop: metrics, logging, saving, preprocessing. A
trace with Python calls (`with_stack=True`) names it. A single long gap of a trace without steps is at most `medium`: it may
happen once. Gaps of the first step only do not count, and neither does a single gap that takes most of the time in Python (rule
`cold_start`).
""",
    topic="place",
    steps=idle_steps,
)

LARGE_WAIT_SHARE: Final = 0.25

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


def _cpu_operators(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    launching = launching_operators(step)
    calls = [
        activity
        for activity in long_calls(step)
        if is_operator(activity.name) and activity.name not in launching and activity.name not in _NOT_COMPUTING
    ]
    ns = sum(activity.long_ns for activity in calls)
    if not step.on_device:
        return None
    return StepPart(
        ns=ns,
        share_name="idle time in operators on the CPU, share",
        title=f"The device waits for operators on the CPU for {percent(step.share(ns))} of the time",
        sentences=(
            f"These operators launch nothing and keep the device idle for {text(ns, 'ns')} {step.per_step}: "
            f"{calls_text(calls)}.",
        ),
        advice="Run them on the device: create their inputs there, {code}, and remove .cpu() and .numpy() before them. If the "
        f"operator has no implementation for the device, replace it, or move this work: {step.facts.elsewhere()}.",
        code="x = torch.tensor(data, device=device)",
        measures=(("idle time in operators on the CPU", ns, "ns"),),
        claims=(Claim("site", "cpu", "cpu"), *long_claims("op dispatch")),
    )


CPU_FALLBACK = step_rule(
    "cpu_fallback",
    _cpu_operators,
    Shares(MIN_HOST_SHARE, high=LARGE_WAIT_SHARE),
    f"""
Fires on operators that keep the device idle in gaps of at least {text(LONG_CALL_NS, "ns")}, and launch no work: they compute on
the CPU.

Dispatching an operator to the device takes the host microseconds. Operators inside data loading are not counted (rule
`data_bound`).
""",
    steps=idle_steps,
)

# One call that takes most of the time happens once: a cold start. Preparation for shapes happens in several calls.
MAX_LONGEST_SHARE: Final = 0.8
_CUDNN_ATTENTION: Final = re.compile(r"cudnn_attention")


_SHAPES_ADVICE: Final = (
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
    """Return the operators with several long calls before launches."""
    launching = launching_operators(step)
    calls = [
        activity
        for activity in long_calls(step)
        if activity.name in launching and activity.longest_ns < MAX_LONGEST_SHARE * activity.long_ns
    ]
    ns = sum(activity.long_ns for activity in calls)
    if not step.on_device or step.marked_steps < 2 or not repeats(step, ns):
        return None
    main = max(calls, key=lambda activity: activity.long_ns)
    return StepPart(
        ns=ns,
        share_name="preparation, share of the time",
        title=f"The device waits for {percent(step.share(ns))} of the time while {main.name} prepares on the host",
        sentences=(
            f"Gaps of at least {text(LONG_CALL_NS, 'ns')} keep it idle for {text(ns, 'ns')} {step.per_step}, in "
            f"{calls_text(calls)}.",
            "A library that meets a new combination of shapes searches an algorithm, builds a plan or compiles a kernel.",
        ),
        advice=_ATTENTION_ADVICE
        if _CUDNN_ATTENTION.search(main.name)
        else _SHAPES_ADVICE.format(drop=_DROP if step.facts.has_loader else ""),
        measures=(("preparation", ns, "ns"),),
        evidence=(Evidence(name="longest call", value=main.longest_ns, unit="ns", where=main.name),),
        claims=long_claims("op dispatch"),
    )


SLOW_PREPARATION = step_rule(
    "slow_preparation",
    _preparation,
    Shares(MIN_HOST_SHARE, high=LARGE_WAIT_SHARE),
    f"""
Fires for a trace of several steps on operators that launch device work and keep the device idle in gaps of at least
{text(LONG_CALL_NS, "ns")}, in more than one call.

An operator needs some microseconds to launch a kernel. If it takes milliseconds, its library prepares: it searches an algorithm
(`cudnn.benchmark`), builds a plan, or compiles a kernel. Libraries keep the result for each combination of shapes, so a steady
loop pays once. A loop whose shapes change, such as generation with a growing key-value cache, pays in each step. Rule
`cold_start` covers operators with a single long call, and long calls of the first step only.
""",
    topic="place",
    steps=idle_steps,
)
