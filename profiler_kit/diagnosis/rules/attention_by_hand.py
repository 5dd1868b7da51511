"""Attention as separate matrix products and a softmax, instead of one fused kernel."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.facts import Facts
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.units import percent, text

# Fused attention saves most of the time of softmax and of its neighbors. Below a tenth of the step, the gain is small.
MIN_SHARE: Final = 0.10
# A third of the step decides its length.
LARGE_SHARE: Final = 1 / 3
# Below a fifth of the step, fusion saves little, and other products may be among these.
MEDIUM_SHARE: Final = 0.20
# A softmax that takes less is not the cost of attention: the products are.
MIN_SOFTMAX_SHARE: Final = 0.03
# Fusion saves the softmax and the traffic of the scores, not the products. Below this share, it may save nothing.
SERIOUS_SOFTMAX_SHARE: Final = 0.10
# Attention multiplies before and after each softmax.
PRODUCTS_PER_SOFTMAX: Final = 2

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

DOC = f"""
Fires if attention runs as batched matrix products around a softmax (bmm, softmax, bmm), and the softmax and these products take
at least {limit_percent(MIN_SHARE)} of the step. There must be at least {PRODUCTS_PER_SOFTMAX} products for each softmax, and the
softmax must take at least {limit_percent(MIN_SOFTMAX_SHARE)} of the step. The softmax of a loss (`log_softmax`) does not count.

- `high`: at least a third of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that, as names do not show whether the products are those of attention; or if the softmax takes less than
  {limit_percent(SERIOUS_SOFTMAX_SHARE)} of the step, as fusion saves little then.

Without fusion, the scores of all pairs of positions are written to memory and read again by each operation. A fused kernel keeps
them on the chip, and needs memory proportional to the length, not to its square. Operators show batched products. The kernels of
a run on a device do not, so there a module counts whose own kernels contain products and a softmax.
In a trace the same holds for its operators; a trace without operators has no finding.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attention:
    """The softmax and the products of attention, its share of the step, and the modules that run it."""

    softmax: tuple[Work, ...]
    products_ns: int
    share: float
    advice: Advice
    items: tuple[Work, ...]
    paths: tuple[str, ...] = ()


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of attention by hand."""

    def find(work: StepWork) -> _Attention | None:
        return attention_by_operators(work) if work.operators else _by_modules(report, work)

    if (worst := worst_step(step_works(report), find, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    yield RULE.finding(
        severity=_severity(match.share, work.share(total_ns(match.softmax))),
        title=f"Attention without a fused kernel takes {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}Softmax takes {text(total_ns(match.softmax), 'ns')} and the matrix products around it take "
            f"{text(match.products_ns, 'ns')} {work.per_step}.",
            f"They belong to {join_list([layer_name(path) for path in match.paths])}." if match.paths else "",
            "Each of these operations writes the scores of all pairs of positions to memory, and the next one reads them.",
            worst.others_sentence(),
        ),
        advice=match.advice,
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of softmax", value=total_ns(match.softmax), unit="ns", where=work.name),
            Evidence(name="time of the products", value=match.products_ns, unit="ns", where=work.name),
        ),
        paths=match.paths,
        weight=match.share,
        claims=(f"busy:module:{path}" for path in match.paths) if match.paths else work_claims(work, match.items),
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


def _severity(share: float, softmax_share: float) -> Severity:
    if softmax_share < SERIOUS_SOFTMAX_SHARE or share < MEDIUM_SHARE:
        return "low"
    return "high" if share >= LARGE_SHARE else "medium"


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


def attention_by_operators(work: StepWork) -> _Attention | None:
    """Return attention by hand as the operators of `work` show it; None below the limits."""
    softmax = work.select(lambda item: _SOFTMAX_OPERATOR.match(item.name) is not None, operators=True)
    products = work.select(lambda item: _BATCHED_PRODUCT.match(item.name) is not None, operators=True)
    forward_calls = sum(item.calls for item in softmax if _SOFTMAX_FORWARD.match(item.name))
    share = work.share(total_ns(softmax) + total_ns(products))
    if not forward_calls or total_calls(products) < PRODUCTS_PER_SOFTMAX * forward_calls:
        return None
    if share < MIN_SHARE or work.share(total_ns(softmax)) < MIN_SOFTMAX_SHARE:
        return None
    return _Attention(
        softmax=softmax,
        products_ns=total_ns(products),
        share=share,
        advice=_advice(work, forward_calls),
        items=(*softmax, *products),
    )


def _by_modules(report: Report | TraceReport, work: StepWork) -> _Attention | None:
    """Return the attention of modules whose own kernels contain a softmax and at least two products for each."""
    run = report.baseline() if isinstance(report, Report) else None
    if run is None or not run.device_ns:
        return None
    scale = work.busy_ns / run.device_ns
    forward = [layer for layer in run.modules if layer.phase == "forward"]
    paths = []
    for layer in forward:
        calls = sum(k.calls for k in layer.kernels if is_softmax_kernel(k.name) and _FORWARD_KERNEL.search(k.name))
        products = sum(k.calls for k in layer.kernels if k.family == "gemm")
        if calls and products >= PRODUCTS_PER_SOFTMAX * calls:
            paths.append(layer.path)
    kernels = [kernel for layer in run.modules if layer.path in paths for kernel in layer.kernels]
    softmax = tuple(
        Work(name=k.name, family=k.family, calls=k.calls, ns=round(scale * k.kernel_ns))
        for k in kernels
        if is_softmax_kernel(k.name)
    )
    products_ns = round(scale * sum(k.kernel_ns for k in kernels if k.family.startswith("gemm")))
    share = work.share(total_ns(softmax) + products_ns)
    if share < MIN_SHARE or work.share(total_ns(softmax)) < MIN_SOFTMAX_SHARE:
        return None
    attention = report.static.attention if isinstance(report, Report) and report.static is not None else ()
    return _Attention(
        softmax=softmax,
        products_ns=products_ns,
        share=share,
        advice=_fallback_advice(work.facts) if any(use.kernel == "math" for use in attention) else _own_advice(work),
        items=(),
        paths=tuple(paths),
    )


def is_softmax_kernel(name: str) -> bool:
    """Return whether the kernel called `name` computes a softmax or its gradient; log_softmax, of losses, does not count."""
    return _SOFTMAX_KERNEL.search(name) is not None and _LOG_SOFTMAX_KERNEL.search(name) is None


# The fused kernel does not write the scores: what is left is the products.
KEEPS: Final = 0.25

RULE = Rule("attention_by_hand", DOC, check, "cause", "both", keeps=KEEPS)
