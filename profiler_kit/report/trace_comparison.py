"""A comparison of two traces as a Document, the result first."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.document import Block, Document, Paragraph, Section, Table
from profiler_kit.records.serde import dumps
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.report.columns.column import data_table, page_table
from profiler_kit.report.columns.trace_comparison import CHANGED_TIME_COLUMNS, ChangedTime
from profiler_kit.report.comparison import note_sections
from profiler_kit.units import signed

TOP: Final = 10

# Key, title of the section, what its rows are called. Phases and causes of idle time are one table: they sum to the span.
_TABLES: Final = (
    ("modules", "Modules", "module"),
    ("operators", "Operators", "operator"),
    ("kernels", "Kernels", "kernel"),
    ("waits", "Waits of the host", "waiting in"),
)


def trace_comparison_document(compared: TraceComparison, *, top: int | None = TOP) -> Document:
    """A comparison of two traces for people and programs. `top`: rows of a table at most, None for all."""
    sections = [
        Section(title="Result", blocks=tuple(Paragraph(text=sentence) for sentence in compared.sentences)),
        Section(title="Time", blocks=(_timeline(compared),)),
    ]
    for key, title, what in _TABLES:
        rows = _rows(compared, key)
        if rows:
            sections.append(Section(title=title, blocks=_blocks(compared, rows, what, top), detail=key == "waits"))
    sections += note_sections(compared.notes)
    whole = [
        row for key in ("total", "phases", "causes", *(key for key, _, _ in _TABLES)) for row in _rows(compared, key)
    ]
    return Document(
        title=f"{compared.a.label} and {compared.b.label}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(compared),
        full=(data_table("changes", CHANGED_TIME_COLUMNS, whole),),
    )


def _rows(compared: TraceComparison, table: str) -> list[ChangedTime]:
    changes: tuple[TimeChange, ...] = (
        (compared.span, compared.busy, compared.idle) if table == "total" else getattr(compared, table)
    )
    return [ChangedTime(table=table, change=one, labels=(compared.a.label, compared.b.label)) for one in changes]


def _timeline(compared: TraceComparison) -> Table:
    """Work by phase and idle time by cause: what sums to the span."""
    of = "a step" if compared.per == "step" else "the whole traces"
    if compared.a.ranks > 1:
        of = f"{of}, mean of {compared.a.ranks} ranks"
    span, busy, idle = _rows(compared, "total")
    return page_table(
        "time",
        f"Of {of}; phases sum to the busy time, causes to the idle time, both to the span",
        CHANGED_TIME_COLUMNS,
        [*_rows(compared, "phases"), *_rows(compared, "causes")],
        totals=(busy, idle, span),
        words=_words(compared, "time"),
    )


def _blocks(compared: TraceComparison, rows: list[ChangedTime], what: str, top: int | None) -> tuple[Block, ...]:
    changed = [row for row in rows if row.change.change_ns]
    shown = changed[:top]
    if not shown:
        return (Paragraph(text="No difference."),)
    caption = "The largest difference first"
    table = page_table(rows[0].table, caption, CHANGED_TIME_COLUMNS, shown, words=_words(compared, what))
    rest = changed[len(shown) :]
    if not rest:
        return (table,)
    together = signed(sum(row.change.change_ns for row in rest), "ns")
    return (table, Paragraph(text=f"{len(rest)} smaller ones make {together} together.", role="note"))


def _words(compared: TraceComparison, what: str) -> dict[str, str]:
    return {"a": compared.a.label, "b": compared.b.label, "what": what}
