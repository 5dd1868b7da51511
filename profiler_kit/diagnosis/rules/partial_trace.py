"""A trace without the launches or host events that attribution needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent, plural
from profiler_kit.diagnosis.recorded import BOTH_ACTIVITIES
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.step_work import idle_steps, worst_step
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import TraceSummary
from profiler_kit.units import percent, text

# Time without a launch is attributed by comparison, or not at all. It makes shares uncertain by as much.
MAX_UNLINKED_SHARE: Final = 0.05
# Unattributed time cannot be explained at all, so the limit is lower.
MAX_UNATTRIBUTED_SHARE: Final = 0.01
# Above this, the shares of phases are unreliable.
LARGE_UNATTRIBUTED_SHARE: Final = 0.10

DOC = f"""
Fires for a trace if more than {limit_percent(MAX_UNLINKED_SHARE)} of the device's busy time has no launch in the trace, or more
than {limit_percent(MAX_UNATTRIBUTED_SHARE)} is unattributed (without a phase).

- `medium`: more than {limit_percent(LARGE_UNATTRIBUTED_SHARE)} is unattributed.
- `low`: below that.

Kernels that were queued when the recording started have no launch in the trace. If another step runs the same kernels, they are
attributed by matching that step. A trace without host events has no attribution at all.
"""


def check(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest unlinked or unattributed share."""
    if (
        worst := worst_step(idle_steps(report), lambda step: _uncertain_share(step.trace), lambda share: share)
    ) is None:
        return
    trace = worst.step.trace
    unattributed, unlinked = _unattributed_and_unlinked(trace)
    missing_launches = trace.device_events - trace.linked
    yield new_finding(
        severity="medium" if unattributed > LARGE_UNATTRIBUTED_SHARE else "low",
        title=f"Incomplete trace: {percent(unlinked)} of the device time has no launch in the trace, {percent(unattributed)} is "
        "unattributed",
        explanation=join_sentences(
            f"{worst.step.prefix}The launches of {plural(missing_launches, 'device event')} of "
            f"{trace.device_events:,} are missing; these events take {text(trace.unlinked_ns, 'ns')}."
            if missing_launches
            else f"{worst.step.prefix}The trace has no phase for {text(trace.unattributed_ns, 'ns')} of device time.",
            f"{text(trace.aligned_ns, 'ns')} of it was attributed by matching the same kernels in another step."
            if trace.aligned_ns
            else "",
            "Shares of phases and modules are uncertain by the unattributed share." if unattributed > 0 else "",
            worst.others_sentence(),
        ),
        advice=_advice(trace),
        evidence=(
            Evidence(name="launched outside the trace", value=100.0 * unlinked, unit="percent", where=worst.step.name),
            Evidence(name="unattributed", value=100.0 * unattributed, unit="percent", where=worst.step.name),
            Evidence(
                name="attributed by matching another step", value=trace.aligned_ns, unit="ns", where=worst.step.name
            ),
        ),
        weight=max(unattributed, unlinked),
    )


def _advice(trace: TraceSummary) -> Advice:
    """Return how to record a whole trace, without the activities that were recorded already."""
    if not trace.linked:
        return advise(f"Record the host too: {{code}}. {_MARK_STEPS}", BOTH_ACTIVITIES)
    if trace.linked == trace.device_events:
        return advise(
            "Mark the phases: with {code}, and likewise for the others.", "torch.profiler.record_function('forward')"
        )
    return advise(
        "Call {code} before the first recorded step, so that no earlier work runs in it.", "torch.cuda.synchronize()"
    ).then("" if trace.steps else _MARK_STEPS)


_MARK_STEPS: Final = "Call prof.step() at the end of each step."


def _unattributed_and_unlinked(trace: TraceSummary) -> tuple[float, float]:
    return trace.unattributed_ns / trace.busy_ns, trace.unlinked_ns / trace.busy_ns


def _uncertain_share(trace: TraceSummary) -> float | None:
    if trace.clock != "device":
        return None
    unattributed, unlinked = _unattributed_and_unlinked(trace)
    if unattributed <= MAX_UNATTRIBUTED_SHARE and unlinked <= MAX_UNLINKED_SHARE:
        return None
    return max(unattributed, unlinked)


RULE = Rule("partial_trace", DOC, check, "note", "traces")
