"""One operator that is neither a product nor pointwise and takes a large part of the step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_list, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.rules.embedding_gradients import embedding_gradients
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, total_calls, total_ns, work_claims, worst_step
from profiler_kit.records.families import family_name
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """The kernels (on a CPU: operators) of one family, their time and share of the step without what makes batches."""

    family: str
    kernels: tuple[Work, ...]
    ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of one kind of operations."""
    if (worst := worst_step(step_works(report), _dominant_kind, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    operators = work.select(lambda item: item.family == match.family, operators=True) or match.kernels
    calls = total_calls(operators) // work.steps
    largest = (
        operators[0].name if len(operators[0].name) <= MAX_NAME_LENGTH else f"{operators[0].name[:MAX_NAME_LENGTH]}..."
    )
    parts = [f"{item.name[:MAX_NAME_LENGTH]} {text(item.ns, 'ns')}" for item in operators[:3]]
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium",
        title=f"{family_name(match.family).capitalize()} ({largest}) take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}They take {text(match.ns, 'ns')} of {work.clock_name} {work.per_step}"
            f"{', without data loading' if work.host_data_ns else ''}. In all, there are {calls:,} calls{work.facts.each}: "
            f"{join_list(parts)}.",
            worst.others_sentence(),
        ),
        advice=_ADVICE[match.family],
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name=family_name(match.family), value=match.ns, unit="ns", where=work.name),
        ),
        weight=match.share,
        claims=work_claims(work, match.kernels),
    )


# Kernel names have thousands of characters.
MAX_NAME_LENGTH: Final = 60


def _dominant_kind(work: StepWork) -> _Kind | None:
    if embedding_gradients(work) is not None:
        return None  # its kernels count as indexing, and its advice is more specific
    by_family: defaultdict[str, list[Work]] = defaultdict(list)
    for item in work.select(lambda item: item.family in _ADVICE):
        by_family[item.family].append(item)
    if not by_family:
        return None
    family = max(by_family, key=lambda name: total_ns(by_family[name]))
    ns = max(0, total_ns(by_family[family]) - work.host_data_ns)
    share = work.share(ns)
    return _Kind(family=family, kernels=tuple(by_family[family]), ns=ns, share=share) if share >= MIN_SHARE else None


RULE = Rule("dominant_operator", DOC, check, "cause", "both")
