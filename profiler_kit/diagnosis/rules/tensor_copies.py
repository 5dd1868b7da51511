"""Copies of tensors on the device that change neither values nor type."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, Work, step_works, work_claims, worst_step
from profiler_kit.diagnosis.work_groups import copies, copy_ns
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# Copies compute nothing. From a tenth of the step on, finding their source is worth the time.
MIN_SHARE: Final = 0.10
# Most networks copy a little (concatenation, gradients of views). A fifth of the step is more than that.
MEDIUM_SHARE: Final = 0.20
LARGE_SHARE: Final = 0.40

DOC = f"""
Fires if copies of tensors take at least {limit_percent(MIN_SHARE)} of the step: `contiguous`, `clone`, `reshape` of a
non-contiguous tensor, `copy_`, `cat` and `stack`. Copies between host and device, conversions of the data type, and layout
conversions of cuDNN do not count.

- `high`: at least {limit_percent(LARGE_SHARE)} of the step.
- `medium`: at least {limit_percent(MEDIUM_SHARE)}.
- `low`: below that.

A copy computes nothing. `permute` and `transpose` return views; `contiguous`, or `reshape` after them, copies. In a trace the
same limits hold.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCopies:
    """The kernels that copy, their time, and their share of the step."""

    kernels: tuple[Work, ...]
    ns: int
    share: float


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of copies."""
    if (worst := worst_step(step_works(report), tensor_copies, lambda match: match.share)) is None:
        return
    work, match = worst.step, worst.match
    calls = sum(kernel.calls for kernel in match.kernels) // work.steps
    sources = [
        f"{item.name} {text(item.ns, 'ns')}"
        for item in work.select(lambda item: item.family == "cat/copy", operators=True)[:3]
    ]
    yield RULE.finding(
        severity="high" if match.share >= LARGE_SHARE else "medium" if match.share >= MEDIUM_SHARE else "low",
        title=f"Copies of tensors take {percent(match.share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}{calls:,} copies{work.facts.each} take {text(match.ns, 'ns')} {work.per_step}. "
            "They compute nothing.",
            f"By operator: {join_list(sources)}." if sources else "",
            worst.others_sentence(),
        ),
        advice="Look for contiguous(), clone() and reshape() after permute() or transpose(), and for torch.cat and torch.stack "
        "in a loop. Keep one layout from layer to layer, or write into a buffer that is allocated once.",
        evidence=(
            Evidence(name="share of the step", value=100.0 * match.share, unit="percent", where=work.name),
            Evidence(name="time of copies", value=match.ns, unit="ns", where=work.name),
            Evidence(name="copies per step", value=calls, unit="count", where=work.name),
        ),
        weight=match.share,
        claims=work_claims(work, match.kernels),
    )


def tensor_copies(work: StepWork) -> TensorCopies | None:
    """Return the copies of tensors; None below the limit."""
    ns = copy_ns(work)
    share = work.share(ns)
    return TensorCopies(kernels=copies(work), ns=ns, share=share) if share >= MIN_SHARE else None


RULE = Rule("tensor_copies", DOC, check, "cause", "both")
