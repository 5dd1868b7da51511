"""The dominant layer of a step: by module; without modules by input shapes; without shapes by calls that run once per step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from profiler_kit.diagnosis.convolution import half_kernel, operator_text
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    join_list,
    join_sentences,
    layer_name_capitalized,
    phase_name,
    plural,
)
from profiler_kit.diagnosis.rule import Measure
from profiler_kit.diagnosis.step_rule import StepPart
from profiler_kit.diagnosis.step_work import StepWork, total_ns, work_of
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.claims import Claim, kernel_claims, module_claims
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.families import is_contraction, is_product_family
from profiler_kit.records.report import Evidence, Severity
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# Memory-bound neighbors (activations, normalization) take time too, even if one layer does all the work.
MIN_TIME_SHARE: Final = 0.60
# Kernel families of whole layers. Pointwise kernels, norms and copies accompany a layer. A recurrent operator is a network: it
# runs several layers over all time steps.
LAYER_FAMILIES: Final = ("conv", "gemm", "attention")
# Training one layer takes three kernels: forward, the gradient of its input, the gradient of its weight.
MAX_CALLS: Final = 3
# A call that is more than this factor shorter than the longest one belongs to another layer.
MAX_FACTOR_TO_LONGEST: Final = 10
# A layer that mostly multiplies gets cheaper with fewer channels. Other work of a module has other causes.
MIN_PRODUCT_SHARE: Final = 0.5
# A step calls at least this many products for each call of the dominant layer. With fewer, the layer is the network.
MIN_CALLS_PER_LAYER_CALL: Final = 3
# The names of what torch.compile makes of a module. A user cannot edit them.
_GENERATED: Final = re.compile(
    r"Torch-Compiled Region|GraphModule(_\d+)?\Z|Compiled(Function|FxGraph)|\A<eval_with_key>"
)
_PASS_NAMES: Final = {
    "fprop": "forward",
    "dgrad": "the gradient of the input",
    "wgrad": "the gradient of the weight",
    "both gradients": "both gradients",
}
_CHANGE: Final = "Change this layer first: fewer channels or features, a smaller kernel or input"
_PREDICT: Final = "profiler-kit count MODEL predicts the work that remains after each change."


def dominant_layer(step: StepWork) -> StepPart | None:
    """Return the layer that takes at least `MIN_TIME_SHARE` of the busy time; None without one, or in a model of one layer."""
    times = [(path, ns) for path, ns in _module_times(step).most_common() if path not in PSEUDO_PATHS]
    if len(times) > 1 and times[0][1] >= MIN_TIME_SHARE * step.busy_ns:
        return layer_at(step, times[0][0])
    if _has_named_layers(step):
        return None
    return _by_shapes(step) or _by_calls(step)


def layer_at(step: StepWork, path: str) -> StepPart | None:
    """Return the layer at `path`; None if less than half of its work is that of products."""
    phases = [module for module in step.trace.modules if module.path == path and module.kernel_ns]
    phases.sort(key=lambda module: -module.kernel_ns)
    ns = step.module_ns[path]
    if not _is_mostly_products(step, path, ns):
        return None
    parts = [f"{phase_name(module.phase)} {text(module.kernel_ns, 'ns')}" for module in phases]
    return _layer_part(
        step,
        ns,
        title=f"{layer_name_capitalized(path)} takes {percent(ns / step.busy_ns)} of the {step.clock_name}",
        sentences=(f"The self time of the layer is {text(ns, 'ns')} {step.per_step}: {join_list(parts)}.",),
        advice=Advice(f"{_CHANGE}, or fewer calls. {_PREDICT}"),
        measures=tuple((module.phase, module.kernel_ns, "ns") for module in phases),
        claims=module_claims([path]),
        path=path,
    )


def _layer_part(
    step: StepWork,
    ns: int,
    *,
    title: str,
    sentences: tuple[str, ...],
    advice: Advice,
    measures: tuple[Measure, ...] = (),
    evidence: tuple[Evidence, ...] = (),
    claims: tuple[Claim, ...],
    path: str | None = None,
    most: Severity = "high",
) -> StepPart:
    """Return a layer that takes `ns` as a part of the step, with its share of the busy time. `path`: None if unnamed."""
    busy_share = ns / step.busy_ns
    return StepPart(
        ns=ns,
        share_name="",
        most=most,
        title=title,
        sentences=(*sentences, f"Everything else takes {percent(1.0 - busy_share)} of the {step.clock_name}."),
        advice=advice,
        measures=((f"share of {step.clock_name}", 100.0 * busy_share, "percent"), *measures),
        evidence=evidence,
        claims=claims,
        paths=() if path is None else (path,),
    )


def _is_mostly_products(step: StepWork, path: str, ns: int) -> bool:
    kernels = [work_of(kernel) for m in step.trace.modules if m.path == path for kernel in m.kernels]
    if kernels:
        return total_ns(filter(is_product, kernels)) >= MIN_PRODUCT_SHARE * total_ns(kernels)
    other_ns = step.busy_ns - step.kernel_ns(is_product)
    return step.is_measured or ns - other_ns >= MIN_PRODUCT_SHARE * ns


def _by_shapes(step: StepWork) -> StepPart | None:
    """Return the operator whose calls with equal shapes take most of the time of a device."""
    layers = [operator for operator in step.trace.shapes if operator.family in LAYER_FAMILIES]
    # In a model of one layer, that layer is always dominant: a finding would not help.
    if len(layers) < 2 or not step.on_device:
        return None
    operator = max(layers, key=lambda operator: operator.kernel_ns)
    share = operator.kernel_ns / step.busy_ns
    if share < MIN_TIME_SHARE:
        return None
    # The profiler may start within a step, so there may be one more call than step marks.
    is_single_layer = operator.calls <= step.steps + (step.steps > 1)
    passes = (
        ("forward", operator.forward_ns),
        ("backward", operator.backward_ns),
        ("recomputation", operator.recompute_ns),
    )
    parts = [f"{name} {text(ns, 'ns')}" for name, ns in passes if ns]
    half = half_kernel(operator)
    return _layer_part(
        step,
        operator.kernel_ns,
        most="high" if is_single_layer else "low",
        claims=kernel_claims(kernel.name for kernel in step.kernels if is_product(kernel)),
        title=f"{'One layer takes' if is_single_layer else 'Calls with the same shapes take'} {percent(share)} of the "
        f"{step.clock_name}: {operator_text(operator)}",
        sentences=(
            f"{plural(operator.calls, 'call')} of {operator.name} {step.per_step} "
            f"{'takes' if operator.calls == 1 else 'take'} {text(operator.kernel_ns, 'ns')} of {text(step.busy_ns, 'ns')}"
            f"{f': {join_list(parts)}' if parts else ''}.",
            _unnamed_sentence(step.trace, "and the input shapes identify the layer"),
            "" if is_single_layer else "These may be several layers of the same size.",
        ),
        advice=Advice(join_sentences(f"{_CHANGE}.", half.text, _PREDICT), half.code),
        measures=(
            (operator.name, operator.kernel_ns, "ns"),
            *((f"{name} of {operator.name}", ns or None, "ns") for name, ns in passes[:2]),
        ),
    )


class _Call(NamedTuple):
    """A kernel that runs once per step, or the longest call of an operator of a CPU in each step, with its time."""

    name: str
    ns: int
    op: str | None = None


def _by_calls(step: StepWork) -> StepPart | None:
    """Return the longest calls of a step, at most three, that are probably one layer."""
    longest = sorted(_kernel_calls(step) if step.on_device else _operator_calls(step), key=lambda call: -call.ns)[
        :MAX_CALLS
    ]
    calls = [call for call in longest if MAX_FACTOR_TO_LONGEST * call.ns >= longest[0].ns > 0]
    ns = sum(call.ns for call in calls)
    share = ns / step.busy_ns
    if share < MIN_TIME_SHARE or (not step.on_device and _is_whole_network(step, len(calls))):
        return None
    kind = "kernel" if step.on_device else "operator call"
    parts = [f"{_PASS_NAMES.get(call.op or '', call.name)} {text(call.ns, 'ns')}" for call in calls]
    return _layer_part(
        step,
        ns,
        claims=kernel_claims(call.name for call in calls),
        title=f"{plural(len(calls), kind)} per step {'takes' if len(calls) == 1 else 'take'} {percent(share)} of the "
        f"{step.clock_name}{_layer_guess(calls, on_device=step.on_device)}",
        sentences=(
            f"The longest calls of each step take {text(ns, 'ns')} of {text(step.busy_ns, 'ns')}: {join_list(parts)}.",
            _unnamed_sentence(step.trace, "so the layer is unknown"),
        ),
        advice=_find_advice(step.trace),
        evidence=tuple(Evidence(name=call.op or kind, value=call.ns, unit="ns", where=call.name) for call in calls),
    )


def _kernel_calls(step: StepWork) -> list[_Call]:
    if step.marked_steps < 2:
        return []
    kernels = [k for k in step.kernels if is_contraction(k.family) or k.family.startswith("attention")]
    # one more call than steps, because the profiler starts while the step before it still runs
    return [_Call(k.name, k.ns, k.op) for k in kernels if 0 < k.calls <= step.steps + 1]


def _operator_calls(step: StepWork) -> list[_Call]:
    return [_Call(o.name, o.longest_ns) for o in step.trace.operators if is_product_family(o.family)]


def _is_whole_network(step: StepWork, layer_calls: int) -> bool:
    """Whether a step of a CPU has few more products than the layer, which then is the network."""
    calls = sum(operator.calls for operator in step.operators if is_product(operator))
    return calls < MIN_CALLS_PER_LAYER_CALL * layer_calls * step.steps


def _layer_guess(calls: Sequence[_Call], *, on_device: bool) -> str:
    """Return ": probably one layer" for several calls of a CPU; for kernels, if each computes another pass of a convolution."""
    if not on_device:
        return ": probably one layer" if len(calls) > 1 else ""
    passes = {call.op for call in calls}
    return ": probably one convolution layer" if None not in passes and len(passes) == len(calls) else ""


def _find_advice(trace: TraceSummary) -> Advice:
    """Return advice to find the layer in a way that the trace does not offer yet, and to change it."""
    by_module = "" if trace.with_stack else "record with `{code}`, so that the trace has module names, or "
    command = "profiler-kit analyze"
    return advise(
        f"Find the layer: {by_module}run `{command}` on the model. Then change this layer first: fewer channels, a smaller "
        "kernel or input.",
        command if trace.with_stack else "profile(with_stack=True)",
    )


def _module_times(step: StepWork) -> Counter[str]:
    """Return the self time of each module of the source; work without a path is that of the model itself only in a run."""
    times = {path: ns for path, ns in step.module_ns.items() if (path or step.is_measured) and not _is_generated(path)}
    return Counter(times)


def _has_named_layers(step: StepWork) -> bool:
    """Return whether the trace names modules, and compiled regions hold less than `MIN_TIME_SHARE` of the busy time."""
    compiled_ns = sum(ns for path, ns in step.module_ns.items() if _is_generated(path))
    is_named = any(path and path not in PSEUDO_PATHS for path in _module_times(step))
    return is_named and compiled_ns < MIN_TIME_SHARE * step.busy_ns


def _unnamed_sentence(trace: TraceSummary, consequence: str) -> str:
    """Return a sentence that says why the layer has no name."""
    sources = _compiled_sources(trace)
    if sources:
        return f"It runs in a compiled region of {join_list(sources)}, {consequence}."
    return f"The trace has no module names, {consequence}."


def _compiled_sources(trace: TraceSummary) -> tuple[str, ...]:
    """Return the modules of the source that contain compiled regions, longest first."""
    times: Counter[str] = Counter()
    for module in trace.modules:
        parts = module.path.split(".")
        generated = next((i for i, part in enumerate(parts) if _GENERATED.search(part)), None)
        if generated:
            source = [part for part in parts[:generated] if not part.startswith("OptimizedModule")]
            times[".".join(source)] += module.kernel_ns
    return tuple(path for path, _ in times.most_common() if path)


def _is_generated(path: str) -> bool:
    """Return whether torch.compile made the module at `path`, so that it is not in the user's source."""
    return any(_GENERATED.search(part) for part in path.split("."))
