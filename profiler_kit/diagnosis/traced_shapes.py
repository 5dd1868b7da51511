"""Which one layer a trace's time goes into, by the shapes of its operators: what is left where modules have no names."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.convolution import by
from profiler_kit.diagnosis.rule import known
from profiler_kit.diagnosis.traced import gravest, module_times, on_device
from profiler_kit.diagnosis.traced_layers import Dominant
from profiler_kit.diagnosis.words import listing, plural, sentences
from profiler_kit.records.report import Evidence, TraceReport
from profiler_kit.records.traces import ShapedOperator, TraceSummary
from profiler_kit.units import percent, text

# What a layer of a network is; all else goes with one.
LAYERS: Final = ("conv", "gemm", "attention", "rnn")


def dominant_shape(report: TraceReport, least: float) -> Dominant | None:
    """The operator whose calls with the same shapes take at least `least` of the busy time of a trace without modules."""
    if (seen := gravest(report, lambda trace: _dominant(trace, least), lambda one: one.kernel_ns)) is None:
        return None
    trace, one = seen.trace, seen.found
    share = one.kernel_ns / trace.busy_ns
    steps = len(trace.steps)
    # The profiler may begin within a step, so that there is a call more than marks.
    single = one.calls <= max(steps, 1) + (steps > 1)
    what = words(one)
    spent = (("forward", one.forward_ns), ("backward", one.backward_ns), ("recomputation", one.recompute_ns))
    parts = [f"{name} {text(ns, 'ns')}" for name, ns in spent if ns]
    marked = f" in {plural(steps, 'step')}" if steps else ""
    many = f"{plural(one.calls, 'call')}{marked}"
    return Dominant(
        share=share,
        title=f"One layer takes {percent(share)} of the device time: {what}"
        if single
        else f"Calls with the same shapes take {percent(share)} of the device time: {what}",
        explanation=sentences(
            f"{seen.place}Of {text(trace.busy_ns, 'ns')} {many} of {one.name} take {text(one.kernel_ns, 'ns')}"
            f"{f': {listing(parts)}' if parts else ''}.",
            "The trace names no modules; which layer that is, its shapes say.",
            "" if single else "It may be several layers of the same size.",
            seen.others(),
        ),
        advice="Change this layer first: fewer channels or features, a smaller kernel or input. profiler-kit count MODEL says "
        "what each change would leave of its work.",
        evidence=(
            Evidence(name="share of device time", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name=one.name, value=one.kernel_ns, unit="ns", where=seen.where),
            *known(seen.where, *((f"{name} of {one.name}", ns or None, "ns") for name, ns in spent[:2])),
        ),
    )


def _dominant(trace: TraceSummary, least: float) -> ShapedOperator | None:
    layers = [one for one in trace.shapes if one.family in LAYERS]
    # A model of a single layer is all about that layer: no news.
    if len(layers) < 2 or not on_device(trace) or module_times(trace):
        return None
    top = max(layers, key=lambda one: one.kernel_ns)
    return top if top.kernel_ns >= least * trace.busy_ns else None


def words(one: ShapedOperator) -> str:
    """What is computed, with its sizes: ``a 16x16 convolution of 30 to 50 channels at 257x257``."""
    return _convolution(one) or _linear(one) or f"{one.name} of {listing([by(shape) for shape in one.shapes[:3]])}"


def _convolution(one: ShapedOperator) -> str | None:
    if one.name not in ("aten::conv1d", "aten::conv2d", "aten::conv3d") or len(one.shapes) < 2:
        return None
    data, weight = one.shapes[:2]
    if not 3 <= len(weight) == len(data) or not weight[1] or data[1] % weight[1]:
        return None
    kernel = by(weight[2:]) if len(weight) > 3 else f"{weight[2]}-wide"
    groups = data[1] // weight[1]
    split = f" in {groups} groups" if groups > 1 else ""
    return f"a {kernel} convolution of {data[1]} to {weight[0]} channels{split} at {by(data[2:])}"


def _linear(one: ShapedOperator) -> str | None:
    if one.name != "aten::linear" or len(one.shapes) < 2 or len(one.shapes[1]) != 2:
        return None
    data, (features_out, features_in) = one.shapes[:2]
    if data[-1] != features_in:
        return None
    rows = f" for {by(data[:-1])} rows" if len(data) > 1 else ""
    return f"a linear layer of {features_in} to {features_out} features{rows}"
