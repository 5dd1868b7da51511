"""A comparison of two traces as a Document, the result first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.records.document import Block, Chart, Document, Paragraph, Section, Table
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.serde import dumps
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.report.charts.comparisons import trace_module_tree, trace_waterfall
from profiler_kit.report.charts.traces import clock_range, timeline_chart
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.trace_comparison import CHANGED_TIME_COLUMNS, ChangedTime
from profiler_kit.units import signed

TOP: Final = 10
ALIASES: Final = ("A", "B")  # labels of files with long names

# Key, section title, name of a row. Phases and idle causes share another table, because they sum to the span.
_TABLES: Final = (
    ("modules", "Modules", "module"),
    ("operators", "Operators", "operator"),
    ("kernels", "Kernels", "kernel"),
    ("waits", "Host waits", "host waits in"),
)


def trace_comparison_document(
    compared: TraceComparison, *, top: int | None = TOP, timelines: Sequence[StepTimeline] = ()
) -> Document:
    """A comparison of two traces as a document.

    `top`: rows per table, None for all. `timelines`: a step of each side over time, for renderers that draw.
    """
    sections = [
        Section(title="Result", blocks=tuple(Paragraph(text=sentence) for sentence in compared.sentences)),
        Section(title="Time", blocks=(*trace_waterfall(compared), _timeline(compared))),
    ]
    sections.append(Section(title="Timelines", blocks=tuple(_timeline_charts(compared, timelines))))
    sections += item_sections(compared, top)
    sections += note_sections(compared.notes)
    return Document(
        title=_title(compared),
        origin=" and ".join(dict.fromkeys(side.device for side in (compared.a, compared.b) if side.device)),
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(compared),
        full=lambda: tuple(change_tables(compared)),
    )


def _timeline_charts(compared: TraceComparison, timelines: Sequence[StepTimeline]) -> Iterator[Chart]:
    """The steps of both sides, which begin at the same time."""
    aligned = [replace(timeline, clock_ns=timeline.start_ns) for timeline in timelines]
    for side, timeline in zip((compared.a, compared.b), aligned, strict=False):
        yield from timeline_chart(timeline, side.label, clock_range(aligned))


def item_sections(compared: TraceComparison, top: int | None) -> Iterator[Section]:
    """The largest differences by module, operator, kernel and wait."""
    for key, title, item in _TABLES:
        rows = _rows(compared, key)
        if rows:
            charts = trace_module_tree(compared) if key == "modules" else ()
            yield Section(title=title, blocks=(*charts, *_blocks(compared, rows, item, top)), detail=key == "waits")


def step_sections(compared: TraceComparison, top: int | None) -> Iterator[Section]:
    """The traced steps of two reports as details: time by phase and idle cause, then the other differences."""
    yield Section(title="Time of the traced steps", blocks=(_timeline(compared),), detail=True)
    for section in item_sections(compared, top):
        yield replace(section, title=f"{section.title} of the traced steps", detail=True)


def note_sections(notes: Sequence[str]) -> list[Section]:
    """A section of `notes`; empty without notes."""
    return [Section(title="Notes", blocks=tuple(Paragraph(text=note, role="note") for note in notes))] if notes else []


def change_tables(compared: TraceComparison) -> Iterator[Table]:
    """All changes in one table, then each part of them, complete."""
    rows = {key: _rows(compared, key) for key in ("total", "phases", "causes", *(key for key, _, _ in _TABLES))}
    yield data_table("changes", CHANGED_TIME_COLUMNS, [row for part in rows.values() for row in part])
    for key, part in rows.items():
        yield data_table(key, CHANGED_TIME_COLUMNS, part)


def _title(compared: TraceComparison) -> str:
    if (compared.a.label, compared.b.label) == ALIASES:
        return f"A is {compared.a.file}, B is {compared.b.file}"
    return f"{compared.a.label} and {compared.b.label}"


def _rows(compared: TraceComparison, table: str) -> list[ChangedTime]:
    changes: tuple[TimeChange, ...] = (
        (compared.span, compared.busy, compared.idle) if table == "total" else getattr(compared, table)
    )
    return [ChangedTime(table=table, change=change, labels=(compared.a.label, compared.b.label)) for change in changes]


def _timeline(compared: TraceComparison) -> Table:
    """Busy time by phase and idle time by cause, which sum to the span."""
    scope = "Per step" if compared.per == "step" else "Whole traces"
    if compared.a.ranks > 1:
        scope = f"{scope}, mean of {compared.a.ranks} ranks"
    span, busy, idle = _rows(compared, "total")
    return page_table(
        "time",
        f"{scope}; phases sum to busy time, causes to idle time, both to the span",
        CHANGED_TIME_COLUMNS,
        [*_rows(compared, "phases"), *_rows(compared, "causes")],
        totals=(busy, idle, span),
        labels=_labels(compared, "phase or idle cause"),
    )


def _blocks(compared: TraceComparison, rows: list[ChangedTime], item: str, top: int | None) -> tuple[Block, ...]:
    changed = [row for row in rows if row.change.change_ns]
    largest = changed[:top]
    if not largest:
        return (Paragraph(text="No difference."),)
    caption = "Largest difference first"
    table = page_table(rows[0].table, caption, CHANGED_TIME_COLUMNS, largest, labels=_labels(compared, item))
    others = changed[len(largest) :]
    if not others:
        return (table,)
    total = signed(sum(row.change.change_ns for row in others), "ns")
    return (table, Paragraph(text=f"{len(others)} smaller differences sum to {total}.", role="note"))


def _labels(compared: TraceComparison, item: str) -> dict[str, str]:
    return {"a": compared.a.label, "b": compared.b.label, "item": item}
