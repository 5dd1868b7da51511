"""A device that runs dry because the host waited for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, known, never
from profiler_kit.diagnosis.traced import gravest, idle_ns, on_device
from profiler_kit.diagnosis.words import phase, plural, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import SyncWait, TraceSummary
from profiler_kit.units import percent, text

# A twentieth of the time is what a line of code that waits for the device may cost before it is worth moving.
SHARE: Final = 0.05
# A quarter of the time: nothing else in the loop gains as much by so little.
HIGH: Final = 0.25

DOC = f"""
In a trace, the device is idle after the host waited for it (`.item()`, `.cpu()`, `synchronize()`, a `nonzero`) for more than
{threshold(SHARE)} of the span: `medium`, `high` from {threshold(HIGH)}. While the host waits it launches nothing, so the device
has nothing to do when it is done. Waiting while the device has work costs no device time, and is no finding.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace that loses the largest share to waiting."""
    if (seen := gravest(report, _look, lambda share: share)) is None:
        return
    trace, share = seen.trace, seen.found
    longest = max(trace.syncs, key=lambda wait: wait.wait_ns, default=None)
    yield RULE.finding(
        severity="high" if share >= HIGH else "medium",
        title=f"The device is idle for {percent(share)} of the time because the host waited for it",
        explanation=sentences(
            f"{seen.place}After such waits {text(idle_ns(trace, 'synchronisation'), 'ns')} of {text(trace.span_ns, 'ns')} go by "
            "until new work arrives.",
            _where(longest),
            seen.others(),
        ),
        advice="Keep results on the device: add up loss.detach() and read it once in a while, write masks instead of taking what "
        "nonzero() finds, copy with non_blocking=True, and drop torch.cuda.synchronize() from the loop.",
        evidence=(
            Evidence(name="idle after waits, of the span", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="idle after waits", value=idle_ns(trace, "synchronisation"), unit="ns", where=seen.where),
            *(known(seen.where, (f"waited in {longest.name}", longest.wait_ns, "ns")) if longest is not None else ()),
        ),
        weight=share,
    )


def _look(trace: TraceSummary) -> float | None:
    share = idle_ns(trace, "synchronisation") / trace.span_ns if on_device(trace) else 0.0
    return share if share > SHARE else None


def _where(longest: SyncWait | None) -> str:
    if longest is None:
        return ""
    during = f" in {phase(longest.phase)}" if longest.phase else ""
    return (
        f"The host waits longest in {longest.name} ({longest.call}){during}: {plural(longest.calls, 'call')}, "
        f"{text(longest.wait_ns, 'ns')}."
    )


RULE = Rule("sync_waits", DOC, never, "cause", check_trace)
