"""Operators on a CPU that are so short that their dispatch takes most of their time."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import has_batch, larger_batch, trials_of
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, work_claims
from profiler_kit.diagnosis.work_groups import MAX_MEAN_NS, MIN_SHORT_CALLS, short_operators
from profiler_kit.records.claims import idle_claims, phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# From this batch on, fewer calls come before more examples.
LARGE_BATCH: Final = 32
MIN_SHARE: Final = 0.20
MEDIUM_SHARE: Final = 0.30
LARGE_SHARE: Final = 0.50

DOC = f"""
Fires on a CPU if operators with a mean self time of at most {MAX_MEAN_NS // 1000} us, and the short gaps of Python between
operators, take at least {limit_percent(MIN_SHARE)} of the step, in at least {MIN_SHORT_CALLS} calls. Operators that make batches
do not count (rule `data_bound`), nor do those of the optimizer (rule `optimizer_bound`).

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that. The profiler adds about a microsecond to each call, so a small share is uncertain.

Each call of an operator costs some microseconds of dispatch, autograd and Python, whatever its size. This part of the step is the
same for any batch size, so a larger batch costs less for each example. In a trace the same limits hold. Rule `launch_bound`
covers devices.
"""


def _small_operators(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    short = short_operators(work)
    share = work.share(short.total_ns)
    if share < MIN_SHARE:
        return None
    phases = [phase for phase, ns in work.phase_ns.items() if ns and phase not in ("data", "optimizer")]
    claims = phase_claims(*phases) if work.phase_ns.get("optimizer", 0) else work_claims(work, short.work)
    calls, ns, gaps_ns = short.calls, short.ns // work.steps, short.gaps_ns // work.steps
    advice, words = _advice(report)
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
        claims=(
            *claims,
            *(idle_claims("python") if gaps_ns else ()),
        ),
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

RULE = step_rule("small_operators", DOC, _small_operators)
