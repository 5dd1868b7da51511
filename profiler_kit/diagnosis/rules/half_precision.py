"""The possible gain of bfloat16 autocast for convolutions and matrix products that run in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import is_float32, outcome_text, trials_of
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, factor_text, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, names_claims, step_works, worst_step
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, is_contraction
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport, Trial
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


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline or the trace in which the computed saving is largest."""
    if (worst := worst_step(step_works(report), lambda step: _saving(report, step), lambda match: match.share)) is None:
        return
    step, saving = worst.step, worst.match
    trials = trials_of(report, "amp_bf16")
    may_help = trials.trial is None or trials.trial.verdict == "better"
    yield RULE.finding(
        severity="low" if may_help and saving.share >= MIN_USEFUL_SAVING else "info",
        title=_title(saving.share, trials.trial, step.facts.whole),
        explanation=join_sentences(
            f"{step.prefix}Convolutions and matrix products in TF32 take {text(saving.tf32_ns, 'ns')} of "
            f"{text(step.span_ns, 'ns')}.",
            f"The device's peak is {text(saving.tf32_peak, 'flops/s')} in TF32 and {text(saving.bf16_peak, 'flops/s')} in "
            f"bfloat16, {factor_text(saving.speedup)} as high.",
            f"With this speedup they save {percent(saving.share)} of the {step.facts.whole}. This is computed, not measured: "
            "conversions cost extra time, and smaller tensors save some.",
            worst.others_sentence(),
        ),
        advice=_advice(facts_of(report)),
        evidence=(
            Evidence(name="saving", value=100.0 * saving.share, unit="percent", where="computed"),
            Evidence(name="time of TF32 products", value=saving.tf32_ns, unit="ns", where=step.name),
            Evidence(name="bfloat16 peak over TF32 peak", value=saving.speedup, unit="ratio", where=saving.source),
        ),
        trials=trials,
        weight=saving.share,
        computed=True,
        claims=names_claims(kernel.name for kernel in step.kernels if may_help and _is_tf32_product(kernel)),
    )


class _Saving(NamedTuple):
    """The time of TF32 products, the peaks of the device and their source, and the share of the step that bfloat16 saves."""

    tf32_ns: int
    tf32_peak: float
    bf16_peak: float
    source: str
    share: float

    @property
    def speedup(self) -> float:
        """The peak in bfloat16 over that in TF32."""
        return self.bf16_peak / self.tf32_peak


def _saving(report: Report | TraceReport, step: StepWork) -> _Saving | None:
    if isinstance(report, Report):
        line = report.roofline_of(report.baseline())
        if line is None or not is_float32(report) or not trials_of(report, "amp_bf16").tries:
            return None
        tf32, bf16, source = line.roof.peak("tf32"), line.roof.peak("bf16"), line.roof.hardware
    else:
        peaks = next((row for name in step.trace.devices if (row := peaks_of(name)) is not None), None)
        if peaks is None:
            return None
        tf32, bf16, source = peaks.tf32, peaks.bf16, "datasheet"
    if not tf32 or not bf16 or bf16 <= tf32 or not step.is_mostly_busy:
        return None
    tf32_ns = step.kernel_ns(_is_tf32_product)
    saving = _Saving(tf32_ns, tf32, bf16, source, step.share(tf32_ns) * (1.0 - tf32 / bf16))
    is_useful = isinstance(report, Report) or saving.share >= MIN_USEFUL_SAVING
    return saving if is_useful and step.share(tf32_ns) >= MIN_STEP_SHARE else None


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


RULE = Rule("half_precision", DOC, check, "remedy", "both")
