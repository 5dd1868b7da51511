"""The columns of a run's idle time on the device and of the host's waits for the device, in traced steps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from profiler_kit.records.traces import SyncWait
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.traces import IdleLine, Item, waited_for
from profiler_kit.report.columns.values import share


@dataclass(frozen=True, slots=True)
class RunItem(Generic[Item]):
    """A per-step figure from the traced steps of the configuration `config`; `span_ns` is the span of a traced step."""

    config: str
    item: Item
    span_ns: int | None


# fmt: off
# ruff: noqa: E501 - one column, one line
IDLE_COLUMNS: tuple[Column[RunItem[IdleLine]], ...] = (
    Column("config", "config", "text", lambda r: r.config, "name of the configuration", place="data"),
    Column("cause", "idle cause", "text", lambda r: r.item.cause, "why the device was idle (on a CPU: why no operator ran)"),
    Column("ns", "time", "ns", lambda r: r.item.ns, "idle time of this cause, per traced step"),
    Column("span_percent", "% of step", "percent", lambda r: share(r.item.ns, r.span_ns), "share of a traced step, from its mark on the host to the end of its last device work", share=True),
    Column("gaps", "gaps", "count", lambda r: r.item.gaps or None, "number of gaps per step", rank=1),
    Column("before", "before", "text", lambda r: r.item.before or None, "the phases of the work that ends the gaps, longest first", rank=2),
)

WAIT_COLUMNS: tuple[Column[RunItem[SyncWait]], ...] = (
    Column("config", "config", "text", lambda r: r.config, "name of the configuration", place="data"),
    Column("name", "host waits in", "text", lambda r: r.item.name, "the operator that waits", name=True),
    Column("call", "call", "text", lambda r: r.item.call, "the call of the CUDA runtime", rank=3, name=True),
    Column("phase", "phase", "text", lambda r: r.item.phase or None, "the phase of the host during the wait"),
    Column("calls", "calls", "count", lambda r: r.item.calls, "calls per step", rank=1),
    Column("wait_ns", "waited", "ns", lambda r: r.item.wait_ns, "time of the waits, per traced step"),
    Column("waited_for", "while the device ran", "text", lambda r: waited_for(r.item), "the phases whose kernels ran during the wait, longest first", rank=2),
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
