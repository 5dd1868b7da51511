"""Layers whose channel counts make tensor cores pad."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum
from typing import Final

from profiler_kit.diagnosis.convolution import CHANNEL_MULTIPLE, Channels, layer_channels, round_up_to_multiple
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.phrases import (
    join_list,
    join_sentences,
    layer_name,
    layer_name_capitalized,
    limit_percent,
    quoted_name,
)
from profiler_kit.diagnosis.rule import Rule, evidence_of
from profiler_kit.diagnosis.step_work import busy_share, module_claims, names_claims
from profiler_kit.diagnosis.trace_facts import is_mostly_busy, step_share, worst_trace
from profiler_kit.diagnosis.trace_shapes import operator_text, shaped_channels
from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.families import is_contraction, math_name
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import ShapedOperator, TraceSummary
from profiler_kit.units import percent, text

# A layer below a twentieth of the device time is not worth a change of its weights' shape.
MIN_DEVICE_SHARE: Final = 0.05
# Tiles lose about this much at the edges in any case.
MIN_PADDED_SHARE: Final = 0.05
# A twentieth of the device time spent on padding is worth a change of the model.
MEDIUM_DEVICE_SHARE: Final = 0.05
TENSOR_CORE_MATH: Final = frozenset({"tf32", "f16", "bf16"})

DOC = f"""
Fires when a convolution or linear layer runs in tensor-core arithmetic with channels (features) that are not a multiple of
{CHANNEL_MULTIPLE}, at least {limit_percent(MIN_PADDED_SHARE)} of its multiplications are padding, and it takes at least
{limit_percent(MIN_DEVICE_SHARE)} of the baseline's device time.

- `medium`: padding takes at least {limit_percent(MEDIUM_DEVICE_SHARE)} of the device time.
- `low`: otherwise.

The padded share is **computed from the channels**, not measured, and is a lower bound: real tiles are larger than
{CHANNEL_MULTIPLE}, so a layer with few channels pads more. Hardware counters (`--counters`) measure it. Rounding channels up
to the next multiple costs almost no time.

In a trace, the shapes of convolutions and linear layers show the channels. The same limits hold, if most of the products run on
tensor cores.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PaddedLayer:
    """One layer, its channels, its device time and the arithmetic of its kernels."""

    node: ModuleNode
    channels: Channels
    kernel_ns: int
    math: str

    @property
    def padding_ns(self) -> float:
        """The device time spent on padding, if time is proportional to operations."""
        return self.kernel_ns * self.channels.padded_share


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for all padded layers of the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel" or not run.device_ns or report.static is None:
        return
    candidates = [candidate for node in report.static.modules if (candidate := _padded_layer(run, node)) is not None]
    large = [candidate for candidate in candidates if candidate.kernel_ns >= MIN_DEVICE_SHARE * run.device_ns]
    layers = sorted(
        (candidate for candidate in large if candidate.channels.padded_share >= MIN_PADDED_SHARE),
        key=lambda candidate: -candidate.padding_ns,
    )
    if not layers:
        return
    worst = layers[0]
    padding_share = min(1.0, fsum(candidate.padding_ns for candidate in layers) / run.device_ns)
    yield RULE.finding(
        severity="medium" if padding_share >= MEDIUM_DEVICE_SHARE else "low",
        title=f"{layer_name_capitalized(worst.node.path)} pads {percent(worst.channels.padded_share)} of its multiplications: "
        f"{_channel_counts(worst.channels)} channels, not a multiple of {CHANNEL_MULTIPLE}",
        explanation=join_sentences(
            f"In {quoted_name(run)} {join_list([_describe(candidate) for candidate in layers])}.",
            f"Padding takes at least {percent(padding_share)} of the device time (computed from the channels).",
        ),
        advice=f"Use {_next_multiples(worst.channels)} channels instead of {worst.channels.inputs} -> {worst.channels.outputs}: "
        f"the time stays about the same. Multiples of {CHANNEL_MULTIPLE} avoid this padding; multiples of 64 fill "
        "larger tiles too. This changes the model, so train it again.",
        evidence=tuple(
            item
            for candidate in layers
            for item in (
                *evidence_of(candidate.node.path, ("padded share", 100.0 * candidate.channels.padded_share, "percent")),
                *evidence_of(f"{candidate.node.path}, {run.config.name}", ("device time", candidate.kernel_ns, "ns")),
            )
        ),
        paths=(candidate.node.path for candidate in layers),
        weight=padding_share * busy_share(report),
        computed=True,
        claims=module_claims(candidate.node.path for candidate in layers),
    )


def _padded_layer(run: ConfigRun, node: ModuleNode) -> _PaddedLayer | None:
    channels = layer_channels(node)
    if channels is None or not channels.unaligned:
        return None
    ns_by_math: Counter[str] = Counter()
    for kernel in (kernel for item in run.modules if item.path == node.path for kernel in item.kernels):
        if kernel.math in TENSOR_CORE_MATH and is_contraction(kernel.family):
            ns_by_math[kernel.math] += kernel.kernel_ns
    if not ns_by_math:
        return None
    math = max(sorted(ns_by_math), key=lambda name: ns_by_math[name])
    return _PaddedLayer(node=node, channels=channels, kernel_ns=ns_by_math.total(), math=math)


def _describe(padded_layer: _PaddedLayer) -> str:
    channels = padded_layer.channels
    return (
        f"{layer_name(padded_layer.node.path)} spends {text(padded_layer.kernel_ns, 'ns')} in "
        f"{math_name(padded_layer.math)} kernels on {channels.inputs} -> {channels.outputs} channels, "
        f"padded to {_next_multiples(channels)}"
    )


def _channel_counts(channels: Channels) -> str:
    return join_list([str(count) for count in channels.unaligned])


def _next_multiples(channels: Channels) -> str:
    return f"{round_up_to_multiple(channels.inputs)} -> {round_up_to_multiple(channels.outputs)}"


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace that pads most. Layers with equal shapes count together."""
    if (worst := worst_trace(report, _padded_operators, lambda match: match[1])) is None:
        return
    trace, (operators, padding_ns) = worst.trace, worst.match
    largest, channels = operators[0]
    share = step_share(trace, padding_ns)
    layers = [f"{operator_text(operator)} ({text(operator.kernel_ns, 'ns')})" for operator, _ in operators]
    yield RULE.finding(
        severity="medium" if share >= MEDIUM_DEVICE_SHARE else "low",
        title=f"Padding takes {percent(share)} of the {facts_of(trace).whole}: {_channel_counts(channels)} channels, not a "
        f"multiple of {CHANNEL_MULTIPLE}",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Tensor cores pad {join_list(layers)}.",
            "The padding is computed from the channels, and a lower bound.",
            worst.others_sentence(),
        ),
        advice=f"Use {_next_multiples(channels)} channels or features instead of {channels.inputs} -> {channels.outputs} in "
        f"{operator_text(largest)}. This changes the model, so train it again. A vocabulary can be padded: the added rows are "
        "never used.",
        evidence=(
            Evidence(name="share of the step", value=100.0 * share, unit="percent", where=worst.where),
            *(
                Evidence(name="padded share", value=100.0 * item.padded_share, unit="percent", where=operator.name)
                for operator, item in operators
            ),
        ),
        weight=share,
        computed=True,
        claims=names_claims(k.name for k in trace.kernels if k.math in TENSOR_CORE_MATH and is_contraction(k.family)),
    )


def _padded_operators(trace: TraceSummary) -> tuple[list[tuple[ShapedOperator, Channels]], float] | None:
    """The operators that pad enough, most padding first, and the time of their padding."""
    contractions = [kernel for kernel in trace.kernels if is_contraction(kernel.family)]
    tensor_core_ns = sum(kernel.kernel_ns for kernel in contractions if kernel.math in TENSOR_CORE_MATH)
    # The kernels of an operator are unknown, so most of the products must use tensor cores.
    if not is_mostly_busy(trace) or 2 * tensor_core_ns < sum(kernel.kernel_ns for kernel in contractions):
        return None
    operators = [
        (operator, channels) for operator in trace.shapes if (channels := shaped_channels(operator)) is not None
    ]
    padded = [
        (operator, channels)
        for operator, channels in operators
        if channels.padded_share >= MIN_PADDED_SHARE and operator.kernel_ns >= MIN_DEVICE_SHARE * trace.busy_ns
    ]
    padded.sort(key=lambda pair: -pair[0].kernel_ns * pair[1].padded_share)
    padding_ns = fsum(operator.kernel_ns * channels.padded_share for operator, channels in padded)
    return (padded, padding_ns) if padded else None


RULE = Rule(
    "channels_multiple",
    DOC,
    check,
    "cause",
    check_trace,
    states_share=False,
)
