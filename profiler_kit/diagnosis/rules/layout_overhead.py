"""Kernels that only rewrite tensors from one memory layout to another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import kernels
from profiler_kit.diagnosis.traced import MIN_BUSY_SHARE, gravest, is_mostly_busy, kernels_ns
from profiler_kit.diagnosis.words import layer, listing, plural, quoted, sentences, threshold
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import KernelStat
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# A twentieth of the device time is worth one line of code, and more than the noise of a trace.
SHARE: Final = 0.05

WANTED: Final = "cuDNN's tensor-core convolutions want the channels last and convert what is not."
CHANNELS_LAST: Final = (
    "Put model and input into channels last: model.to(memory_format=torch.channels_last), and the same for the input."
)

DOC = f"""
Layout kernels (NCHW to NHWC and back, padding of channels) take more than {threshold(SHARE)} of the baseline's device time,
or of a trace's in which the device works for at least {threshold(MIN_BUSY_SHARE)} of the span.
cuDNN's tensor-core convolutions want channels last; where the tensors are not, it converts them before and after. These kernels
compute nothing.
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires once, for the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns:
        return
    found = [kernel for kernel in kernels(run) if _is_layout(kernel)]
    spent, calls = sum(k.kernel_ns for k in found), sum(k.calls for k in found)
    share = spent / run.device_ns
    if share <= SHARE:
        return
    by_path = {
        m.path: sum(kernel.kernel_ns for kernel in m.kernels if _is_layout(kernel))
        for m in run.modules
        if any(map(_is_layout, m.kernels))
    }
    tried = attempt(report, run, ("channels_last",))
    paths = tuple(sorted(by_path, key=lambda path: -by_path[path]))
    yield RULE.finding(
        severity="medium",
        title=f"Converting memory layouts takes {percent(share)} of the device time",
        explanation=sentences(
            f"In {quoted(run)} {plural(calls, 'kernel')} a step, {text(spent, 'ns')} together, only rewrite tensors from NCHW to "
            "NHWC or back.",
            f"They belong to {listing([layer(path) for path in paths])}." if paths else "",
            WANTED,
        ),
        advice="The model is in channels_last already: look for an op that returns tensors in another layout (view, permute, "
        "or an input that is not channels_last)."
        if report.target.channels_last
        else f"{CHANNELS_LAST} Here: run again with --channels-last.",
        evidence=(
            Evidence(name="layout kernels' share", value=100.0 * share, unit="percent", where=run.config.name),
            Evidence(name="layout kernels' time", value=spent, unit="ns", where=run.config.name),
            Evidence(name="layout kernels a step", value=calls, unit="count", where=run.config.name),
        ),
        paths=paths,
        attempt=tried,
        weight=share,
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace that spends the largest share on layouts."""
    if (seen := gravest(report, _converts, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    found = [kernel for kernel in trace.kernels if _is_layout(kernel)]
    spent, calls = sum(kernel.kernel_ns for kernel in found), sum(kernel.calls for kernel in found)
    yield RULE.finding(
        severity="medium",
        title=f"Converting memory layouts takes {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}{plural(calls, 'kernel')}, {text(spent, 'ns')} together, only "
            f"{'rewrites' if calls == 1 else 'rewrite'} tensors from NCHW to NHWC or back.",
            WANTED,
            seen.others(),
        ),
        advice=CHANNELS_LAST,
        evidence=(
            Evidence(name="layout kernels' share", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="layout kernels' time", value=spent, unit="ns", where=seen.where),
            Evidence(name="layout kernels", value=calls, unit="count", where=seen.where),
        ),
        weight=share,
    )


def _is_layout(kernel: KernelStat | TraceKernel) -> bool:
    return kernel.family == LAYOUT


def _converts(trace: TraceSummary) -> float | None:
    share = kernels_ns(trace, _is_layout) / trace.busy_ns if is_mostly_busy(trace) else 0.0
    return share if share > SHARE else None


RULE = Rule("layout_overhead", DOC, check, "cause", check_trace)
