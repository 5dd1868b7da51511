"""The time and memory of a step without cuDNN."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import AdviceTrials
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    factor_text,
    join_list,
    join_sentences,
    limit_percent,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of, new_finding
from profiler_kit.diagnosis.timing import kernels_of, ratio
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.families import IM2COL
from profiler_kit.records.report import Evidence, Finding, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Outcome
from profiler_kit.statistics.noise import noise_of
from profiler_kit.statistics.trials import sweep_trial
from profiler_kit.units import percent, text

# A tenth more memory comes from im2col's buffers; less may be the allocator's rounding.
MIN_EXTRA_MEMORY: Final = 0.10

DOC = f"""
Fires when a run with `cudnn.enabled=False` and a plain run with cuDNN (no benchmark, not deterministic) were measured. It
compares their step times, and mentions memory if the peak without cuDNN is more than {limit_percent(MIN_EXTRA_MEMORY)} higher.

- `low`: the step is significantly faster without cuDNN.
- `info`: otherwise, because PyTorch's own convolutions are a fallback and not a choice.

Without cuDNN, convolutions run as PyTorch's own im2col and matrix product. They compute in float32 unless TF32 is also
allowed for matrix products, so the comparison uses the run without TF32 if there is one.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding: if a run without cuDNN and a plain run with it were measured."""
    off = next((r for r in plain_runs(report) if r.config.enabled is False), None)
    on_runs = [r for r in plain_runs(report) if _is_plain_cudnn(r)]
    if off is None or off.step_ns is None or not on_runs:
        return
    # the fallback computes in float32, so the run without TF32 does the same arithmetic
    baseline = next((r for r in on_runs if r.config.allow_tf32 is False), on_runs[0])
    if baseline.step_ns is None:
        return
    noise = noise_of(report)
    difference = noise.difference(baseline, off)
    if difference is None:
        return
    outcome, factor = difference.outcome, difference.ratio
    yield new_finding(
        severity="low" if outcome == "better" else "info",
        title=_title(outcome, factor, baseline),
        explanation=join_sentences(
            _compare(off, on_runs),
            _im2col(off),
            noise.sentence(),
        ),
        advice=_advice(outcome),
        evidence=(
            Evidence(name="step without cuDNN over step with it", value=factor, unit="ratio", where=off.config.name),
            Evidence(name="median step", value=off.step_ns.median, unit="ns", where=off.config.name),
            Evidence(name="median step", value=baseline.step_ns.median, unit="ns", where=baseline.config.name),
            *evidence_of(off.config.name, ("peak", off.peak_allocated_bytes, "bytes")),
            *evidence_of(baseline.config.name, ("peak", baseline.peak_allocated_bytes, "bytes")),
        ),
        trials=AdviceTrials(trial=sweep_trial(baseline, off, noise) if outcome == "better" else None),
        weight=difference.saved if outcome == "better" else 0.0,
    )


def _is_plain_cudnn(run: ConfigRun) -> bool:
    flags = run.config
    return flags.enabled is True and not flags.benchmark and not flags.deterministic and run.step_ns is not None


def _title(outcome: Outcome, factor: float, baseline: ConfigRun) -> str:
    if outcome in ("same", "unknown"):
        return f"Turning cuDNN off changes the step within the noise: {factor_text(factor)} the time of {quoted_name(baseline)}"
    if outcome == "better":
        return f"Turning cuDNN off makes the step faster: {factor_text(factor)} the time of {quoted_name(baseline)}"
    return f"Turning cuDNN off makes the step slower: {factor_text(factor)} the time of {quoted_name(baseline)}"


def _compare(off: ConfigRun, on_runs: list[ConfigRun]) -> str:
    """The step times, and the memory peaks of the runs that need much less memory than `off`."""
    ratios = [ratio(off.peak_allocated_bytes, run.peak_allocated_bytes) for run in on_runs]
    needs_less = [peak_ratio is not None and peak_ratio > 1.0 + MIN_EXTRA_MEMORY for peak_ratio in ratios]
    clauses = [f"{_step_and_peak(off, any(needs_less))} without cuDNN"]
    clauses += [
        f"{_step_and_peak(run, with_peak)} in {quoted_name(run)}"
        for run, with_peak in zip(on_runs, needs_less, strict=True)
    ]
    return f"The step takes {join_list(clauses, most=len(clauses))}."


def _step_and_peak(run: ConfigRun, with_peak: bool) -> str:
    step = text(run.step_ns.median, "ns") if run.step_ns is not None else "-"
    return f"{step} (memory peak {text(run.peak_allocated_bytes, 'bytes')})" if with_peak else step


def _im2col(off: ConfigRun) -> str:
    im2col_ns = sum(k.kernel_ns for k in kernels_of(off) if k.family == IM2COL)
    share = ratio(im2col_ns, off.device_ns)
    if not im2col_ns or share is None:
        return ""
    return (
        f"PyTorch's own convolution copies every input patch into a buffer (im2col, {percent(share)} of the "
        f"{clock_name(off.clock)}) and then multiplies, one sample at a time. The buffer holds kernel height x kernel width "
        "values for each output position and input channel."
    )


def _advice(outcome: Outcome) -> Advice:
    if outcome == "better":
        return advise("Try {code} for this model, and compare the results.", "torch.backends.cudnn.enabled = False")
    return Advice(
        "Leave torch.backends.cudnn.enabled at True. Pass enabled=True to torch.backends.cudnn.flags(...): its default turns "
        "cuDNN off inside the block."
    )


RULE = Rule("cudnn_off_fallback", DOC, check)
