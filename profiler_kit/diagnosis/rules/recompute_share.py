"""Forward work that is done again in backward."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import sentences, threshold
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import PhaseTime, TraceSummary
from profiler_kit.units import percent, text

# A twentieth of the device's time is what memory may cost without a thought.
SHARE: Final = 0.05
# Checkpointing everything costs a fifth to a third of a step; from here on it is most of what can be gained.
LARGE: Final = 0.20

DOC = f"""
In a trace, recomputing activations in backward (activation checkpointing) takes at least {threshold(SHARE)} of the device's busy
time: `low`, `medium` from {threshold(LARGE)}. It buys memory, and whether that is needed no trace says.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace that recomputes most."""
    if (seen := gravest(report, _look, lambda found: found[1])) is None:
        return
    timing, share = seen.found
    forward = seen.trace.phase("forward")
    yield RULE.finding(
        severity="medium" if share >= LARGE else "low",
        title=f"Recomputing activations takes {percent(share)} of the device time",
        explanation=sentences(
            f"{seen.place}Backward does {text(timing.kernel_ns, 'ns')} of forward work again.",
            f"Forward itself takes {text(forward.kernel_ns, 'ns')}."
            if forward is not None and forward.kernel_ns
            else "",
            seen.others(),
        ),
        advice="Where memory allows, checkpoint fewer modules: those that hold much and compute little (normalisation, "
        "activations, attention scores) rather than whole blocks. profiler-kit count --checkpoint PATH predicts the memory.",
        evidence=(
            Evidence(name="recomputation, of device time", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="recomputation", value=timing.kernel_ns, unit="ns", where=seen.where),
        ),
        weight=share,
    )


def _look(trace: TraceSummary) -> tuple[PhaseTime, float] | None:
    timing = trace.phase("recompute")
    if timing is None or not on_device(trace):
        return None
    share = timing.kernel_ns / trace.busy_ns
    return (timing, share) if share >= SHARE else None


RULE = Rule("recompute_share", DOC, never, "note", check_trace)
