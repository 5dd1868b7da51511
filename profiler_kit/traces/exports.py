"""Write a table of events as CSV, SQLite or Parquet, with pandas."""

from __future__ import annotations

import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO, cast

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.inspect_options import EventFormat

if TYPE_CHECKING:
    import pandas

_PACKAGES: Final[dict[EventFormat, tuple[str, ...]]] = {"parquet": ("pandas", "pyarrow")}
# A spreadsheet reads text that begins with one of these as a formula.
_FORMULA_STARTS: Final = ("=", "+", "-", "@")
_ROWS: Final = 50_000  # written to a database at once: as Python objects, they take many times their size


def require_format(event_format: EventFormat) -> None:
    """Raise KitError if the format needs a package that is not installed. Call this before reading a trace."""
    for package in _PACKAGES.get(event_format, ("pandas",)):
        try:
            importlib.import_module(package)
        except ImportError as error:
            raise KitError(
                f"a table of events needs {package}, which is not installed",
                hint=install_command("profiler-kit[tables]"),
            ) from error


def write(frame: pandas.DataFrame, to: Path | TextIO, event_format: EventFormat) -> None:
    """Write `frame` to a new file, or as CSV to a stream. Raises: UsageError if a database cannot be written."""
    if event_format == "csv" or not isinstance(to, Path):
        _spreadsheet_safe(frame).to_csv(to, encoding="utf-8", errors="backslashreplace", lineterminator="\r\n")
    elif event_format == "parquet":
        rows = frame.reset_index()
        rows.attrs = frame.attrs
        rows.to_parquet(to, engine="pyarrow", compression="zstd", index=False)
    else:
        try:
            _write_sqlite(frame, to)
        except sqlite3.Error as error:
            raise UsageError(f"cannot be written: {error}", where=str(to), hint="choose another path") from error


def _spreadsheet_safe(frame: pandas.DataFrame) -> pandas.DataFrame:
    """`frame` with texts on one line each, none of which a spreadsheet reads as a formula: a trace may come from anyone."""
    texts = frame.select_dtypes("category")
    safe = {str(name): column.map(_safe_text, na_action="ignore") for name, column in texts.items()}
    return cast("pandas.DataFrame", frame.assign(**safe))


def _safe_text(text: str) -> str:
    line = "".join(char if char.isprintable() else " " if char.isspace() else ascii(char)[1:-1] for char in text)
    return f"'{line}" if line.startswith(_FORMULA_STARTS) else line


def _write_sqlite(frame: pandas.DataFrame, path: Path) -> None:
    """Write a database with the tables ``events``, a row per event, and ``about``, the properties of the whole trace."""
    import pandas

    with closing(sqlite3.connect(path)) as connection:
        for start in range(0, max(len(frame), 1), _ROWS):
            rows = frame.iloc[start : start + _ROWS].reset_index()
            rows.to_sql("events", connection, if_exists="append", index=False, dtype={"row": "INTEGER PRIMARY KEY"})
        about = pandas.Series(frame.attrs, dtype=object, name="value").rename_axis("name")
        about.to_sql("about", connection, dtype={"name": "TEXT PRIMARY KEY"})
        for name in ("start_ns", "correlation", "launch_row"):
            connection.execute(f"CREATE INDEX events_{name} ON events ({name})")
        connection.commit()
