"""Kernels that only convert tensors between memory layouts (NCHW and NHWC)."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import Advice, advise, layers_sentence, limit_percent, plural
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_calls, total_ns
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# A twentieth of the device time justifies one line of code, and exceeds the noise of a trace.
MAX_LAYOUT_SHARE: Final = 0.05
# Below a tenth of the step, the line is worth a try, and other causes matter more.
MEDIUM_SHARE: Final = 0.10

CAUSE: Final = "{library}'s fast convolutions need channels-last tensors and convert other layouts."
CHANNELS_LAST_ADVICE: Final = advise(
    "Use channels last: {code} and inputs.to(memory_format=torch.channels_last).",
    "model.to(memory_format=torch.channels_last)",
)
# Without the variable, PyTorch on ROCm converts channels-last tensors back before it calls MIOpen.
_ROCM_ADVICE: Final = advise(
    "Use channels last, and let MIOpen use it: `{code}`, before the first convolution, and "
    "inputs.to(memory_format=torch.channels_last).",
    "os.environ['PYTORCH_MIOPEN_SUGGEST_NHWC'] = '1'; model.to(memory_format=torch.channels_last)",
)

DOC = f"""
Fires on a report or a trace if layout kernels (NCHW to NHWC and back, padding of channels) take more than
{limit_percent(MAX_LAYOUT_SHARE)} of the device time, and the device is busy for at least {limit_percent(MIN_BUSY_SHARE)} of the
step. `medium` from {limit_percent(MEDIUM_SHARE)} of the step on, `low` below.

The tensor-core convolutions of cuDNN and MIOpen need channels-last tensors. They convert tensors of other layouts before and
after. These kernels compute nothing. On ROCm, PyTorch passes channels-last tensors on to MIOpen only with the environment
variable `PYTORCH_MIOPEN_SUGGEST_NHWC=1`.
"""


def _layout(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    kernels = step.select(_is_layout)
    ns, calls = total_ns(kernels), total_calls(kernels) // step.steps
    if not step.is_mostly_busy or ns <= MAX_LAYOUT_SHARE * step.busy_ns:
        return None
    share, paths = step.share(ns), tuple(step.layers(_is_layout))
    return StepPart(
        share=share,
        severity=severity_of(share, medium=MEDIUM_SHARE),
        title=f"Layout conversions take {percent(share)} of the {step.facts.whole}",
        sentences=(
            f"{plural(calls, 'kernel')}{step.facts.each} only {'converts' if calls == 1 else 'convert'} tensors between NCHW and "
            f"NHWC, for {text(ns, 'ns')} {step.per_step}.",
            layers_sentence(paths),
            CAUSE.format(library="MIOpen" if step.is_rocm else "cuDNN"),
        ),
        advice=_advice(report, step),
        measures=(("time of layout kernels", ns, "ns"), ("layout kernels per step", calls, "count")),
        paths=paths,
        trials=trials_of(report, "channels_last"),
        claims=kernel_claims(kernel.name for kernel in kernels),
    )


def _advice(report: Report | TraceReport, step: StepWork) -> Advice:
    if step.is_rocm:
        return _ROCM_ADVICE
    if isinstance(report, TraceReport):
        return CHANNELS_LAST_ADVICE
    if report.target.channels_last:
        return Advice(
            "The model is already in channels_last. Look for an op that returns another layout (view, permute), or an input "
            "that is not in channels_last."
        )
    return CHANNELS_LAST_ADVICE.then("To measure the effect, run analyze with --channels-last.")


def _is_layout(kernel: Work) -> bool:
    return kernel.family == LAYOUT


RULE = step_rule("layout_overhead", DOC, _layout)
