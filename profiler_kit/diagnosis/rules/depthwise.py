"""Depthwise convolutions, which few operations per byte make slow."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.convolution_groups import timed_convolutions
from profiler_kit.diagnosis.facts import counts_of
from profiler_kit.diagnosis.phrases import join_list, layer_name, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_ns, work_claims
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.claims import module_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# A quarter of the step for layers that do few percent of the operations.
MIN_SHARE: Final = 0.25
LARGE_SHARE: Final = 0.50
FAMILY: Final = "conv:depthwise"

DOC = f"""
Fires if depthwise convolutions (one input channel per group) take at least {limit_percent(MIN_SHARE)} of the step. `high` from
{limit_percent(LARGE_SHARE)} on, `medium` below.

A depthwise convolution multiplies each value by one small filter: it needs few operations, and as many bytes as a dense
one. Tensor cores cannot be used, so it is slow for its operations. The counts show the groups of a layer; in a trace, the shapes
of its operators or the names of its kernels do.
"""


def _depthwise(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the depthwise convolutions of `work`; None below the limit."""
    layers = [layer for layer in timed_convolutions(work, counts_of(report)) if layer.is_depthwise]
    kernels = work.select(lambda item: item.family == FAMILY)
    ns, paths, claims = total_ns(kernels), tuple[str, ...](), work_claims(work, kernels)
    if (layers_ns := sum(layer.ns for layer in layers)) >= ns:
        paths = tuple(layer.path for layer in layers if layer.path)
        ns, claims = layers_ns, module_claims(paths) or work_claims(work, work.select(is_product))
    share = work.share(ns)
    if share < MIN_SHARE:
        return None
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"Depthwise convolutions take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"They take {text(ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{f' in {join_list([layer_name(path) for path in paths])}' if paths else ''}.",
            "Each value is multiplied by one small filter, so memory bandwidth limits them, and tensor cores cannot be used.",
        ),
        advice="Use channels last, {code} and the same for the inputs"
        f"{'' if work.facts.half else f', and 16 bits, {work.autocast}'}. Dense convolutions with fewer channels, or "
        "groups of 16 channels and more, use the device better. This changes the model.",
        code="model.to(memory_format=torch.channels_last)",
        measures=(("time of depthwise convolutions", ns, "ns"),),
        paths=paths,
        trials=trials_of(report, "channels_last", "amp_bf16"),
        claims=claims,
    )


# Channels_last kernels of depthwise convolutions take about half of the time.
RULE = step_rule("depthwise", DOC, _depthwise, keeps=0.5)
