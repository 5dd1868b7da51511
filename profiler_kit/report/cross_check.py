"""Cross-checks of the count with other counters, as sections: totals, and every difference with its reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.counts import CrossCheck, CrossCheckLayer, CrossCheckRow
from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.records.sums import sum_fields
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.cross_check import (
    CROSS_CHECK_COLUMNS,
    CROSS_CHECK_LAYER_COLUMNS,
    PeerLayerRow,
    PeerRow,
)
from profiler_kit.units import text

_ATTRIBUTION: Final = "attribution"
HOOKS: Final = (
    " Its hooks follow the positional input and output tensors of modules. Where a module returns its input, works in place, or "
    "takes keyword arguments, backward work is attributed to another module."
)


def cross_check_sections(report: Report, top: int | None) -> Iterator[Section]:
    """One section per peer counter; `top` layers at most, None for all."""
    for check in report.static.cross_checks if report.static is not None else ():
        yield Section(title=f"Cross-check with {_name(check)}", blocks=tuple(_blocks(report, check, top)))


def _name(check: CrossCheck) -> str:
    return f"{check.peer} ({check.version})" if check.version else check.peer


def _blocks(report: Report, check: CrossCheck, top: int | None) -> Iterator[Block]:
    if check.failure is not None:
        hint = f" ({check.hint})" if check.hint else ""
        failure = f"{check.failure.rstrip('.')}{hint}."
        if not check.rows and check.kit_macs:
            yield Paragraph(text=failure, role="warning")
            return
        yield Paragraph(text=f"{failure} The figures below are from its formulas alone.", role="warning")
    yield Paragraph(text=_verdict(check))
    rows = _by_op(check)
    if rows:
        yield page_table(f"cross_check_{check.peer}", "MACs of one step", CROSS_CHECK_COLUMNS, rows, report)
    for reason in dict.fromkeys(row.row.reason for row in rows if row.row.reason):
        ops = ", ".join(dict.fromkeys(row.row.op for row in rows if row.row.reason == reason))
        yield Paragraph(text=f"{ops}: {reason}.")
    layers = [PeerLayerRow(layer=layer, reason=reason) for layer in check.layers if (reason := _reason(check, layer))]
    layers.sort(key=lambda row: -abs(_peer_macs(row.layer) - row.layer.kit_macs))
    if layers:
        caption = "MACs of one step, including children; only layers that differ"
        if top is not None and len(layers) > top:
            caption += f", {top:,} of {len(layers):,}"
        table = page_table(f"cross_check_{check.peer}_layers", caption, CROSS_CHECK_LAYER_COLUMNS, layers[:top], report)
        yield table
    if any(_is_attributed_otherwise(row.layer) for row in layers):
        note = f"{_ATTRIBUTION}: {check.peer} attributes work to another module than profiler_kit does."
        yield Paragraph(text=note + HOOKS if "backward" in check.covers else note)
    yield from (Paragraph(text=f"{note}.", role="note", detail=True) for note in check.notes)


def _verdict(check: CrossCheck) -> str:
    phases = ", ".join(check.covers)
    peer_macs = check.peer_macs if check.peer_macs is not None else sum(row.peer_macs for row in check.rows)
    kit, peer = text(check.kit_macs, "macs"), text(peer_macs, "macs")
    head = f"{phases.capitalize()}: {kit} MACs by profiler_kit, {peer} by {check.peer}"
    if peer_macs == check.kit_macs:
        agrees = all(not row.reason for row in check.rows)
        return f"{head}. They agree {'in every op' if agrees else 'in the total, but not in every op'}."
    change = f" ({100 * (peer_macs / check.kit_macs - 1):+.2f} %)" if check.kit_macs else ""
    return f"{head}{change}."


def _by_op(check: CrossCheck) -> list[PeerRow]:
    """One row per op, phase and reason; the largest difference first."""
    groups: dict[tuple[str, str, str], list[CrossCheckRow]] = {}
    for row in check.rows:
        groups.setdefault((row.op, row.phase, row.reason), []).append(row)
    merged = [
        PeerRow(
            check=check,
            row=sum_fields(group, "calls", "kit_macs", "peer_macs"),
            paths=tuple(dict.fromkeys(row.path for row in group)),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda peer: (-abs(peer.row.peer_macs - peer.row.kit_macs), -peer.row.kit_macs))


def _reason(check: CrossCheck, layer: CrossCheckLayer) -> str:
    """The reason for the difference on `layer`; empty if both counters agree."""
    parts = []
    if layer.expected_macs != layer.kit_macs:
        inside = (row for row in check.rows if row.reason and _is_within(row.path, layer.path))
        parts.append(", ".join(dict.fromkeys(row.op for row in inside)))
    if _is_attributed_otherwise(layer):
        parts.append(_ATTRIBUTION)
    return "; ".join(part for part in parts if part)


def _is_attributed_otherwise(layer: CrossCheckLayer) -> bool:
    return layer.peer_macs is not None and layer.peer_macs != layer.expected_macs


def _is_within(path: str, ancestor: str) -> bool:
    return not path.startswith("(") and (path == ancestor or not ancestor or path.startswith(f"{ancestor}."))


def _peer_macs(layer: CrossCheckLayer) -> int:
    return layer.peer_macs if layer.peer_macs is not None else layer.expected_macs
