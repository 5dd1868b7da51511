"""The columns of the ranks of one job: their time, their memory, and the collectives of a step."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.records.parallel import RankRun
from profiler_kit.records.ranks import RankTime, StepCollective
from profiler_kit.report.columns.column import Column, ColumnTable, share


@dataclass(frozen=True, slots=True, kw_only=True)
class RankRunRow:
    """A rank of a measured configuration, with the predicted peak of a rank."""

    config: str
    run: RankRun
    predicted_bytes: int | None


def _rate(collective: StepCollective) -> float | None:
    """The bytes per second of a collective after the last rank has arrived; None for unknown sizes."""
    moving_ns = collective.duration_ns - collective.wait_ns
    return collective.bytes * 1e9 / moving_ns if collective.bytes and moving_ns > 0 else None


def _error_percent(row: RankRunRow) -> float | None:
    measured = row.run.peak_allocated_bytes
    return share(row.predicted_bytes - measured, measured) if measured and row.predicted_bytes is not None else None


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

RANK_RUN_COLUMNS: tuple[Column[RankRunRow], ...] = (
    Column("config", "configuration", "text", lambda r: r.config, "name of the configuration", name=True, place="data"),
    Column("rank", "rank", "count", lambda r: r.run.rank, "the rank"),
    Column("host", "machine", "text", lambda r: r.run.host, "name of the rank's machine", rank=3, name=True),
    Column("device_name", "device", "text", lambda r: r.run.device_name, "name of the rank's device", rank=4, name=True),
    Column("step_ns", "step", "ns", lambda r: r.run.step_ns.median if r.run.step_ns else None, "median timed step, without the profiler"),
    Column("step_low_ns", "at least", "ns", lambda r: r.run.step_ns.low if r.run.step_ns else None, "lower end of the median's interval", rank=2),
    Column("step_high_ns", "at most", "ns", lambda r: r.run.step_ns.high if r.run.step_ns else None, "upper end of the median's interval", rank=2),
    Column("peak_bytes", "peak", "bytes", lambda r: r.run.peak_allocated_bytes, "peak allocated bytes in the timed steps"),
    Column("predicted_bytes", "predicted", "bytes", lambda r: r.predicted_bytes, "predicted peak of a rank, with workspace and rounding where the device is known", rank=1),
    Column("error_percent", "error %", "percent", _error_percent, "the prediction minus the measured peak, as a percentage of the measured peak", rank=1),
    Column("reserved_bytes", "reserved", "bytes", lambda r: r.run.peak_reserved_bytes, "peak of the memory that the allocator holds", rank=1),
    Column("rss_bytes", "process peak", "bytes", lambda r: r.run.peak_rss_bytes, "peak of the process's host memory", rank=2),
)  # fmt: skip

COLLECTIVE_COLUMNS: tuple[Column[StepCollective], ...] = (
    Column("number", "no.", "count", lambda c: c.number, "place of the collective in the step"),
    Column("kind", "collective", "text", lambda c: c.kind.replace("_", "-"), "the kind of collective", name=True),
    Column("group", "group", "text", lambda c: c.group, "the ranks of its process group, or its stream", rank=4, name=True),
    Column("bytes", "message", "bytes", lambda c: c.bytes, "bytes of its message: of a bucket of gradients, or of the parameters of a unit"),
    Column("start_ns", "start", "ns", lambda c: c.start_ns, "from the start of the step", rank=2),
    Column("duration_ns", "duration", "ns", lambda c: c.duration_ns, "its duration on the median rank"),
    Column("overlapped_ns", "overlapped", "ns", lambda c: c.duration_ns - c.exposed_ns, "part of the duration with computation beside", rank=1),
    Column("exposed_ns", "exposed", "ns", lambda c: c.exposed_ns, "part of the duration without computation beside"),
    Column("wait_ns", "waits", "ns", lambda c: c.wait_ns, "part of the duration in which the median rank waits for later ranks"),
    Column("rate", "rate", "bytes/s", _rate, "bytes of the message divided by the duration without waits", rank=1),
)  # fmt: skip

TABLES = (
    ColumnTable("collectives", COLLECTIVE_COLUMNS, "The collectives of a step that all ranks share, one row each: medians over the ranks and the steps."),
    ColumnTable("rank_runs", RANK_RUN_COLUMNS, "`analyze --parallel`: the timed step and the peak memory of each rank, by configuration."),
    ColumnTable("ranks", RANK_COLUMNS, "`inspect` of several ranks: one row per rank ([how ranks are compared](ranks.md))."),
)  # fmt: skip
