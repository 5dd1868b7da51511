"""The kind of a JSON file, read from its top-level keys."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from profiler_kit.command_lines import kit_command
from profiler_kit.errors import ReportError
from profiler_kit.records.saved import HINT_GIVE_REPORT, HINT_REWRITE_FILE, SCHEMA

_ABSENT: Final = msgspec.Raw()


class _Header(msgspec.Struct):
    """The keys that distinguish the kinds of files. The values are skipped, not decoded."""

    kind: Any = None
    schema: Any = None
    target: msgspec.Raw = _ABSENT
    traces: msgspec.Raw = _ABSENT
    cores: msgspec.Raw = _ABSENT
    tool: msgspec.Raw = _ABSENT
    trace_events: msgspec.Raw = msgspec.field(default=_ABSENT, name="traceEvents")


_READ: Final = msgspec.json.Decoder(_Header)


_GZIP: Final = b"\x1f\x8b"


def kind_of(text: str | bytes, where: str) -> str | None:
    """The kind of the file `text`; None where its keys do not identify one. `where` names the file in errors.

    Raises ReportError where `text` is not JSON, is a trace, has an invalid schema number, or has a newer schema.
    """
    try:
        header = _READ.decode(text)
    except msgspec.ValidationError as error:  # valid JSON, but not an object
        if text.lstrip()[:1] in ("[", b"["):
            raise _trace(where) from error
        return None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        if text[:2] == _GZIP:  # only traces are compressed
            raise _trace(where) from error
        raise ReportError(f"not JSON: {error}", where=where, hint=HINT_GIVE_REPORT) from error
    if header.trace_events != _ABSENT:
        raise _trace(where)
    if header.schema is None:
        return None
    if type(header.schema) is not int or header.schema < 1:
        message = f"'schema' is {header.schema!r}, not a version number"
        raise ReportError(message, where=where, hint=HINT_REWRITE_FILE)
    if header.schema > SCHEMA:
        message = f"written by a newer version (schema {header.schema}, this one reads up to {SCHEMA})"
        raise ReportError(message, where=where, hint="upgrade profiler_kit")
    return header.kind if isinstance(header.kind, str) and header.kind != "trace comparison" else _guess(header)


def _guess(header: _Header) -> str | None:
    """The kind of a file without a current `kind`; None where its keys do not identify one.

    Before 2026-11-22 only comparisons and checks had a `kind`.
    """
    if header.kind == "trace comparison":
        return "trace_comparison"
    if header.target != _ABSENT:
        return "report"
    if header.traces != _ABSENT:
        return "trace_report"
    if header.cores != _ABSENT:
        return "machine"
    return "report" if header.tool != _ABSENT else None


def _trace(where: str) -> ReportError:
    return ReportError("a trace, not a report", where=where, hint=kit_command("inspect", where))
