"""Columns, the tables made of them (short ones for pages, complete ones for CSV and data frames), and values that several
share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from profiler_kit.records.counts import Cost
from profiler_kit.records.document import Head, Table, Value
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor
from profiler_kit.units import Unit

Row = TypeVar("Row")
Place = Literal["both", "page", "data"]
WorkUnit = Literal["flop", "mac"]


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table over `Row`: its head, the function that reads its value, and the reports that show it.

    `rank`, `name`, `share`, `signed`: as in `Head`. `place`: page (terminal, Markdown), data (CSV, data frames) or both.
    `when`: whether the column applies to a report. `aside`: pages show the column in a second table for details, where there
    is one. `tree`: the column's rank in the module tree, whose rows include descendants; None keeps the column out of the
    tree. A name in braces in `title` (``{a}``) is a label that the table supplies.
    """

    key: str
    title: str
    unit: Unit
    value: Callable[[Row], Value]
    doc: str
    when: Callable[[Report], bool] = lambda report: True
    place: Place = "both"
    rank: int = 0
    name: bool = False
    aside: bool = False
    tree: int | None = None
    share: bool = False
    signed: bool = False

    @property
    def head(self) -> Head:
        """The column's head in a table."""
        return Head(
            key=self.key,
            title=self.title,
            unit=self.unit,
            doc=self.doc,
            rank=self.rank,
            name=self.name,
            share=self.share,
            signed=self.signed,
        )


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """A table of the reference: its `name`, its columns, and a `doc` that describes its rows in a sentence or two."""

    name: str
    columns: Sequence[Column[Any]]
    doc: str


def page_table(
    name: str,
    caption: str,
    columns: Sequence[Column[Row]],
    rows: Sequence[Row],
    report: Report | None = None,
    totals: Sequence[Row] = (),
    *,
    aside: bool | None = None,
    labels: Mapping[str, str] | None = None,
) -> Table:
    """A table for pages: the columns that apply to `report` and have a value in at least one of `rows`.

    `aside`: True selects the first column and those set aside for details, False the others, None all.
    `labels`: the text for each name in braces in a title.
    """
    candidates = [column for column in columns if column.place != "data" and (report is None or column.when(report))]
    if aside is not None:
        candidates = [column for i, column in enumerate(candidates) if column.aside is aside or (aside and i == 0)]
    values = [[column.value(row) for column in candidates] for row in rows]
    visible = [i for i in range(len(candidates)) if any(row[i] is not None for row in values)]
    heads = [candidates[i].head for i in visible]
    if labels is not None:
        heads = [replace(head, title=head.title.format_map(labels)) for head in heads]
    return Table(
        name=name,
        caption=caption,
        heads=tuple(heads),
        rows=tuple(tuple(row[i] for i in visible) for row in values),
        totals=tuple(tuple(candidates[i].value(total) for i in visible) for total in totals),
    )


def data_table(name: str, columns: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """A table for CSV and data frames: every data column, so that the header does not depend on the report."""
    data_columns = [column for column in columns if column.place != "page"]
    return Table(
        name=name,
        caption="",
        heads=tuple(column.head for column in data_columns),
        rows=tuple(tuple(column.value(row) for column in data_columns) for row in rows),
    )


def in_unit(columns: Sequence[Column[Row]], unit: WorkUnit) -> tuple[Column[Row], ...]:
    """`columns` with work on pages in `unit`: ``mac`` replaces each column of FLOPs by its counterpart in MACs.

    The counterpart of ``flops_x`` has the key ``macs_x``.
    """
    if unit == "flop":
        return tuple(columns)
    macs = {column.key: column for column in columns if column.key.startswith("macs")}
    selected: list[Column[Row]] = []
    for column in columns:
        twin = macs.get(column.key.replace("flops", "macs", 1)) if column.key.startswith("flops") else None
        if twin is not None and (column.place != "data" or column.tree is not None):
            tree = column.tree if column.tree is not None else twin.tree
            place: Place = "data" if column.place == "data" else "page"
            selected.append(
                replace(twin, place=place, when=column.when, rank=column.rank, aside=column.aside, tree=tree)
            )
        elif twin is None and column.key not in macs:
            selected.append(column)
    return tuple(selected)


def trains(report: Report) -> bool:
    """Whether the steps are training steps."""
    return report.target.mode == "train"


def recomputes(report: Report) -> bool:
    """Whether backward recomputes forward work."""
    return report.static is not None and report.static.recompute.flops > 0


def share(part: float | None, total: float | None) -> float | None:
    """`part` as a percentage of `total`; None where one is unknown or `total` is zero."""
    return 100 * part / total if part is not None and total else None


def floor_share(floor: Floor | None, total: Floor | None) -> float | None:
    """A row's floor as a percentage of all floors; None where one is unknown."""
    return share(floor.floor_ns, total.floor_ns) if floor and total else None


def cost_intensity(cost: Cost) -> float | None:
    """FLOPs per byte of min traffic; None where no bytes move."""
    return cost.flops / cost.bytes_moved if cost.bytes_moved else None
