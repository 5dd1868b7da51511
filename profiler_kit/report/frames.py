"""A report's tables as pandas data frames. pandas is imported on use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.document import Table, Value
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.report.rows import run_by_name
from profiler_kit.report.tables import data_tables
from profiler_kit.report.trace_tables import trace_data_tables

if TYPE_CHECKING:
    import pandas


def dataframe(report: Report | TraceReport, table: str | None = None, *, run: str | None = None) -> pandas.DataFrame:
    """One table of `report` as a data frame, with the columns of docs/columns.md.

    `table`: None for ``layers``, or for ``trace_phases`` of a trace report.
    `run`: the configuration of the times in ``layers``, None for the baseline; other tables hold all runs.

    **Units**: raw values in base units; unknown is NA.

    Raises: UsageError for an unknown table or run, KitError if pandas is not installed.
    """
    is_trace = isinstance(report, TraceReport)
    tables = (
        trace_data_tables(report) if isinstance(report, TraceReport) else data_tables(report, run_by_name(report, run))
    )
    by_name = {table.name: table for table in tables}
    data = by_name.get(table or ("trace_phases" if is_trace else "layers"))
    if data is None:
        raise UsageError(f"unknown table {table!r}", hint=f"choose one of: {', '.join(by_name)}")
    try:
        import pandas
    except ImportError as error:
        raise KitError(
            "pandas is not installed, but data frames need it", hint="pip install 'profiler-kit[pandas]'"
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
