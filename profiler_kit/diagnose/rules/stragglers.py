"""Ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnose.rule import Rule, never
from profiler_kit.diagnose.words import percent, sentences, threshold
from profiler_kit.records.report import Evidence, Finding
from profiler_kit.records.traces import RankTime, Straggler, TraceReport
from profiler_kit.units import text

# Below a fiftieth of the step ranks take turns in coming last; that is what clocks and schedulers differ by.
SHARE: Final = 0.02
# A tenth of everybody's step, times the number of ranks, is lost.
HIGH: Final = 0.10
MOST: Final = 3  # findings of their own; the table of ranks has all

DOC = f"""
Traces of several ranks, and one comes to the collectives later than the median rank by more than {threshold(SHARE)} of the step:
`medium`, `high` from {threshold(HIGH)}. Every other rank stands in the collective until it is there. What it does meanwhile is
the phase, module or idle cause in which it spends most above the median rank. At most {MOST} ranks have a finding.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the latest ranks."""
    ranks = report.ranks
    if ranks is None or not ranks.step_ns:
        return
    late = sorted(ranks.stragglers, key=lambda one: -one.late_ns)
    for one in [one for one in late if one.late_ns > SHARE * (ranks.step_ns or 0)][:MOST]:
        others = [time for time in ranks.ranks if time.rank != one.rank]
        yield _finding(one, ranks.step_ns, others)


def _finding(one: Straggler, step_ns: int, others: list[RankTime]) -> Finding:
    share = one.late_ns / step_ns
    waits = max((time.wait_ns for time in others), default=0)
    where = f"rank {one.rank}"
    return Finding(
        rule=RULE.name,
        severity="high" if share >= HIGH else "medium",
        title=f"Rank {one.rank} is late by {percent(share)} of the step, and the other ranks wait for it",
        explanation=sentences(
            f"It comes {text(one.late_ns, 'ns')} a step after the median rank, and last in {one.last:,} of {one.collectives:,} "
            "collectives.",
            f"The others wait for up to {text(waits, 'ns')} a step." if waits else "",
            f"Meanwhile it is in {one.doing}, for {text(one.doing_excess_ns, 'ns')} a step more than the median rank."
            if one.doing
            else "",
        ),
        advice="Compare what that rank is given: longer sequences or larger images, work that only one rank does (logging, "
        "validation, checkpoints), a slower loader, a device that throttles or is shared.",
        evidence=(
            Evidence(name="late, of the step", value=100.0 * share, unit="percent", where=where),
            Evidence(name="late a step", value=one.late_ns, unit="ns", where=where),
            Evidence(name="last in collectives", value=one.last, unit="count", where=where),
            Evidence(
                name=f"more in {one.doing}" if one.doing else "more work",
                value=one.doing_excess_ns,
                unit="ns",
                where=where,
            ),
        ),
        weight=min(1.0, share),
    )


RULE = Rule("stragglers", DOC, never, "cause", check_trace)
