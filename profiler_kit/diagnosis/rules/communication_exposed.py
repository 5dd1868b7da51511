"""Collectives that do not overlap with computation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule, no_findings
from profiler_kit.diagnosis.trace_facts import on_device, worst_trace
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import Communication, TraceSummary
from profiler_kit.units import percent, text

# The last bucket of gradients cannot overlap; a tenth of the span is more than that.
MIN_SHARE: Final = 0.10
# Above a third of the span, an added process brings little more than two thirds of its cost.
HIGH_SHARE: Final = 1 / 3

DOC = f"""
Fires on a trace in which collectives run alone, with no computation at the same time, for more than {limit_percent(MIN_SHARE)} of
the span.

- `high`: from a third of the span.
- `medium`: otherwise.

A collective also lasts while it waits for the last rank to arrive, so exposed time means slow links or late ranks. Only the
traces of all ranks, inspected together, tell these two apart.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest exposed share."""
    if (worst := worst_trace(report, _exposed_communication, lambda exposed: exposed[1])) is None:
        return
    (communication, share), trace = worst.match, worst.trace
    kinds = [
        f"{plural(kind.events, kind.kind.replace('_', '-'))} ({text(kind.sum_ns, 'ns')})"
        for kind in communication.by_kind
    ]
    yield RULE.finding(
        severity="high" if share >= HIGH_SHARE else "medium",
        title=f"Exposed communication takes {percent(share)} of the time: no computation overlaps it",
        explanation=join_sentences(
            f"{worst.sentence_prefix}Collectives run for {text(communication.union_ns, 'ns')}, and for "
            f"{text(communication.exposed_ns, 'ns')} of it no other work runs.",
            f"Collectives by kind: {join_list(kinds)}." if kinds else "",
            ""
            if report.ranks is not None
            else "One trace cannot show whether the links are slow or another rank is late.",
            worst.others_sentence(),
        ),
        advice="Overlap it with computation: in DDP set bucket_cap_mb and gradient_as_bucket_view=True and leave "
        "find_unused_parameters=False; in FSDP enable prefetching. Or send less: bf16 gradients (a DDP communication hook), or "
        "accumulate several batches under no_sync()."
        + (
            ""
            if report.ranks is not None
            else " To see which rank waits for which, inspect the traces of all ranks together."
        ),
        evidence=(
            Evidence(name="exposed communication, of the span", value=100.0 * share, unit="percent", where=worst.where),
            Evidence(name="exposed communication", value=communication.exposed_ns, unit="ns", where=worst.where),
            Evidence(name="communication", value=communication.union_ns, unit="ns", where=worst.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=worst.where),
        ),
        weight=share,
    )


def _exposed_communication(trace: TraceSummary) -> tuple[Communication, float] | None:
    communication = trace.communication
    if communication is None or not on_device(trace):
        return None
    share = communication.exposed_ns / trace.span_ns
    return (communication, share) if share > MIN_SHARE else None


RULE = Rule("communication_exposed", DOC, no_findings, "cause", check_trace)
