"""Convolutions on a CPU that run without oneDNN, for a reason that the recorded types do not rule out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import is_float32
from profiler_kit.diagnosis.phrases import advise, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_ns, work_claims, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

MIN_SHARE: Final = 0.10
# PyTorch computes small convolutions without oneDNN in any type.
MIN_CALL_NS: Final = 500_000
# Some shapes never use oneDNN. A network whose type it does not support does not use it at all.
MIN_CONVOLUTION_SHARE: Final = 0.90
_FALLBACK_OPERATOR: Final = re.compile(r"\Aaten::_?slow_conv")
_HALF: Final = ("bfloat16", "float16")

DOC = f"""
Fires on a CPU if convolutions without oneDNN (`_slow_conv2d`) take at least {limit_percent(MIN_SHARE)} of the step, at least
{MIN_CALL_NS // 1000} us per call, and {limit_percent(MIN_CONVOLUTION_SHARE)} of the time of all convolutions. Always `medium`.

- In 16 bits, oneDNN convolves on CPUs with instructions for it only; elsewhere PyTorch's own kernel runs, which is slower than
  oneDNN in float32.
- In a trace without types (`record_shapes=True` records them), the convolutions may be in float64, which oneDNN does not compute,
  or oneDNN may be switched off.

In float64, rule `float64` covers them. In float32, PyTorch chooses its own kernel where it is faster: 1x1 filters with fewer than
16 examples on one thread, and small single images. No finding is made.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fallback:
    """The convolutions without oneDNN, and their share of the step. `dtype`: their type; empty where it is not recorded."""

    kernels: tuple[Work, ...]
    share: float
    dtype: str


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share."""
    if isinstance(report, Report) and is_float32(report):
        return
    dtype = _target_dtype(report) if isinstance(report, Report) else ""
    if (
        worst := worst_step(step_works(report), lambda work: _fallback(work, dtype), lambda match: match.share)
    ) is None:
        return
    work, match = worst.step, worst.match
    kind = f" in {match.dtype}" if match.dtype else ""
    yield RULE.finding(
        severity="medium",
        title=f"Convolution{kind} without oneDNN takes {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}{match.kernels[0].name} takes {text(total_ns(match.kernels), 'ns')} {work.per_step}. It is "
            "PyTorch's own kernel.",
            f"oneDNN, which is faster, convolves in {match.dtype} on CPUs with instructions for it only."
            if match.dtype
            else "oneDNN, which is faster, does not compute in float64, and it may be switched off. The types are not recorded.",
            worst.others_sentence(),
        ),
        advice=advise(
            f"Convolve in float32 on this CPU: without autocast, and `{{code}}` for a model in {match.dtype}.",
            "model = model.float()",
        )
        if match.dtype
        else advise(
            "Record the types: `{code}`. In float32, check that torch.backends.mkldnn.enabled is True.",
            "torch.profiler.profile(record_shapes=True)",
        ),
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time without oneDNN", value=total_ns(match.kernels), unit="ns", where=work.name),
        ),
        weight=match.share,
        claims=work_claims(work, match.kernels),
    )


def _target_dtype(report: Report) -> str:
    target = report.target
    inputs = (item.dtype for item in target.inputs if item.dtype not in ("float32", "float") and "float" in item.dtype)
    return target.amp or target.dtype or next(inputs, "float32")


def _fallback(work: StepWork, dtype: str) -> _Fallback | None:
    if work.on_device:
        return None
    convolutions = work.select(lambda item: item.family == "conv")
    kernels = tuple(
        item for item in convolutions if _FALLBACK_OPERATOR.search(item.name) and item.ns >= MIN_CALL_NS * item.calls
    )
    share = work.share(total_ns(kernels))
    if share < MIN_SHARE or total_ns(kernels) < MIN_CONVOLUTION_SHARE * total_ns(convolutions):
        return None
    dtype = next((recorded for item in kernels for recorded in item.dtypes), dtype)
    return _Fallback(kernels=kernels, share=share, dtype=dtype) if dtype in ("", *_HALF) else None


RULE = Rule("not_on_onednn", DOC, check, "cause", "both")
