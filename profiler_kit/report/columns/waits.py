"""The columns of what a run's traced steps waited for: the device's idle time, and the host's waits for the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from profiler_kit.records.traces import SyncWait
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.traces import IdleLine, Item, waited_for
from profiler_kit.report.columns.values import share


@dataclass(frozen=True, slots=True)
class OfRun(Generic[Item]):
    """Something that the traced steps of the configuration `config` say, per step; `span_ns` is such a step's."""

    config: str
    item: Item
    span_ns: int | None


# fmt: off
# ruff: noqa: E501 - one column, one line
IDLE_COLUMNS: tuple[Column[OfRun[IdleLine]], ...] = (
    Column("config", "config", "text", lambda r: r.config, "the configuration", place="data"),
    Column("cause", "waiting for", "text", lambda r: r.item.cause, "why the device was idle (on a CPU: why no operator ran)"),
    Column("ns", "time", "ns", lambda r: r.item.ns, "idle time of that cause, per traced step"),
    Column("span_percent", "% of step", "percent", lambda r: share(r.item.ns, r.span_ns), "share of a traced step, from its mark on the host to the end of its last work on the device"),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps or None, "how many, per step", rank=1),
    Column("before", "before", "text", lambda r: r.item.before or None, "the phases whose work ended the gaps", rank=2),
)

WAIT_COLUMNS: tuple[Column[OfRun[SyncWait]], ...] = (
    Column("config", "config", "text", lambda r: r.config, "the configuration", place="data"),
    Column("name", "the host waits in", "text", lambda r: r.item.name, "the operator", name=True),
    Column("call", "call", "text", lambda r: r.item.call, "the runtime's call", rank=3, name=True),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "in which the host waited"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "per step", rank=1),
    Column("wait_ns", "waited", "ns", lambda r: r.item.wait_ns, "how long, per traced step"),
    Column("waited_for", "while the device ran", "text", lambda r: waited_for(r.item), "the phases whose kernels ran meanwhile, the most first", rank=2),
)
# fmt: on

TABLES = (
    ColumnTable("idle", IDLE_COLUMNS, "One row per configuration and cause of idle time, per traced step."),
    ColumnTable(
        "waits",
        WAIT_COLUMNS,
        "One row per configuration and kind of call in which the host waits for the device, per traced step.",
    ),
)
