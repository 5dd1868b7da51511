"""Ranks that arrive late at collectives, so that the other ranks wait."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote
from typing import Final

from profiler_kit.diagnosis.communication import CLAIMS, rank_traces
from profiler_kit.diagnosis.idle_time import LAUNCH_CAUSES
from profiler_kit.diagnosis.phrases import Advice, advise, join_sentences, limit_percent, phase_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.claims import Claim, phase_claims
from profiler_kit.records.ranks import Ranks, Straggler
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

# Below a fiftieth of the step, changing ranks arrive last, because of clocks and schedulers.
MIN_WAIT_SHARE: Final = 0.02
# Every rank loses a tenth of the step.
LARGE_DELAY_SHARE: Final = 0.10
MAX_FINDINGS: Final = 3  # the table of ranks lists all

PROFILER_SENTENCE: Final = "The profiler slows hosts too, and not all alike: compare with the step time without it."
IN_FOLDER: Final = ", in the report's folder"  # where the traces of a report are

DOC = f"""
Fires for traces of several ranks if one rank arrives at collectives so late that the median other rank waits for more than
{limit_percent(MIN_WAIT_SHARE)} of the step, without other work.

- `high`: the rank is late by at least {limit_percent(LARGE_DELAY_SHARE)} of the step.
- `medium`: below that, or if its device only waits for its host. The profiler slows hosts, and not all alike.

All ranks end a step together, so the delay is part of the step of every rank, even if the other ranks have work in the meantime.
It explains that share: in the late rank as work or idle time, in the others as waiting. The finding names the phase, module or
idle cause in which the late rank exceeds the median rank most. At most {MAX_FINDINGS} ranks have a finding.

In a report of `analyze --parallel`, which has steps with and without the profiler, a rank whose device waits for its host is not
named if it is late by less than the profiler adds to the step.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield one finding for each of the latest ranks, where there are traces of several."""
    ranks = rank_traces(report).ranks
    if ranks is None or not ranks.step_ns:
        return
    latest_first = sorted(ranks.stragglers, key=lambda straggler: -straggler.late_ns)
    delaying = [straggler for straggler in latest_first if straggler.cost_ns > MIN_WAIT_SHARE * ranks.step_ns]
    if isinstance(report, Report):
        delaying = [straggler for straggler in delaying if not _is_slowed_by_profiler(straggler, ranks, report)]
    for straggler in delaying[:MAX_FINDINGS]:
        yield _finding(straggler, ranks, IN_FOLDER if isinstance(report, Report) else "")


def _is_slowed_by_profiler(straggler: Straggler, ranks: Ranks, report: Report) -> bool:
    """Return whether the rank is late because of its host, by less than the profiler adds to the step."""
    base = report.baseline()
    if base is None or base.step_ns is None or ranks.step_ns is None:
        return False
    return _waits_for_host(straggler) and straggler.late_ns <= ranks.step_ns - base.step_ns.median


def _waits_for_host(straggler: Straggler) -> bool:
    """Return whether the device of the rank is idle for longer than others, because its host launches more slowly."""
    return straggler.doing.removesuffix(" (idle)") in LAUNCH_CAUSES


def _finding(straggler: Straggler, ranks: Ranks, place: str) -> Finding:
    step_ns = ranks.step_ns or 1
    share = straggler.late_ns / step_ns
    waits_for_host = _waits_for_host(straggler)
    where = f"rank {straggler.rank}"
    excess_name = f"excess time in {straggler.doing}" if straggler.doing else "excess time"
    unit = "step" if ranks.common_steps else "trace"
    return RULE.finding(
        severity="high" if share >= LARGE_DELAY_SHARE and not waits_for_host else "medium",
        title=f"Rank {straggler.rank} is a straggler: it is {text(straggler.late_ns, 'ns')} late in each {unit} "
        f"({percent(share)}), and the other ranks wait",
        explanation=join_sentences(
            _excess(straggler),
            f"It is last in {straggler.last:,} of {straggler.collectives:,} collectives. The other ranks wait for "
            f"{text(straggler.cost_ns, 'ns')} ({percent(straggler.cost_ns / step_ns)}) of each {unit} without other work.",
            PROFILER_SENTENCE if waits_for_host else "",
        ),
        advice=_compare_ranks(straggler, ranks, place).then(
            "Look for longer sequences, larger images, work that only one rank does (logging, validation, checkpoints: if rank "
            "== 0), a slower data loader, a throttled or shared device."
        ),
        evidence=(
            Evidence(name="delay, share of the step", value=100.0 * share, unit="percent", where=where),
            Evidence(name="delay per step", value=straggler.late_ns, unit="ns", where=where),
            Evidence(name="wait of the other ranks", value=straggler.cost_ns, unit="ns", where=where),
            Evidence(name="last in collectives", value=straggler.last, unit="count", where=where),
            Evidence(name=excess_name, value=straggler.doing_excess_ns, unit="ns", where=where),
        ),
        weight=share,
        claims=(*CLAIMS, *_late_claims(straggler)),
    )


def _compare_ranks(straggler: Straggler, ranks: Ranks, place: str) -> Advice:
    """Return a sentence with the command that compares the late rank with the one that waits longest."""
    waiting = [rank for rank in ranks.ranks if rank.rank != straggler.rank]
    late = next((rank for rank in ranks.ranks if rank.rank == straggler.rank), None)
    if late is None or not waiting:
        return Advice("")
    other = max(waiting, key=lambda rank: rank.wait_ns)
    command = f"profiler-kit compare {quote(other.file)} {quote(late.file)}"
    return advise(f"Compare rank {late.rank} with rank {other.rank}, which waits: `{{code}}`{place}.", command)


def _late_claims(straggler: Straggler) -> tuple[Claim, ...]:
    """Return a claim on the work or the idle time in which the late rank exceeds the others."""
    name, _, detail = straggler.doing.partition(" (")
    if detail == "idle)":
        return (Claim("idle", "cause", name),)
    return phase_claims(name) if name else ()


def _excess(straggler: Straggler) -> str:
    """Return a sentence about the work or the idle time in which the rank exceeds the median rank; empty if unknown."""
    if not straggler.doing:
        return ""
    excess = text(straggler.doing_excess_ns, "ns")
    name, _, detail = straggler.doing.partition(" (")
    if detail == "idle)":
        return f"Its device is idle for {excess} longer than that of the median rank, because of {name}."
    return f"It spends {excess} more on {phase_name(name)}{f' ({detail}' if detail else ''} than the median rank."


RULE = Rule("stragglers", DOC, check, "cause", "both", states_share=False, needs_runs=False)
