"""The columns of what other counters say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiler_kit.records.counts import CrossCheck, CrossCheckLayer, CrossCheckRow
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import Column, ColumnTable


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """A row of a cross-check, or several in one, and the modules it is of."""

    check: CrossCheck
    row: CrossCheckRow
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLayerRow:
    """A module in a cross-check, and why the two differ."""

    layer: CrossCheckLayer
    reason: str


def _some_paths(paths: Sequence[str]) -> str:
    shown = ", ".join(shown_path(path) for path in paths[:3])
    return f"{shown} and {len(paths) - 3:,} more" if len(paths) > 3 else shown


# fmt: off
# ruff: noqa: E501 - one column, one line
CROSS_CHECK_COLUMNS: tuple[Column[PeerRow], ...] = (
    Column("peer", "peer", "text", lambda r: r.check.peer, "the other counter", place="data"),
    Column("peer_version", "version", "text", lambda r: r.check.version, "its version", place="data"),
    Column("op", "op", "text", lambda r: r.row.op, "the op, as the peer calls it; not explained: what the peer says beyond its own formulas", name=True),
    Column("phase", "phase", "text", lambda r: r.row.phase, "forward, loss, backward or recompute", rank=2),
    Column("path", "path", "text", lambda r: r.row.path, "the module it ran in", place="data"),
    Column("calls", "calls", "count", lambda r: r.row.calls or None, "calls in one step", rank=4),
    Column("kit_macs", "kit", "macs", lambda r: r.row.kit_macs, "multiply-accumulates by the kit's own convention"),
    Column("peer_macs", "peer", "macs", lambda r: r.row.peer_macs, "by the peer, whose FLOPs are halved where it takes two for a MAC"),
    Column("difference_macs", "difference", "macs", lambda r: r.row.peer_macs - r.row.kit_macs, "the peer's less the kit's"),
    Column("in", "in", "text", lambda r: _some_paths(r.paths), "the modules it ran in", place="page", rank=3, name=True),
    Column("reason", "why", "text", lambda r: r.row.reason or None, "why they differ", place="data"),
)

CROSS_CHECK_LAYER_COLUMNS: tuple[Column[PeerLayerRow], ...] = (
    Column("layer", "layer", "text", lambda r: shown_path(r.layer.path), "the module, its descendants included", name=True),
    Column("kit_macs", "kit", "macs", lambda r: r.layer.kit_macs, "multiply-accumulates by the kit's own convention"),
    Column("expected_macs", "its formulas", "macs", lambda r: r.layer.expected_macs, "what the peer's formulas give for the module's ops", rank=1),
    Column("peer_macs", "peer", "macs", lambda r: r.layer.peer_macs, "what the peer says of the module"),
    Column("reason", "why", "text", lambda r: r.reason, "why they differ"),
)

TABLES = (
    ColumnTable("cross_check", CROSS_CHECK_COLUMNS, "`count --cross-check`: one row per op, module and phase that the kit or a peer counts MACs for, and per figure of the peer's that its formulas do not explain."),
    ColumnTable("cross_check_layers", CROSS_CHECK_LAYER_COLUMNS, "`count --cross-check`: modules, with their descendants, on which the kit and a peer differ."),
)
# fmt: on
