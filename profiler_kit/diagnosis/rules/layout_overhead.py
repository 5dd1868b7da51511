"""Kernels that only convert tensors between memory layouts (NCHW and NHWC)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.phrases import (
    advise,
    join_list,
    join_sentences,
    layer_name,
    limit_percent,
    plural,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import busy_share, names_claims
from profiler_kit.diagnosis.timing import kernels_of
from profiler_kit.diagnosis.trace_facts import (
    MIN_BUSY_SHARE,
    is_mostly_busy,
    is_rocm,
    kernels_ns,
    step_share,
    worst_trace,
)
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.report import Evidence, Finding, Report, Severity, TraceReport
from profiler_kit.records.traces import KernelStat, TraceKernel, TraceSummary
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
Fires if layout kernels (NCHW to NHWC and back, padding of channels) take more than {limit_percent(MAX_LAYOUT_SHARE)} of the
baseline's device time. `medium` from {limit_percent(MEDIUM_SHARE)} of the step on, `low` below. In a trace the same limits hold,
if the device is busy for at least {limit_percent(MIN_BUSY_SHARE)} of the span.

The tensor-core convolutions of cuDNN and MIOpen need channels-last tensors. They convert tensors of other layouts before and
after. These kernels compute nothing. On ROCm, PyTorch passes channels-last tensors on to MIOpen only with the environment
variable `PYTORCH_MIOPEN_SUGGEST_NHWC=1`.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns:
        return
    layout_kernels = [kernel for kernel in kernels_of(run) if _is_layout(kernel)]
    layout_ns, calls = sum(k.kernel_ns for k in layout_kernels), sum(k.calls for k in layout_kernels)
    share = layout_ns / run.device_ns
    if share <= MAX_LAYOUT_SHARE:
        return
    by_path = {
        m.path: sum(kernel.kernel_ns for kernel in m.kernels if _is_layout(kernel))
        for m in run.modules
        if any(map(_is_layout, m.kernels))
    }
    paths = tuple(sorted(by_path, key=lambda path: -by_path[path]))
    weight = share * busy_share(report)
    yield RULE.finding(
        severity=_severity(weight),
        title=f"Layout conversions take {percent(share)} of the device time",
        explanation=join_sentences(
            f"In {quoted_name(run)}, {plural(calls, 'kernel')} per step only {'converts' if calls == 1 else 'convert'} tensors "
            f"between NCHW and NHWC. {'It takes' if calls == 1 else 'Together they take'} {text(layout_ns, 'ns')}.",
            f"They belong to {join_list([layer_name(path) for path in paths])}." if paths else "",
            CAUSE.format(library="cuDNN"),
        ),
        advice="The model is already in channels_last. Look for an op that returns another layout (view, permute), or an input "
        "that is not in channels_last."
        if report.target.channels_last
        else CHANNELS_LAST_ADVICE.then("To measure the effect, run analyze with --channels-last."),
        evidence=(
            Evidence(name="share of layout kernels", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="time of layout kernels", value=layout_ns, unit="ns", where=run.config.name),
            Evidence(name="layout kernels per step", value=calls, unit="count", where=run.config.name),
        ),
        paths=paths,
        trials=find_trials(report, run, ("channels_last",)),
        weight=weight,
        claims=names_claims(kernel.name for kernel in layout_kernels),
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest share of layout kernels."""
    if (worst := worst_trace(report, _layout_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    layout_kernels = [kernel for kernel in trace.kernels if _is_layout(kernel)]
    layout_ns, calls = sum(k.kernel_ns for k in layout_kernels), sum(k.calls for k in layout_kernels)
    weight = step_share(trace, layout_ns)
    yield RULE.finding(
        severity=_severity(weight),
        title=f"Layout conversions take {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}{plural(calls, 'kernel')} only {'converts' if calls == 1 else 'convert'} tensors "
            f"between NCHW and NHWC. {'It takes' if calls == 1 else 'Together they take'} {text(layout_ns, 'ns')}.",
            CAUSE.format(library="MIOpen" if is_rocm(trace) else "cuDNN"),
            worst.others_sentence(),
        ),
        advice=_ROCM_ADVICE if is_rocm(trace) else CHANNELS_LAST_ADVICE,
        evidence=(
            Evidence(name="share of layout kernels", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="time of layout kernels", value=layout_ns, unit="ns", where=worst.where),
            Evidence(name="layout kernels", value=calls, unit="count", where=worst.where),
        ),
        weight=weight,
        claims=names_claims(kernel.name for kernel in layout_kernels),
    )


def _severity(share: float) -> Severity:
    return "medium" if share >= MEDIUM_SHARE else "low"


def _is_layout(kernel: KernelStat | TraceKernel) -> bool:
    return kernel.family == LAYOUT


def _layout_share(trace: TraceSummary) -> float | None:
    share = kernels_ns(trace, _is_layout) / trace.busy_ns if is_mostly_busy(trace) else 0.0
    return share if share > MAX_LAYOUT_SHARE else None


RULE = Rule("layout_overhead", DOC, check, "cause", check_trace)
