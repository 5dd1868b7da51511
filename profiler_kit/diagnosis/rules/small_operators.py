"""Operators on a CPU that are so short that their dispatch takes most of their time."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import has_batch, larger_batch, trials_of
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.idle_time import optimizer_ns
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, total_ns, work_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# The dispatch of an operator takes 1 to 10 us on a CPU, whatever its size.
MAX_MEAN_NS: Final = 10_000
# A step of fewer operators is not slow because of their number.
MIN_CALLS: Final = 50
# The gaps between the calls of operators and modules are of this length. Longer gaps are other Python code.
MAX_MEAN_GAP_NS: Final = 30_000
# From this batch on, fewer calls come before more examples.
LARGE_BATCH: Final = 32
MIN_SHARE: Final = 0.20
MEDIUM_SHARE: Final = 0.30
LARGE_SHARE: Final = 0.50

DOC = f"""
Fires on a CPU if operators with a mean self time of at most {MAX_MEAN_NS // 1000} us, and the short gaps of Python between
operators, take at least {limit_percent(MIN_SHARE)} of the step, in at least {MIN_CALLS} calls. Operators that make batches do not
count: rule `data_bound` covers them.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that. The profiler adds about a microsecond to each call, so a small share is uncertain.

Each call of an operator costs some microseconds of dispatch, autograd and Python, whatever its size. This part of the step is the
same for any batch size, so a larger batch costs less for each example. An optimizer that has a finding of its own (rule
`optimizer_bound`) does not count. In a trace the same limits hold. Rule `launch_bound` covers devices.
"""


def small_operators(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the short operators of a step on a CPU, with the gaps of Python between them; None below the limits."""
    if work.on_device:
        return None
    short = work.select(lambda item: item.ns <= MAX_MEAN_NS * item.calls)
    gaps = [part for part in work.idle if part.cause == "python" and 0 < part.ns <= MAX_MEAN_GAP_NS * part.gaps]
    calls, ns = total_calls(short) // work.steps, max(0, total_ns(short) - work.host_data_ns)
    claims, own_phases = work_claims(work, short), {"data"}
    if (in_optimizer_ns := optimizer_ns(work)[0]) > 0:
        own_phases.add("optimizer")
        claims = tuple(f"busy:phase:{phase}" for phase, ns in work.phase_ns.items() if ns and phase != "optimizer")
        ns -= min(ns, in_optimizer_ns)
    gaps_ns = sum(part.ns for part in gaps if part.phase not in own_phases)
    share = work.share(ns + gaps_ns)
    if calls < MIN_CALLS or share < MIN_SHARE or not ns:
        return None
    advice, words = _advice(report)
    ns, gaps_ns = ns // work.steps, gaps_ns // work.steps
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE, medium=MEDIUM_SHARE),
        title=f"Short operators{' and the Python between them' if gaps_ns else ''} take {percent(share)} of the "
        f"{work.facts.whole}",
        sentences=(
            f"{calls:,} calls{work.facts.each} take {text(ns // calls, 'ns')} each.",
            f"Python between them takes {text(gaps_ns, 'ns')}{work.facts.each}." if gaps_ns else "",
            "Dispatch takes most of this time. It is the same for any size of the tensors.",
        ),
        advice=advice,
        measures=(("calls per step", calls, "count"), ("time of short operators per step", ns, "ns")),
        trials=trials_of(report, *words),
        claims=(*claims, *(("idle:python",) if gaps_ns else ())),
    )


def _advice(report: Report | TraceReport) -> tuple[Advice, tuple[str, ...]]:
    """Return the advice and the configurations that try it: a larger batch first where the batch is known to be small."""
    facts = facts_of(report)
    optimizer = ", a fused optimizer" if facts.has_optimizer else ""
    fewer = advise(f"Use fewer calls: {_FEWER_CALLS}{optimizer}.", "model = torch.compile(model)")
    if facts.examples is not None and facts.examples < LARGE_BATCH and has_batch(report):
        return Advice(f"{larger_batch(report)} {fewer.text}", fewer.code), ("batch=2x", "compile")
    return fewer.then("A larger batch, or several inputs in one call, costs little more."), ("compile", "batch=2x")


_FEWER_CALLS: Final = "{code}, one operator instead of a loop, fewer small layers"

RULE = step_rule("small_operators", DOC, small_operators)
