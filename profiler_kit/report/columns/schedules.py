"""The columns of runs over changing shapes."""

from __future__ import annotations

from profiler_kit.records.laboratory import ShapeSchedule
from profiler_kit.records.schedules import (
    ShapeTime,
    cycle_ns,
    last_batch,
    new_factor,
    new_ns,
    seen_ns,
    shape_text,
    shape_times,
    total_ns,
)
from profiler_kit.report.columns.column import Column, ColumnTable

# fmt: off
# ruff: noqa: E501 - one column, one line
SCHEDULE_COLUMNS: tuple[Column[ShapeSchedule], ...] = (
    Column("config", "configuration", "text", lambda s: s.config, "the configuration it ran under", name=True),
    Column("source", "shapes from", "text", lambda s: s.source, "generated, given, or the name of a recorded file", place="data"),
    Column("shapes", "shapes", "count", lambda s: len([t for t in shape_times(s) if not t.last_batch]), "different shapes, smaller last batches aside", rank=4),
    Column("steps", "steps", "count", lambda s: len(s.steps), "steps that ran", rank=5),
    Column("cycle_1_ns", "cycle 1", "ns", lambda s: cycle_ns(s, 1), "all steps of the first pass over the shapes; a dash where it broke off"),
    Column("cycle_2_ns", "cycle 2", "ns", lambda s: cycle_ns(s, 2), "all steps of the second pass"),
    Column("cycle_3_ns", "cycle 3", "ns", lambda s: cycle_ns(s, 3), "all steps of the third pass"),
    Column("total_ns", "all steps", "ns", lambda s: total_ns(s) if s.steps else None, "all steps together", place="data"),
    Column("new_ns", "new shape", "ns", new_ns, "median step of a shape that had not come before"),
    Column("seen_ns", "seen shape", "ns", seen_ns, "median step of a shape that had come before"),
    Column("factor", "new / seen", "ratio", new_factor, "a shape's first step over its later ones, shape by shape: the median", rank=2),
    Column("last_batch_ns", "last batch new", "ns", lambda s: t.first_ns if (t := last_batch(s)) else None, "the first step of a batch smaller than the others, as a data set's last one is", rank=1),
    Column("last_batch_seen_ns", "last batch seen", "ns", lambda s: t.seen_ns if (t := last_batch(s)) else None, "the median of its later steps", rank=3),
    Column("failure", "failure", "text", lambda s: s.failure, "why it broke off", place="data"),
)

SHAPE_COLUMNS: tuple[Column[ShapeTime], ...] = (
    Column("shape", "shape", "text", lambda t: shape_text(t.shape), "the shape of the input that changes", name=True),
    Column("config", "configuration", "text", lambda t: t.config, "the configuration it ran under", name=True),
    Column("steps", "steps", "count", lambda t: t.steps, "how often it came", rank=2),
    Column("first_ns", "first step", "ns", lambda t: t.first_ns, "its first step"),
    Column("seen_ns", "later", "ns", lambda t: t.seen_ns, "the median of its later steps"),
    Column("factor", "first / later", "ratio", lambda t: t.factor, "how many times as long the first one took"),
    Column("peak_bytes", "peak", "bytes", lambda t: t.peak_bytes, "most bytes allocated in one of its steps", rank=1),
    Column("last_batch", "last batch", "bool", lambda t: t.last_batch, "whether it is a smaller last batch", place="data"),
)

TABLES = (
    ColumnTable("schedules", SCHEDULE_COLUMNS, "One row per configuration that was run over changing shapes (`analyze --shapes`, [how](changing_shapes.md))."),
    ColumnTable("shapes", SHAPE_COLUMNS, "One row per shape of such a run and configuration."),
)
# fmt: on
