"""One operator that is neither a product nor pointwise and takes a large part of the step."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_list, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, Work, total_calls, total_ns, work_claims
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# A network mostly multiplies. Other work that takes a quarter of the step is worth a look at its source line.
MIN_SHARE: Final = 0.25
LARGE_SHARE: Final = 0.50

# Kinds of work outside layers, with their replacements.
_ADVICE: Final[dict[str, Advice | str]] = {
    "sort/scan": "Sort less: torch.topk instead of a full sort, torch.bincount or a mask instead of unique, cumsum over fewer "
    "elements.",
    "index": "Index less: gather all rows in one call, use slices (views) instead of index tensors, and torch.where instead of "
    "boolean masks.",
    "fft": "Use sizes that are products of 2, 3, 5 and 7, real transforms (torch.fft.rfft2), and plan them once.",
    "interpolate": advise(
        "Resize smaller tensors: interpolate before channels are added, or {code} instead of 'bicubic'.",
        "mode='nearest'",
    ),
    "random": "Draw random numbers in one call; drop dropout layers that do not help.",
    "reduce": advise(
        "Reduce once: combine several sums and means over the same tensor, or fuse them with {code}.",
        "torch.compile(model)",
    ),
    "pool": "Pool with a stride, or replace pooling by a convolution with a stride.",
}

DOC = f"""
Fires if operations of one kind take at least {limit_percent(MIN_SHARE)} of the step, although they are not the layers of a
network: sorting and scans, indexing, Fourier transforms, interpolation, random numbers, reductions, pooling. `high` from
{limit_percent(LARGE_SHARE)} on, `medium` below.

Convolutions, matrix products, attention, normalization, pointwise operations, copies, the loss and the optimizer have their own
rules. In a trace the same limits hold. On a CPU, operators that make batches do not count (rule `data_bound`): their time is
subtracted, so the share is a lower bound.
"""


def _dominant_kind(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the kernels (on a CPU: operators) of the family with most time; None below the limit."""
    by_family: defaultdict[str, list[Work]] = defaultdict(list)
    for item in work.select(lambda item: item.family in _ADVICE):
        by_family[item.family].append(item)
    if not by_family:
        return None
    family, kernels = max(by_family.items(), key=lambda pair: total_ns(pair[1]))
    ns = max(0, total_ns(kernels) - work.host_data_ns)
    share = work.share(ns)
    if share < MIN_SHARE:
        return None
    operators = work.select(lambda item: item.family == family, operators=True) or tuple(kernels)
    parts = [f"{item.name[:MAX_NAME_LENGTH]} {text(item.ns, 'ns')}" for item in operators[:3]]
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE),
        title=f"{family_name(family).capitalize()} ({_shortened(operators[0].name)}) take {percent(share)} of the "
        f"{work.facts.whole}",
        sentences=(
            f"They take {text(ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{', without data loading' if work.host_data_ns else ''}. In all, there are "
            f"{total_calls(operators) // work.steps:,} calls{work.facts.each}: {join_list(parts)}.",
        ),
        advice=_ADVICE[family],
        measures=((family_name(family), ns, "ns"),),
        claims=work_claims(work, kernels),
    )


# Kernel names have thousands of characters.
MAX_NAME_LENGTH: Final = 60


def _shortened(name: str) -> str:
    return name if len(name) <= MAX_NAME_LENGTH else f"{name[:MAX_NAME_LENGTH]}..."


RULE = step_rule("dominant_operator", DOC, _dominant_kind)
