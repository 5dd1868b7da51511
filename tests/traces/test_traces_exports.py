from __future__ import annotations

import builtins
import csv
import io
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.inspect_options import EVENT_SUFFIXES, EventFormat
from profiler_kit.traces import exports
from profiler_kit.traces.columns import Column, Events, data_frame, events
from profiler_kit.traces.reader import read
from profiler_kit.traces.table import Table

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 2, "ts": 1.25, "dur": 3, "args": {
        "External id": 7, "Sequence number": 5, "Input Dims": [[2,  3], [3, 4]], "Concrete Inputs": ["", ""]}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 2, "ts": 2, "dur": 1,
     "args": {"correlation": 0}},
    {"ph": "X", "cat": "kernel", "name": "=cmd|' /C calc'!A1", "pid": 0, "tid": 7, "ts": 5, "dur": 0.001, "args": {
        "device": 0, "stream": 7, "correlation": 0, "grid": [1, 2, 3], "est. achieved occupancy %": 50}},
    {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 2, "ts": 3, "args": {
        "Total Allocated": 1 << 60, "Bytes": -512, "Device Type": 1, "Device Id": 0}},
    {"ph": "X", "cat": "cpu_op", "name": "two\nlines, \"quoted\" \u001b[31m", "pid": 1, "tid": 2, "ts": 9, "dur": 0},
]  # fmt: skip


@pytest.fixture
def table(tmp_path: Path) -> Table:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": EVENTS}))
    return read(path)


def test_every_format_has_a_writer_and_a_suffix() -> None:
    assert set(exports.WRITERS) == set(get_args(EventFormat)) == set(EVENT_SUFFIXES.values())


def as_csv(found: Events) -> list[dict[str, str]]:
    out = io.StringIO(newline="")
    exports.write_csv(found, out)
    assert out.getvalue().count("\r\n") == found.length + 1
    return list(csv.DictReader(io.StringIO(out.getvalue(), newline="")))


def test_every_event_is_a_row_with_what_the_file_says(table: Table) -> None:
    rows = as_csv(events(table))
    assert [row["row"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [row["kind"] for row in rows] == ["operator", "runtime", "kernel", "memory", "operator"]
    first, launch, kernel, memory, _ = rows
    assert (first["start_ns"], first["duration_ns"], first["sequence"], first["external_id"]) == (
        "1250",
        "3000",
        "5",
        "7",
    )
    assert (first["shapes"], first["inputs"]) == ("[[2, 3], [3, 4]]", '["", ""]')
    assert (first["process"], first["thread"], first["device"], first["stream"]) == ("1", "2", "", "")
    assert launch["correlation"] == kernel["correlation"] == "0"  # zero is a value
    assert (kernel["device"], kernel["stream"], kernel["duration_ns"], kernel["grid"]) == ("0", "7", "1", "[1, 2, 3]")
    assert memory["correlation"] == memory["shapes"] == ""
    assert (memory["total_allocated"], memory["bytes"]) == (str(1 << 60), "-512")


def test_csv_is_safe_to_open_in_a_spreadsheet(table: Table) -> None:
    rows = as_csv(events(table))
    assert rows[2]["name"] == "'=cmd|' /C calc'!A1"
    assert rows[4]["name"] == 'two lines, "quoted" \\x1b[31m'
    assert rows[3]["bytes"] == "-512"  # a number is no formula


def test_sqlite_holds_the_same_rows(table: Table, tmp_path: Path) -> None:
    path = tmp_path / "events.sqlite"
    exports.write_sqlite(events(table), path)
    with closing(sqlite3.connect(path)) as connection:
        connection.row_factory = sqlite3.Row
        rows = [dict(row) for row in connection.execute("SELECT * FROM events ORDER BY row")]
        assert connection.execute("SELECT value FROM about WHERE name = 'rows'").fetchone()[0] == 5
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert rows[2]["name"] == EVENTS[2]["name"]  # as it is: no spreadsheet opens it
    assert [row["correlation"] for row in rows] == [None, 0, 0, None, None]
    assert [row["total_allocated"] for row in rows] == [None, None, None, 1 << 60, None]
    assert rows[2]["est_achieved_occupancy"] == 50.0


def test_the_data_frame_holds_the_same_rows(table: Table) -> None:
    pandas = pytest.importorskip("pandas")
    frame = data_frame(events(table))
    assert frame.index.name == "row"
    assert frame["name"].tolist() == [event["name"] for event in EVENTS]
    assert {str(frame[c].dtype) for c in ("name", "kind", "category", "stream", "shapes")} == {"category"}
    assert str(frame["correlation"].dtype) == "Int64"
    assert frame["correlation"].tolist() == [pandas.NA, 0, 0, pandas.NA, pandas.NA]
    assert frame["total_allocated"].dropna().tolist() == [1 << 60]  # to the byte: no float
    assert frame["shapes"].cat.categories.tolist() == ["[[2, 3], [3, 4]]"]
    assert frame.attrs["rows"] == 5


def test_parquet_holds_the_same_rows(table: Table, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "events.parquet"
    exports.write_parquet(events(table), path)
    back = parquet.read_table(path)
    assert back.schema.metadata[b"profiler_kit.rows"] == b"5"
    rows = back.to_pylist()
    assert [row["name"] for row in rows] == [event["name"] for event in EVENTS]
    assert [row["correlation"] for row in rows] == [None, 0, 0, None, None]
    assert rows[3]["total_allocated"] == 1 << 60


def test_parts_of_the_rows_are_the_rows(table: Table) -> None:
    for column in events(table).columns:
        values = column.plain(0, 5)
        assert [value for start in range(5) for value in column.plain(start, start + 1)] == values
        assert column.plain(1, 4) == values[1:4]


def test_many_rows_go_out_in_parts(tmp_path: Path) -> None:
    count = 120_001
    few = np.arange(0, count, 1000)
    result = Events(
        columns=(
            Column(name="n", values=np.arange(count, dtype=np.int64), none=None),
            Column(name="few", values=few * 2, rows=few, none=None),
            Column(name="text", values=np.arange(count) % 3 - 1, labels=("a", "b")),
        ),
        length=count,
    )
    path = tmp_path / "many.sqlite"
    exports.write_sqlite(result, path)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT count(*), sum(n = row), sum(few), count(few), sum(text = 'b'), count(text) FROM events"
        got = connection.execute(query).fetchone()
    assert got == (count, count, int(few.sum() * 2), len(few), count // 3, 2 * count // 3)
    assert len(as_csv(result)) == count
    parquet = pytest.importorskip("pyarrow.parquet")
    exports.write_parquet(result, tmp_path / "many.parquet")
    assert parquet.read_table(tmp_path / "many.parquet")["few"].null_count == count - len(few)


def test_columns_of_the_same_word_have_names_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    counter = {"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 1}
    path.write_text(json.dumps({"traceEvents": [
        EVENTS[0], {**counter, "args": {"A B": 1, "a-b": 2}}, {**counter, "args": {"%": 3}}]}))  # fmt: skip
    names = [column.name for column in events(read(path)).columns]
    assert len(set(names)) == len(names)
    assert {"counter_a_b", "counter_a_b_2"} <= set(names)


def test_broken_names_are_told_apart_nowhere_and_lost_nowhere(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    path = tmp_path / "trace.json"
    box = b'{"ph": "X", "cat": "cpu_op", "name": "%s", "pid": 1, "tid": 1, "ts": 1, "dur": 1}'
    path.write_bytes(b'{"traceEvents": [' + b",".join(box % n for n in (b"a\xff", b"a\xfe", b"\\ud800")) + b"]}")
    table = read(path)
    assert len(data_frame(events(table))["name"].dropna()) == len(table)
    exports.write_sqlite(events(table), tmp_path / "x.sqlite")
    assert len(as_csv(events(table))) == len(table)


@pytest.mark.parametrize(("missing", "needs"), [("pandas", "pandas"), ("pyarrow", "pyarrow")])
def test_what_is_not_installed_is_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, missing: str, needs: str
) -> None:
    imported = builtins.__import__

    def without(name: str, *args: Any) -> Any:
        if name.partition(".")[0] == missing:
            raise ImportError(name)
        return imported(name, *args)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(KitError, match=needs) as raised:
        data_frame(events(table)) if missing == "pandas" else exports.require_format("parquet")
    assert "pip install" in str(raised.value.hint)
    exports.require_format("csv")
    exports.require_format("sqlite")
    assert as_csv(events(table))


def test_a_database_that_cannot_be_written_is_told_so(table: Table, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written"):
        exports.write_sqlite(events(table), tmp_path / "none" / "events.sqlite")
