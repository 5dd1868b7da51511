"""Copies of tensors on the device that change neither values nor type."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.phrases import join_list, limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork, total_calls, work_claims
from profiler_kit.diagnosis.work_groups import copies, copy_ns
from profiler_kit.records.report import Report, TraceReport
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


def _tensor_copies(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    """Return the copies of tensors; None below the limit."""
    kernels, ns = copies(work), copy_ns(work)
    share, calls = work.share(ns), total_calls(kernels) // work.steps
    if share < MIN_SHARE:
        return None
    operators = work.select(lambda item: item.family == "cat/copy", operators=True)[:3]
    sources = [f"{item.name} {text(item.ns, 'ns')}" for item in operators]
    return StepPart(
        share=share,
        severity=severity_of(share, high=LARGE_SHARE, medium=MEDIUM_SHARE),
        title=f"Copies of tensors take {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"{calls:,} copies{work.facts.each} take {text(ns, 'ns')} {work.per_step}. They compute nothing.",
            f"By operator: {join_list(sources)}." if sources else "",
        ),
        advice="Look for contiguous(), clone() and reshape() after permute() or transpose(), and for torch.cat and torch.stack "
        "in a loop. Keep one layout from layer to layer, or write into a buffer that is allocated once.",
        measures=(("time of copies", ns, "ns"), ("copies per step", calls, "count")),
        claims=work_claims(work, kernels),
    )


RULE = step_rule("tensor_copies", DOC, _tensor_copies)
