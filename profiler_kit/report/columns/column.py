"""What a column is, and the same columns with work in another unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Literal, TypeVar

from profiler_kit.records.document import Head, Value
from profiler_kit.records.report import Report
from profiler_kit.units import Unit

Row = TypeVar("Row")
Place = Literal["both", "page", "data"]
WorkUnit = Literal["flop", "mac"]


@dataclass(frozen=True, slots=True)
class Column(Generic[Row]):
    """One column of a table over `Row`: what it is called, its value in a row, and when it is shown.

    `rank`, `name`: as in `Head`. `aside`: on the page it stands in a second table, for detail, where there is one. `tree`: its
    rank in the tree of modules, whose rows hold their descendants' figures; None where it does not stand there.
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
