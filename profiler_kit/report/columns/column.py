"""What a column is, and tables made of columns: for people, short and without empty columns; for programs, whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from profiler_kit.records.document import Head, Table, Value
from profiler_kit.records.report import Report
from profiler_kit.units import Unit

Row = TypeVar("Row")
Place = Literal["both", "page", "data"]
WorkUnit = Literal["flop", "mac"]


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table over `Row`: what it is called, its value in a row, and when it is shown.

    `rank`, `name`: as in `Head`. `aside`: on the page it stands in a second table, for detail, where there is one. `tree`: its
    rank in the tree of modules, whose rows hold their descendants' figures; None where it does not stand there. A name in
    braces in the `title` (``{a}``) stands for a word that the table gives.
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

    @property
    def head(self) -> Head:
        """The column's head in a table."""
        return Head(key=self.key, title=self.title, unit=self.unit, doc=self.doc, rank=self.rank, name=self.name)


@dataclass(frozen=True, slots=True)
class ColumnTable:
    """A table of the reference: its `name`, its columns, and what its rows are in one sentence or two."""

    name: str
    columns: Sequence[Column[Any]]
    doc: str


def page_table(
    name: str,
    caption: str,
    of: Sequence[Column[Row]],
    rows: Sequence[Row],
    report: Report | None = None,
    totals: Sequence[Row] = (),
    *,
    aside: bool | None = None,
    words: Mapping[str, str] | None = None,
) -> Table:
    """A table for people: columns that make sense for `report` and are not empty in all of `rows`.

    `aside`: True takes the columns set aside for a second table, beside the first column; False the others; None all.
    `words` take the places of the names in braces in titles.
    """
    fit = [column for column in of if column.place != "data" and (report is None or column.when(report))]
    if aside is not None:
        fit = [column for i, column in enumerate(fit) if column.aside is aside or (aside and i == 0)]
    values = [[column.value(row) for column in fit] for row in rows]
    shown = [i for i in range(len(fit)) if any(row[i] is not None for row in values)]
    heads = [fit[i].head for i in shown]
    if words is not None:
        heads = [replace(head, title=head.title.format_map(words)) for head in heads]
    return Table(
        name=name,
        caption=caption,
        heads=tuple(heads),
        rows=tuple(tuple(row[i] for i in shown) for row in values),
        totals=tuple(tuple(fit[i].value(total) for i in shown) for total in totals),
    )


def data_table(name: str, of: Sequence[Column[Row]], rows: Sequence[Row]) -> Table:
    """A table for programs: every column, whatever the report, so that the header is always the same."""
    fit = [column for column in of if column.place != "page"]
    return Table(
        name=name,
        caption="",
        heads=tuple(column.head for column in fit),
        rows=tuple(tuple(column.value(row) for column in fit) for row in rows),
    )


def in_unit(of: Sequence[Column[Row]], unit: WorkUnit) -> tuple[Column[Row], ...]:
    """`of` with work on the page in `unit`: for ``mac`` each column of FLOPs gives its place to its counterpart in MACs.

    The counterpart of ``flops_x`` is called ``macs_x``.
    """
    if unit == "flop":
        return tuple(of)
    macs = {column.key: column for column in of if column.key.startswith("macs")}
    shown: list[Column[Row]] = []
    for column in of:
        twin = macs.get(column.key.replace("flops", "macs", 1)) if column.key.startswith("flops") else None
        if twin is not None and (column.place != "data" or column.tree is not None):
            tree = column.tree if column.tree is not None else twin.tree
            place: Place = "data" if column.place == "data" else "page"
            shown.append(replace(twin, place=place, when=column.when, rank=column.rank, aside=column.aside, tree=tree))
        elif twin is None and column.key not in macs:
            shown.append(column)
    return tuple(shown)
