"""A comparison of two traces as a Document, the result first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from profiler_kit.records.document import Block, Document, Head, Paragraph, Section, Table, Value
from profiler_kit.records.serde import dumps
from profiler_kit.records.trace_comparison import TimeChange, TraceComparison
from profiler_kit.units import text

TOP: Final = 10
MOST_NAMES: Final = 3  # of a side, in a cell of CSV

_TABLES: Final = (
    ("phases", "Work by phase", "phase"),
    ("causes", "Idle time by cause", "the device waits for"),
    ("modules", "Modules", "module"),
    ("operators", "Operators", "operator"),
    ("kernels", "Kernels", "kernel"),
    ("waits", "Waits of the host", "waiting in"),
)


def trace_comparison_document(compared: TraceComparison, *, top: int | None = TOP) -> Document:
    """A comparison of two traces for people and programs. `top`: rows of a table at most, None for all."""
    sections = [Section(title="Result", blocks=tuple(Paragraph(text=one) for one in compared.sentences))]
    sections.append(Section(title="Time", blocks=(_timeline(compared),)))
    for key, title, head in _TABLES[2:]:
        rows: tuple[TimeChange, ...] = getattr(compared, key)
        if rows:
            sections.append(Section(title=title, blocks=_table(compared, key, head, rows, top), detail=key == "waits"))
    if compared.notes:
        sections.append(
            Section(title="Notes", blocks=tuple(Paragraph(text=one, role="note") for one in compared.notes))
        )
    return Document(
        title=f"{compared.a.label} and {compared.b.label}",
        sections=tuple(section for section in sections if section.blocks),
        json=dumps(compared),
        full=(_data(compared),),
    )


def _heads(compared: TraceComparison, name: str) -> tuple[Head, ...]:
    return (
        Head(key="name", title=name, name=True),
        Head(key="phase", title="phase", doc="of the work", rank=1),
        Head(key="a_ns", title=compared.a.label, unit="ns"),
        Head(key="b_ns", title=compared.b.label, unit="ns"),
        Head(key="change", title="difference", doc="how much longer it takes in the second"),
        Head(key="ratio", title="ratio", unit="ratio", doc="the second over the first", rank=2),
        Head(key="calls", title="calls", doc="in the first, in the second", rank=3),
        Head(key="in", title="in", doc="only one of the two, or both under names that differ", rank=1),
    )


def _row(row: TimeChange, compared: TraceComparison) -> tuple[Value, ...]:
    there = {"only a": compared.a.label, "only b": compared.b.label, "alike": "other names", "same": None}[row.alike]
    calls = None if not row.a_calls and not row.b_calls else _calls(row)
    return (row.name, row.phase or None, row.a_ns, row.b_ns, _signed(row.change_ns), _ratio(row), calls, there)


def _calls(row: TimeChange) -> str:
    return f"{row.a_calls:,}" if row.a_calls == row.b_calls else f"{row.a_calls:,} -> {row.b_calls:,}"


def _timeline(compared: TraceComparison) -> Table:
    """Work by phase and idle time by cause: what sums to the span."""
    of = "a step" if compared.per == "step" else "the whole traces"
    if compared.a.ranks > 1:
        of = f"{of}, mean of {compared.a.ranks} ranks"
    rows = [_row(row, compared) for row in compared.phases]
    rows += [(f"idle: {row.name}", *_row(row, compared)[1:]) for row in compared.causes]
    return _shown(
        Table(
            name="time",
            caption=f"Of {of}; phases sum to the busy time, causes to the idle time, both to the span",
            heads=_heads(compared, "time"),
            rows=tuple(rows),
            totals=tuple(_row(row, compared) for row in (compared.busy, compared.idle, compared.span)),
        )
    )


def _table(
    compared: TraceComparison, key: str, head: str, rows: Sequence[TimeChange], top: int | None
) -> tuple[Block, ...]:
    changed = [row for row in rows if row.change_ns]
    shown = changed[:top]
    if not shown:
        return (Paragraph(text="No difference."),)
    table = _shown(
        Table(
            name=key,
            caption="The largest difference first",
            heads=_heads(compared, head),
            rows=tuple(_row(row, compared) for row in shown),
        )
    )
    left = len(changed) - len(shown)
    rest = sum(row.change_ns for row in changed[len(shown) :])
    if not left:
        return (table,)
    return (table, Paragraph(text=f"{left} smaller ones make {_signed(rest)} together.", role="note"))


def _shown(table: Table) -> Table:
    """Without the columns that are empty."""
    rows = (*table.rows, *table.totals)
    kept = [i for i in range(len(table.heads)) if any(row[i] is not None for row in rows)]
    return Table(
        name=table.name,
        caption=table.caption,
        heads=tuple(table.heads[i] for i in kept),
        rows=tuple(tuple(row[i] for i in kept) for row in table.rows),
        totals=tuple(tuple(row[i] for i in kept) for row in table.totals),
    )


def _data(compared: TraceComparison) -> Table:
    """Every row of every table, for programs."""
    heads = (
        Head(key="table", title="table"),
        Head(key="name", title="name", name=True),
        Head(key="phase", title="phase"),
        Head(key="a_ns", title="a", unit="ns"),
        Head(key="b_ns", title="b", unit="ns"),
        Head(key="change_ns", title="difference", unit="ns"),
        Head(key="a_calls", title="calls in a", unit="count"),
        Head(key="b_calls", title="calls in b", unit="count"),
        Head(key="alike", title="in", doc="same, alike, only a, only b"),
        Head(key="a_names", title="names in a"),
        Head(key="b_names", title="names in b"),
    )
    totals = ("total", (compared.span, compared.busy, compared.idle))
    rows = [
        (
            name, row.name, row.phase, row.a_ns, row.b_ns, row.change_ns, row.a_calls, row.b_calls, row.alike,
            _names(row.a_names), _names(row.b_names),
        )
        for name, found in (totals, *((key, getattr(compared, key)) for key, _, _ in _TABLES))
        for row in found
    ]  # fmt: skip
    return Table(name="changes", caption="b less a", heads=heads, rows=tuple(rows))


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return " | ".join(names[:MOST_NAMES]) + more


def _signed(ns: int) -> str:
    return f"{'+' if ns > 0 else '-' if ns < 0 else ''}{text(abs(ns), 'ns')}"


def _ratio(row: TimeChange) -> float | None:
    return row.b_ns / row.a_ns if row.a_ns and row.b_ns else None
