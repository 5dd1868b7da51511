"""Ranks that the others wait for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.words import sentences, threshold
from profiler_kit.records.ranks import Ranks, Straggler
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.units import percent, text

# Below a fiftieth of the step ranks take turns in coming last; that is what clocks and schedulers differ by.
SHARE: Final = 0.02
# A tenth of everybody's step, times the number of ranks, is lost.
HIGH: Final = 0.10
MOST: Final = 3  # findings of their own; the table of ranks has all

DOC = f"""
Traces of several ranks, and one comes to the collectives so late that the median other rank stands there for more than
{threshold(SHARE)} of the step with nothing else to do: `medium`, `high` where it is late by {threshold(HIGH)} of the step. Where
a step ends for all ranks together, its being late is in everybody's step, also where the others have work to go on with
meanwhile. What it does is the phase, module or idle cause in which it spends most above the median rank. At most {MOST} ranks
have a finding.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the latest ranks."""
    ranks = report.ranks
    if ranks is None or not ranks.step_ns:
        return
    late = sorted(ranks.stragglers, key=lambda one: -one.late_ns)
    for one in [one for one in late if one.cost_ns > SHARE * ranks.step_ns][:MOST]:
        yield _finding(one, ranks)


def _finding(one: Straggler, ranks: Ranks) -> Finding:
    step_ns = ranks.step_ns or 1
    share = one.late_ns / step_ns
    where = f"rank {one.rank}"
    doing = f"more in {one.doing}" if one.doing else "more work"
    what = "step" if ranks.common_steps else "trace"
    return RULE.finding(
        severity="high" if share >= HIGH else "medium",
        title=(
            f"Rank {one.rank} comes {text(one.late_ns, 'ns')} late in each {what} ({percent(share)}), and the other ranks wait "
            "for it"
        ),
        explanation=sentences(
            f"It spends {text(one.doing_excess_ns, 'ns')} more on {one.doing} than the median rank."
            if one.doing
            else "",
            f"It came last in {one.last:,} of {one.collectives:,} collectives; the others wait for it, "
            f"{text(one.cost_ns, 'ns')} ({percent(one.cost_ns / step_ns)}) of each {what} with nothing else to do.",
        ),
        advice="Compare what that rank is given: longer sequences or larger images, work that only one rank does (logging, "
        "validation, checkpoints), a slower loader, a device that throttles or is shared.",
        evidence=(
            Evidence(name="late, of the step", value=100.0 * share, unit="percent", where=where),
            Evidence(name="late a step", value=one.late_ns, unit="ns", where=where),
            Evidence(name="the others wait for it", value=one.cost_ns, unit="ns", where=where),
            Evidence(name="last in collectives", value=one.last, unit="count", where=where),
            Evidence(name=doing, value=one.doing_excess_ns, unit="ns", where=where),
        ),
        weight=share,
    )


RULE = Rule("stragglers", DOC, never, "cause", check_trace)
