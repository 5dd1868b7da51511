"""A trace whose file lacks most of the events that the profiler recorded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, limit_percent
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.step_work import all_steps, worst_step
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import IDLE_CAUSES, TraceSummary
from profiler_kit.units import percent

# Whole traces lack none, or, where threads end, up to two fifths.
MIN_MISSING_SHARE: Final = 0.9
# Fewer are the numbers of a single block.
MIN_MISSING_EVENTS: Final = 500

DOC = f"""
Fires for a trace that lacks at least {limit_percent(MIN_MISSING_SHARE)} of its host events. The profiler numbers operators and
ranges as they begin, so gaps in the numbers show that events were removed from the file, by sampling or by a filter.

Always `medium`. The time of removed events looks idle, so the finding precedes all others about idle time.
"""


def check(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace that lacks the largest share."""
    if (worst := worst_step(all_steps(report), lambda step: _missing_share(step.trace), lambda share: share)) is None:
        return
    trace, share = worst.step.trace, worst.match
    idle = trace.idle_ns / trace.span_ns if trace.span_ns else 0.0
    yield new_finding(
        severity="medium",
        title=f"Filtered trace: at least {percent(share)} of its host events were removed",
        explanation=join_sentences(
            f"{worst.step.prefix}The numbers of its operators and ranges have gaps: at least {trace.missing_events:,} events "
            "are missing.",
            f"The time of removed events looks idle, so the causes of the idle time, {percent(idle)} of the time, are "
            "uncertain.",
            worst.others_sentence(),
        ),
        advice="Inspect the file that torch.profiler exported, before sampling or filtering: {code}. To get a smaller file, "
        "record fewer steps: torch.profiler.schedule(wait=1, warmup=2, active=2).",
        code='prof.export_chrome_trace("trace.json.gz")',
        evidence=(
            Evidence(name="missing host events, share", value=100.0 * share, unit="percent", where=worst.step.name),
            Evidence(name="missing host events", value=trace.missing_events, unit="count", where=worst.step.name),
        ),
        weight=idle,
        claims=idle_claims(*IDLE_CAUSES),
    )


def _missing_share(trace: TraceSummary) -> float | None:
    share = trace.missing_share
    return share if trace.missing_events >= MIN_MISSING_EVENTS and share >= MIN_MISSING_SHARE else None


RULE = Rule(
    "filtered_trace",
    DOC,
    check,
    "reading",
    "traces",
    states_share=False,
)  # fmt: skip
