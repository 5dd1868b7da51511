"""The columns of a run's phases under each clock."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.report import Report
from profiler_kit.records.traces import PhaseTime
from profiler_kit.report.columns.column import Column, ColumnTable, share


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseRow:
    """One phase of a run (or the sum of all phases), and the sum of all phases for the shares."""

    config: str
    label: str
    timing: PhaseTime
    total: PhaseTime


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
    Column("host_ns", "host", "ns", lambda r: r.timing.host_ns, "wall time of the phase on the host, per traced step", place="data"),
    Column("wait_ns", "waits", "ns", lambda r: r.timing.wait_ns, "part of the host time spent waiting for the device, for kernels of any phase", place="data"),
    Column("clock_ratio", "host / device", "ratio", _clock_ratio, "host time divided by device time; far below 1: the host only launches; far above 1: the host waits for the device, or the device waits for the host", when=lambda report: not _times_operators(report), place="data"),
)

TABLES = (
    ColumnTable("phases", PHASE_COLUMNS, "One row per phase of a step."),
)
# fmt: on
