"""Forward work that activation checkpointing repeats in backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.step_work import StepWork, step_works, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# Less than a twentieth of the step is a low price for memory.
MIN_SHARE: Final = 0.05
# Checkpointing all modules takes a fifth to a third of a step.
LARGE_SHARE: Final = 0.15

DOC = f"""
Fires if the recomputation of activations in backward (activation checkpointing) takes at least {limit_percent(MIN_SHARE)} of the
step, in a report or in a trace.

- `medium`: at least {limit_percent(LARGE_SHARE)}.
- `low`: below that.

Recomputation saves memory. A trace does not show whether the memory is needed.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding: for the baseline, or for the trace with the largest share of recomputation."""
    if (worst := worst_step(step_works(report), _recompute_share, lambda share: share)) is None:
        return
    work, share = worst.step, worst.match
    recompute_ns, forward_ns = work.phase_ns.get("recompute", 0), work.phase_ns.get("forward", 0)
    yield RULE.finding(
        severity="medium" if share >= LARGE_SHARE else "low",
        title=f"Activation checkpointing: recomputation takes {percent(share)} of the {work.facts.whole}",
        explanation=join_sentences(
            f"{work.prefix}Backward repeats {text(recompute_ns, 'ns')} of forward work {work.per_step}.",
            f"The forward pass takes {text(forward_ns, 'ns')}." if forward_ns else "",
            worst.others_sentence(),
        ),
        advice="If memory allows, checkpoint fewer modules: those that save much and compute little (normalization, "
        "activations, attention scores) instead of whole blocks. profiler-kit count --checkpoint PATH predicts the memory.",
        evidence=(
            Evidence(name="share of the step", value=100.0 * share, unit="percent", where=work.name),
            Evidence(name="recomputation", value=recompute_ns, unit="ns", where=work.name),
        ),
        weight=share,
        claims=("busy:phase:recompute",),
    )


def _recompute_share(work: StepWork) -> float | None:
    share = work.share(work.phase_ns.get("recompute", 0))
    return share if share >= MIN_SHARE else None


RULE = Rule("recompute_share", DOC, check, "cause", "both")
