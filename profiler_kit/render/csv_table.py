"""CSV (RFC 4180): the complete main table, raw values under stable keys."""

from __future__ import annotations

import csv
import io
from typing import Final

from profiler_kit.errors import UsageError
from profiler_kit.records.document import Document, Value
from profiler_kit.render import Renderer, RenderOptions
from profiler_kit.render._text import one_line, without_commands

# A spreadsheet reads text that begins with one of these as a formula.
FORMULA_STARTS: Final = ("=", "+", "-", "@", "::")  # the last: a command of a CI runner that prints the table


def render(document: Document, options: RenderOptions) -> str:
    """The first complete table of the document. Raises: UsageError if it has none."""
    if not document.full:
        raise UsageError(f"{document.title} has no table for CSV", hint="use -f json or -f markdown")
    table = document.full[0]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([head.key for head in table.heads])
    writer.writerows([[_raw(value) for value in row] for row in table.rows])
    return without_commands(out.getvalue(), "':", "(")


def _raw(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    cleaned = one_line(value)
    return f"'{cleaned}" if cleaned.startswith(FORMULA_STARTS) else cleaned


RENDERER = Renderer("csv", (".csv",), "the main table, with raw numbers", render)
