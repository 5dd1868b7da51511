"""A trace that does not hold what its figures would need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import plural, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# A twentieth of the device's time with an owner that is guessed, or none, moves shares by as much.
UNLINKED: Final = 0.05
# The reader can't see what it is, so little of it may stay so.
NOBODY: Final = 0.01
# From here on the phases' shares are not to be trusted.
GRAVE: Final = 0.10

DOC = f"""
In a trace, more than {threshold(UNLINKED)} of the device's busy time was launched by calls that are not in it, or more than
{threshold(NOBODY)} belongs to no phase: `low`, `medium` where more than {threshold(GRAVE)} has no phase. Kernels that were queued
when the trace began have no launch in it; where another step runs the same kernels, they are given that step's owners. A trace
without host events has no owners at all.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace with the largest share of such time."""
    if (seen := gravest(report, _look, lambda share: share)) is None:
        return
    trace = seen.trace
    lost, unlinked = trace.unattributed_ns / trace.busy_ns, trace.unlinked_ns / trace.busy_ns
    missing = trace.device_events - trace.linked
    yield RULE.finding(
        severity="medium" if lost > GRAVE else "low",
        title=f"{percent(unlinked)} of the device's work was launched outside the trace, {percent(lost)} has no phase",
        explanation=sentences(
            f"{seen.place}{plural(missing, 'device event')} of {trace.device_events:,} have no launch in it, "
            f"{text(trace.unlinked_ns, 'ns')} of work."
            if missing
            else f"{seen.place}{text(trace.unattributed_ns, 'ns')} of work was launched outside everything that says a phase.",
            f"{text(trace.aligned_ns, 'ns')} of it could be given the owners of the same kernels in another step."
            if trace.aligned_ns
            else "",
            "Shares of phases and modules are uncertain by that much." if lost > 0 else "",
            seen.others(),
        ),
        advice="Record with torch.profiler.schedule(wait=1, warmup=2, active=3), both ProfilerActivity.CPU and .CUDA, "
        "prof.step() at the end of each step, and torch.cuda.synchronize() before the first one that is recorded.",
        evidence=(
            Evidence(name="launched outside the trace", value=100.0 * unlinked, unit="percent", where=seen.where),
            Evidence(name="without a phase", value=100.0 * lost, unit="percent", where=seen.where),
            Evidence(name="given another step's owners", value=trace.aligned_ns, unit="ns", where=seen.where),
        ),
        weight=max(lost, unlinked),
    )


def _look(trace: TraceSummary) -> float | None:
    if not on_device(trace):
        return None
    lost, unlinked = trace.unattributed_ns / trace.busy_ns, trace.unlinked_ns / trace.busy_ns
    return max(lost, unlinked) if lost > NOBODY or unlinked > UNLINKED else None


RULE = Rule("partial_trace", DOC, never, "note", check_trace)
