"""Attention as separate matrix products and a softmax, instead of one fused kernel."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.facts import Facts, counts_of
from profiler_kit.diagnosis.phrases import Advice, advise, layers_sentence, limit_percent
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, total_ns, work_claims
from profiler_kit.diagnosis.work_sites import operators_list, rows_with
from profiler_kit.records.claims import Claim, module_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import text

# A softmax that takes less is not the cost of attention: the products are.
MIN_SOFTMAX_SHARE: Final = 0.03
# Fusion saves the softmax and the traffic of the scores, not the products. Below this share, it may save nothing.
SERIOUS_SOFTMAX_SHARE: Final = 0.10
# Attention multiplies before and after each softmax.
PRODUCTS_PER_SOFTMAX: Final = 2

_SOFTMAX_CALL: Final = "aten::softmax"
_SOFTMAX_OPERATOR: Final = re.compile(r"\Aaten::_(masked_)?softmax(_backward_data)?\Z")
_SOFTMAX_FORWARD: Final = re.compile(r"\Aaten::_(masked_)?softmax\Z")
_BATCHED_PRODUCT: Final = re.compile(r"\Aaten::(bmm|baddbmm)\Z")
_MATH_FALLBACK: Final = "scaled_dot_product_attention_math"
# The inference path of nn.MultiheadAttention and nn.TransformerEncoderLayer: products and softmax in one operator's call.
_FAST_PATH: Final = "aten::_native_multi_head_attention"
# "softmax_warp_forward<float, float, float, 9, false, ...>": the fifth argument is true for log_softmax, which losses use.
_SOFTMAX_KERNEL: Final = re.compile(
    r"softmax_warp_(forward|backward)<[^,]+,[^,]+,[^,]+, *\d+, *false|SoftMax(Forward|Backward)"
)
_LOG_SOFTMAX_KERNEL: Final = re.compile(r"LogSoftMax|log_softmax", re.IGNORECASE)
_FORWARD_KERNEL: Final = re.compile(r"[fF]orward")


def _attention(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    return _by_operators(work) if work.operators else _by_modules(report, work)


def _part(
    work: StepWork,
    softmax_ns: int,
    products_ns: int,
    advice: Advice,
    claims: tuple[Claim, ...],
    paths: tuple[str, ...] = (),
) -> StepPart | None:
    softmax_share, rows = work.share(softmax_ns), rows_with(work.trace.sites, _SOFTMAX_CALL)
    if softmax_share < MIN_SOFTMAX_SHARE:
        return None
    return StepPart(
        share=max(work.share(softmax_ns + products_ns), min(1.0, sum(site.saving.median for site in rows))),
        most="high" if rows or softmax_share >= SERIOUS_SOFTMAX_SHARE else "low",
        what="Attention without a fused kernel takes",
        sentences=(
            f"Softmax takes {text(softmax_ns, 'ns')} and the matrix products around it take {text(products_ns, 'ns')} "
            f"{work.per_step}.",
            f"Between the products: {operators_list(rows[0].row)}." if rows else "",
            layers_sentence(paths),
            "Each of these operations writes the scores of all pairs of positions to memory, and the next one reads them.",
        ),
        advice=advice,
        measures=(("time of softmax", softmax_ns, "ns"), ("time of the products", products_ns, "ns")),
        paths=paths,
        claims=tuple(Claim("site", "core", site.row) for site in rows) or claims,
    )


_ADVICE: Final = (
    "Replace the products and the softmax by {code}, or is_causal=True instead of a causal mask. nn.MultiheadAttention uses it "
    "with need_weights=False."
)
_CALL: Final = "torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask{dropout})"
# Source: aten/src/ATen/native/transformers/sdp_utils_cpp.cpp, check_for_dropout.
_NO_DROPOUT: Final = "On a CPU it is fused only without dropout (dropout_p=0.0)."
_FAST_PATH_ADVICE: Final = advise(
    "The inference path of nn.MultiheadAttention and nn.TransformerEncoderLayer runs these operations. Compare with {code}, "
    "which calls scaled_dot_product_attention instead: faster for long sequences.",
    "torch.backends.mha.set_fastpath_enabled(False)",
)
_FALLBACK_ADVICE: Final = (
    "scaled_dot_product_attention falls back to separate operations here. Call it with {{code}} to see the reason: usually "
    "{reasons}."
)
_FLASH_ONLY: Final = "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION)"


def _advice(work: StepWork, softmax_calls: int) -> Advice:
    """Return the advice for the caller of the operations: PyTorch's fallback, its inference path, or the user's code."""
    if any(_MATH_FALLBACK in item.name for item in work.operators):
        return _fallback_advice(work.facts)
    fast_path_calls = sum(item.calls for item in work.operators if item.name == _FAST_PATH)
    if fast_path_calls >= softmax_calls:
        return _FAST_PATH_ADVICE
    return _own_advice(work)


def _own_advice(work: StepWork) -> Advice:
    advice = advise(_ADVICE, _CALL.format(dropout=", dropout_p=p" if work.facts.trains else ""))
    return advice.then(_NO_DROPOUT) if not work.on_device and work.facts.trains else advice


def _fallback_advice(facts: Facts) -> Advice:
    """Return the advice with the usual reasons that the recorded types do not rule out."""
    types = " or ".join(dtype for dtype in ("float64", "float32") if not facts.lacks(dtype))
    inputs = [f"{types} inputs"] if types else []
    masks = ["a mask that needs gradients"] if facts.has_backward else []
    reasons = ", or ".join([*inputs, "a head size that is not a multiple of 8", *masks])
    return advise(_FALLBACK_ADVICE.format(reasons=reasons), _FLASH_ONLY)


def _by_operators(work: StepWork) -> StepPart | None:
    """Return attention by hand as the operators of `work` show it."""
    softmax = work.select(lambda item: _SOFTMAX_OPERATOR.match(item.name) is not None, operators=True)
    products = work.select(lambda item: _BATCHED_PRODUCT.match(item.name) is not None, operators=True)
    forward_calls = sum(item.calls for item in softmax if _SOFTMAX_FORWARD.match(item.name))
    if not forward_calls or total_calls(products) < PRODUCTS_PER_SOFTMAX * forward_calls:
        return None
    claims = work_claims(work, (*softmax, *products))
    return _part(work, total_ns(softmax), total_ns(products), _advice(work, forward_calls), claims)


def _by_modules(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the attention of modules whose own kernels contain a softmax and at least two products for each."""
    paths = []
    for module in work.trace.modules:
        calls = sum(k.calls for k in module.kernels if is_softmax_kernel(k.name) and _FORWARD_KERNEL.search(k.name))
        products = sum(k.calls for k in module.kernels if k.family == "gemm")
        if module.phase == "forward" and calls and products >= PRODUCTS_PER_SOFTMAX * calls:
            paths.append(module.path)
    kernels = [kernel for module in work.trace.modules if module.path in paths for kernel in module.kernels]
    static = counts_of(report)
    uses_math = any(use.kernel == "math" for use in static.attention) if static is not None else False
    return _part(
        work,
        sum(kernel.kernel_ns for kernel in kernels if is_softmax_kernel(kernel.name)),
        sum(kernel.kernel_ns for kernel in kernels if kernel.family.startswith("gemm")),
        _fallback_advice(work.facts) if uses_math else _own_advice(work),
        module_claims(paths),
        tuple(paths),
    )


def is_softmax_kernel(name: str) -> bool:
    """Return whether the kernel called `name` computes a softmax or its gradient; log_softmax, of losses, does not count."""
    return _SOFTMAX_KERNEL.search(name) is not None and _LOG_SOFTMAX_KERNEL.search(name) is None


ATTENTION_BY_HAND = step_rule(
    "attention_by_hand",
    _attention,
    Shares(0.10, medium=0.20, high=1 / 3),  # names do not show whether the products are those of attention
    f"""
Fires if attention runs as batched matrix products around a softmax (bmm, softmax, bmm). There must be at least
{PRODUCTS_PER_SOFTMAX} products for each softmax, and the softmax must take at least {limit_percent(MIN_SOFTMAX_SHARE)} of the
step; below {limit_percent(SERIOUS_SOFTMAX_SHARE)} the finding is `low`, as fusion saves little then. The softmax of a loss
(`log_softmax`) does not count.

Without fusion, the scores of all pairs of positions are written to memory and read again by each operation. A fused kernel keeps
them on the chip, and needs memory proportional to the length, not to its square. Operators show batched products. The kernels of
a run on a device do not, so there a module counts whose own kernels contain products and a softmax.
In a trace the same holds for its operators; a trace without operators has no finding. Where a replay knows the operators
between the products, with masks, scaling and conversions, the share is what a step saves without them.
""",
    keeps=0.25,  # the fused kernel does not write the scores: what is left is the products
)
