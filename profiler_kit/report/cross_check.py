"""The cross-check with fvcore as a section: totals, and the layers that differ."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.records.counts import CrossCheck
from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.counts import CROSS_CHECK_COLUMNS, difference_macs
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
