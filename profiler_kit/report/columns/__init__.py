"""The columns of every table, one file per family of tables.

A column is one line there: it then stands in the tables, the CSV, the data frames and the reference. A new table is an entry
of its file's ``TABLES``. A new family is a new file.

`when` says for which reports a column makes sense; one that is empty for all rows is not shown either. ``place="data"``
columns are for programs alone (CSV, data frames), ``place="page"`` for people alone.
"""

from __future__ import annotations

import sys

from profiler_kit._family import members
from profiler_kit.report.columns.column import ColumnTable


def all_tables() -> tuple[ColumnTable, ...]:
    """Every table of the reference, in the order of the files' names and of their ``TABLES``."""
    return tuple(table for member in members(sys.modules[__name__]) for table in vars(member).get("TABLES", ()))
