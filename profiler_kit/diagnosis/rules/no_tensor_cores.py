"""Convolutions and matrix products that run without tensor cores on a device that has them."""

from __future__ import annotations

import re
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import has_tensor_cores, is_float32, trials_of
from profiler_kit.diagnosis.phrases import Advice, factor_text, layers_sentence, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import MIN_BUSY_SHARE, StepWork, Work, total_ns
from profiler_kit.diagnosis.timing import ratio
from profiler_kit.records.claims import kernel_claims
from profiler_kit.records.families import is_contraction, is_convolution
from profiler_kit.records.report import Report, TraceReport
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
least {limit_percent(MIN_SHARE)} of the device time, and the device is busy for at least {limit_percent(MIN_BUSY_SHARE)} of the
step. The target of a report must compute in float32, and the device must have compute capability 8.0 or later. Kernels that
take less than {MIN_KERNEL_NS // 1000} us on average do not count, and neither do products of a matrix and a vector: other costs
than arithmetic limit them.

- `high`: at least a third of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)} of the step.
- `low`: below that.

The finding gives the measured peaks of both kinds of arithmetic, if the report has them. TF32 and bfloat16 are less accurate:
rule `tf32_in_use` and the trial give the error.

The device of a trace has tensor cores by its name in the table of datasheets, or because other kernels of the trace use them.
There, convolutions do not count where others use TF32: the setting is on, and cuDNN chose float32 for their shapes.
"""


def _fp32(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    kernels = _fp32_kernels(report, step)
    fp32_ns, convolution_ns = total_ns(kernels), total_ns(kernel for kernel in kernels if is_convolution(kernel.family))
    if fp32_ns < MIN_SHARE * step.busy_ns:
        return None
    names = {kernel.name for kernel in kernels}
    share, paths = step.share(fp32_ns), tuple(step.layers(lambda kernel: kernel.name in names))
    # the setting for the larger part first
    settings = ("default", "matmul_tf32") if 2 * convolution_ns >= fp32_ns else ("matmul_tf32", "default")
    words = [word for word in settings if word == "default" or fp32_ns > convolution_ns]
    trials = trials_of(report, *words, "amp_bf16")
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE, medium=MEDIUM_SHARE),
        title=f"Tensor cores unused: float32 convolutions and matrix products take {percent(share)} of the {step.facts.whole}",
        sentences=(
            f"Kernels of plain float32 arithmetic take {text(fp32_ns, 'ns')} {step.per_step}{_convolution_part(convolution_ns)}.",
            layers_sentence(paths),
            _peaks(report),
            trials.sentence(),
        ),
        advice=_advice(0 if step.kernel_ns(_is_tf32_convolution) else convolution_ns, fp32_ns - convolution_ns),
        measures=(("time of float32 kernels", fp32_ns, "ns"), ("time of float32 convolutions", convolution_ns, "ns")),
        paths=paths,
        trials=trials,
        claims=kernel_claims(kernel.name for kernel in kernels),
    )


def _convolution_part(convolution_ns: int) -> str:
    return f", {text(convolution_ns, 'ns')} of it in convolutions" if convolution_ns else ""


def _is_fp32_contraction(kernel: Work) -> bool:
    if kernel.math != "fp32" or not is_contraction(kernel.family) or _MATRIX_VECTOR.search(kernel.name):
        return False
    return kernel.ns >= MIN_KERNEL_NS * kernel.calls


def _is_tf32_convolution(kernel: Work) -> bool:
    return kernel.math == "tf32" and is_convolution(kernel.family)


def _peaks(report: Report | TraceReport) -> str:
    """Return a sentence with the peaks of the report's device; of a trace, one that states that it has tensor cores."""
    line = report.roofline_of(report.baseline()) if isinstance(report, Report) else None
    fp32, tf32 = (line.roof.peak("fp32"), line.roof.peak("tf32")) if line is not None else (None, None)
    factor = ratio(tf32, fp32)
    if factor is None:
        return "The device has tensor cores for TF32 and bfloat16."
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


def _fp32_kernels(report: Report | TraceReport, step: StepWork) -> tuple[Work, ...]:
    """Return the kernels that could use tensor cores; none where the device or the types rule it out."""
    if not step.is_mostly_busy or not _may_use_tensor_cores(report, step):
        return ()
    # where the setting for convolutions is on, cuDNN chose float32 for their shapes
    allows_tf32 = isinstance(report, TraceReport) and step.kernel_ns(_is_tf32_convolution) > 0
    return step.select(
        lambda kernel: _is_fp32_contraction(kernel) and not (allows_tf32 and is_convolution(kernel.family))
    )


def _may_use_tensor_cores(report: Report | TraceReport, step: StepWork) -> bool:
    if isinstance(report, Report):
        run = report.baseline()
        is_cudnn_on = run is not None and run.config.enabled is not False
        return run is not None and is_cudnn_on and is_float32(report) and has_tensor_cores(run) is True
    peaks = [peaks_of(name) for name in step.trace.devices]
    by_datasheet = any(row is not None and row.tf32 is not None for row in peaks)
    by_kernels = any(kernel.math in ("tf32", "bf16") for kernel in step.kernels)
    return (by_datasheet or by_kernels) and not step.facts.lacks("float32")


# TF32 products reach some four times the rate of float32 (peaks: 7.4 times on an H100); bytes stay the same.
RULE = step_rule("no_tensor_cores", DOC, _fp32, states_share=False, keeps=0.25)
