"""Convolutions and matrix products that run without tensor cores on a device that has them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import find_trials, has_tensor_cores, is_float32
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.phrases import (
    Advice,
    factor_text,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import busy_share, names_claims
from profiler_kit.diagnosis.timing import kernels_of, ratio, tf32_convolution_ns
from profiler_kit.diagnosis.trace_facts import MIN_BUSY_SHARE, is_mostly_busy, kernels_ns, step_share, worst_trace
from profiler_kit.records.families import is_contraction, is_convolution
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import KernelStat, TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# Tensor cores make such kernels up to eight times faster. From a tenth of the device time on, the gain is noticeable.
MIN_SHARE: Final = 0.10
# A third of the step decides its length. Below a fifth of it, other changes usually save more.
LARGE_SHARE: Final = 1 / 3
MEDIUM_SHARE: Final = 0.20
# Starting a kernel and reading its operands takes some microseconds, in any arithmetic.
MIN_KERNEL_NS: Final = 10_000
# A product of a matrix and a vector reads each value once: the bandwidth limits it, not the arithmetic.
_MATRIX_VECTOR: Final = re.compile("gemv|dot_kernel", re.IGNORECASE)

DOC = f"""
Fires if kernels of convolutions and matrix products in plain float32 arithmetic (without tensor cores, by their names) take at
least {limit_percent(MIN_SHARE)} of the baseline's device time. The target must compute in float32, and the device must have
compute capability 8.0 or later. Kernels that take less than {MIN_KERNEL_NS // 1000} us on average do not count, and neither do
products of a matrix and a vector: other costs than arithmetic limit them.

- `high`: at least a third of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)} of the step.
- `low`: below that.

The finding gives the measured peaks of both kinds of arithmetic, if the report has them. TF32 and bfloat16 are less accurate:
rule `tf32_in_use` and the trial give the error.

In a trace, the same limits hold if the device has tensor cores for TF32 and bfloat16: by its name in the table of datasheets, or
because other kernels of the trace use them. The device must be busy for at least {limit_percent(MIN_BUSY_SHARE)} of the span.
Convolutions do not count where others use TF32: the setting is on, and cuDNN chose float32 for their shapes.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or not is_float32(report):
        return
    if has_tensor_cores(run) is not True or run.config.enabled is False:
        return
    fp32_kernels = [kernel for kernel in kernels_of(run) if _is_fp32_contraction(kernel)]
    fp32_ns = sum(kernel.kernel_ns for kernel in fp32_kernels)
    share = fp32_ns / run.device_ns
    if share < MIN_SHARE:
        return
    convolution_ns = sum(kernel.kernel_ns for kernel in fp32_kernels if kernel.family.startswith("conv"))
    by_path: Counter[str] = Counter()
    for item in run.modules:
        by_path[item.path] += sum(k.kernel_ns for k in item.kernels if _is_fp32_contraction(k))
    paths = tuple(path for path, ns in by_path.most_common() if ns)
    # the setting for the larger part first
    settings = ("default", "matmul_tf32") if 2 * convolution_ns >= fp32_ns else ("matmul_tf32", "default")
    words = [word for word in settings if word == "default" or fp32_ns > convolution_ns]
    trials = find_trials(report, run, (*words, "amp_bf16"))
    weight = share * busy_share(report)
    yield RULE.finding(
        severity=_severity(weight),
        title=f"Tensor cores unused: float32 convolutions and matrix products take {percent(share)} of the device time",
        explanation=join_sentences(
            f"In {quoted_name(run)}, kernels of plain float32 arithmetic take {text(fp32_ns, 'ns')} per step"
            f"{_convolution_part(convolution_ns)}.",
            f"They belong to {join_list([layer_name(path) for path in paths])}." if paths else "",
            _peaks(report, run),
            trials.sentence(),
        ),
        advice=_advice(0 if tf32_convolution_ns(run) else convolution_ns, fp32_ns - convolution_ns),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="time of float32 kernels", value=fp32_ns, unit="ns", where=run.config.name),
            Evidence(name="time of float32 convolutions", value=convolution_ns, unit="ns", where=run.config.name),
        ),
        paths=paths,
        trials=trials,
        weight=weight,
        claims=names_claims(kernel.name for kernel in fp32_kernels),
    )


def _severity(share: float) -> Severity:
    if share >= LARGE_SHARE:
        return "high"
    return "medium" if share >= MEDIUM_SHARE else "low"


def _is_fp32_contraction(kernel: KernelStat | TraceKernel) -> bool:
    if kernel.math != "fp32" or not is_contraction(kernel.family) or _MATRIX_VECTOR.search(kernel.name):
        return False
    return kernel.kernel_ns >= MIN_KERNEL_NS * kernel.calls


def _is_tf32_convolution(kernel: TraceKernel) -> bool:
    return kernel.math == "tf32" and is_convolution(kernel.family)


def _peaks(report: Report, run: ConfigRun) -> str:
    line = report.roofline_of(run)
    fp32, tf32 = (line.roof.peak("fp32"), line.roof.peak("tf32")) if line is not None else (None, None)
    factor = ratio(tf32, fp32)
    if factor is None:
        return ""
    return (
        f"The peak of this device is {text(fp32, 'flops/s')} in float32 and {text(tf32, 'flops/s')} in TF32, "
        f"{factor_text(factor)} as much."
    )


def _advice(convolution_ns: int, product_ns: int) -> Advice:
    """Return the settings that make convolutions and matrix products use tensor cores, that for more time first.

    `convolution_ns`: 0 if convolutions may use TF32 already.
    """
    times = (
        ("torch.backends.cudnn.allow_tf32 = True", "convolutions", convolution_ns),
        ("torch.set_float32_matmul_precision('high')", "matrix products", product_ns),
    )
    settings = [(code, work) for code, work, ns in sorted(times, key=lambda item: -item[2]) if ns > 0]
    options = [*(f"{code} ({work})" for code, work in settings), "torch.autocast to bfloat16 (all layers)"]
    code = settings[0][0] if settings else ""
    return Advice(f"If the error is acceptable, use tensor cores: {', or '.join(options)}.", code)


def _convolution_part(convolution_ns: int) -> str:
    return f", {text(convolution_ns, 'ns')} of it in convolutions" if convolution_ns else ""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest share of float32 contractions."""
    if (worst := worst_trace(report, _fp32_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    kernels = _fp32_kernels(trace)
    fp32_ns = sum(kernel.kernel_ns for kernel in kernels)
    convolution_ns = sum(kernel.kernel_ns for kernel in kernels if kernel.family.startswith("conv"))
    weight = step_share(trace, fp32_ns)
    yield RULE.finding(
        severity=_severity(weight),
        title=f"Tensor cores unused: float32 convolutions and matrix products take {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Kernels of plain float32 arithmetic take "
            f"{text(fp32_ns, 'ns')}{_convolution_part(convolution_ns)}. The device has tensor cores for TF32 and bfloat16.",
            worst.others_sentence(),
        ),
        advice=_advice(0 if kernels_ns(trace, _is_tf32_convolution) else convolution_ns, fp32_ns - convolution_ns),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="time of float32 kernels", value=fp32_ns, unit="ns", where=worst.where),
            Evidence(name="time of float32 convolutions", value=convolution_ns, unit="ns", where=worst.where),
        ),
        weight=weight,
        claims=names_claims(kernel.name for kernel in kernels),
    )


def _fp32_share(trace: TraceSummary) -> float | None:
    if facts_of(trace).lacks("float32"):
        return None
    peaks = [peaks_of(name) for name in trace.devices]
    by_datasheet = any(row is not None and row.tf32 is not None for row in peaks)
    by_kernels = any(kernel.math in ("tf32", "bf16") for kernel in trace.kernels)
    if not is_mostly_busy(trace) or not (by_datasheet or by_kernels):
        return None
    share = sum(kernel.kernel_ns for kernel in _fp32_kernels(trace)) / trace.busy_ns
    return share if share >= MIN_SHARE else None


def _fp32_kernels(trace: TraceSummary) -> tuple[TraceKernel, ...]:
    """Return the kernels that could use tensor cores, without convolutions where the setting for them is on."""
    allows_tf32 = any(kernel.math == "tf32" and kernel.family.startswith("conv") for kernel in trace.kernels)
    return tuple(
        kernel
        for kernel in trace.kernels
        if _is_fp32_contraction(kernel) and not (allows_tf32 and kernel.family.startswith("conv"))
    )


RULE = Rule("no_tensor_cores", DOC, check, "cause", check_trace, states_share=False)
