"""Forward work that activation checkpointing repeats in backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule, no_findings
from profiler_kit.diagnosis.trace_facts import on_device, worst_trace
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import PhaseTime, TraceSummary
from profiler_kit.units import percent, text

# Less than a twentieth of the device time is a low price for memory.
MIN_SHARE: Final = 0.05
# Checkpointing all modules takes a fifth to a third of a step.
LARGE_SHARE: Final = 0.20

DOC = f"""
Fires for a trace if the recomputation of activations in backward (activation checkpointing) takes at least
{limit_percent(MIN_SHARE)} of the device's busy time.

- `medium`: at least {limit_percent(LARGE_SHARE)}.
- `low`: below that.

Recomputation saves memory. A trace does not show whether the memory is needed.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest share of recomputation."""
    if (worst := worst_trace(report, _recomputation, lambda match: match[1])) is None:
        return
    timing, share = worst.match
    forward = worst.trace.phase("forward")
    yield RULE.finding(
        severity="medium" if share >= LARGE_SHARE else "low",
        title=f"Activation checkpointing: recomputation takes {percent(share)} of the device time",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Backward repeats {text(timing.kernel_ns, 'ns')} of forward work.",
            f"The forward pass takes {text(forward.kernel_ns, 'ns')}."
            if forward is not None and forward.kernel_ns
            else "",
            worst.others_sentence(),
        ),
        advice="If memory allows, checkpoint fewer modules: those that save much and compute little (normalization, "
        "activations, attention scores) instead of whole blocks. profiler-kit count --checkpoint PATH predicts the memory.",
        evidence=(
            Evidence(name="share of recomputation", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="recomputation", value=timing.kernel_ns, unit="ns", where=worst.where),
        ),
        weight=share,
    )


def _recomputation(trace: TraceSummary) -> tuple[PhaseTime, float] | None:
    """Return the recompute phase of `trace` and its share of the busy time, if the share is large enough."""
    timing = trace.phase("recompute")
    if timing is None or not on_device(trace):
        return None
    share = timing.kernel_ns / trace.busy_ns
    return (timing, share) if share >= MIN_SHARE else None


RULE = Rule("recompute_share", DOC, no_findings, "note", check_trace)
