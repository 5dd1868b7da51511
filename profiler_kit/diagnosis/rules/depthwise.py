"""Depthwise convolutions, which few operations per byte make slow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.convolution_groups import timed_convolutions
from profiler_kit.diagnosis.phrases import join_list, join_sentences, layer_name, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, step_works, total_ns, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import is_product
from profiler_kit.records.counts import StaticCount
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Depthwise:
    """The time of depthwise convolutions, its share of the step, and their modules or claims."""

    ns: int
    share: float
    paths: tuple[str, ...]
    claims: tuple[str, ...]


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of depthwise convolutions."""
    static = report.static if isinstance(report, Report) else None
    if (
        worst := worst_step(step_works(report), lambda work: depthwise_layers(work, static), lambda match: match.share)
    ) is None:
        return
    work, match = worst.step, worst.match
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"Depthwise convolutions take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}They take {text(match.ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{f' in {join_list([layer_name(path) for path in match.paths])}' if match.paths else ''}.",
            "Each value is multiplied by one small filter, so memory bandwidth limits them, and tensor cores cannot be used.",
            worst.others_sentence(),
        ),
        advice="Use channels last, {code} and the same for the inputs"
        f"{'' if work.facts.half else f', and 16 bits, {work.autocast}'}. Dense convolutions with fewer channels, or "
        "groups of 16 channels and more, use the device better. This changes the model.",
        code="model.to(memory_format=torch.channels_last)",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of depthwise convolutions", value=match.ns, unit="ns", where=work.name),
        ),
        paths=match.paths,
        trials=trials_of(report, "channels_last", "amp_bf16"),
        weight=match.share,
        claims=match.claims,
    )


def depthwise_layers(work: StepWork, static: StaticCount | None) -> _Depthwise | None:
    """Return the depthwise convolutions of `work`; None below the limit."""
    layers = [layer for layer in timed_convolutions(work, static) if layer.is_depthwise]
    kernels = work.select(lambda item: item.family == FAMILY)
    layers_ns = sum(layer.ns for layer in layers)
    if layers_ns >= total_ns(kernels):
        paths = tuple(layer.path for layer in layers if layer.path)
        claims = tuple(f"busy:module:{path}" for path in paths) or work_claims(work, work.select(is_product))
        ns = layers_ns
    else:
        paths, claims, ns = (), work_claims(work, kernels), total_ns(kernels)
    share = work.share(ns)
    return _Depthwise(ns=ns, share=share, paths=paths, claims=claims) if share >= MIN_SHARE else None


# Channels_last kernels of depthwise convolutions take about half of the time.
KEEPS: Final = 0.5

RULE = Rule("depthwise", DOC, check, "cause", "both", keeps=KEEPS)
