"""Work that happens once, or that should: loading kernels, starting libraries, the first step, compilation."""

from __future__ import annotations

import re
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
from profiler_kit.diagnosis.phrases import advise, limit_percent, phase_name, plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps, idle_steps
from profiler_kit.records.claims import BUSY, Claim, idle_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import FIRST_STEP_FACTOR, HostActivity, IdleTime
from profiler_kit.units import percent, text

# Shorter first calls have to be this much of the time.
MIN_SHORT_START_SHARE: Final = 0.25
# An operator that launches work takes microseconds on the host. The call that loads its library takes milliseconds.
FIRST_CALL_NS: Final = 10_000_000
# The longest call takes most of the time of all calls of that operator.
FIRST_CALL_SHARE: Final = 0.8


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
        # steps after a longer compilation do not have this cost either
        most="low" if max(step.trace.compile_ns, step.idle_ns("compilation")) >= start.ns else "high",
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
        claims=_start_claims(step, start),
    )


def _start_claims(step: StepWork, start: _Start) -> tuple[Claim, ...]:
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
    if ns < FIRST_CALL_NS and share < MIN_SHORT_START_SHARE:
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


COLD_START = step_rule(
    "cold_start",
    _cold_start,
    Shares(MIN_HOST_SHARE, high=0.25),  # from a quarter of the time on, the trace does not show the steady loop
    f"""
Fires for a trace with work that happens once:

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

First calls that take less than {text(FIRST_CALL_NS, "ns")} in total have to be {limit_percent(MIN_SHORT_START_SHARE)} of the
time. The finding is `low` if compilation takes longer. Compilation is not counted (rule `compile_time`). Steps that follow do not
have this cost, so shares of such a trace do not show the steady loop.
""",
    topic="place",
    steps=idle_steps,
)

# A twentieth of the time is worth a warm-up before the recording.
MIN_COMPILE_SHARE: Final = 0.05
LARGE_COMPILE_SHARE: Final = 0.25
# The second compilation of a frame makes a size dynamic. Further ones have another reason.
MIN_RECOMPILATIONS: Final = 2
# Source: torch/_dynamo/convert_frame.py: "Torch-Compiled Region: FRAME/COMPILATION".
_REGION: Final = re.compile(r"Torch-Compiled Region: (\d+)/(\d+)\Z")


class _Compilation(NamedTuple):
    """Compilation of one trace: its time and share, the recompilations of its frames, and the claims of a finding about it."""

    ns: int
    share: float
    recompilations: int
    claims: tuple[Claim, ...]


def _compilation_of(step: StepWork) -> _Compilation | None:
    """Return the compilation of a trace; None if it is below the limit and shows no recompilations."""
    if step.span_ns <= 0:
        return None
    # On a device, only the part of the compilation counts in which it is idle.
    ns = step.idle_ns("compilation") if step.on_device else step.trace.compile_ns
    numbers: dict[str, int] = {}
    for operator in step.trace.operators:
        if match := _REGION.search(operator.name):
            numbers[match.group(1)] = max(numbers.get(match.group(1), 0), int(match.group(2)))
    if step.share(ns) < MIN_COMPILE_SHARE and max(numbers.values(), default=0) < MIN_RECOMPILATIONS:
        return None
    claims = idle_claims("compilation") if step.on_device else (*idle_claims("compilation"), BUSY)
    return _Compilation(ns, step.share(ns), sum(numbers.values()), claims)


def _compile_time(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    compilation = _compilation_of(step)
    if compilation is None or compilation.recompilations >= MIN_RECOMPILATIONS:
        return None
    return StepPart(
        share=compilation.share,
        share_name="compilation, share of the time",
        title=f"torch.compile compiles for {percent(compilation.share)} of the time",
        sentences=(
            f"Compilation takes {text(compilation.ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            f"It compiles {plural(step.trace.compiled_frames, 'frame')}." if step.trace.compiled_frames else "",
            "Steps after the compilation do not have this cost.",
        ),
        advice="Record after the compilation: run a few steps first, or {code}. To compile less often, keep the cache between "
        "processes (TORCHINDUCTOR_CACHE_DIR) or compile only the repeated block.",
        code="torch.profiler.schedule(wait=1, warmup=3, active=3)",
        measures=(("compilation", compilation.ns, "ns"), ("compiled frames", step.trace.compiled_frames, "count")),
        claims=compilation.claims,
    )


COMPILE_TIME = step_rule(
    "compile_time",
    _compile_time,
    Shares(MIN_COMPILE_SHARE, high=LARGE_COMPILE_SHARE, of="the time"),
    """
Fires for a trace in which torch.compile compiles (on a device: while the device is idle).

Compilation happens in the first steps. If frames are compiled again and again, rule `recompilation` fires instead.
""",
    topic="place",
    steps=all_steps,
)


def _recompilation(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    compilation = _compilation_of(step)
    if compilation is None or (times := compilation.recompilations) < MIN_RECOMPILATIONS:
        return None
    return StepPart(
        share=compilation.share,
        share_name="compilation, share of the time",
        title=f"torch.compile compiles again and again: {plural(times, 'recompilation')}, and compilation takes "
        f"{percent(compilation.share)} of the time",
        sentences=(
            f"Compilation takes {text(compilation.ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            "Each new version of a frame means that a guard failed: another shape, another dtype, a changed number.",
        ),
        advice="See which guard fails: `{code}` in the environment. For changing shapes, use "
        "torch.compile(model, dynamic=True), torch._dynamo.mark_dynamic(x, 0), or pad batches to a few sizes.",
        code="TORCH_LOGS=recompiles",
        measures=(("recompilations", times, "count"), ("compilation", compilation.ns, "ns")),
        claims=compilation.claims,
    )


RECOMPILATION = step_rule(
    "recompilation",
    _recompilation,
    Shares(0.0, medium=MIN_COMPILE_SHARE, high=LARGE_COMPILE_SHARE, of="the time"),
    f"""
Fires if the numbers of compiled regions show at least {MIN_RECOMPILATIONS} recompilations of a frame: `Torch-Compiled Region:
0/3` is the fourth version of frame 0.

torch.compile compiles again if a guard fails: another shape, another dtype, a changed number or attribute. The second version
of a frame usually makes a size dynamic; further versions have another reason. After eight versions, the frame runs without
compilation.
""",
    steps=all_steps,
)
