"""The columns of the ranks of one job."""

from __future__ import annotations

from profiler_kit.records.ranks import RankTime
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share

# ruff: noqa: E501 - one column, one line

RANK_COLUMNS: tuple[Column[RankTime], ...] = (
    Column("rank", "rank", "count", lambda r: r.rank, "rank from the trace, else from the file name, else the file's position"),
    Column("file", "file", "text", lambda r: r.file, "the file, as passed on the command line", place="data"),
    Column("steps", "steps", "count", lambda r: r.steps, "number of steps in the means", place="data"),
    Column("step_ns", "step", "ns", lambda r: r.step_ns, "mean step period over the steps that all ranks have: the sum of computing, exposed and idle"),
    Column("compute_ns", "computing", "ns", lambda r: r.compute_ns, "time in the step with any work other than collectives"),
    Column("compute_percent", "%", "percent", lambda r: share(r.compute_ns, r.step_ns), "computing as a share of the step", rank=3),
    Column("exposed_ns", "exposed", "ns", lambda r: r.exposed_ns, "time in the step with collectives alone"),
    Column("idle_ns", "idle", "ns", lambda r: r.idle_ns, "time in the step without any work", rank=1),
    Column("communication_ns", "communication", "ns", lambda r: r.communication_ns, "time in collectives, overlapped with computation or not", rank=2),
    Column("wait_ns", "waits", "ns", lambda r: r.wait_ns, "part of the communication time spent waiting for the last rank to arrive"),
)  # fmt: skip

TABLES = (
    ColumnTable("ranks", RANK_COLUMNS, "`inspect` of several ranks: one row per rank ([how ranks are compared](ranks.md))."),
)  # fmt: skip
