"""The dominant layer of a trace: by module, or by kernels that run once per step if the trace has no modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, layer_name_capitalized, phase_name
from profiler_kit.diagnosis.trace_facts import (
    MIN_BUSY_NS,
    compiled_sources,
    is_generated,
    module_times,
    on_device,
    step_share,
    trace_clock_name,
    worst_trace,
)
from profiler_kit.records.families import is_contraction, is_product_family
from profiler_kit.records.report import Evidence, TraceReport
from profiler_kit.records.traces import TraceKernel, TraceOperator, TraceSummary
from profiler_kit.units import percent, text

# Training one layer takes three kernels: forward, the gradient of its input, the gradient of its weight.
MAX_KERNELS: Final = 3
# A kernel that is more than this factor shorter than the longest one belongs to another layer.
MAX_FACTOR_TO_LONGEST: Final = 10
# A layer that mostly multiplies gets cheaper with fewer channels. Other work of a module has other causes.
MIN_PRODUCT_SHARE: Final = 0.5
# A step calls at least this many products for each call of the dominant layer. With fewer, the layer is the network.
MIN_CALLS_PER_LAYER_CALL: Final = 3
_PASS_NAMES: Final = {
    "fprop": "forward",
    "dgrad": "the gradient of the input",
    "wgrad": "the gradient of the weight",
    "both gradients": "both gradients",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantLayer:
    """The text and the evidence of a finding about a dominant layer.

    `share`: the layer's share of the busy time. `weight`: its share of the step. `claims`: as in `Finding`.
    """

    share: float
    weight: float
    clock: str
    claims: tuple[str, ...]
    title: str
    explanation: str
    advice: Advice | str
    evidence: tuple[Evidence, ...]
    paths: tuple[str, ...] = ()


def dominant_module(report: TraceReport, min_share: float) -> DominantLayer | None:
    """Return the module whose self time is at least `min_share` of the busy time; None without one, or with one module.

    At least half of its work must be products. A module of other work has another cause than its size.
    """

    def look(trace: TraceSummary) -> tuple[str, float] | None:
        times = module_times(trace).most_common(2)
        if len(times) < 2 or trace.busy_ns < MIN_BUSY_NS:
            return None
        path, ns = times[0]
        other_ns = trace.busy_ns - products_ns(trace)
        is_layer = ns - other_ns >= MIN_PRODUCT_SHARE * ns
        return (path, ns / trace.busy_ns) if is_layer and ns >= min_share * trace.busy_ns else None

    if (worst := worst_trace(report, look, lambda match: match[1])) is None:
        return None
    path, share = worst.match
    clock = trace_clock_name(worst.trace)
    phases = [module for module in worst.trace.modules if module.path == path and module.kernel_ns]
    phases.sort(key=lambda module: -module.kernel_ns)
    parts = [f"{phase_name(module.phase)} {text(module.kernel_ns, 'ns')}" for module in phases]
    return DominantLayer(
        share=share,
        weight=step_share(worst.trace, share * worst.trace.busy_ns),
        clock=clock,
        claims=(f"busy:module:{path}",),
        title=f"{layer_name_capitalized(path)} takes {percent(share)} of the {clock}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}The self time of the layer is {text(sum(m.kernel_ns for m in phases), 'ns')}: "
            f"{join_list(parts)}.",
            worst.others_sentence(),
        ),
        advice="Change this layer first: fewer channels or features, a smaller kernel or input, or fewer calls. "
        "profiler-kit count MODEL predicts the work that remains after each change.",
        evidence=(
            Evidence(name=f"share of {clock}", value=100.0 * share, unit="percent", where=_where(path, worst.where)),
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
        weight=step_share(worst.trace, total_ns),
        clock="device time",
        claims=tuple(f"busy:kernel:{kernel.name}" for kernel in kernels),
        title=f"{subject} {percent(share)} of the device time{_layer_guess(kernels)}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}They take {text(total_ns, 'ns')} of {text(busy_ns, 'ns')}: {join_list(parts)}."
            if len(kernels) > 1
            else f"{worst.sentence_prefix}It takes {text(total_ns, 'ns')} of {text(busy_ns, 'ns')}.",
            unnamed_sentence(worst.trace, "so the layer is unknown"),
            worst.others_sentence(),
        ),
        advice=_advice(worst.trace),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            *(Evidence(name=k.op or "kernel", value=k.kernel_ns, unit="ns", where=k.name) for k in kernels),
        ),
    )


def dominant_operator_calls(report: TraceReport, min_share: float) -> DominantLayer | None:
    """Return the longest calls of products in each step if they take at least `min_share` of the busy time, else None.

    **Counts**: at most three operators, with one call each, in traces of a CPU without modules only.
    """
    if (worst := worst_trace(report, lambda trace: _longest_calls(trace, min_share), lambda match: match[1])) is None:
        return None
    operators, share = worst.match
    total_ns, busy_ns = sum(operator.longest_ns for operator in operators), worst.trace.busy_ns
    clock = trace_clock_name(worst.trace)
    parts = [f"{operator.name} {text(operator.longest_ns, 'ns')}" for operator in operators]
    subject = "One operator call" if len(operators) == 1 else f"{len(operators)} operator calls"
    return DominantLayer(
        share=share,
        weight=step_share(worst.trace, total_ns),
        clock=clock,
        claims=tuple(f"busy:kernel:{operator.name}" for operator in operators),
        title=f"{subject} per step {'takes' if len(operators) == 1 else 'take'} {percent(share)} of the {clock}"
        + (": probably one layer" if len(operators) > 1 else ""),
        explanation=join_sentences(
            f"{worst.sentence_prefix}The longest calls of each step take {text(total_ns, 'ns')} of {text(busy_ns, 'ns')}: "
            f"{join_list(parts)}.",
            unnamed_sentence(worst.trace, "so the layer is unknown"),
            worst.others_sentence(),
        ),
        advice=_advice(worst.trace),
        evidence=(
            Evidence(name=f"share of {clock}", value=100.0 * share, unit="percent", where=worst.where),
            *(Evidence(name=o.name, value=o.longest_ns, unit="ns", where=worst.where) for o in operators),
        ),
    )


def _longest_calls(trace: TraceSummary, min_share: float) -> tuple[tuple[TraceOperator, ...], float] | None:
    """Return the operators whose longest calls are probably one layer, with the share of these calls of the busy time."""
    if trace.clock != "host" or trace.busy_ns < MIN_BUSY_NS or has_named_layers(trace, min_share):
        return None
    products = [operator for operator in trace.operators if is_product_family(operator.family)]
    longest = sorted(products, key=lambda operator: -operator.longest_ns)[:MAX_KERNELS]
    layer = tuple(o for o in longest if o.longest_ns and MAX_FACTOR_TO_LONGEST * o.longest_ns >= longest[0].longest_ns)
    # Of a network with one or two layers, none is more than its share.
    if sum(operator.calls for operator in products) < MIN_CALLS_PER_LAYER_CALL * len(layer) * max(1, len(trace.steps)):
        return None
    share = sum(operator.longest_ns for operator in layer) / trace.busy_ns
    return (layer, share) if layer and share >= min_share else None


def _advice(trace: TraceSummary) -> Advice:
    """Return advice to find the layer in a way that the trace does not offer yet, and to change it."""
    by_module = "" if trace.with_stack else "record with `{code}`, so that the trace has module names, or "
    command = "profiler-kit analyze"
    return advise(
        f"Find the layer: {by_module}run `{command}` on the model. Then change this layer first: fewer channels, a smaller "
        "kernel or input.",
        command if trace.with_stack else "profile(with_stack=True)",
    )


def _once_per_step(trace: TraceSummary, min_share: float) -> tuple[tuple[TraceKernel, ...], float] | None:
    """Return the longest kernels that run once per step, with their share of the busy time."""
    steps = len(trace.working_steps)
    if steps < 2 or not on_device(trace) or trace.busy_ns < MIN_BUSY_NS or has_named_layers(trace, min_share):
        return None
    layer_kernels = [k for k in trace.kernels if is_contraction(k.family) or k.family.startswith("attention")]
    # one more call than steps, because the profiler starts while the step before it still runs
    single_calls = [kernel for kernel in layer_kernels if 0 < kernel.calls <= steps + 1]
    longest = sorted(single_calls, key=lambda kernel: -kernel.kernel_ns)[:MAX_KERNELS]
    share = sum(kernel.kernel_ns for kernel in longest) / trace.busy_ns
    dominant = tuple(k for k in longest if MAX_FACTOR_TO_LONGEST * k.kernel_ns >= longest[0].kernel_ns)
    return (dominant, sum(kernel.kernel_ns for kernel in dominant) / trace.busy_ns) if share >= min_share else None


def has_named_layers(trace: TraceSummary, min_share: float) -> bool:
    """Return whether the trace names modules, and compiled regions hold less than `min_share` of the busy time."""
    compiled_ns = sum(module.kernel_ns for module in trace.modules if is_generated(module.path))
    return bool(module_times(trace)) and compiled_ns < min_share * trace.busy_ns


def unnamed_sentence(trace: TraceSummary, consequence: str) -> str:
    """Return a sentence that says why the layer has no name."""
    sources = compiled_sources(trace)
    if sources:
        return f"It runs in a compiled region of {join_list(sources)}, {consequence}."
    return f"The trace has no module names, {consequence}."


def products_ns(trace: TraceSummary) -> int:
    """Return the busy time of convolutions, matrix products, attention and recurrent layers."""
    work = trace.kernels if trace.clock == "device" else trace.operators
    return sum(item.kernel_ns for item in work if is_product_family(item.family))


def _layer_guess(kernels: tuple[TraceKernel, ...]) -> str:
    """Return ": probably one convolution layer" if each kernel computes another pass of a convolution."""
    passes = {kernel.op for kernel in kernels}
    is_convolution = all(kernel.family.startswith("conv") for kernel in kernels)
    is_one_layer = is_convolution and None not in passes and len(passes) == len(kernels)
    return ": probably one convolution layer" if is_one_layer else ""


def _where(path: str, trace: str) -> str:
    return f"{path}, {trace}" if trace else path
