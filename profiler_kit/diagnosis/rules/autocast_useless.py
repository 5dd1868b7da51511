"""Conversions of data types that cost what lower precision saves."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.idle_time import LAUNCH_CLAIMS, launch_idle_ns
from profiler_kit.diagnosis.phrases import factor_text, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import (
    conversion_calls,
    conversion_ns,
    is_conversion,
    is_half_product,
    is_product,
)
from profiler_kit.records.report import Report, TraceReport
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


def _conversions(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    ns, products = conversion_ns(work), work.select(is_half_product if work.on_device else is_product)
    share, products_ns = work.share(ns), total_ns(products)
    if share < MIN_SHARE or ns < MIN_CONVERSION_FACTOR * products_ns:
        return None
    calls, product_calls = conversion_calls(work), total_calls(products)
    if not products or calls < product_calls or (not work.on_device and calls > MAX_CALLS_PER_PRODUCT * product_calls):
        return None
    factor = (
        f"{factor_text(ns / products_ns)} as long as the convolutions and matrix products ({text(products_ns, 'ns')})"
    )
    kernels = work.select(lambda item: is_conversion(item) or (not work.on_device and item.family == "cat/copy"))
    return StepPart(
        share=share,
        severity=severity_of(share, medium=LARGE_SHARE),
        title=f"Conversions between data types take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"Conversions take {text(ns, 'ns')} {work.per_step}, {factor}.",
            "Lower precision cannot save more than they cost.",
        ),
        advice="Leave autocast out for this model, or for its small layers: with {code}. To avoid the conversions instead, store "
        "the weights in 16 bits: model.to(torch.bfloat16), and check the quality.",
        code=f"torch.autocast(device_type='{work.device_type}', enabled=False)",
        measures=(("time of conversions", ns, "ns"), ("time of products", products_ns, "ns")),
        weight=work.share(ns + launch_idle_ns(work, kernels)),
        claims=(*work_claims(work, kernels), *LAUNCH_CLAIMS),
    )


RULE = step_rule("autocast_useless", DOC, _conversions, states_share=False)
