"""Several convolutions with large kernels that take most of the step."""

from __future__ import annotations

import math
from typing import Final

from profiler_kit.diagnosis.convolution import MAX_IMAGE_CHANNELS, join_sizes
from profiler_kit.diagnosis.convolution_groups import TimedConvolution, timed_convolutions
from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.phrases import factor_text, join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, work_claims
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.claims import module_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# A 7x7 kernel does more than five times the work of a 3x3 kernel.
MIN_KERNEL_VALUES: Final = 49
MIN_SHARE: Final = 0.40
LARGE_SHARE: Final = 0.60
SMALL_KERNEL_VALUES: Final = 9
# One layer with more of this time is the place to look at, whatever its kernel.
MAX_LARGEST_PART: Final = 0.75

DOC = f"""
Fires if convolutions with kernels of at least {MIN_KERNEL_VALUES} values (7x7) take at least {limit_percent(MIN_SHARE)} of the
step. `high` from {limit_percent(LARGE_SHARE)} on, `medium` below. The first layer (up to {MAX_IMAGE_CHANNELS} input channels) and
depthwise convolutions do not count. One layer must not take more than {limit_percent(MAX_LARGEST_PART)} of this time: it is then
the place to look at, whatever its kernel (rule `dominant_layer`).

The work of a convolution grows with the number of values of its kernel. The counts show kernels; in a trace, the shapes of the
operators do.
"""


def _large_kernels(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    layers = [
        layer
        for layer in timed_convolutions(work, counts_of(report))
        if math.prod(layer.kernel) >= MIN_KERNEL_VALUES
        and layer.channels_in > MAX_IMAGE_CHANNELS
        and not layer.is_depthwise
    ]
    ns = sum(layer.ns for layer in layers)
    share = work.share(ns)
    if share < MIN_SHARE or layers[0].ns > MAX_LARGEST_PART * ns:
        return None
    paths = tuple(layer.path for layer in layers if layer.path)
    factor = math.prod(layers[0].kernel) / SMALL_KERNEL_VALUES
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Convolutions with large kernels take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"They take {text(ns, 'ns')} of {work.clock_name} {work.per_step}: "
            f"{join_list([_describe(layer) for layer in layers])}.",
            f"A {join_sizes(layers[0].kernel)} kernel does {factor_text(factor)} the work of a kernel of "
            f"{SMALL_KERNEL_VALUES} values.",
        ),
        advice="Use smaller kernels: two 3x3 layers cover the area of one 5x5 layer, three that of one 7x7. For a wide view, use "
        "stride, dilation, or a k x 1 layer followed by a 1 x k layer. This changes the model, so train it again.",
        measures=(("time of large kernels", ns, "ns"),),
        paths=paths,
        claims=module_claims(paths) or work_claims(work, work.select(is_product)),
    )


def _describe(layer: TimedConvolution) -> str:
    name = f" in {layer_name(layer.path)}" if layer.path else ""
    return f"{join_sizes(layer.kernel)} on {layer.channels_in} channels{name} {text(layer.ns, 'ns')}"


# Half of the work of the layer.
RULE = step_rule("large_kernel", DOC, _large_kernels, keeps=0.5)
