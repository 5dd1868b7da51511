"""The dominant layer of a trace by the shapes of its operators, for traces without module names."""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.diagnosis.convolution import MAX_IMAGE_CHANNELS, Channels, join_sizes
from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, plural
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.diagnosis.trace_facts import MIN_BUSY_NS, extent_text, on_device, step_share, worst_trace
from profiler_kit.diagnosis.trace_layers import DominantLayer, has_named_layers, unnamed_sentence
from profiler_kit.records.families import is_product_family
from profiler_kit.records.report import Evidence, TraceReport
from profiler_kit.records.traces import ShapedOperator, TraceSummary
from profiler_kit.units import percent, text

# Kernel families of whole layers. Pointwise kernels, norms and copies accompany a layer.
MIN_LARGE_KERNEL: Final = 5  # half of a smaller kernel sees hardly any neighbors
LAYER_FAMILIES: Final = ("conv", "gemm", "attention", "rnn")


def dominant_shape(report: TraceReport, min_share: float) -> DominantLayer | None:
    """Return the operator whose calls with equal shapes take at least `min_share` of the busy time; None without one.

    **Counts**: traces without modules only.
    """
    if (worst := worst_trace(report, lambda trace: _dominant(trace, min_share), lambda match: match.kernel_ns)) is None:
        return None
    trace, operator = worst.trace, worst.match
    share = operator.kernel_ns / trace.busy_ns
    steps = len(trace.working_steps)
    # The profiler may start within a step, so there may be one more call than step marks.
    is_single_layer = operator.calls <= max(steps, 1) + (steps > 1)
    subject = "One layer takes" if is_single_layer else "Calls with the same shapes take"
    passes = (
        ("forward", operator.forward_ns),
        ("backward", operator.backward_ns),
        ("recomputation", operator.recompute_ns),
    )
    parts = [f"{name} {text(ns, 'ns')}" for name, ns in passes if ns]
    return DominantLayer(
        share=share,
        weight=step_share(trace, operator.kernel_ns),
        clock="device time",
        claims=tuple(f"busy:kernel:{kernel.name}" for kernel in trace.kernels if is_product_family(kernel.family)),
        title=f"{subject} {percent(share)} of the device time: {operator_text(operator)}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}{plural(operator.calls, 'call')} of {operator.name} {extent_text(trace)} "
            f"{'takes' if operator.calls == 1 else 'take'} {text(operator.kernel_ns, 'ns')} of {text(trace.busy_ns, 'ns')}"
            f"{f': {join_list(parts)}' if parts else ''}.",
            unnamed_sentence(trace, "and the input shapes identify the layer"),
            "" if is_single_layer else "These may be several layers of the same size.",
            worst.others_sentence(),
        ),
        advice=_advice(operator),
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name=operator.name, value=operator.kernel_ns, unit="ns", where=worst.where),
            *evidence_of(worst.where, *((f"{name} of {operator.name}", ns or None, "ns") for name, ns in passes[:2])),
        ),
    )


def _advice(operator: ShapedOperator) -> Advice:
    """Return the advice to change the layer; for a large kernel with the line of a convolution of half the kernel size."""
    half = _half_kernel(operator)
    change = "Change this layer first: fewer channels or features, a smaller kernel or input."
    predict = "profiler-kit count MODEL predicts the work that remains after each change."
    return Advice(join_sentences(change, half.text, predict), half.code)


def _half_kernel(operator: ShapedOperator) -> Advice:
    if _convolution(operator) is None or min(sizes := operator.shapes[1][2:]) < MIN_LARGE_KERNEL:
        return Advice("")
    inputs, outputs = operator.shapes[0][1], operator.shapes[1][0]
    half = tuple(size // 2 for size in sizes)
    kernel_size = half[0] if len(set(half)) == 1 else half
    groups = inputs // operator.shapes[1][1]
    grouped = f", groups={groups}" if groups > 1 else ""
    work = math.prod(half) / math.prod(sizes)
    return advise(
        f"Half the kernel, `{{code}}`, does {percent(work)} of its work, with other results.",
        f"torch.nn.Conv{len(sizes)}d({inputs}, {outputs}, kernel_size={kernel_size}{grouped})",
    )


def _dominant(trace: TraceSummary, min_share: float) -> ShapedOperator | None:
    layers = [operator for operator in trace.shapes if operator.family in LAYER_FAMILIES]
    # In a model of one layer, that layer is always dominant: a finding would not help.
    if len(layers) < 2 or not on_device(trace) or trace.busy_ns < MIN_BUSY_NS or has_named_layers(trace, min_share):
        return None
    longest = max(layers, key=lambda operator: operator.kernel_ns)
    return longest if longest.kernel_ns >= min_share * trace.busy_ns else None


def operator_text(operator: ShapedOperator) -> str:
    """Return the operator and its sizes in words: ``a 16x16 convolution of 30 to 50 channels at 257x257``."""
    shapes = join_list([join_sizes(shape) for shape in operator.shapes[:3]])
    return _convolution(operator) or _linear(operator) or f"{operator.name} of {shapes}"


def shaped_channels(operator: ShapedOperator) -> Channels | None:
    """Return the channels of a convolution or the features of a linear layer.

    None for other operators, for grouped convolutions, and for a first layer on images.
    """
    if len(operator.shapes) < 2 or not operator.name.startswith(("aten::conv", "aten::linear")):
        return None
    data, weight = operator.shapes[:2]
    is_linear = operator.name == "aten::linear"
    if len(weight) < 2 or len(data) < 2 or (data[-1] if is_linear else data[1]) != weight[1]:
        return None
    return Channels(inputs=weight[1], outputs=weight[0]) if weight[1] > MAX_IMAGE_CHANNELS and weight[0] > 1 else None


def _convolution(operator: ShapedOperator) -> str | None:
    if operator.name not in ("aten::conv1d", "aten::conv2d", "aten::conv3d") or len(operator.shapes) < 2:
        return None
    data, weight = operator.shapes[:2]
    if not 3 <= len(weight) == len(data) or not weight[1] or data[1] % weight[1]:
        return None
    kernel = join_sizes(weight[2:]) if len(weight) > 3 else f"{weight[2]}-wide"
    groups = data[1] // weight[1]
    split = f" in {groups} groups" if groups > 1 else ""
    return f"a {kernel} convolution of {data[1]} to {weight[0]} channels{split} at {join_sizes(data[2:])}"


def _linear(operator: ShapedOperator) -> str | None:
    if operator.name != "aten::linear" or len(operator.shapes) < 2 or len(operator.shapes[1]) != 2:
        return None
    data, (features_out, features_in) = operator.shapes[:2]
    if data[-1] != features_in:
        return None
    rows = f" for {join_sizes(data[:-1])} rows" if len(data) > 1 else ""
    return f"a linear layer of {features_in} to {features_out} features{rows}"
