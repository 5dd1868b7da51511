"""The columns of ranks beside each other."""

from __future__ import annotations

from profiler_kit.records.ranks import RankTime
from profiler_kit.report.columns.column import Column, ColumnTable
from profiler_kit.report.columns.values import share

# ruff: noqa: E501 - one column, one line

RANK_COLUMNS: tuple[Column[RankTime], ...] = (
    Column("rank", "rank", "count", lambda r: r.rank, "as the trace says, else as the file is called, else its place"),
    Column("file", "file", "text", lambda r: r.file, "the file, as given", place="data"),
    Column("steps", "steps", "count", lambda r: r.steps, "how many steps the means are over", place="data"),
    Column("step_ns", "step", "ns", lambda r: r.step_ns, "mean period of the steps that all ranks have: computing, exposed and idle sum to it"),
    Column("compute_ns", "computing", "ns", lambda r: r.compute_ns, "of it, busy with anything but collectives"),
    Column("compute_percent", "%", "percent", lambda r: share(r.compute_ns, r.step_ns), "share of the step", rank=3),
    Column("exposed_ns", "exposed", "ns", lambda r: r.exposed_ns, "of it, in collectives alone"),
    Column("idle_ns", "idle", "ns", lambda r: r.idle_ns, "of it, neither", rank=1),
    Column("communication_ns", "communication", "ns", lambda r: r.communication_ns, "in collectives, covered by computation or not", rank=2),
    Column("wait_ns", "waits", "ns", lambda r: r.wait_ns, "of that, until the last of the ranks had come"),
)  # fmt: skip

TABLES = (
    ColumnTable("ranks", RANK_COLUMNS, "`inspect` of several ranks: one row per rank ([how they are held against each other](ranks.md))."),
)  # fmt: skip
