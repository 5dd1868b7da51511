"""Work that happens only once: loading kernels, starting libraries, the first step."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from profiler_kit.diagnosis.idle_time import (
    FIRST_STEP_NS,
    LAUNCH_CLAIMS,
    LONG_CALL_NS,
    MIN_HOST_SHARE,
    calls_text,
    is_operator,
    is_runtime_call,
    launching_operators,
    single_gap,
    single_ns,
    start_ns,
)
from profiler_kit.diagnosis.phrases import advise, limit_percent, phase_name
from profiler_kit.diagnosis.step_rule import StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.records.claims import BUSY, Claim, idle_claims
from profiler_kit.records.report import Report, Severity, TraceReport
from profiler_kit.records.traces import FIRST_STEP_FACTOR, HostActivity, IdleTime
from profiler_kit.units import percent, text

# From a quarter of the time on, the trace does not show the steady loop.
HIGH_SHARE: Final = 0.25
# An operator that launches work takes microseconds on the host. The call that loads its library takes milliseconds.
FIRST_CALL_NS: Final = 10_000_000
# The longest call takes most of the time of all calls of that operator.
FIRST_CALL_SHARE: Final = 0.8

DOC = f"""
Fires for a trace if at least {limit_percent(MIN_HOST_SHARE)} of the time goes to work that happens once:

- The device is idle during launches or other calls of the runtime of at least {text(LONG_CALL_NS, "ns")} each. Such a call takes
  microseconds; the first one loads the kernel's code, creates the context or starts a library.
- The device is idle during one call of at least {text(FIRST_CALL_NS, "ns")} of an operator that launches work, and its other
  calls are short.
- The first of at least three steps has more than {FIRST_STEP_FACTOR:g} times the idle time of the others, and at least
  {text(FIRST_STEP_NS, "ns")} more. Without a device, the
  first step takes more than {FIRST_STEP_FACTOR:g} times as long as the others.
- One gap in Python takes at least {text(LONG_CALL_NS, "ns")}, and more than {FIRST_STEP_FACTOR:g} times as long as all others
  together. It is in the first of several steps; or, in a trace without several steps, no call or range of the program's own
  code is recorded there.

First calls that take less than {text(FIRST_CALL_NS, "ns")} in total have to be {limit_percent(HIGH_SHARE)} of the time.

- `high`: from {limit_percent(HIGH_SHARE)} of the time.
- `medium`: below that.
- `low`: compilation takes longer. Steps after it do not have the cost of the cold start either.

Compilation is not counted (rule `compile_time`). Steps that follow do not have this cost, so shares of such a trace do not show
the steady loop.
"""


_SERVER: Final = "To shorten the start of a server, run the model once on an example before the first request."


class _Start(NamedTuple):
    """The time of first calls, and the calls. `first_step`: it is the excess of the first step. `gap`: it is a single gap."""

    ns: int
    share: float
    calls: tuple[HostActivity, ...]
    first_step: bool
    gap: IdleTime | None = None


def _cold_start(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    start = _start(step)
    if start is None:
        return None
    place = "the device waits for work" if step.on_device else "the host does work"
    return StepPart(
        share=start.share,
        share_name="first calls, share of the time",
        severity=_severity(step, start),
        title=f"Cold start: for {percent(start.share)} of the time {place if start.gap is None else 'the host is in a gap'} that "
        "happens once",
        sentences=(
            f"The first step takes {text(start.ns, 'ns')} longer than the others."
            if start.first_step
            else f"One gap{_before(start.gap)} takes {text(start.ns, 'ns')} of {text(step.span_ns, 'ns')}. All other gaps of "
            f"Python together take {text(step.idle_ns('python') - start.ns, 'ns')}."
            if start.gap is not None
            else f"First calls take {text(start.ns, 'ns')} of {text(step.span_ns, 'ns')}: they load kernels or start libraries.",
            f"The longest: {calls_text(replace(call, ns=call.long_ns) for call in start.calls)}."
            if start.calls
            else "",
            "Later steps do not have this cost.",
        ),
        advice=advise(
            "Record steady steps: {code}, with prof.step() at the end of each step.",
            "torch.profiler.schedule(wait=1, warmup=3, active=3)",
        ).then("" if step.facts.trains else _SERVER),
        measures=(("first calls", start.ns, "ns"), ("span", step.span_ns, "ns")),
        claims=_claims(step, start),
    )


def _severity(step: StepWork, start: _Start) -> Severity:
    if max(step.trace.compile_ns, step.idle_ns("compilation")) >= start.ns:
        return "low"  # steps after the compilation do not have this cost either
    return "high" if start.share >= HIGH_SHARE else "medium"


def _claims(step: StepWork, start: _Start) -> tuple[Claim, ...]:
    if start.gap is not None:
        return idle_claims("python")
    if not step.on_device:
        return (*idle_claims("python"), BUSY)
    if start.ns == step.idle_ns("cold start"):
        return idle_claims("cold start")
    return (*idle_claims("cold start"), *LAUNCH_CLAIMS)


def _start(step: StepWork) -> _Start | None:
    first_calls = tuple(activity for activity in step.trace.activities if _is_first_call(step, activity))
    direct_ns = step.idle_ns("cold start") + sum(a.ns for a in first_calls if is_operator(a.name))
    ns = max(direct_ns, start_ns(step), single_ns(step))
    share = step.share(ns)
    if share < MIN_HOST_SHARE or (ns < FIRST_CALL_NS and share < HIGH_SHARE):
        return None
    gap = single_gap(step.trace) if ns == single_ns(step) else None
    return _Start(ns, share, first_calls, first_step=gap is None and start_ns(step) > direct_ns, gap=gap)


def _before(gap: IdleTime | None) -> str:
    return f" before work of {phase_name(gap.phase)}" if gap is not None and gap.phase not in ("", "other") else ""


def _is_first_call(step: StepWork, activity: HostActivity) -> bool:
    if not step.on_device:
        return False
    if is_runtime_call(activity.name):
        return activity.longest_ns >= LONG_CALL_NS
    is_one_call = activity.longest_ns >= max(FIRST_CALL_NS, FIRST_CALL_SHARE * activity.ns)
    return is_one_call and activity.name in launching_operators(step) and activity.phase != "data"


RULE = step_rule("cold_start", DOC, _cold_start, "place", steps=idle_steps)
