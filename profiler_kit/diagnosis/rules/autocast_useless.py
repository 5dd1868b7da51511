"""Conversions of data types that cost what lower precision saves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import factor_text, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import (
    conversion_calls,
    conversion_ns,
    is_conversion,
    is_half_product,
    is_product,
)
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# A tenth of the step is more than autocast converts in a network of usual layer sizes.
MIN_SHARE: Final = 0.10
# A fifth of the step: conversions alone cost more than most changes save.
LARGE_SHARE: Final = 0.20
# The peak in 16 bits is twice the peak in TF32, so 16 bits save at most about the time that the products still take.
MIN_CONVERSION_FACTOR: Final = 1.0
# Autocast converts the three inputs of a product, and the inputs and results of the layers between two products.
MAX_CALLS_PER_PRODUCT: Final = 10

DOC = f"""
Fires if conversions between data types take at least {limit_percent(MIN_SHARE)} of the step, and at least as long as the
convolutions and matrix products in 16 bits. `medium` from {limit_percent(LARGE_SHARE)} of the step on, `low` below that.

Autocast converts the inputs and weights of each product. Tensor cores are twice as fast in 16 bits as in TF32, so the products
save at most the time that they take in 16 bits. If the conversions take as long, nothing is gained: the layers are too small.
Names of kernels show conversions; on a CPU, calls of `_to_copy` do, and all products count. Without products in 16 bits, or with
fewer conversions than products, the conversions have another reason; so have more than {MAX_CALLS_PER_PRODUCT} for each product
on a CPU, such as the step counters of an optimizer. In a trace the same limits hold. The finding explains the
idle time before the launches of conversions too.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conversions:
    """The time of conversions and of the products in 16 bits, and the share of the conversions of the step."""

    ns: int
    products_ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of conversions."""
    if (worst := worst_step(step_works(report), _conversions, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    products = f"the convolutions and matrix products ({text(match.products_ns, 'ns')})"
    factor = f", {factor_text(match.ns / match.products_ns)} as long as {products}" if match.products_ns else ""
    kernels = work.select(lambda item: is_conversion(item) or (not work.on_device and item.family == "cat/copy"))
    yield RULE.finding(
        severity="medium" if match.share >= LARGE_SHARE else "low",
        title=f"Conversions between data types take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}Conversions take {text(match.ns, 'ns')} {work.per_step}{factor}.",
            "Lower precision cannot save more than they cost.",
            worst.others_sentence(),
        ),
        advice="Leave autocast out for this model, or for its small layers: with {code}. To avoid the conversions instead, store "
        "the weights in 16 bits: model.to(torch.bfloat16), and check the quality.",
        code=f"torch.autocast(device_type='{work.device_type}', enabled=False)",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of conversions", value=match.ns, unit="ns", where=work.name),
            Evidence(name="time of products", value=match.products_ns, unit="ns", where=work.name),
        ),
        weight=work.share(match.ns + launch_idle_ns(work, kernels)),
        claims=(*work_claims(work, kernels), *LAUNCH_CLAIMS),
    )


def _conversions(work: StepWork) -> _Conversions | None:
    ns = conversion_ns(work)
    products = work.select(is_product if not work.on_device else is_half_product)
    products_ns = total_ns(products)
    share = work.share(ns)
    if share < MIN_SHARE or ns < MIN_CONVERSION_FACTOR * products_ns:
        return None
    calls, product_calls = conversion_calls(work), total_calls(products)
    if not products or calls < product_calls:
        return None
    if not work.on_device and calls > MAX_CALLS_PER_PRODUCT * product_calls:
        return None
    return _Conversions(ns=ns, products_ns=products_ns, share=share)


RULE = Rule(
    "autocast_useless",
    DOC,
    check,
    "cause",
    "both",
    states_share=False,
)
