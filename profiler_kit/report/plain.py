"""Columns over rows, for documents whose columns depend on nothing but their rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from profiler_kit.records.document import Table
from profiler_kit.report.columns.column import Column, Place

Row = TypeVar("Row")


def plain_table(
    name: str,
    caption: str,
    of: Sequence[Column[Row]],
    rows: Sequence[Row],
    *,
    totals: Sequence[Row] = (),
    whole: bool = False,
) -> Table:
    """`rows` under the columns `of` that people see, without those that are empty; `whole`: all that programs see."""
    other: Place = "page" if whole else "data"
    fit = [column for column in of if column.place != other]
    values = [[column.value(row) for column in fit] for row in rows]
    shown = [i for i in range(len(fit)) if whole or any(row[i] is not None for row in values)]
    return Table(
        name=name,
        caption=caption,
        heads=tuple(fit[i].head for i in shown),
        rows=tuple(tuple(row[i] for i in shown) for row in values),
        totals=tuple(tuple(fit[i].value(total) for i in shown) for total in totals),
    )
