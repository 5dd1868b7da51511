"""Which one layer a trace's time goes into: by module, or by kernels that run once a step where modules have no names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.timing import is_product
from profiler_kit.diagnosis.traced import gravest, module_times, on_device
from profiler_kit.diagnosis.words import capital, listing, opening, phase, sentences
from profiler_kit.records.report import Evidence, TraceReport
from profiler_kit.records.traces import TraceKernel, TraceSummary
from profiler_kit.units import percent, text

# A layer trains by three kernels: forward, the gradient of its input, the gradient of its weight.
MOST_KERNELS: Final = 3
_WHAT: Final = {
    "fprop": "forward",
    "dgrad": "the gradient of the input",
    "wgrad": "the gradient of the weight",
    "both gradients": "both gradients",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dominant:
    """What the finding says of the layer, and its share of the busy time."""

    share: float
    title: str
    explanation: str
    advice: str
    evidence: tuple[Evidence, ...]
    paths: tuple[str, ...] = ()


def dominant_module(report: TraceReport, least: float) -> Dominant | None:
    """The module whose own work takes at least `least` of the busy time; None without one, or where there is no other."""

    def look(trace: TraceSummary) -> tuple[str, float] | None:
        times = module_times(trace).most_common(2)
        if len(times) < 2 or not trace.busy_ns:
            return None
        path, ns = times[0]
        return (path, ns / trace.busy_ns) if ns >= least * trace.busy_ns else None

    if (seen := gravest(report, look, lambda found: found[1])) is None:
        return None
    path, share = seen.found
    own = [module for module in seen.trace.modules if module.path == path]
    parts = [f"{phase(module.phase)} {text(module.kernel_ns, 'ns')}" for module in own if module.kernel_ns]
    return Dominant(
        share=share,
        title=f"{opening(path)} takes {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}Its own work takes {text(sum(m.kernel_ns for m in own), 'ns')}: {listing(parts)}.",
            seen.others(),
        ),
        advice="Change this layer first: fewer channels or features, a smaller kernel or input, or fewer calls of it. "
        "profiler-kit count MODEL says what each change would leave of its work.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=_where(path, seen.where)),
            *(
                Evidence(name=module.phase, value=module.kernel_ns, unit="ns", where=_where(path, seen.where))
                for module in own
                if module.kernel_ns
            ),
        ),
        paths=(path,),
    )


def dominant_calls(report: TraceReport, least: float) -> Dominant | None:
    """At most three kernels, each run once a step, that take at least `least` of the busy time of a trace without modules."""
    if (seen := gravest(report, lambda trace: _once_a_step(trace, least), lambda found: found[1])) is None:
        return None
    kernels, share = seen.found
    spent = sum(kernel.kernel_ns for kernel in kernels)
    said = [f"{_WHAT.get(kernel.op or '', 'one')} {text(kernel.kernel_ns, 'ns')}" for kernel in kernels]
    count = "one kernel run once a step, takes"
    if len(kernels) > 1:
        count = f"{'three' if len(kernels) > 2 else 'two'} kernels, each run once a step, take"
    return Dominant(
        share=share,
        title=f"{capital(count)} {percent(share)} of the device time{_guess(kernels)}",
        explanation=sentences(
            f"{seen.place}Of {text(seen.trace.busy_ns, 'ns')} they take {text(spent, 'ns')}: {listing(said)}."
            if len(kernels) > 1
            else f"{seen.place}Of {text(seen.trace.busy_ns, 'ns')} it takes {text(spent, 'ns')}.",
            "The trace names no modules, so it does not say which layer that is.",
            seen.others(),
        ),
        advice="Find the layer: record with with_stack=True, so that the trace names modules, or run profiler-kit analyze on the "
        "model. Then change it first: fewer channels, a smaller kernel or input.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=seen.where),
            *(Evidence(name=k.op or "kernel", value=k.kernel_ns, unit="ns", where=k.name) for k in kernels),
        ),
    )


def _once_a_step(trace: TraceSummary, least: float) -> tuple[tuple[TraceKernel, ...], float] | None:
    steps = len(trace.steps)
    if steps < 2 or not on_device(trace) or module_times(trace):
        return None
    # one call more: the profiler starts while the step before it still runs
    layers = [k for k in trace.kernels if is_product(k.family) or k.family.startswith("attention")]
    once = [kernel for kernel in layers if 0 < kernel.calls <= steps + 1]
    longest = sorted(once, key=lambda kernel: -kernel.kernel_ns)[:MOST_KERNELS]
    share = sum(kernel.kernel_ns for kernel in longest) / trace.busy_ns
    # those that are nothing beside the first are of other layers
    kept = tuple(kernel for kernel in longest if 10 * kernel.kernel_ns >= longest[0].kernel_ns)
    return (kept, sum(kernel.kernel_ns for kernel in kept) / trace.busy_ns) if share >= least else None


def _guess(kernels: tuple[TraceKernel, ...]) -> str:
    """That they are one convolution's, where each does another part of it."""
    parts = {kernel.op for kernel in kernels}
    one = None not in parts and len(parts) == len(kernels) and all(k.family.startswith("conv") for k in kernels)
    return ": one convolution layer, as it seems" if one else ""


def _where(path: str, trace: str) -> str:
    return f"{path}, {trace}" if trace else path
