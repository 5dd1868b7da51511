"""Counted work by op instead of by module. The totals are the same."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_kit.records.counts import ZERO, Cost, CountPhase, OpTotal
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import sum_known
from profiler_kit.report.columns.counts import OpRow
from profiler_kit.report.rows import TOTAL


def op_rows(report: Report, run: ConfigRun | None, *, by_phase: bool) -> tuple[list[OpRow], OpRow]:
    """One row per op (and phase, if `by_phase`) in the order of the count, and their sum. Floors are from `run`'s roofline."""
    static = report.static
    ops: Sequence[OpTotal] = static.ops if static is not None else ()
    step = static.step if static is not None else ZERO
    line = report.roofline_of(run)
    floors = {(bound.op, bound.phase): bound.floor for bound in line.ops} if line is not None else {}
    step_floor = sum_known(floors.values())
    groups: dict[tuple[str, CountPhase | None], list[OpTotal]] = {}
    for total in ops:
        groups.setdefault((total.op, total.phase if by_phase else None), []).append(total)
    rows = [
        OpRow(
            op=op,
            phases=tuple(dict.fromkeys(total.phase for total in totals)),
            calls=sum(total.calls for total in totals),
            cost=sum_known(total.cost for total in totals),
            floor=sum_known(floors.get((total.op, total.phase)) for total in totals),
            total=step,
            total_floor=step_floor,
        )
        for (op, _), totals in groups.items()
    ]
    return rows, merge_ops(TOTAL, rows, step, step_floor)


def merge_ops(label: str, rows: Sequence[OpRow], step: Cost, step_floor: Floor | None) -> OpRow:
    """One row with the sums of `rows`; unknown figures add nothing."""
    return OpRow(
        op=label,
        calls=sum(row.calls for row in rows),
        cost=sum_known(row.cost for row in rows),
        floor=sum_known(row.floor for row in rows),
        total=step,
        total_floor=step_floor,
    )
