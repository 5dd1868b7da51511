"""The possible gain of bfloat16 autocast for convolutions and matrix products that run in TF32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import find_trials, is_float32, outcome_text
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.phrases import Advice, advise, factor_text, join_sentences, limit_percent, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import names_claims
from profiler_kit.diagnosis.timing import kernels_of, ratio
from profiler_kit.diagnosis.trace_facts import MIN_BUSY_SHARE, is_mostly_busy, kernels_ns, step_share, worst_trace
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, is_contraction
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport, Trial
from profiler_kit.records.traces import KernelStat, TraceKernel, TraceSummary
from profiler_kit.statistics.noise import MIN_USEFUL_SAVING
from profiler_kit.units import percent, text

# Below a fifth of the step, twice the speed of its products saves less than a tenth of it.
MIN_STEP_SHARE: Final = 0.20

_AUTOCAST: Final = "torch.autocast(device_type='cuda', dtype=torch.bfloat16)"

DOC = f"""
Fires when convolutions and matrix products in TF32 take at least {limit_percent(MIN_STEP_SHARE)} of the baseline's step, and the
device's peak in bfloat16 is higher than in TF32.

- `low`: autocast would save at least {limit_percent(MIN_USEFUL_SAVING)} of the step, and no trial contradicts it.
- `info`: it would save less, or the trial found no gain.

The saving assumes that these kernels speed up as the peaks do. It is **computed, not measured**: autocast adds conversions
and halves the bytes of the tensors it converts, so the trial may find more or less.

In a trace the same limit holds for a device with known datasheet peaks that is busy for at least
{limit_percent(MIN_BUSY_SHARE)} of the span.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    line = report.roofline_of(run) if run is not None else None
    if run is None or line is None or run.step_ns is None or run.clock != "kernel" or not is_float32(report):
        return
    tf32_ns = sum(kernel.kernel_ns for kernel in kernels_of(run) if _is_tf32_product(kernel))
    share = ratio(tf32_ns, run.step_ns.median)
    tf32_peak, bf16_peak = line.roof.peak("tf32"), line.roof.peak("bf16")
    speedup = ratio(bf16_peak, tf32_peak)
    autocast = find_trials(report, run, ("amp_bf16",))
    if share is None or share < MIN_STEP_SHARE or speedup is None or speedup <= 1.0 or not autocast.tries:
        return
    saving = min(1.0, share) * (1.0 - 1.0 / speedup)
    may_help = autocast.trial is None or autocast.trial.verdict == "better"
    yield RULE.finding(
        severity="low" if may_help and saving >= MIN_USEFUL_SAVING else "info",
        title=_title(saving, autocast.trial),
        explanation=join_sentences(
            f"Convolutions and matrix products in TF32 take {text(tf32_ns, 'ns')} of the {text(run.step_ns.median, 'ns')} step "
            f"of {quoted_name(run)}.",
            f"The device's peak is {text(tf32_peak, 'flops/s')} in TF32 and {text(bf16_peak, 'flops/s')} in bfloat16, "
            f"{factor_text(speedup)} as high.",
            f"With this speedup they save {percent(saving)} of the step. This is computed, not measured: conversions cost extra "
            "time, and smaller tensors save some.",
        ),
        advice=_advice(facts_of(report)),
        evidence=(
            Evidence(name="saving", value=100.0 * saving, unit="percent", where="computed"),
            Evidence(name="time of TF32 products", value=tf32_ns, unit="ns", where=run.config.name),
            Evidence(name="bfloat16 peak over TF32 peak", value=speedup, unit="ratio", where=line.roof.hardware),
        ),
        trials=autocast,
        weight=saving,
        computed=True,
        claims=names_claims(kernel.name for kernel in kernels_of(run) if may_help and _is_tf32_product(kernel)),
    )


def _is_tf32_product(kernel: KernelStat | TraceKernel) -> bool:
    return kernel.math == "tf32" and is_contraction(kernel.family) and kernel.family not in REDUCED_OPERATION_FAMILIES


def _advice(facts: Facts) -> Advice:
    if facts.trains:
        place, check = "forward and loss", "the quality of the training"
    else:
        place, check = "the model", "its outputs"
    return advise(f"Try {{code}} around {place}. Check {check}: bfloat16 has 8 bits of precision.", _AUTOCAST)


def _title(saving: float, trial: Trial | None) -> str:
    if trial is None or trial.verdict == "failed":
        return f"bfloat16 autocast would save {percent(saving)} of the step (computed from the peaks, not measured)"
    return f"bfloat16 autocast: {outcome_text(trial)} in a trial ({percent(saving)} less time computed from the peaks)"


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace in which the computed saving is largest."""
    if (worst := worst_trace(report, _trace_saving, lambda match: match[1])) is None:
        return
    trace, (tf32_ns, saving, speedup) = worst.trace, worst.match
    yield RULE.finding(
        severity="low",
        title=f"bfloat16 autocast would save {percent(saving)} of the {facts_of(trace).whole} (computed from the peaks, not "
        "measured)",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Convolutions and matrix products in TF32 take {text(tf32_ns, 'ns')} of "
            f"{text(trace.span_ns, 'ns')}. The device's datasheet peak in bfloat16 is {factor_text(speedup)} the peak in TF32.",
            worst.others_sentence(),
        ),
        advice=_advice(facts_of(report)),
        evidence=(
            Evidence(name="saving", value=100.0 * saving, unit="percent", where="computed"),
            Evidence(name="time of TF32 products", value=tf32_ns, unit="ns", where=worst.where),
        ),
        weight=saving,
        computed=True,
        claims=names_claims(kernel.name for kernel in trace.kernels if _is_tf32_product(kernel)),
    )


def _trace_saving(trace: TraceSummary) -> tuple[int, float, float] | None:
    """The time of TF32 products, the share of the step that bfloat16 saves, and the ratio of the peaks."""
    peaks = next((row for name in trace.devices if (row := peaks_of(name)) is not None), None)
    speedup = ratio(peaks.bf16, peaks.tf32) if peaks is not None else None
    if speedup is None or speedup <= 1.0 or not is_mostly_busy(trace):
        return None
    tf32_ns = kernels_ns(trace, _is_tf32_product)
    share = step_share(trace, tf32_ns)
    saving = share * (1.0 - 1.0 / speedup)
    return (tf32_ns, saving, speedup) if share >= MIN_STEP_SHARE and saving >= MIN_USEFUL_SAVING else None


RULE = Rule("half_precision", DOC, check, "remedy", check_trace)
