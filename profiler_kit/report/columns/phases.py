"""The columns of a run's phases, kernels, idle time on the device and waits of the host for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic

from profiler_kit.records.families import family_name
from profiler_kit.records.mean_step import PhaseTiming
from profiler_kit.records.report import Report
from profiler_kit.records.traces import KernelStat, SyncWait
from profiler_kit.report.columns.column import Column, ColumnTable, share
from profiler_kit.report.columns.traces import IdleLine, Item, waited_for


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of a run (or the sum of all phases), and the sum of all phases for the shares."""

    config: str
    label: str
    timing: PhaseTiming
    total: PhaseTiming


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRow:
    """One kernel of a run (or several in one row), and the run's device time for the share."""

    config: str
    kernel: KernelStat
    device_ns: int | None


def _times_operators(report: Report) -> bool:
    return any(run.clock == "operator" for run in report.runs)


def _clock_ratio(row: PhaseRow) -> float | None:
    host, device = row.timing.host_ns, row.timing.kernel_ns
    return host / device if host is not None and device else None


# fmt: off
# ruff: noqa: E501 - one column, one line
PHASE_COLUMNS: tuple[Column[PhaseRow], ...] = (
    Column("config", "config", "text", lambda r: r.config, "name of the configuration", place="data"),
    Column("phase", "phase", "text", lambda r: r.label, "data, transfer, forward, loss, backward, recompute, optimizer or other"),
    Column("stopwatch_ns", "stopwatch", "ns", lambda r: r.timing.stopwatch_ns, "median host time of the phase by time.time(), without synchronization; the loss ends with .item()"),
    Column("stopwatch_percent", "%", "percent", lambda r: share(r.timing.stopwatch_ns, r.total.stopwatch_ns), "share of the total stopwatch time"),
    Column("event_ns", "events", "ns", lambda r: r.timing.event_ns, "median time between CUDA events around the phase, gaps between kernels included"),
    Column("event_percent", "%", "percent", lambda r: share(r.timing.event_ns, r.total.event_ns), "share of the total event time"),
    Column("kernel_ns", "kernels", "ns", lambda r: r.timing.kernel_ns, "device time of the kernels that the phase launched, per traced step (on a CPU: self time of operators)", when=lambda report: not _times_operators(report)),
    Column("operator_ns", "operators", "ns", lambda r: r.timing.kernel_ns, "self time of the phase's operators, per traced step", when=_times_operators, place="page"),
    Column("kernel_percent", "%", "percent", lambda r: share(r.timing.kernel_ns, r.total.kernel_ns), "share of the total kernel (or operator) time", share=True),
    Column("host_ns", "host", "ns", lambda r: r.timing.host_ns, "wall time of the phase on the host, per traced step", aside=True),
    Column("wait_ns", "waits", "ns", lambda r: r.timing.wait_ns, "part of the host time spent waiting for the device, for kernels of any phase", aside=True),
    Column("traced_ns", "device", "ns", lambda r: r.timing.kernel_ns, "device time of the kernels that the phase launched, per traced step", when=lambda report: not _times_operators(report), place="page", aside=True),
    Column("traced_operator_ns", "operators", "ns", lambda r: r.timing.kernel_ns, "self time of the phase's operators, per traced step", when=_times_operators, place="page", aside=True),
    Column("clock_ratio", "host / device", "ratio", _clock_ratio, "host time divided by device time; far below 1: the host only launches; far above 1: the host waits for the device, or the device waits for the host", when=lambda report: not _times_operators(report), aside=True),
)

KERNEL_COLUMNS: tuple[Column[KernelRow], ...] = (
    Column("config", "config", "text", lambda r: r.config, "name of the configuration", place="data"),
    Column("kernel_ns", "time", "ns", lambda r: r.kernel.kernel_ns, "device time per step"),
    Column("share_percent", "%", "percent", lambda r: share(r.kernel.kernel_ns, r.device_ns), "share of the step's device time", share=True),
    Column("calls", "calls", "count", lambda r: r.kernel.calls, "calls per step"),
    Column("family", "family", "text", lambda r: r.kernel.family or None, "algorithm family", place="data"),
    Column("algorithm", "algorithm", "text", lambda r: family_name(r.kernel.family) if r.kernel.family else None, "algorithm family in words", place="page", rank=1),
    Column("op", "op", "text", lambda r: r.kernel.op, "fprop, dgrad (gradient of the input) or wgrad (gradient of the weight); empty where the name does not say", rank=3),
    Column("math", "math", "text", lambda r: r.kernel.math, "arithmetic; empty where the name does not say", rank=2),
    Column("name", "kernel", "text", lambda r: r.kernel.name, "name of the kernel in the trace (on a CPU: of the operator)", name=True),
)
# fmt: on


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
TABLES = (
    ColumnTable("phases", PHASE_COLUMNS, "One row per phase of a step."),
    ColumnTable("kernels", KERNEL_COLUMNS, "One row per kernel (on a CPU: per operator)."),
    ColumnTable("idle", IDLE_COLUMNS, "One row per configuration and cause of idle time, per traced step."),
    ColumnTable("waits", WAIT_COLUMNS, "One row per configuration and kind of call in which the host waits for the device, per traced step."),
)
# fmt: on
