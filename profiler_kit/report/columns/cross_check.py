"""The columns of cross-checks with other counters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.counts import CrossCheck, CrossCheckLayer, CrossCheckRow
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import Column, ColumnTable

MAX_PATHS: Final = 3  # in a cell


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerRow:
    """One row of a cross-check, or several merged, with the modules that call the op."""

    check: CrossCheck
    row: CrossCheckRow
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLayerRow:
    """A module in a cross-check, and the reason for its difference."""

    layer: CrossCheckLayer
    reason: str


def _some_paths(paths: Sequence[str]) -> str:
    names = ", ".join(shown_path(path) for path in paths[:MAX_PATHS])
    return f"{names} and {len(paths) - MAX_PATHS:,} more" if len(paths) > MAX_PATHS else names


# fmt: off
# ruff: noqa: E501 - one column, one line
CROSS_CHECK_COLUMNS: tuple[Column[PeerRow], ...] = (
    Column("peer", "peer", "text", lambda r: r.check.peer, "name of the other counter", place="data"),
    Column("peer_version", "version", "text", lambda r: r.check.version, "version of the other counter", place="data"),
    Column("op", "op", "text", lambda r: r.row.op, 'the op, as the peer names it; "not explained": MACs that the peer reports beyond its own formulas', name=True),
    Column("phase", "phase", "text", lambda r: r.row.phase, "forward, loss, backward or recompute", rank=2),
    Column("path", "path", "text", lambda r: r.row.path, "the module that calls the op", place="data"),
    Column("calls", "calls", "count", lambda r: r.row.calls or None, "calls per step", rank=4),
    Column("kit_macs", "profiler_kit", "macs", lambda r: r.row.kit_macs, "multiply-accumulates by profiler_kit's own convention"),
    Column("peer_macs", "peer", "macs", lambda r: r.row.peer_macs, "multiply-accumulates by the peer; halved where it counts 2 per MAC"),
    Column("difference_macs", "difference", "macs", lambda r: r.row.peer_macs - r.row.kit_macs, "the peer's MACs minus profiler_kit's"),
    Column("in", "modules", "text", lambda r: _some_paths(r.paths), "the modules that call the op", place="page", rank=3, name=True),
    Column("reason", "reason", "text", lambda r: r.row.reason or None, "reason for the difference", place="data"),
)

CROSS_CHECK_LAYER_COLUMNS: tuple[Column[PeerLayerRow], ...] = (
    Column("layer", "layer", "text", lambda r: shown_path(r.layer.path), "the module, descendants included", name=True),
    Column("kit_macs", "profiler_kit", "macs", lambda r: r.layer.kit_macs, "multiply-accumulates by profiler_kit's own convention"),
    Column("expected_macs", "peer's formulas", "macs", lambda r: r.layer.expected_macs, "multiply-accumulates of the module's ops by the peer's formulas", rank=1),
    Column("peer_macs", "peer", "macs", lambda r: r.layer.peer_macs, "multiply-accumulates that the peer reports for the module"),
    Column("reason", "reason", "text", lambda r: r.reason, "reason for the difference"),
)

TABLES = (
    ColumnTable("cross_check", CROSS_CHECK_COLUMNS, "`count --cross-check`: one row per op, module and phase for which profiler_kit or a peer counts MACs, and one per peer figure that the peer's formulas do not explain."),
    ColumnTable("cross_check_layers", CROSS_CHECK_LAYER_COLUMNS, "`count --cross-check`: one row per module, descendants included, for which profiler_kit and a peer differ."),
)
# fmt: on
