"""The tables of a record as pandas data frames. pandas is imported on use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.check import CheckResult
from profiler_kit.records.comparison import Comparison
from profiler_kit.records.document import Table, Value
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.saved import kind_words
from profiler_kit.records.serde import SavedRecord
from profiler_kit.records.trace_comparison import TraceComparison
from profiler_kit.report.results import result_document
from profiler_kit.report.rows import run_by_name
from profiler_kit.report.tables import data_tables
from profiler_kit.report.trace_tables import trace_data_tables

if TYPE_CHECKING:
    import pandas

# Names that several kinds of records share, and the table of each kind where its own name differs.
_COMPARED: Final = {"runs": "times", "memory": "peak_parts"}
SHARED_NAMES: Final[dict[type[SavedRecord], dict[str, str]]] = {
    TraceReport: {
        "layers": "trace_modules",
        "runs": "traces",
        "phases": "trace_phases",
        "kernels": "trace_kernels",
        "ops": "trace_operators",
        "idle": "trace_idle",
        "waits": "trace_syncs",
        "host": "trace_host",
        "places": "trace_places",
        "steps": "trace_steps",
        "streams": "trace_streams",
    },
    Comparison: _COMPARED,
    CheckResult: _COMPARED,
    TraceComparison: {"layers": "modules", "ops": "operators", "idle": "causes"},
}


def dataframe(record: SavedRecord, table: str | None = None, *, run: str | None = None) -> pandas.DataFrame:
    """One table of `record` as a data frame, with the columns of docs/columns.md.

    `table`: None for the main one: ``layers`` of a report or a comparison, ``phases`` of a trace report, ``changes`` of compared
    traces, ``budgets`` of a check. The error for an unknown name lists the names.
    `run`: the configuration of the times in a report's ``layers``, None for the baseline; other tables hold all runs.

    **Units**: raw values in base units; unknown is NA.

    Raises: UsageError for an unknown table or run, KitError if pandas is not installed.
    """
    if run is not None and not isinstance(record, Report):
        raise UsageError(f"{kind_words(record.kind)} has no configurations to choose from", hint="omit run")
    tables = {data.name: data for data in _tables(record, run)}
    shared = SHARED_NAMES.get(type(record), {})
    tables |= {name: tables[own] for name, own in shared.items() if own in tables}
    if table is None:
        table = next(iter(tables))
    if table not in tables:
        raise UsageError(
            f"{kind_words(record.kind)} has no table {table!r}",
            hint=f"choose one of: {', '.join(_listed(tables, shared))}",
        )
    return _frame(tables[table])


def _tables(record: SavedRecord, run: str | None) -> Iterable[Table]:
    """The complete tables of `record`, the main one first."""
    if isinstance(record, Report):
        return data_tables(record, run_by_name(record, run))
    if isinstance(record, TraceReport):
        return trace_data_tables(record)
    return result_document(record).full


def _listed(tables: Mapping[str, Table], shared: Mapping[str, str]) -> list[str]:
    """The names of `tables`, each table once: by its shared name where it has one."""
    names = {id(tables[own]): name for name, own in shared.items() if own in tables}
    return list(dict.fromkeys(names.get(id(table), name) for name, table in tables.items()))


def _frame(data: Table) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError as error:
        raise KitError(
            "pandas is not installed, but data frames need it", hint=install_command("profiler-kit[pandas]")
        ) from error
    frame: pandas.DataFrame = pandas.DataFrame(
        {head.key: _series(data, i, pandas) for i, head in enumerate(data.heads)}
    )
    return frame


def _series(table: Table, index: int, pandas: Any) -> Any:
    """Column `index` with a type that can hold NA, so that an unknown value does not turn integers into floats."""
    values: list[Value] = [row[index] for row in table.rows]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        dtype = "Int64"
    elif kinds and kinds <= {int, float}:
        dtype = "Float64"
    elif kinds == {bool}:
        dtype = "boolean"
    else:
        dtype = "object"
    return pandas.Series(values, dtype=dtype)
