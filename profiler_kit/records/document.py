"""Neutral content for the renderers: sections of paragraphs, tables and findings.

Tables hold raw values with a unit; a renderer turns them into text. Reports, comparisons and check results become a
Document, and every renderer accepts any Document.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from profiler_kit.units import Unit

if TYPE_CHECKING:  # every --help lists the formats and must not load the report records
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import Remedy

Value = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A table column: stable `key` (CSV header), `title` for people, `unit` of its values, `doc` for legends.

    Where a table is too wide, the columns with the highest `rank` are dropped first; columns of rank 0 always stay. `name`
    marks a column of names (paths, kernels), which a narrow display may shorten in the middle. Other values are never shortened.
    """

    key: str
    title: str
    unit: Unit = "text"
    doc: str = ""
    rank: int = 0
    name: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values under typed column heads. `caption` gives units and convention; `totals` follow below a rule."""

    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Value, ...], ...]
    totals: tuple[tuple[Value, ...], ...] = ()


Role = Literal["text", "note", "warning", "log"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or more sentences of plain text. A renderer may style `role`; a ``log`` keeps its line breaks.

    A paragraph with `detail` is left out of a one-screen summary.
    """

    text: str
    role: Role = "text"
    detail: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingList:
    """Findings in display order. The first one has the number `first`. With `full`, a summary shows all of each finding."""

    findings: tuple[Finding, ...]
    first: int = 1
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RemedyList:
    """Remedies in display order."""

    remedies: tuple[Remedy, ...]


Block = Table | Paragraph | FindingList | RemedyList


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled sequence of blocks. A section with `detail` is left out of a one-screen summary."""

    title: str
    blocks: tuple[Block, ...]
    detail: bool = False


class Document:
    """A title, sections, and the same content as JSON text in `json`, for renderers with machine-readable output.

    `full` holds complete tables for CSV; the first one is the main table. Most formats use neither, and both take long
    for large reports, so they can be functions that are called on first use.
    """

    def __init__(
        self,
        *,
        title: str,
        sections: tuple[Section, ...],
        json: str | Callable[[], str],
        full: tuple[Table, ...] | Callable[[], tuple[Table, ...]] = (),
    ) -> None:
        self.title = title
        self.sections = sections
        self._json = json
        self._full = full

    @cached_property
    def json(self) -> str:
        """The content as JSON text."""
        return self._json() if callable(self._json) else self._json

    @cached_property
    def full(self) -> tuple[Table, ...]:
        """The complete tables."""
        return self._full() if callable(self._full) else self._full

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Document) and all(
            getattr(self, name) == getattr(other, name) for name in ("title", "sections", "json", "full")
        )
