"""The columns of a comparison of two traces. In titles, `{a}` and `{b}` are the two sides and `{item}` is the kind of row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.trace_comparison import TimeChange
from profiler_kit.report.columns.column import Column, ColumnTable

MAX_NAMES: Final = 3  # per side, in a cell of CSV


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedTime:
    """A row of the table `table`, with the labels of the two sides."""

    table: str
    change: TimeChange
    labels: tuple[str, str]


def _name(row: ChangedTime) -> str:
    return f"idle: {row.change.name}" if row.table == "causes" else row.change.name


def _ratio(row: ChangedTime) -> float | None:
    return row.change.b_ns / row.change.a_ns if row.change.a_ns and row.change.b_ns else None


def _calls(row: ChangedTime) -> str | None:
    a, b = row.change.a_calls, row.change.b_calls
    if not a and not b:
        return None
    return f"{a:,}" if a == b else f"{a:,} -> {b:,}"


def _presence(row: ChangedTime) -> str | None:
    return {"only a": row.labels[0], "only b": row.labels[1], "alike": "other names", "same": None}[row.change.alike]


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - MAX_NAMES} more" if len(names) > MAX_NAMES else ""
    return " | ".join(names[:MAX_NAMES]) + more


# fmt: off
# ruff: noqa: E501 - one column, one line
CHANGED_TIME_COLUMNS: tuple[Column[ChangedTime], ...] = (
    Column("table", "table", "text", lambda r: r.table, "total, phases, causes, modules, operators, kernels or waits", place="data"),
    Column("name", "name", "text", lambda r: r.change.name, "name of the phase, idle cause, module, operator, kernel or call", place="data", name=True),
    Column("name_text", "{item}", "text", _name, "name of the phase, idle cause, module, operator, kernel or call", place="page", name=True),
    Column("phase", "phase", "text", lambda r: r.change.phase or None, "phase of the work", rank=1),
    Column("a_ns", "{a}", "ns", lambda r: r.change.a_ns, "time in the first trace"),
    Column("b_ns", "{b}", "ns", lambda r: r.change.b_ns, "time in the second trace"),
    Column("change_ns", "difference", "ns", lambda r: r.change.change_ns, "time in the second trace minus time in the first", place="data"),
    Column("change", "difference", "ns", lambda r: r.change.change_ns, "time in the second trace minus time in the first", place="page", signed=True),
    Column("ratio", "ratio", "ratio", _ratio, "time in the second trace divided by time in the first", place="page", rank=2),
    Column("calls", "calls", "text", _calls, "calls in the first trace -> calls in the second", place="page", rank=3),
    Column("a_calls", "calls in a", "count", lambda r: r.change.a_calls, "calls in the first trace", place="data"),
    Column("b_calls", "calls in b", "count", lambda r: r.change.b_calls, "calls in the second trace", place="data"),
    Column("in", "only in", "text", _presence, 'the trace that alone has this row, or "other names" for a match under different names', place="page", rank=1),
    Column("alike", "match", "text", lambda r: r.change.alike, "same, alike (matched under different names), only a or only b", place="data"),
    Column("a_names", "names in a", "text", lambda r: _names(r.change.a_names), "matched names in the first trace, where they differ", place="data"),
    Column("b_names", "names in b", "text", lambda r: _names(r.change.b_names), "matched names in the second trace, where they differ", place="data"),
)

TABLES = (
    ColumnTable("changes", CHANGED_TIME_COLUMNS, "`compare` of two traces: one row per phase, cause of idle time, module, operator, kernel and wait. `compare -o FILE.csv` writes this table."),
)
# fmt: on
