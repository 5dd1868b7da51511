"""The ranks of one job beside each other, for people."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Final

from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.ranks import Ranks, RankTime, Straggler
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.ranks import RANK_COLUMNS
from profiler_kit.units import text

TOLD: Final = 0.1  # of what a rank is late by: as much idleness is worth telling


def ranks_section(ranks: Ranks, *, top: int | None) -> Section:
    """Who waited for whom in a sentence each, then a row per rank; of more than `top` those that wait least and most."""
    shown = _shown(ranks.ranks, top)
    blocks: list[Block] = [Paragraph(text=" ".join(_summary(ranks)))]
    blocks += [Paragraph(text=one) for one in _stragglers(ranks)]
    blocks.append(page_table("ranks", _caption(ranks), RANK_COLUMNS, shown))
    if len(shown) < len(ranks.ranks):
        left = len(ranks.ranks) - len(shown)
        blocks.append(Paragraph(text=f"{left} ranks between those that wait least and most are left out.", role="note"))
    blocks += [Paragraph(text=note, role="note") for note in ranks.notes]
    return Section(title="Ranks", blocks=tuple(blocks))


def _caption(ranks: Ranks) -> str:
    count = ranks.common_steps
    if not count:
        return "whole traces"
    return f"means over {count} steps that all have" if count > 1 else "the one step that all have whole"


def _shown(rows: tuple[RankTime, ...], top: int | None) -> tuple[RankTime, ...]:
    if top is None or len(rows) <= top:
        return rows
    by_wait = sorted(rows, key=lambda row: (row.wait_ns, row.rank))
    first = (top + 1) // 2
    kept = {row.rank for row in (*by_wait[:first], *by_wait[len(by_wait) - (top - first) :])}
    return tuple(row for row in rows if row.rank in kept)


def _summary(ranks: Ranks) -> Iterator[str]:
    def middle(values: Iterator[int]) -> str:
        return text(round(median(values)), "ns")

    rows = ranks.ranks
    what = "step" if ranks.common_steps else "trace"
    yield f"{len(rows)} ranks. A {what} takes {text(ranks.step_ns, 'ns')}."
    if any(row.communication_ns for row in rows):
        yield (
            f"The median rank computes for {middle(row.compute_ns for row in rows)} of it and communicates for "
            f"{middle(row.communication_ns for row in rows)}, {middle(row.exposed_ns for row in rows)} of that with nothing "
            "beside it."
        )
    most = max(rows, key=lambda row: row.compute_ns)
    if ranks.imbalance > 0:
        yield f"Rank {most.rank} computes longest, {text(100.0 * ranks.imbalance, 'percent')} above the mean."


def _stragglers(ranks: Ranks) -> Iterator[str]:
    what = "step" if ranks.common_steps else "trace"
    for one in ranks.stragglers:
        more = "; ".join(_more(one))
        share = f" ({text(100.0 * one.cost_ns / ranks.step_ns, 'percent')})" if ranks.step_ns else ""
        yield (
            f"Rank {one.rank} comes {text(one.late_ns, 'ns')} late in each {what}{f': {more}' if more else ''}. It came last in "
            f"{one.last:,} of {one.collectives:,} collectives; the others wait for it, {text(one.cost_ns, 'ns')}{share} of each "
            f"{what} with nothing else to do."
        )
    if not ranks.stragglers and any(row.communication_ns for row in ranks.ranks):
        yield f"No rank keeps the others waiting for more than a hundredth of a {what}."


def _more(one: Straggler) -> Iterator[str]:
    """What the rank did more than the others, as far as that tells why it is late."""
    if one.doing:
        yield f"{text(one.doing_excess_ns, 'ns')} more of {one.doing} than the median rank"
    if one.idle_excess_ns > TOLD * one.late_ns and one.idle_excess_ns != one.doing_excess_ns:
        yield f"its device is idle for {text(one.idle_excess_ns, 'ns')} more{' in all' if 'idle' in one.doing else ''}"
