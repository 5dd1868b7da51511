"""Neutral content for the renderers: sections of paragraphs, tables, charts and findings.

Tables hold raw values with a unit; a renderer turns them into text. Reports, comparisons and check results become a
Document, and every renderer accepts any Document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from profiler_kit.units import Unit

if TYPE_CHECKING:  # every --help lists the formats and must not load the report records
    from profiler_kit.records.report import Finding
    from profiler_kit.records.verdict import RankedRemedy

Value = int | float | str | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A table column: stable `key` (CSV header), `title` for people, `unit` of its values, `doc` for legends.

    Where a table is too wide, the columns with the highest `rank` are dropped first; columns of rank 0 always stay. `name`
    marks a column of names (paths, kernels), which a narrow display may shorten in the middle. Other values are never shortened.
    `share` marks percentages of one total, which a display may draw as bars. `signed` marks differences, shown with their sign.
    """

    key: str
    title: str
    unit: Unit = "text"
    doc: str = ""
    rank: int = 0
    name: bool = False
    share: bool = False
    signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of raw values under typed column heads. `caption` gives units and convention; `totals` follow below a rule."""

    name: str
    caption: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[Value, ...], ...]
    totals: tuple[tuple[Value, ...], ...] = ()


Role = Literal["text", "note", "warning", "log", "code", "command"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Paragraph:
    """One or more sentences of plain text. A renderer may style `role`; a ``log``, ``code`` (Python to copy) and a ``command``
    (of a shell, to copy) keep their lines.

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

    remedies: tuple[RankedRemedy, ...]


ChartKind = Literal["bars", "intervals", "icicle", "roofline", "scatter", "lines", "waterfall", "timeline", "tree"]


class ChartData(Mapping[str, Any]):
    """The data of a chart, built by `build` on first use: most formats do not draw."""

    def __init__(self, build: Callable[[], Mapping[str, Any]]) -> None:
        self._build = build

    @cached_property
    def _built(self) -> Mapping[str, Any]:
        return self._build()

    def __getitem__(self, key: str) -> Any:
        return self._built[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._built)

    def __len__(self) -> int:
        return len(self._built)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture for renderers that draw: `title`, a sentence `text` about what it shows, and its `data` for JSON.

    `name` selects the chart in Python: ``report.plot(name)``. It is unique in the document of one report or trace.

    The figures are also in tables, so a renderer of text leaves charts out. The keys of `data` by kind:

    - ``bars``: `unit`; `rows`, the names of the bars; `parts`, each with `name` and a value per row, which are stacked. `marks`,
      where present: the index of each `row` to point out, and why (`text`).
    - ``intervals``: `unit`; `rows`, each with `name`, `value`, `note`, and `low` and `high` where known, and the `outcome` and
      the `ratio` (a text) against the row called `baseline`, None without one.
    - ``icicle``: `sizes`, each with `key`, `title` and `unit`; `nodes` in pre-order, each with `name`, `path`, `type`, the
      index of its `parent` (-1 for a root), its sizes including children, and its `share` of the roofline in percent. In a
      comparison, its `change`: the difference over the larger side. `subject`, where present: what the boxes are.
    - ``roofline``: `roofs`, each with `name`, `bandwidth` and `peaks`; `points`, each with `name`, `phase`, `intensity` in
      FLOP/byte, `rate` in FLOP/s and `ns`.
    - ``scatter``: `x` and `y`, each with `title` and `unit`; `points`, each with `name`, `group`, `x` and `y`, above zero. Both
      axes are logarithmic.
    - ``timeline``: `lanes`, their names; `names` of the boxes, and the `families` that color them: a phase, ``work:``
      with what kernels or operators do, ``idle:`` with its cause, or None; `boxes`, each with lane, start, end (ns from the start
      of the step), the index of its name, 1 if it belongs to another step, and of events the index of their `facts`
      (operator, module, line and launch, "" if unknown) and the start of the launch; `bands`, where the step is, each with the
      first and the last lane, start and end. Of timelines that are shown together, `shared_ns`: the range of all of them, from
      the start of this one, and the name of their `clock`. Of ranks, `links`: the lane and the start of a collective on each.
    - ``tree``: `sides`, two labels; `figures`, each with `key`, `title` and `unit`; `nodes` in pre-order, each with `name`,
      `path`, `type`, `status` (a `LayerKind`), `note`, the index of its `parent` (-1 for a root), and for each key the
      figures of both sides including children, None where the module does not exist.
    - ``waterfall``: `unit`; `rows`, each with `name`, `start`, `end`, and `total`, which is true for the first and the last.
    - ``lines``: `unit`; `points`, the names along the axis; `lines`, each with `name` and a value per point, which are stacked.
      `bands`, where present: ranges of points, each with `name`, `start` and `end`.
    """

    kind: ChartKind
    title: str
    text: str
    data: Mapping[str, Any]
    name: str = ""


Block = Table | Paragraph | FindingList | RemedyList | Chart


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A titled sequence of blocks. A section with `detail` is left out of a one-screen summary.

    `is_result`: it holds the result, so a comment on a pull request shows it unfolded.
    """

    title: str
    blocks: tuple[Block, ...]
    detail: bool = False
    is_result: bool = False

    @property
    def is_drawn(self) -> bool:
        """Whether the section consists of charts, which text cannot show."""
        return self.blocks != () and all(isinstance(block, Chart) for block in self.blocks)


class Document:
    """A title, sections, and the same content as JSON text in `json`, for renderers with machine-readable output.

    `origin`: device, date and version, for renderers with room for a line under the title.

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
        origin: str = "",
    ) -> None:
        self.title = title
        self.origin = origin
        self.sections = sections
        self._json = json
        self._full = full

    @property
    def lead_chart(self) -> Chart | None:
        """The chart that shows the result at a glance: the first one, details last; a timeline needs a closer look."""
        ordered = sorted(self.sections, key=lambda section: section.detail)
        blocks = (block for section in ordered for block in section.blocks)
        return next((block for block in blocks if isinstance(block, Chart) and block.kind != "timeline"), None)

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
            getattr(self, name) == getattr(other, name) for name in ("title", "origin", "sections", "json", "full")
        )
