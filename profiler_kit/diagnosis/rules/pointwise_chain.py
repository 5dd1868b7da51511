"""Chains of pointwise operations that take a large part of the step."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, work_claims
from profiler_kit.diagnosis.work_groups import is_eager_pointwise, is_product, pointwise_calls, pointwise_ns
from profiler_kit.records.report import Report, TraceReport
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


def _pointwise_chain(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the chains of pointwise operations; None below the limits."""
    ns, calls = pointwise_ns(work), pointwise_calls(work)
    products = total_calls(work.select(is_product)) / work.steps
    share = work.share(ns)
    if share < MIN_SHARE or calls < max(MIN_CALLS, MIN_CALLS_PER_PRODUCT * products):
        return None
    rest = ", without the optimizer," if work.facts.has_optimizer else ""
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Unfused pointwise operations take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"{calls:,} pointwise operations{work.facts.each}{rest} take {text(ns, 'ns')} {work.per_step}.",
            "Each one reads its inputs from memory and writes its output.",
        ),
        advice="Fuse them: {code}. Functions outside the model can be compiled too"
        + (", such as the loss: loss_fn = torch.compile(loss_fn)." if work.facts.trains else "."),
        code="model = torch.compile(model)",
        measures=(("time of pointwise operations", ns, "ns"), ("pointwise operations per step", calls, "count")),
        trials=trials_of(report, "compile"),
        claims=work_claims(work, work.select(is_eager_pointwise)),
    )


# Three operations as one kernel read and write once instead of three times.
RULE = step_rule("pointwise_chain", DOC, _pointwise_chain, keeps=0.34)
