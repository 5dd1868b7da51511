"""Forward work that activation checkpointing repeats in backward."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.phrases import limit_percent
from profiler_kit.diagnosis.step_rule import StepPart, severity_of, step_rule
from profiler_kit.diagnosis.step_work import StepWork
from profiler_kit.records.claims import phase_claims
from profiler_kit.records.report import Report, TraceReport
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


def _recomputation(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    recompute_ns, forward_ns = work.phase_ns.get("recompute", 0), work.phase_ns.get("forward", 0)
    share = work.share(recompute_ns)
    if share < MIN_SHARE:
        return None
    return StepPart(
        share=share,
        severity=severity_of(share, medium=LARGE_SHARE),
        title=f"Activation checkpointing: recomputation takes {percent(share)} of the {work.facts.whole}",
        sentences=(
            f"Backward repeats {text(recompute_ns, 'ns')} of forward work {work.per_step}.",
            f"The forward pass takes {text(forward_ns, 'ns')}." if forward_ns else "",
        ),
        advice="If memory allows, checkpoint fewer modules: those that save much and compute little (normalization, "
        "activations, attention scores) instead of whole blocks. profiler-kit count --checkpoint PATH predicts the memory.",
        measures=(("recomputation", recompute_ns, "ns"),),
        claims=phase_claims("recompute"),
    )


RULE = step_rule("recompute_share", DOC, _recomputation)
