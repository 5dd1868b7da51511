"""Complete tables of raw figures, one column per side, for CSV."""

from __future__ import annotations

from collections.abc import Sequence

from profiler_kit.records.comparison import BudgetRow, Comparison
from profiler_kit.records.document import Head, Table
from profiler_kit.units import Unit


def plain_layers(comparison: Comparison) -> Table:
    """Every layer of both sides with its own figures, those that are the same included."""
    figures: tuple[tuple[str, Unit], ...] = (
        ("flops", "flops"),
        ("macs", "macs"),
        ("params", "count"),
        ("saved_bytes", "bytes"),
        ("device_ns", "ns"),
    )
    heads = [Head(key=key, title=key) for key in ("kind", "a_path", "b_path", "class_name", "change")]
    heads += [
        Head(key=f"{side}_{key}", title=f"{side}_{key}", unit=unit) for key, unit in figures for side in ("a", "b")
    ]
    return Table(
        name="layers",
        caption="",
        heads=(*heads, Head(key="contribution", title="contribution")),
        rows=tuple(
            (
                one.kind,
                one.a_path,
                one.b_path,
                one.class_name,
                one.change,
                *(getattr(side, key) for key, _ in figures for side in (one.a, one.b)),
                one.contribution,
            )
            for one in comparison.layers
        ),
    )


def plain_metrics(comparison: Comparison) -> Table:
    """Every metric with its raw values; the unit stands in a column, since it differs from row to row."""
    return Table(
        name="metrics",
        caption="",
        heads=tuple(
            Head(key=key, title=key) for key in ("metric", "config", "unit", "a", "b", "ratio", "verdict", "reason")
        ),
        rows=tuple(
            (row.metric, row.config, row.unit, row.a, row.b, row.ratio, row.verdict, row.reason)
            for row in comparison.metrics
        ),
    )


def plain_budgets(rows: Sequence[BudgetRow]) -> Table:
    """Every budget with its raw values."""
    return Table(
        name="budgets",
        caption="",
        heads=tuple(
            Head(key=key, title=key)
            for key in (
                "metric",
                "unit",
                "base",
                "head",
                "change",
                "limit",
                "allowed",
                "severity",
                "outcome",
                "reason",
                "where",
            )
        ),
        rows=tuple(
            (
                row.metric,
                row.unit,
                row.base,
                row.head,
                row.change,
                row.limit,
                row.allowed,
                row.severity,
                row.outcome,
                row.reason,
                row.where,
            )
            for row in rows
        ),
    )
