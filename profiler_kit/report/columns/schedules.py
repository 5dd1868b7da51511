"""The columns of runs with changing input shapes."""

from __future__ import annotations

from profiler_kit.records.experiments import ShapeSchedule
from profiler_kit.records.schedules import (
    ShapeTime,
    cycle_ns,
    last_batch,
    new_shape_factor,
    new_shape_ns,
    repeated_shape_ns,
    shape_text,
    shape_times,
    total_ns,
)
from profiler_kit.report.columns.column import Column, ColumnTable

# fmt: off
# ruff: noqa: E501 - one column, one line
SCHEDULE_COLUMNS: tuple[Column[ShapeSchedule], ...] = (
    Column("config", "configuration", "text", lambda s: s.config, "name of the configuration", name=True),
    Column("source", "shapes from", "text", lambda s: s.source, "generated, given, or the name of a recorded file", place="data"),
    Column("shapes", "shapes", "count", lambda s: len([t for t in shape_times(s) if not t.last_batch]), "number of different shapes, smaller last batches excluded", rank=4),
    Column("steps", "steps", "count", lambda s: len(s.steps), "number of steps", rank=5),
    Column("cycle_1_ns", "cycle 1", "ns", lambda s: cycle_ns(s, 1), "total time of the first pass over the shapes; empty where the run stopped early"),
    Column("cycle_2_ns", "cycle 2", "ns", lambda s: cycle_ns(s, 2), "total time of the second pass over the shapes"),
    Column("cycle_3_ns", "cycle 3", "ns", lambda s: cycle_ns(s, 3), "total time of the third pass over the shapes"),
    Column("total_ns", "all steps", "ns", lambda s: total_ns(s) if s.steps else None, "total time of all steps", place="data"),
    Column("new_ns", "new shape", "ns", new_shape_ns, "median time of the first step of each shape"),
    Column("seen_ns", "repeated shape", "ns", repeated_shape_ns, "median time of the steps with an earlier shape"),
    Column("factor", "new / repeated", "ratio", new_shape_factor, "median over shapes of the first step divided by the later steps", rank=2),
    Column("last_batch_ns", "last batch new", "ns", lambda s: t.first_ns if (t := last_batch(s)) else None, "time of the first step with a smaller batch, such as the last batch of a data set", rank=1),
    Column("last_batch_seen_ns", "last batch repeated", "ns", lambda s: t.seen_ns if (t := last_batch(s)) else None, "median time of the later steps with the smaller batch", rank=3),
    Column("failure", "failure", "text", lambda s: s.failure, "reason why the run stopped early", place="data"),
)

SHAPE_COLUMNS: tuple[Column[ShapeTime], ...] = (
    Column("shape", "shape", "text", lambda t: shape_text(t.shape), "shape of the input that changes", name=True),
    Column("config", "configuration", "text", lambda t: t.config, "name of the configuration", name=True),
    Column("steps", "steps", "count", lambda t: t.steps, "number of steps with this shape", rank=2),
    Column("first_ns", "first step", "ns", lambda t: t.first_ns, "time of the first step with this shape"),
    Column("seen_ns", "later steps", "ns", lambda t: t.seen_ns, "median time of the later steps with this shape"),
    Column("factor", "first / later", "ratio", lambda t: t.factor, "time of the first step divided by the median of the later steps"),
    Column("peak_bytes", "peak", "bytes", lambda t: t.peak_bytes, "peak allocated memory of the steps with this shape", rank=1),
    Column("last_batch", "last batch", "bool", lambda t: t.last_batch, "whether this is a smaller last batch", place="data"),
)

TABLES = (
    ColumnTable("schedules", SCHEDULE_COLUMNS, "One row per configuration that ran with changing shapes (`analyze --shapes`, [method](changing_shapes.md))."),
    ColumnTable("shapes", SHAPE_COLUMNS, "One row per shape and configuration of such runs."),
)
# fmt: on
