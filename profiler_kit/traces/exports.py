"""Events written as CSV, SQLite or Parquet, some rows at a time. The first two need nothing but Python."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TextIO

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.trace_asks import EventFormat
from profiler_kit.traces.columns import Column, Events

# A spreadsheet takes a text that begins with one of these for a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@")
_ROWS_OF_A_GROUP: Final = 250_000  # Parquet's row groups: few enough to fit memory, enough to compress


def check(chosen: EventFormat) -> None:
    """Raises KitError now where `chosen` needs what is not installed, rather than after reading."""
    if chosen == "parquet":
        _pyarrow()


def write(events: Events, to: Path | TextIO, chosen: EventFormat) -> None:
    """Writes `events` as `chosen` says to a new file, or as CSV to a stream. Raises as the format's own writer does."""
    if isinstance(to, Path):
        WRITERS[chosen](events, to)
    else:
        write_csv(events, to)


def write_csv(events: Events, out: TextIO) -> None:
    """Writes `events` as CSV (RFC 4180): a head, then a row per event, `row` first; absent values are empty.

    Texts are safe to open in a spreadsheet: one line each, and none is taken for a formula.
    """
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["row", *(column.name for column in events.columns)])
    columns = [_safe(column) for column in events.columns]
    for start, stop in events.chunks():
        writer.writerows(zip(range(start, stop), *(column.plain(start, stop) for column in columns), strict=True))


def _csv_file(events: Events, path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        write_csv(events, out)


def write_sqlite(events: Events, path: Path) -> None:
    """Writes a new database at `path`: the table `events`, a row per event, and `about` (name, value), of the whole trace.

    Raises: UsageError where it can't be written.
    """
    try:
        _fill(events, path)
    except sqlite3.Error as error:
        raise UsageError(f"cannot be written: {error}", where=str(path), hint="give another place") from error


def _fill(events: Events, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # The file is nobody else's until it is whole.
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        columns = ((column.name.replace('"', '""'), _sql_type(column)) for column in events.columns)
        definitions = ", ".join(f'"{name}" {kind}' for name, kind in columns)
        connection.execute(f'CREATE TABLE events ("row" INTEGER PRIMARY KEY, {definitions})')
        holes = ", ".join("?" * (len(events.columns) + 1))
        for start, stop in events.chunks():
            values = (column.plain(start, stop) for column in events.columns)
            connection.executemany(
                f"INSERT INTO events VALUES ({holes})",  # noqa: S608 question marks alone
                zip(range(start, stop), *(map(_storable, column) for column in values), strict=True),
            )
        connection.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value)")
        connection.executemany("INSERT INTO about VALUES (?, ?)", events.about)
        for name in ("start_ns", "correlation", "launch_row"):
            if any(column.name == name for column in events.columns):
                connection.execute(f"CREATE INDEX events_{name} ON events ({name})")
        connection.execute("COMMIT")


def write_parquet(events: Events, path: Path) -> None:
    """Writes `events` as Parquet, texts as dictionaries, `about` in the schema's metadata. Raises KitError without pyarrow."""
    pyarrow = _pyarrow()
    import pyarrow.parquet as parquet

    fields = [("row", pyarrow.int32()), *((column.name, _arrow_type(column, pyarrow)) for column in events.columns)]
    about = {f"profiler_kit.{name}": str(value) for name, value in events.about}
    schema = pyarrow.schema(fields, metadata=about)
    with parquet.ParquetWriter(str(path), schema, compression="zstd") as writer:
        for start, stop in events.chunks(_ROWS_OF_A_GROUP):
            arrays = [pyarrow.array(range(start, stop), type=pyarrow.int32())]
            arrays += [_arrow(column, start, stop, pyarrow) for column in events.columns]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


WRITERS: Final[Mapping[EventFormat, Callable[[Events, Path], None]]] = {
    "csv": _csv_file,
    "parquet": write_parquet,
    "sqlite": write_sqlite,
}


def _safe(column: Column) -> Column:
    """`column` with texts that a spreadsheet takes for texts."""
    if column.labels is None:
        return column
    labels = tuple(map(_safe_text, column.labels))
    return Column(name=column.name, values=column.values, labels=labels, rows=column.rows, none=column.none)


def _safe_text(text: str) -> str:
    line = "".join(char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1] for char in text)
    return f"'{line}" if line.startswith(_FORMULA_STARTS) else line


def _sql_type(column: Column) -> str:
    if column.labels is not None:
        return "TEXT"
    return "REAL" if column.values.dtype.kind == "f" else "INTEGER"


def _storable(value: int | float | str | None) -> int | float | str | None:
    # A lone surrogate, which a broken name may hold, has no UTF-8.
    return (
        value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and not value.isascii() else value
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise KitError(
            "Parquet needs pyarrow, which is not installed",
            hint="pip install 'profiler-kit[tables]', or write CSV or SQLite, which need nothing",
        ) from error
    return pyarrow


def _arrow_type(column: Column, pyarrow: Any) -> Any:
    if column.labels is not None:
        return pyarrow.dictionary(pyarrow.int32(), pyarrow.string())
    return pyarrow.float64() if column.values.dtype.kind == "f" else pyarrow.int64()


def _arrow(column: Column, start: int, stop: int, pyarrow: Any) -> Any:
    values, present = column.part(start, stop)
    if column.labels is None:
        return pyarrow.array(values, type=_arrow_type(column, pyarrow), mask=~present)
    labels = pyarrow.array([_storable(label) for label in column.labels], type=pyarrow.string())
    codes = pyarrow.array(values.astype("int32"), mask=~present)
    return pyarrow.DictionaryArray.from_arrays(codes, labels)
