"""Kernels that only convert tensors between memory layouts (NCHW and NHWC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, layers_sentence, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import (
    MIN_BUSY_SHARE,
    StepWork,
    Work,
    names_claims,
    step_works,
    total_calls,
    total_ns,
    worst_step,
)
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the trace with the largest share of layout kernels."""
    if (worst := worst_step(step_works(report), _layout_share, lambda share: share)) is None:
        return
    step, share = worst.step, worst.match
    kernels = step.select(_is_layout)
    layout_ns, calls = total_ns(kernels), total_calls(kernels) // step.steps
    paths = tuple(step.layers(_is_layout))
    weight = step.share(layout_ns)
    yield RULE.finding(
        severity="medium" if weight >= MEDIUM_SHARE else "low",
        title=f"Layout conversions take {percent(share)} of the device time",
        explanation=join_sentences(
            f"{step.prefix}{plural(calls, 'kernel')}{step.facts.each} only {'converts' if calls == 1 else 'convert'} tensors "
            f"between NCHW and NHWC. They take {text(layout_ns, 'ns')} {step.per_step}.",
            layers_sentence(paths),
            CAUSE.format(library="MIOpen" if step.is_rocm else "cuDNN"),
            worst.others_sentence(),
        ),
        advice=_advice(report, step),
        evidence=(
            Evidence(name="share of layout kernels", value=100.0 * share, unit="percent", where=step.name),
            Evidence(name="time of layout kernels", value=layout_ns, unit="ns", where=step.name),
            Evidence(name="layout kernels per step", value=calls, unit="count", where=step.name),
        ),
        paths=paths,
        trials=trials_of(report, "channels_last"),
        weight=weight,
        claims=names_claims(kernel.name for kernel in kernels),
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


def _layout_share(step: StepWork) -> float | None:
    share = step.kernel_ns(_is_layout) / step.busy_ns if step.is_mostly_busy else 0.0
    return share if share > MAX_LAYOUT_SHARE else None


RULE = Rule("layout_overhead", DOC, check, "cause", "both")
