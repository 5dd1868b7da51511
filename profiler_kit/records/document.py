"""What a reader is shown, before anyone decides how: sections of paragraphs, tables and findings, in neutral values.

Tables hold raw values with a unit; a renderer turns them into text. Whoever has something to show (a report, a
comparison, a gate's verdict) builds a Document; every renderer takes any Document.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from profiler_kit.units import Unit

if TYPE_CHECKING:  # the formats are listed by every --help
    from profiler_kit.records.report import Finding

Value = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A table column: stable `key` (CSV header), `title` for people, `unit` of its values, `doc` for legends.

    Where a table does not fit, the columns of highest `rank` are left out first and those of rank 0 never. `name` marks a
    column of names (paths, kernels): a narrow place may shorten them in the middle; nothing else is ever shortened.
    """

    key: str
    title: str
    unit: Unit = "text"
    doc: str = ""
    rank: int = 0
    name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values under typed heads. `caption` says units and convention; `total` rows stand below a rule."""

    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Value, ...], ...]
    totals: tuple[tuple[Value, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """A sentence or more of plain text. `role` lets a renderer set it apart; a ``log`` keeps its lines as they are.

    One for `detail` may be left out of a summary that must fit a screen.
    """

    text: str
    role: Literal["text", "note", "warning", "log"] = "text"
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingList:
    """Findings in the order to show them."""

    findings: tuple[Finding, ...]


Block = Table | Paragraph | FindingList


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled run of blocks. `detail` sections may be left out of a summary that must fit a screen."""

    title: str
    blocks: tuple[Block, ...]
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A title, sections, and the same content as JSON-able `data` text for renderers meant for programs.

    `full` holds complete tables for CSV: the first is the main one.
    """

    title: str
    sections: tuple[Section, ...]
    json: str
    full: tuple[Table, ...] = ()
