"""The ranks of one job as a section: summary, stragglers, one row per rank, and the collectives of a step."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from profiler_kit.records.document import Block, Paragraph, Section, Table
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.report.charts.traces import rank_chart
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.ranks import COLLECTIVE_COLUMNS, RANK_COLUMNS
from profiler_kit.units import text

MAX_COLLECTIVES: Final = 8  # rows of a summary
MIN_IDLE_SHARE: Final = 0.1  # of a straggler's delay: from here on its extra idle time is mentioned


def ranks_section(ranks: Ranks, *, top: int | None) -> Section:
    """A summary, a sentence per straggler, and a row per rank; of more than `top` ranks those that wait least and most."""
    selected = _least_and_most_waiting(ranks.ranks, top)
    blocks: list[Block] = [Paragraph(text=" ".join(_summary(ranks)))]
    blocks += [Paragraph(text=sentence) for sentence in _stragglers(ranks)]
    blocks += rank_chart(ranks)
    blocks.append(page_table("ranks", _caption(ranks), RANK_COLUMNS, selected))
    if len(selected) < len(ranks.ranks):
        hidden = len(ranks.ranks) - len(selected)
        note = f"{hidden} ranks are not shown. The table has those that wait least and most; --by rank shows all."
        blocks.append(Paragraph(text=note, role="note"))
    blocks += _collectives(ranks, top)
    blocks += [Paragraph(text=note, role="note") for note in ranks.notes]
    return Section(title="Ranks", blocks=tuple(blocks))


def _collectives(ranks: Ranks, top: int | None) -> Iterator[Block]:
    """The collectives of a step; of many those with the most exposed time, in the order of the step."""
    count = len(ranks.collectives)
    if not count:
        return
    limit = count if top is None else min(top, MAX_COLLECTIVES)
    longest = sorted(ranks.collectives, key=lambda row: (-row.exposed_ns, row.number))[:limit]
    caption = "collectives of a step, medians of ranks and steps"
    if len(longest) < count:
        caption = f"{len(longest)} of {count} collectives of a step, those with the most exposed time"
    rows = sorted(longest, key=lambda row: row.number)
    table: Table = page_table("collectives", caption, COLLECTIVE_COLUMNS, rows)
    yield table


def _caption(ranks: Ranks) -> str:
    count = ranks.common_steps
    if not count:
        return "whole traces"
    return f"means over the {count} steps that all ranks have" if count > 1 else "the one step that all ranks have"


def _least_and_most_waiting(rows: tuple[RankTime, ...], top: int | None) -> tuple[RankTime, ...]:
    if top is None or len(rows) <= top:
        return rows
    by_wait = sorted(rows, key=lambda row: (row.wait_ns, row.rank))
    least = (top + 1) // 2
    selected = {row.rank for row in (*by_wait[:least], *by_wait[len(by_wait) - (top - least) :])}
    return tuple(row for row in rows if row.rank in selected)


def _summary(ranks: Ranks) -> Iterator[str]:
    def median_text(values: Iterator[int]) -> str:
        return text(round(median(values)), "ns")

    rows = ranks.ranks
    interval = "step" if ranks.common_steps else "trace"
    yield f"{len(rows)} ranks. A {interval} takes {text(ranks.step_ns, 'ns')}."
    if any(row.communication_ns for row in rows):
        yield (
            f"Median rank: {median_text(row.compute_ns for row in rows)} computing, "
            f"{median_text(row.communication_ns for row in rows)} communication, "
            f"{median_text(row.exposed_ns for row in rows)} of it exposed (not overlapped by computation)."
        )
    slowest = max(rows, key=lambda row: row.compute_ns)
    if ranks.imbalance > 0:
        yield f"Rank {slowest.rank} computes longest, {text(100.0 * ranks.imbalance, 'percent')} above the mean."


def _stragglers(ranks: Ranks) -> Iterator[str]:
    interval = "step" if ranks.common_steps else "trace"
    for straggler in ranks.stragglers:
        reasons = "; ".join(_reasons(straggler))
        share = f" ({text(100.0 * straggler.cost_ns / ranks.step_ns, 'percent')})" if ranks.step_ns else ""
        yield (
            f"Rank {straggler.rank} is {text(straggler.late_ns, 'ns')} late in each {interval}"
            f"{f': {reasons}' if reasons else ''}. It arrives last in {straggler.last:,} of {straggler.collectives:,} "
            f"collectives. The other ranks wait {text(straggler.cost_ns, 'ns')}{share} of each {interval} for it."
        )
    if not ranks.stragglers and any(row.communication_ns for row in ranks.ranks):
        yield f"No rank makes the others wait for more than 1 % of a {interval}."


def _reasons(straggler: Straggler) -> Iterator[str]:
    """The work and idle time that the rank has beyond the median rank, where this explains the delay."""
    if straggler.doing:
        yield f"{text(straggler.doing_excess_ns, 'ns')} more in {straggler.doing} than the median rank"
    if (
        straggler.idle_excess_ns > MIN_IDLE_SHARE * straggler.late_ns
        and straggler.idle_excess_ns != straggler.doing_excess_ns
    ):
        total = " in total" if "idle" in straggler.doing else ""
        yield f"its device is idle for {text(straggler.idle_excess_ns, 'ns')} more{total}"
