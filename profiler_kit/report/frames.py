"""A report's tables as pandas data frames, for questions that no table here answers. pandas is imported when asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from profiler_kit.errors import KitError, UsageError
from profiler_kit.records.document import Table, Value
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.report.rows import chosen_run
from profiler_kit.report.tables import data_tables
from profiler_kit.report.trace_tables import trace_data_tables

if TYPE_CHECKING:
    import pandas


def dataframe(report: Report | TraceReport, table: str | None = None, *, run: str | None = None) -> pandas.DataFrame:
    """One table of `report` (None: ``layers``, or of traces ``trace_phases``) with the columns of docs/columns.md.

    Raw values in base units; unknown is NA.

    `run`: the configuration whose times stand in ``layers`` (None: the baseline); the other tables hold all runs.

    Raises UsageError for an unknown table or run, KitError where pandas is not installed.
    """
    traced = isinstance(report, TraceReport)
    tables = (
        trace_data_tables(report) if isinstance(report, TraceReport) else data_tables(report, chosen_run(report, run))
    )
    by_name = {each.name: each for each in tables}
    chosen = by_name.get(table or ("trace_phases" if traced else "layers"))
    if chosen is None:
        raise UsageError(f"no table {table!r}", hint=f"one of: {', '.join(by_name)}")
    try:
        import pandas
    except ImportError as error:
        raise KitError(
            "data frames need pandas, which is not installed", hint="pip install 'profiler-kit[pandas]'"
        ) from error
    frame: pandas.DataFrame = pandas.DataFrame(
        {head.key: _series(chosen, i, pandas) for i, head in enumerate(chosen.heads)}
    )
    return frame


def _series(table: Table, index: int, pandas: Any) -> Any:
    """A column with a type that can hold NA, so that an unknown value does not turn exact integers into floats."""
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
