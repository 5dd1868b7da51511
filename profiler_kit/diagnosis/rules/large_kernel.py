"""Several convolutions with large kernels that take most of the step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.convolution import MAX_IMAGE_CHANNELS, join_sizes
from profiler_kit.diagnosis.convolution_groups import TimedConvolution, timed_convolutions
from profiler_kit.diagnosis.phrases import factor_text, join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, step_works, work_claims, worst_step
from profiler_kit.diagnosis.trace_layers import MIN_TIME_SHARE
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# A 7x7 kernel does more than five times the work of a 3x3 kernel.
MIN_KERNEL_VALUES: Final = 49
MIN_SHARE: Final = 0.40
LARGE_SHARE: Final = 0.60
SMALL_KERNEL_VALUES: Final = 9

DOC = f"""
Fires if convolutions with kernels of at least {MIN_KERNEL_VALUES} values (7x7) take at least {limit_percent(MIN_SHARE)} of the
step. `high` from {limit_percent(LARGE_SHARE)} on, `medium` below. The first layer (up to {MAX_IMAGE_CHANNELS} input channels) and
depthwise convolutions do not count. Rule `dominant_layer` covers one layer that takes most of the time.

The work of a convolution grows with the number of values of its kernel. The counts show kernels; in a trace, the shapes of the
operators do.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LargeKernels:
    """The convolutions with large kernels, longest first, their time, and their share of the step."""

    layers: tuple[TimedConvolution, ...]
    ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of large kernels."""
    static = report.static if isinstance(report, Report) else None
    if (
        worst := worst_step(step_works(report), lambda work: _large_kernels(work, static), lambda match: match.share)
    ) is None:
        return
    work, match = worst.step, worst.match
    paths = tuple(layer.path for layer in match.layers if layer.path)
    factor = math.prod(match.layers[0].kernel) / SMALL_KERNEL_VALUES
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Convolutions with large kernels take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}They take {text(match.ns, 'ns')} of {work.clock_name} {work.per_step}: "
            f"{join_list([_describe(layer) for layer in match.layers])}.",
            f"A {join_sizes(match.layers[0].kernel)} kernel does {factor_text(factor)} the work of a kernel of "
            f"{SMALL_KERNEL_VALUES} values.",
            worst.others_sentence(),
        ),
        advice="Use smaller kernels: two 3x3 layers cover the area of one 5x5 layer, three that of one 7x7. For a wide view, use "
        "stride, dilation, or a k x 1 layer followed by a 1 x k layer. This changes the model, so train it again.",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of large kernels", value=match.ns, unit="ns", where=work.name),
        ),
        paths=paths,
        weight=match.share,
        claims=(f"busy:module:{path}" for path in paths) if paths else work_claims(work, work.select(is_product)),
    )


def _describe(layer: TimedConvolution) -> str:
    name = f" in {layer_name(layer.path)}" if layer.path else ""
    return f"{join_sizes(layer.kernel)} on {layer.channels_in} channels{name} {text(layer.ns, 'ns')}"


def _large_kernels(work: StepWork, static: StaticCount | None) -> _LargeKernels | None:
    layers = tuple(
        layer
        for layer in timed_convolutions(work, static)
        if math.prod(layer.kernel) >= MIN_KERNEL_VALUES
        and layer.channels_in > MAX_IMAGE_CHANNELS
        and not layer.is_depthwise
    )
    ns = sum(layer.ns for layer in layers)
    share = work.share(ns)
    if share < MIN_SHARE or layers[0].ns >= MIN_TIME_SHARE * work.busy_ns:
        return None
    return _LargeKernels(layers=layers, ns=ns, share=share)


# Half of the work of the layer.
KEEPS: Final = 0.5

RULE = Rule("large_kernel", DOC, check, "cause", "both", keeps=KEEPS)
