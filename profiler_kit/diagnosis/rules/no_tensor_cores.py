"""Convolutions and products that run without tensor cores on a device that has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.advice import attempt, has_tensor_cores, is_float32
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import is_product, kernels, ratio, tf32_convolution_ns
from profiler_kit.diagnosis.traced import MIN_BUSY_SHARE, gravest, is_mostly_busy, kernels_ns
from profiler_kit.diagnosis.words import layer, listing, quoted, sentences, threshold, times
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import ConfigRun, KernelStat
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# A tenth of the device time is what one would notice if it took an eighth of itself.
SHARE: Final = 0.10
# A third of the device time decides how long the step takes.
LARGE: Final = 1 / 3

DOC = f"""
On compute capability 8.0 and later a float32 target's convolution and matrix-product kernels of plain float32 arithmetic
(outside tensor cores, by their names) take at least {threshold(SHARE)} of the baseline's device time: `medium`, `high` from a
third. The ceilings of both arithmetics are said where they were measured. TF32 and bfloat16 compute less exactly: rule
`tf32_in_use` tells the error, and the trial its own.

In a trace the same shares count where the device is known to have tensor cores for such arithmetic: by its name in the table of
datasheets, or because other kernels of the trace use TF32 or bfloat16. It has to work for at
least {threshold(MIN_BUSY_SHARE)} of the span.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or not is_float32(report):
        return
    if has_tensor_cores(run) is not True or run.config.enabled is False:
        return
    found = [kernel for kernel in kernels(run) if _is_plain(kernel)]
    spent = sum(kernel.kernel_ns for kernel in found)
    share = spent / run.device_ns
    if share < SHARE:
        return
    convolutions = sum(kernel.kernel_ns for kernel in found if kernel.family.startswith("conv"))
    by_path: Counter[str] = Counter()
    for item in run.modules:
        by_path[item.path] += sum(k.kernel_ns for k in item.kernels if _is_plain(k))
    paths = tuple(path for path, ns in by_path.most_common() if ns)
    # products first where most of the time is theirs
    switches = ("default", "matmul_tf32") if 2 * convolutions >= spent else ("matmul_tf32", "default")
    wanted = [word for word in switches if word == "default" or spent > convolutions]
    tried = attempt(report, run, (*wanted, "amp_bf16"))
    yield RULE.finding(
        severity="high" if share >= LARGE else "medium",
        title=f"No tensor cores: float32 products take {percent(share)} of the device time",
        explanation=sentences(
            f"In {quoted(run)} kernels of plain float32 arithmetic take {text(spent, 'ns')} a step, "
            f"{text(convolutions, 'ns')} of it in convolutions.",
            f"They belong to {listing([layer(path) for path in paths])}." if paths else "",
            _ceilings(report, run),
            tried.sentence(),
        ),
        advice=_options(convolutions > 0 and not tf32_convolution_ns(run), spent > convolutions),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="float32 kernels' time", value=spent, unit="ns", where=run.config.name),
            Evidence(name="of it in convolutions", value=convolutions, unit="ns", where=run.config.name),
        ),
        paths=paths,
        attempt=tried,
        weight=share,
    )


def _is_plain(kernel: KernelStat | TraceKernel) -> bool:
    return kernel.math == "fp32" and is_product(kernel.family)


def _ceilings(report: Report, run: ConfigRun) -> str:
    line = report.roofline_of(run)
    plain, tf32 = (line.roof.peak("fp32"), line.roof.peak("tf32")) if line is not None else (None, None)
    factor = ratio(tf32, plain)
    if factor is None:
        return ""
    rates = f"{text(plain, 'flops/s')} in float32 here and {text(tf32, 'flops/s')} in TF32"
    return f"Large products reach {rates}, {times(factor)} as much."


def _options(convolutions: bool, products: bool) -> str:
    """What to switch on for `convolutions`, and for other `products`."""
    options = []
    if convolutions:
        options.append("for convolutions torch.backends.cudnn.allow_tf32 = True")
    if products:
        options.append("for matrix products torch.set_float32_matmul_precision('high')")
    options.append("for all of it torch.autocast to bfloat16")
    return f"Where the error is acceptable: {'; '.join(options)}."


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace with the largest share of float32 products."""
    if (seen := gravest(report, _plain_share, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    spent = kernels_ns(trace, _is_plain)
    convolutions = kernels_ns(trace, lambda kernel: _is_plain(kernel) and kernel.family.startswith("conv"))
    yield RULE.finding(
        severity="high" if share >= LARGE else "medium",
        title=f"No tensor cores: float32 products take {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}Kernels of plain float32 arithmetic take {text(spent, 'ns')}, {text(convolutions, 'ns')} of it in "
            "convolutions, on a device that has tensor cores for TF32 and bfloat16.",
            seen.others(),
        ),
        advice=_options(convolutions > 0, spent > convolutions),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="float32 kernels' time", value=spent, unit="ns", where=seen.where),
            Evidence(name="of it in convolutions", value=convolutions, unit="ns", where=seen.where),
        ),
        weight=share,
    )


def _plain_share(trace: TraceSummary) -> float | None:
    peaks = [peaks_of(name) for name in trace.devices]
    has_them = any(row is not None and row.tf32 is not None for row in peaks)
    if not is_mostly_busy(trace) or not (has_them or any(kernel.math in ("tf32", "bf16") for kernel in trace.kernels)):
        return None
    share = kernels_ns(trace, _is_plain) / trace.busy_ns
    return share if share >= SHARE else None


RULE = Rule("no_tensor_cores", DOC, check, "cause", check_trace)
