"""The dominant layer of a trace: by module, or by kernels that run once per step if the trace has no modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name_capitalized, phase_name
from profiler_kit.diagnosis.timing import is_contraction
from profiler_kit.diagnosis.trace_facts import module_times, on_device, worst_trace
from profiler_kit.records.report import Evidence, TraceReport
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# Training one layer takes three kernels: forward, the gradient of its input, the gradient of its weight.
MAX_KERNELS: Final = 3
# A kernel that is more than this factor shorter than the longest one belongs to another layer.
MAX_FACTOR_TO_LONGEST: Final = 10
_PASS_NAMES: Final = {
    "fprop": "forward",
    "dgrad": "the gradient of the input",
    "wgrad": "the gradient of the weight",
    "both gradients": "both gradients",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantLayer:
    """The text and the evidence of a finding about a dominant layer. `share`: the layer's share of the busy time."""

    share: float
    title: str
    explanation: str
    advice: str
    evidence: tuple[Evidence, ...]
    paths: tuple[str, ...] = ()


def dominant_module(report: TraceReport, min_share: float) -> DominantLayer | None:
    """Return the module whose self time is at least `min_share` of the busy time; None without one, or with one module."""

    def look(trace: TraceSummary) -> tuple[str, float] | None:
        times = module_times(trace).most_common(2)
        if len(times) < 2 or not trace.busy_ns:
            return None
        path, ns = times[0]
        return (path, ns / trace.busy_ns) if ns >= min_share * trace.busy_ns else None

    if (worst := worst_trace(report, look, lambda match: match[1])) is None:
        return None
    path, share = worst.match
    phases = [module for module in worst.trace.modules if module.path == path and module.kernel_ns]
    parts = [f"{phase_name(module.phase)} {text(module.kernel_ns, 'ns')}" for module in phases]
    return DominantLayer(
        share=share,
        title=f"{layer_name_capitalized(path)} takes {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}The self time of the layer is {text(sum(m.kernel_ns for m in phases), 'ns')}: "
            f"{join_list(parts)}.",
            worst.others_sentence(),
        ),
        advice="Change this layer first: fewer channels or features, a smaller kernel or input, or fewer calls. "
        "profiler-kit count MODEL predicts the work that remains after each change.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=_where(path, worst.where)),
            *(
                Evidence(name=module.phase, value=module.kernel_ns, unit="ns", where=_where(path, worst.where))
                for module in phases
            ),
        ),
        paths=(path,),
    )


def dominant_calls(report: TraceReport, min_share: float) -> DominantLayer | None:
    """Return the kernels that run once per step and take at least `min_share` of the busy time; None without any.

    **Counts**: at most three kernels, in traces without modules only.
    """
    if (worst := worst_trace(report, lambda trace: _once_per_step(trace, min_share), lambda match: match[1])) is None:
        return None
    kernels, share = worst.match
    total_ns, busy_ns = sum(kernel.kernel_ns for kernel in kernels), worst.trace.busy_ns
    parts = [f"{_PASS_NAMES.get(kernel.op or '', 'one kernel')} {text(kernel.kernel_ns, 'ns')}" for kernel in kernels]
    subject = "One kernel that runs once per step takes"
    if len(kernels) > 1:
        subject = f"{'Three' if len(kernels) > 2 else 'Two'} kernels that run once per step take"
    return DominantLayer(
        share=share,
        title=f"{subject} {percent(share)} of the device time{_layer_guess(kernels)}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}They take {text(total_ns, 'ns')} of {text(busy_ns, 'ns')}: {join_list(parts)}."
            if len(kernels) > 1
            else f"{worst.sentence_prefix}It takes {text(total_ns, 'ns')} of {text(busy_ns, 'ns')}.",
            "The trace has no module names, so the layer is unknown.",
            worst.others_sentence(),
        ),
        advice="Find the layer: record with with_stack=True, so that the trace has module names, or run profiler-kit analyze on "
        "the model. Then change this layer first: fewer channels, a smaller kernel or input.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            *(Evidence(name=k.op or "kernel", value=k.kernel_ns, unit="ns", where=k.name) for k in kernels),
        ),
    )


def _once_per_step(trace: TraceSummary, min_share: float) -> tuple[tuple[TraceKernel, ...], float] | None:
    """Return the longest kernels that run once per step, with their share of the busy time."""
    steps = len(trace.steps)
    if steps < 2 or not on_device(trace) or module_times(trace):
        return None
    layer_kernels = [k for k in trace.kernels if is_contraction(k.family) or k.family.startswith("attention")]
    # one more call than steps, because the profiler starts while the step before it still runs
    single_calls = [kernel for kernel in layer_kernels if 0 < kernel.calls <= steps + 1]
    longest = sorted(single_calls, key=lambda kernel: -kernel.kernel_ns)[:MAX_KERNELS]
    share = sum(kernel.kernel_ns for kernel in longest) / trace.busy_ns
    dominant = tuple(k for k in longest if MAX_FACTOR_TO_LONGEST * k.kernel_ns >= longest[0].kernel_ns)
    return (dominant, sum(kernel.kernel_ns for kernel in dominant) / trace.busy_ns) if share >= min_share else None


def _layer_guess(kernels: tuple[TraceKernel, ...]) -> str:
    """Return ": probably one convolution layer" if each kernel computes another pass of a convolution."""
    passes = {kernel.op for kernel in kernels}
    is_convolution = all(kernel.family.startswith("conv") for kernel in kernels)
    is_one_layer = is_convolution and None not in passes and len(passes) == len(kernels)
    return ": probably one convolution layer" if is_one_layer else ""


def _where(path: str, trace: str) -> str:
    return f"{path}, {trace}" if trace else path
