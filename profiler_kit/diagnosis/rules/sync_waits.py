"""A device that is idle because the host waited for it and launched nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, phase_name, plural
from profiler_kit.diagnosis.rule import Rule, evidence_of, no_findings
from profiler_kit.diagnosis.trace_facts import idle_ns, on_device, worst_trace
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import SyncWait, TraceSummary
from profiler_kit.units import percent, text

# Below a twentieth of the time, moving the line that waits saves little.
MAX_IDLE_SHARE: Final = 0.05
# A quarter of the time is a large gain for the change of one line.
LARGE_IDLE_SHARE: Final = 0.25

DOC = f"""
Fires for a trace if the device is idle for more than {limit_percent(MAX_IDLE_SHARE)} of the span after the host waited for it
(`.item()`, `.cpu()`, `synchronize()`, `nonzero()`). The host launches no kernels while it waits, so the device has no work when
the wait ends.

- `high`: at least {limit_percent(LARGE_IDLE_SHARE)} of the span.
- `medium`: below that.

The rule does not count waits during which the device has work: they take no device time.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest idle share after waits."""
    if (worst := worst_trace(report, _idle_share, lambda share: share)) is None:
        return
    trace, share = worst.trace, worst.match
    idle_after_waits_ns = idle_ns(trace, "synchronization")
    longest = max(trace.syncs, key=lambda wait: wait.wait_ns, default=None)
    yield RULE.finding(
        severity="high" if share >= LARGE_IDLE_SHARE else "medium",
        title=f"Synchronization: the device is idle for {percent(share)} of the time because the host waited for it",
        explanation=join_sentences(
            f"{worst.sentence_prefix}After such waits, the device is idle for {text(idle_after_waits_ns, 'ns')} of "
            f"{text(trace.span_ns, 'ns')}, until new work arrives.",
            _longest_wait(longest),
            worst.others_sentence(),
        ),
        advice="Keep results on the device: sum up loss.detach() and read it only every few hundred steps, use masks instead of "
        "nonzero(), copy with non_blocking=True, and remove torch.cuda.synchronize() from the loop.",
        evidence=(
            Evidence(name="share of idle time after waits", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="idle time after waits", value=idle_after_waits_ns, unit="ns", where=worst.where),
            *(
                evidence_of(worst.where, (f"wait in {longest.name}", longest.wait_ns, "ns"))
                if longest is not None
                else ()
            ),
        ),
        weight=share,
    )


def _idle_share(trace: TraceSummary) -> float | None:
    share = idle_ns(trace, "synchronization") / trace.span_ns if on_device(trace) else 0.0
    return share if share > MAX_IDLE_SHARE else None


def _longest_wait(longest: SyncWait | None) -> str:
    if longest is None:
        return ""
    during = f" in {phase_name(longest.phase)}" if longest.phase else ""
    return (
        f"The host waits longest in {longest.name} ({longest.call}){during}: {plural(longest.calls, 'call')}, "
        f"{text(longest.wait_ns, 'ns')}."
    )


RULE = Rule("sync_waits", DOC, no_findings, "cause", check_trace)
