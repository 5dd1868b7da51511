"""Records to JSON and back. The JSON's names are the records' field names; a record never holds a dict.

Reading takes plain JSON and nothing else: no code is run, an unknown key is ignored (a newer minor version may add some),
a missing or wrongly typed one is a `ReportError` that names its place.
"""

from __future__ import annotations

import dataclasses
import json
import types
import typing
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, Union

from profiler_kit.errors import ReportError
from profiler_kit.records.report import SCHEMA, Report, TraceReport

T = TypeVar("T")
_GIVE: Final = "give the report.json that analyze wrote"
LARGEST = 10**30  # no count, and no time, of anything comes near it; a larger number has no quotient as a float


def to_json(record: object) -> Any:
    """`record` as JSON-able lists and dicts, fields in declaration order."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, tuple):
        return [to_json(item) for item in record]
    return record


def dumps(record: object) -> str:
    """`record` as JSON text, indented, the same bytes for the same record. A NaN or infinity raises ValueError."""
    return json.dumps(to_json(record), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def from_json(kind: type[T], data: object, where: str = "") -> T:
    """A `kind` record from JSON-able `data`. Raises ReportError that names the place (``runs[2].config.name``)."""
    return typing.cast(T, _read(kind, data, where or kind.__name__))


def loads_report(text: str | bytes, where: str) -> Report:
    """The report in `text`; `where` names it in errors. Raises ReportError, also where it is a report on traces."""
    return _of_a_target(loads_saved(text, where), where)


def loads_saved(text: str | bytes, where: str) -> Report | TraceReport:
    """The report in `text`, on a target or on traces; `where` names it in errors. Raises ReportError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ReportError(f"not JSON: {error}", where=where, hint=_GIVE) from error
    if not isinstance(data, dict) or "schema" not in data:
        if isinstance(data, list) or "traceEvents" in data:
            raise ReportError("a trace, not a report", where=where, hint=f"profiler-kit inspect {where}")
        raise ReportError("not a profiler_kit report: no 'schema'", where=where, hint=_GIVE)
    schema = data["schema"]
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ReportError(f"'schema' is {schema!r}, not a version number", where=where, hint="write the report anew")
    if schema > SCHEMA:
        raise ReportError(
            f"written by a newer version (schema {schema}, this one reads up to {SCHEMA})",
            where=where,
            hint="upgrade profiler_kit",
        )
    if "traces" in data and "target" not in data:
        return from_json(TraceReport, data, where)
    return from_json(Report, data, where)


def read_report(path: str | Path) -> Report:
    """The report saved at `path` (a file, or a folder that holds ``report.json``).

    Raises ReportError, also where it is a report on traces.
    """
    return _of_a_target(read_saved(path), str(path))


def read_saved(path: str | Path) -> Report | TraceReport:
    """The report saved at `path` (a file, or a folder that holds ``report.json``), on a target or on traces.

    Raises ReportError.
    """
    file = Path(path)
    if file.is_dir():
        file = file / "report.json"
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ReportError(
            f"cannot be read: {error.strerror}", where=str(file), hint="give a report.json or its folder"
        ) from error
    return loads_saved(text, str(file))


def _of_a_target(report: Report | TraceReport, where: str) -> Report:
    if isinstance(report, TraceReport):
        raise ReportError(
            "a report on traces, not on a target", where=where, hint=f"profiler-kit show {where} renders it"
        )
    return report


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, data: object, where: str) -> Any:
    origin = typing.get_origin(kind)
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _read_record(kind, data, where)
    if origin is tuple:
        if not isinstance(data, list):
            raise _wrong(where, "a list", data)
        item = typing.get_args(kind)[0]
        return tuple(_read(item, value, f"{where}[{i}]") for i, value in enumerate(data))
    if origin is Literal:
        if data not in typing.get_args(kind):
            raise _wrong(where, " or ".join(map(repr, typing.get_args(kind))), data)
        return data
    if origin in (Union, types.UnionType):
        return _read_union(typing.get_args(kind), data, where)
    if kind in (int, float) and isinstance(data, int) and abs(data) > LARGEST:
        raise _wrong(where, "a number that can be", data)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (kind is int and isinstance(data, bool)):
        raise _wrong(where, kind.__name__, data)
    return data


def _read_record(kind: type, data: object, where: str) -> Any:
    if not isinstance(data, dict):
        raise _wrong(where, "an object", data)
    values = {}
    for field in dataclasses.fields(kind):
        if field.name in data:
            values[field.name] = _read(_hints(kind)[field.name], data[field.name], f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise ReportError(
                f"'{field.name}' is missing", where=where, hint="the file is cut off or was edited: write it anew"
            )
    try:
        return kind(**values)
    except ValueError as error:  # a record's own invariant
        raise ReportError(str(error), where=where, hint="the file was edited: write it anew") from error


def _read_union(kinds: tuple[Any, ...], data: object, where: str) -> Any:
    if data is None and type(None) in kinds:
        return None
    real = [kind for kind in kinds if kind is not type(None)]
    if len(real) == 1:
        return _read(real[0], data, where)
    choices = [value for kind in real if typing.get_origin(kind) is Literal for value in typing.get_args(kind)]
    if data in choices or type(data) in real:
        return data
    plain = [kind.__name__ for kind in real if typing.get_origin(kind) is not Literal]
    raise _wrong(where, " or ".join([*map(repr, choices), *plain]), data)


def _wrong(where: str, wanted: str, data: object) -> ReportError:
    shown = "more than 1e30" if isinstance(data, int) and abs(data) > LARGEST else repr(data)  # repr refuses huge ones
    shown = shown if len(shown) <= 40 else shown[:37] + "..."
    return ReportError(
        f"expected {wanted}, found {shown}", where=where, hint="the file was edited or is no report: write it anew"
    )
