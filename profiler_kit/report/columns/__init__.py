"""The columns of every table, one file per family of tables.

A column is one line there. The line adds it to the tables, CSV, data frames and the reference. A new table is an entry in its
file's ``TABLES``. A new family is a new file.

`when` selects the reports that a column applies to. A column without a value in any row is hidden. ``place="data"`` columns
are only in CSV and data frames, ``place="page"`` columns only in the terminal and Markdown.
"""

from __future__ import annotations

import sys

from profiler_kit._family import members
from profiler_kit.report.columns.column import ColumnTable


def all_tables() -> tuple[ColumnTable, ...]:
    """Every table of the reference, in the order of the file names and of their ``TABLES``."""
    return tuple(table for member in members(sys.modules[__name__]) for table in vars(member).get("TABLES", ()))
