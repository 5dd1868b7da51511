"""The columns of the cross-check with fvcore."""

from __future__ import annotations

from profiler_kit.records.counts import CrossCheckLayer
from profiler_kit.records.paths import shown_path
from profiler_kit.report.columns.column import Column, ColumnTable


def difference_macs(layer: CrossCheckLayer) -> int:
    """fvcore's MACs minus profiler_kit's."""
    return (layer.peer_macs or 0) - layer.kit_macs


# fmt: off
# ruff: noqa: E501 - one column, one line
CROSS_CHECK_COLUMNS: tuple[Column[CrossCheckLayer], ...] = (
    Column("layer", "layer", "text", lambda r: shown_path(r.path), "the module, descendants included", name=True),
    Column("kit_macs", "profiler_kit", "macs", lambda r: r.kit_macs, "multiply-accumulates of the forward pass by profiler_kit's own convention"),
    Column("peer_macs", "fvcore", "macs", lambda r: r.peer_macs, "multiply-accumulates that fvcore reports for the module"),
    Column("difference_macs", "difference", "macs", difference_macs, "fvcore's MACs minus profiler_kit's"),
)

TABLES = (ColumnTable("cross_check", CROSS_CHECK_COLUMNS, "`count --cross-check`: one row per module with multiply-accumulates, descendants included."),)
# fmt: on
