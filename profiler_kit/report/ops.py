"""Counted work by op instead of by module, whose totals are the same; and the cross-check with fvcore."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from profiler_kit.records.counts import ZERO, Cost, CountPhase, CrossCheck, OpTotal
from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import sum_known
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.counts import CROSS_CHECK_COLUMNS, OpRow, difference_macs
from profiler_kit.report.rows import TOTAL
from profiler_kit.units import text


def cross_check_sections(report: Report, top: int | None) -> Iterator[Section]:
    """One section per cross-check; `top` layers at most, None for all."""
    for check in report.static.cross_checks if report.static is not None else ():
        name = f"{check.peer} ({check.version})" if check.version else check.peer
        yield Section(title=f"Cross-check with {name}", blocks=tuple(_blocks(report, check, top)))


def _blocks(report: Report, check: CrossCheck, top: int | None) -> Iterator[Block]:
    if check.peer_macs is None:
        hint = f" ({check.hint})" if check.hint else ""
        yield Paragraph(text=f"{(check.failure or '').rstrip('.')}{hint}.", role="warning")
        return
    layers = sorted(filter(difference_macs, check.layers), key=lambda layer: -abs(difference_macs(layer)))
    kit, peer = text(check.kit_macs, "macs"), text(check.peer_macs, "macs")
    verdict = f"Forward: {kit} MACs by profiler_kit, {peer} by {check.peer}"
    if check.peer_macs != check.kit_macs:
        verdict += f" ({100 * (check.peer_macs / check.kit_macs - 1):+.2f} %)" if check.kit_macs else ""
    else:
        verdict += f". They agree {'in the total, but not in every layer' if layers else 'in every layer'}"
    yield Paragraph(text=f"{verdict}.")
    if layers:
        caption = "MACs of forward, including children; only layers that differ"
        if top is not None and len(layers) > top:
            caption += f", {top:,} of {len(layers):,}"
        yield page_table("cross_check", caption, CROSS_CHECK_COLUMNS, layers[:top], report)
    yield from (Paragraph(text=f"{note}.", role="note", detail=True) for note in check.notes)


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
