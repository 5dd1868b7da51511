"""Write events as CSV, SQLite or Parquet, some rows at a time. CSV and SQLite need no further packages."""

from __future__ import annotations

import csv
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TextIO

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.inspect_options import EventFormat
from profiler_kit.traces.columns import Column, Events

# A spreadsheet reads text that begins with one of these as a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@")
_ROWS_PER_GROUP: Final = 250_000  # rows per Parquet row group: they fit in memory and compress well


def require_format(event_format: EventFormat) -> None:
    """Raise KitError if the format `chosen` needs a package that is not installed. Call this before reading a trace."""
    if event_format == "parquet":
        _pyarrow()


def write(events: Events, to: Path | TextIO, event_format: EventFormat) -> None:
    """Write `events` in the format `chosen` to a new file, or as CSV to a stream.

    Raises the errors of that format's writer.
    """
    if isinstance(to, Path):
        WRITERS[event_format](events, to)
    else:
        write_csv(events, to)


def write_csv(events: Events, out: TextIO) -> None:
    """Write `events` as CSV (RFC 4180): a header, then a row per event with `row` first. Missing values are empty.

    Texts are safe to open in a spreadsheet: each is one line, and none is read as a formula.
    """
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(["row", *(column.name for column in events.columns)])
    columns = [_spreadsheet_safe(column) for column in events.columns]
    for start, stop in events.chunks():
        writer.writerows(zip(range(start, stop), *(column.plain(start, stop) for column in columns), strict=True))


def _csv_file(events: Events, path: Path) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as out:
        write_csv(events, out)


def write_sqlite(events: Events, path: Path) -> None:
    """Write a new database at `path` with the tables `events` and `about`.

    `events` has a row per event, `about` the properties (name, value) of the whole trace.

    Raises: UsageError if it cannot be written.
    """
    try:
        _fill_database(events, path)
    except sqlite3.Error as error:
        raise UsageError(f"cannot be written: {error}", where=str(path), hint="choose another path") from error


def _fill_database(events: Events, path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        # No other process opens the file until it is complete.
        connection.execute("PRAGMA journal_mode=OFF")
        connection.execute("PRAGMA synchronous=OFF")
        connection.execute("BEGIN")
        columns = ((column.name.replace('"', '""'), _sql_type(column)) for column in events.columns)
        definitions = ", ".join(f'"{name}" {kind}' for name, kind in columns)
        connection.execute(f'CREATE TABLE events ("row" INTEGER PRIMARY KEY, {definitions})')
        placeholders = ", ".join("?" * (len(events.columns) + 1))
        for start, stop in events.chunks():
            values = (column.plain(start, stop) for column in events.columns)
            connection.executemany(
                f"INSERT INTO events VALUES ({placeholders})",  # noqa: S608 question marks alone
                zip(range(start, stop), *(map(_without_surrogates, column) for column in values), strict=True),
            )
        connection.execute("CREATE TABLE about (name TEXT PRIMARY KEY, value)")
        connection.executemany("INSERT INTO about VALUES (?, ?)", events.about)
        for name in ("start_ns", "correlation", "launch_row"):
            if any(column.name == name for column in events.columns):
                connection.execute(f"CREATE INDEX events_{name} ON events ({name})")
        connection.execute("COMMIT")


def write_parquet(events: Events, path: Path) -> None:
    """Write `events` as Parquet, with texts as dictionaries and `about` in the schema's metadata.

    Raises KitError without pyarrow.
    """
    pyarrow = _pyarrow()
    import pyarrow.parquet as parquet

    fields = [("row", pyarrow.int32()), *((column.name, _arrow_type(column, pyarrow)) for column in events.columns)]
    about = {f"profiler_kit.{name}": str(value) for name, value in events.about}
    schema = pyarrow.schema(fields, metadata=about)
    with parquet.ParquetWriter(str(path), schema, compression="zstd") as writer:
        for start, stop in events.chunks(_ROWS_PER_GROUP):
            arrays = [pyarrow.array(range(start, stop), type=pyarrow.int32())]
            arrays += [_arrow(column, start, stop, pyarrow) for column in events.columns]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


WRITERS: Final[Mapping[EventFormat, Callable[[Events, Path], None]]] = {
    "csv": _csv_file,
    "parquet": write_parquet,
    "sqlite": write_sqlite,
}


def _spreadsheet_safe(column: Column) -> Column:
    """Return `column` with texts that a spreadsheet reads as text."""
    if column.labels is None:
        return column
    labels = tuple(map(_spreadsheet_safe_text, column.labels))
    return Column(name=column.name, values=column.values, labels=labels, rows=column.rows, none=column.none)


def _spreadsheet_safe_text(text: str) -> str:
    line = "".join(char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1] for char in text)
    return f"'{line}" if line.startswith(_FORMULA_STARTS) else line


def _sql_type(column: Column) -> str:
    if column.labels is not None:
        return "TEXT"
    return "REAL" if column.values.dtype.kind == "f" else "INTEGER"


def _without_surrogates(value: int | float | str | None) -> int | float | str | None:
    # A lone surrogate in a malformed name has no UTF-8 encoding.
    return (
        value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) and not value.isascii() else value
    )


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError as error:
        raise KitError(
            "Parquet needs pyarrow, which is not installed",
            hint=f"{install_command('profiler-kit[tables]')}; or write CSV or SQLite",
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
    labels = pyarrow.array([_without_surrogates(label) for label in column.labels], type=pyarrow.string())
    codes = pyarrow.array(values.astype("int32"), mask=~present)
    return pyarrow.DictionaryArray.from_arrays(codes, labels)
