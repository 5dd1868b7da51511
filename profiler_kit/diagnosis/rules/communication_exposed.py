"""Collectives that no computation covers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import listing, plural, sentences, threshold
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import Communication, TraceSummary
from profiler_kit.units import percent, text

# The last bucket of gradients can't be covered; a tenth of the span is more than that.
SHARE: Final = 0.10
# A third of the span: another process brings little more than two thirds of what it costs.
HIGH: Final = 1 / 3

DOC = f"""
In a trace, collectives run while nothing else does for more than {threshold(SHARE)} of the span: `medium`, `high` from a third. A
collective also lasts as long as it waits for the last process to come, so exposed time is slow links or late ranks: traces of all
ranks, given together, tell which.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace with the largest exposed share."""
    if (seen := gravest(report, _look, lambda found: found[1])) is None:
        return
    (found, share), trace = seen.found, seen.trace
    kinds = [f"{plural(kind.events, kind.kind.replace('_', '-'))} {text(kind.sum_ns, 'ns')}" for kind in found.by_kind]
    yield RULE.finding(
        severity="high" if share >= HIGH else "medium",
        title=f"Communication that no computation covers takes {percent(share)} of the time",
        explanation=sentences(
            f"{seen.place}Of {text(found.union_ns, 'ns')} in which collectives run, {text(found.exposed_ns, 'ns')} have no "
            "other work beside them.",
            f"They are {listing(kinds)}." if kinds else "",
            ""
            if report.ranks is not None
            else "Whether it is the links or another rank that comes late, one trace can't say.",
            seen.others(),
        ),
        advice="Cover it: DDP's bucket_cap_mb and gradient_as_bucket_view=True, no find_unused_parameters, FSDP's prefetching; "
        "send less of it: bf16 gradients (a DDP communication hook), accumulation over several batches under no_sync(). Give "
        "inspect the traces of all ranks to see who waits for whom.",
        evidence=(
            Evidence(name="exposed communication, of the span", value=100.0 * share, unit="percent", where=seen.where),
            Evidence(name="exposed communication", value=found.exposed_ns, unit="ns", where=seen.where),
            Evidence(name="communication", value=found.union_ns, unit="ns", where=seen.where),
            Evidence(name="span", value=trace.span_ns, unit="ns", where=seen.where),
        ),
        weight=share,
    )


def _look(trace: TraceSummary) -> tuple[Communication, float] | None:
    found = trace.communication
    if found is None or not on_device(trace):
        return None
    share = found.exposed_ns / trace.span_ns
    return (found, share) if share > SHARE else None


RULE = Rule("communication_exposed", DOC, never, "cause", check_trace)
