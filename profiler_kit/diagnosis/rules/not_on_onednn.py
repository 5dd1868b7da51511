"""Convolutions on a CPU that run without oneDNN, for a reason that the recorded types do not rule out."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.diagnosis.advice import is_float32
from profiler_kit.diagnosis.phrases import advise, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_ns, work_claims
from profiler_kit.records.report import Report, TraceReport
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


def _fallback(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    if work.on_device or (isinstance(report, Report) and is_float32(report)):
        return None
    convolutions = work.select(lambda item: item.family == "conv")
    kernels = tuple(
        item for item in convolutions if _FALLBACK_OPERATOR.search(item.name) and item.ns >= MIN_CALL_NS * item.calls
    )
    ns = total_ns(kernels)
    share = work.share(ns)
    dtype = next((dtype for item in kernels for dtype in item.dtypes), _target_dtype(report))
    if share < MIN_SHARE or ns < MIN_CONVOLUTION_SHARE * total_ns(convolutions) or dtype not in ("", *_HALF):
        return None
    return StepPart(
        share=share,
        severity="medium",
        title=f"Convolution{f' in {dtype}' if dtype else ''} without oneDNN takes {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"{kernels[0].name} takes {text(ns, 'ns')} {work.per_step}. It is PyTorch's own kernel.",
            f"oneDNN, which is faster, convolves in {dtype} on CPUs with instructions for it only."
            if dtype
            else "oneDNN, which is faster, does not compute in float64, and it may be switched off. The types are not recorded.",
        ),
        advice=advise(
            f"Convolve in float32 on this CPU: without autocast, and `{{code}}` for a model in {dtype}.",
            "model = model.float()",
        )
        if dtype
        else advise(
            "Record the types: `{code}`. In float32, check that torch.backends.mkldnn.enabled is True.",
            "torch.profiler.profile(record_shapes=True)",
        ),
        measures=(("time without oneDNN", ns, "ns"),),
        claims=work_claims(work, kernels),
    )


def _target_dtype(report: Report | TraceReport) -> str:
    if isinstance(report, TraceReport):
        return ""
    target = report.target
    inputs = (item.dtype for item in target.inputs if item.dtype not in ("float32", "float") and "float" in item.dtype)
    return target.amp or target.dtype or next(inputs, "float32")


RULE = step_rule("not_on_onednn", DOC, _fallback)
