"""The possible gain of bfloat16 autocast for convolutions and matrix products that run in TF32."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import is_float32, outcome_text, trials_of
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, factor_text, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_ns
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, is_contraction
from profiler_kit.records.report import Evidence, Report, TraceReport, Trial
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING
from profiler_kit.units import percent, text

# Below a fifth of the step, twice the speed of its products saves less than a tenth of it.
MIN_STEP_SHARE: Final = 0.20

_AUTOCAST: Final = "torch.autocast(device_type='cuda', dtype=torch.bfloat16)"

DOC = f"""
Fires when convolutions and matrix products in TF32 take at least {limit_percent(MIN_STEP_SHARE)} of the step, and the
device's peak in bfloat16 is higher than in TF32.

- `low`: autocast would save at least {limit_percent(MIN_USEFUL_SAVING)} of the step, and no trial contradicts it.
- `info`: it would save less, or the trial found no gain.

The saving assumes that these kernels speed up as the peaks do. It is **computed, not measured**: autocast adds conversions
and halves the bytes of the tensors it converts, so the trial may find more or less.

The peaks of a trace's device are those of its datasheet. The device must be busy for at least {limit_percent(MIN_BUSY_SHARE)} of
the step.
"""


def _half_precision(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    tf32, bf16, source = _peaks(report, step)
    if not tf32 or not bf16 or bf16 <= tf32 or not step.is_mostly_busy:
        return None
    kernels, trials = step.select(_is_tf32_product), trials_of(report, "amp_bf16")
    ns, whole = total_ns(kernels), step.facts.whole
    saving = step.share(ns) * (1.0 - tf32 / bf16)
    is_useful = saving >= MIN_USEFUL_SAVING
    if step.share(ns) < MIN_STEP_SHARE or (isinstance(report, TraceReport) and not is_useful):
        return None
    may_help = trials.trial is None or trials.trial.verdict == "better"
    return StepPart(
        share=saving,
        share_name="saving",
        severity="low" if may_help and is_useful else "info",
        title=_title(saving, trials.trial, whole),
        sentences=(
            f"Convolutions and matrix products in TF32 take {text(ns, 'ns')} of {text(step.span_ns, 'ns')}.",
            f"The device's peak is {text(tf32, 'flops/s')} in TF32 and {text(bf16, 'flops/s')} in bfloat16, "
            f"{factor_text(bf16 / tf32)} as high.",
            f"With this speedup they save {percent(saving)} of the {whole}. This is computed, not measured: conversions cost "
            "extra time, and smaller tensors save some.",
        ),
        advice=_advice(facts_of(report)),
        measures=(("time of TF32 products", ns, "ns"),),
        evidence=(Evidence(name="bfloat16 peak over TF32 peak", value=bf16 / tf32, unit="ratio", where=source),),
        trials=trials,
        computed=True,
        claims=kernel_claims(kernel.name for kernel in kernels if may_help),
    )


def _peaks(report: Report | TraceReport, step: StepWork) -> tuple[float | None, float | None, str]:
    """Return the peaks in TF32 and bfloat16 and their source; None where unknown, or where autocast cannot help the target."""
    if isinstance(report, Report):
        line = report.roofline_of(report.baseline())
        if line is None or not is_float32(report) or not trials_of(report, "amp_bf16").tries:
            return None, None, ""
        return line.roof.peak("tf32"), line.roof.peak("bf16"), line.roof.hardware
    peaks = next((row for name in step.trace.devices if (row := peaks_of(name)) is not None), None)
    return (peaks.tf32, peaks.bf16, "datasheet") if peaks is not None else (None, None, "")


def _is_tf32_product(kernel: Work) -> bool:
    return kernel.math == "tf32" and is_contraction(kernel.family) and kernel.family not in REDUCED_OPERATION_FAMILIES


def _advice(facts: Facts) -> Advice:
    if facts.trains:
        place, check = "forward and loss", "the quality of the training"
    else:
        place, check = "the model", "its outputs"
    return advise(f"Try {{code}} around {place}. Check {check}: bfloat16 has 8 bits of precision.", _AUTOCAST)


def _title(saving: float, trial: Trial | None, whole: str) -> str:
    if trial is None or trial.verdict == "failed":
        return f"bfloat16 autocast would save {percent(saving)} of the {whole} (computed from the peaks, not measured)"
    return f"bfloat16 autocast: {outcome_text(trial)} in a trial ({percent(saving)} less time computed from the peaks)"


RULE = step_rule("half_precision", DOC, _half_precision, "remedy")
