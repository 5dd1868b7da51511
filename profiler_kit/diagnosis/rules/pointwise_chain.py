"""Chains of pointwise operations that take a large part of the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, step_works, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import is_eager_pointwise, is_product, pointwise_calls, pointwise_ns
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# Fusion leaves one pass over memory of several, so it saves at least half of a chain: an eighth of the step.
MIN_SHARE: Final = 0.25
# From half of the step on, nothing else can save as much.
LARGE_SHARE: Final = 0.50
# A network with one activation for each layer has about one pointwise operation for each product. Three and more are a chain.
MIN_CALLS_PER_PRODUCT: Final = 3.0
# Fewer operations cannot hold a chain worth a compiler.
MIN_CALLS: Final = 6

DOC = f"""
Fires if pointwise operations (add, mul, exp, activations and their gradients) take at least {limit_percent(MIN_SHARE)} of the
step, and there are at least {MIN_CALLS_PER_PRODUCT:g} of them for each convolution or matrix product, and {MIN_CALLS} per step.
The optimizer does not count, and neither do kernels that a compiler fused.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: below that.

Each pointwise operation reads its inputs from memory and writes its output. It computes almost nothing, so the traffic decides
its time. A compiler fuses a chain into one kernel that reads and writes once. In a trace the same limits hold.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointwiseChain:
    """The time of pointwise operations, their number per step, and their share of the step."""

    ns: int
    calls: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of pointwise operations."""
    if (worst := worst_step(step_works(report), pointwise_chain, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    rest = ", without the optimizer," if work.facts.has_optimizer else ""
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Unfused pointwise operations take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}{match.calls:,} pointwise operations{work.facts.each}{rest} take "
            f"{text(match.ns, 'ns')} {work.per_step}.",
            "Each one reads its inputs from memory and writes its output.",
            worst.others_sentence(),
        ),
        advice="Fuse them: {code}. Functions outside the model can be compiled too"
        + (", such as the loss: loss_fn = torch.compile(loss_fn)." if work.facts.trains else "."),
        code="model = torch.compile(model)",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of pointwise operations", value=match.ns, unit="ns", where=work.name),
            Evidence(name="pointwise operations per step", value=match.calls, unit="count", where=work.name),
        ),
        trials=trials_of(report, "compile"),
        weight=match.share,
        claims=work_claims(work, work.select(is_eager_pointwise)),
    )


def pointwise_chain(work: StepWork) -> PointwiseChain | None:
    """Return the chains of pointwise operations; None below the limits."""
    ns, calls = pointwise_ns(work), pointwise_calls(work)
    products = sum(item.calls for item in work.select(is_product)) / work.steps
    share = work.share(ns)
    if share < MIN_SHARE or calls < max(MIN_CALLS, MIN_CALLS_PER_PRODUCT * products):
        return None
    return PointwiseChain(ns=ns, calls=calls, share=share)


# Three operations as one kernel read and write once instead of three times.
KEEPS: Final = 0.34

RULE = Rule("pointwise_chain", DOC, check, "cause", "both", keeps=KEEPS)
