"""A count beside other counters', as sections: what each says, and every difference with the reason for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.counts import CrossCheck, CrossCheckLayer, CrossCheckRow
from profiler_kit.records.document import Block, Paragraph, Section
from profiler_kit.records.report import Report
from profiler_kit.records.sums import added
from profiler_kit.report.columns.column import page_table
from profiler_kit.report.columns.cross_check import (
    CROSS_CHECK_COLUMNS,
    CROSS_CHECK_LAYER_COLUMNS,
    PeerLayerRow,
    PeerRow,
)
from profiler_kit.units import text

ATTRIBUTION: Final = "attribution"
HOOKS: Final = (
    " Its hooks follow the tensors that modules take by position and return: where a module returns what it was given, works in "
    "place, or takes keywords, backward work lands elsewhere."
)


def cross_check_sections(report: Report, top: int | None) -> Iterator[Section]:
    """One section per peer that was run beside the count; `top` layers at most, None for all."""
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
        yield Paragraph(text=f"{failure} What stands here is what its formulas give.", role="warning")
    yield Paragraph(text=_verdict(check))
    rows = _by_op(check)
    if rows:
        yield page_table(f"cross_check_{check.peer}", "MACs of one step", CROSS_CHECK_COLUMNS, rows, report)
    for reason in dict.fromkeys(row.row.reason for row in rows if row.row.reason):
        ops = ", ".join(dict.fromkeys(row.row.op for row in rows if row.row.reason == reason))
        yield Paragraph(text=f"{ops}: {reason}.")
    layers = [PeerLayerRow(layer=layer, reason=why) for layer in check.layers if (why := _why(check, layer))]
    layers.sort(key=lambda row: -abs(_said(row.layer) - row.layer.kit_macs))
    if layers:
        caption = "MACs of one step, descendants included; only layers that differ"
        if top is not None and len(layers) > top:
            caption += f", {top:,} of {len(layers):,}"
        table = page_table(f"cross_check_{check.peer}_layers", caption, CROSS_CHECK_LAYER_COLUMNS, layers[:top], report)
        yield table
    if any(ATTRIBUTION in row.reason for row in layers):
        told = f"{ATTRIBUTION}: {check.peer} gives the module work that is another's, or its own to another."
        yield Paragraph(text=told + HOOKS if "backward" in check.covers else told)
    yield from (Paragraph(text=f"{note}.", role="note", detail=True) for note in check.notes)


def _verdict(check: CrossCheck) -> str:
    phases = ", ".join(check.covers)
    said = check.peer_macs if check.peer_macs is not None else sum(row.peer_macs for row in check.rows)
    head = f"Over {phases}: {text(check.kit_macs, 'macs')} MACs by the kit, {text(said, 'macs')} by {check.peer}"
    if said == check.kit_macs:
        same = all(not row.reason for row in check.rows)
        return f"{head}; they agree{' in every op' if same else ' in the sum alone'}."
    change = f"{100 * (said / check.kit_macs - 1):+.2f} %" if check.kit_macs else "of none"
    return f"{head} ({change})."


def _by_op(check: CrossCheck) -> list[PeerRow]:
    """The rows of one op, phase and reason as one; those that differ first, the largest difference at the top."""
    groups: dict[tuple[str, str, str], list[CrossCheckRow]] = {}
    for row in check.rows:
        groups.setdefault((row.op, row.phase, row.reason), []).append(row)
    merged = [
        PeerRow(
            check=check,
            row=added(group, "calls", "kit_macs", "peer_macs"),
            paths=tuple(dict.fromkeys(row.path for row in group)),
        )
        for group in groups.values()
    ]
    return sorted(merged, key=lambda one: (-abs(one.row.peer_macs - one.row.kit_macs), -one.row.kit_macs))


def _why(check: CrossCheck, layer: CrossCheckLayer) -> str:
    """Why the two differ on `layer`; empty where they do not."""
    parts = []
    if layer.expected_macs != layer.kit_macs:
        inside = (row for row in check.rows if row.reason and _is_within(row.path, layer.path))
        parts.append(", ".join(dict.fromkeys(row.op for row in inside)))
    if layer.peer_macs is not None and layer.peer_macs != layer.expected_macs:
        parts.append(ATTRIBUTION)
    return "; ".join(part for part in parts if part)


def _is_within(path: str, ancestor: str) -> bool:
    return not path.startswith("(") and (path == ancestor or not ancestor or path.startswith(f"{ancestor}."))


def _said(layer: CrossCheckLayer) -> int:
    return layer.peer_macs if layer.peer_macs is not None else layer.expected_macs
