"""The arguments of many events of one kind to columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect, loose
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import Arguments, Field
from profiler_kit.traces.pools import whole_numbers
from profiler_kit.traces.table import NONE, Ints

Place = tuple[int | str | None, int | str | None]
Values = NDArray[Any] | list[bytes]


class Found(NamedTuple):
    """Columns over some events: numbers and texts that each has, device and stream of the device's work, and for a few events
    a field, which events have it, and its values. `malformed`: the events whose arguments can't be used.
    """

    numbers: dict[str, Ints]
    texts: dict[str, list[bytes]]
    places: list[Place] | None
    sparse: list[tuple[Field, NDArray[np.int64], Values]]
    malformed: list[int]


@cache
def _decoder(fields: type[Arguments]) -> msgspec.json.Decoder[list[Arguments]]:
    return msgspec.json.Decoder(list[fields], strict=False)  # type: ignore[valid-type]


@cache
def _own_fields(fields: type[Arguments]) -> tuple[Field, ...]:
    collective = dialect.COLLECTIVE_FIELDS if issubclass(fields, dialect.CollectiveArguments) else ()
    return tuple(field for field in dialect.sparse_fields(fields) if field not in collective)


def arguments_of(texts: Sequence[bytes | msgspec.Raw], fields: type[Arguments]) -> Found:
    """The columns in `texts`, JSON objects with `fields`."""
    decoded, malformed = _decode(texts, fields)
    has = fields.__struct_fields__
    numbers: dict[str, Ints] = {}
    for name in dialect.NUMBER_COLUMNS:
        if name in has:
            numbers[name] = _numbers(decoded, name)
            if name in dialect.OLDER and (numbers[name] == NONE).any():
                older = _numbers(decoded, dialect.OLDER[name])
                numbers[name] = np.where(numbers[name] == NONE, older, numbers[name])
    return Found(
        numbers=numbers,
        texts={name: _texts(decoded, name) for name in dialect.TEXT_COLUMNS if name in has},
        places=list(map(attrgetter("device", "stream"), decoded))
        if issubclass(fields, dialect.DeviceArguments)
        else None,
        sparse=[*_sparse(decoded, _own_fields(fields)), *_collective(decoded, fields)],
        malformed=malformed,
    )


def _decode(texts: Sequence[bytes | msgspec.Raw], fields: type[Arguments]) -> tuple[list[Any], list[int]]:
    try:
        return list(_decoder(fields).decode(b"".join((b"[", b",".join(texts), b"]")))), []
    except NOT_DECODED:
        pass  # one of them is written otherwise; each by itself
    decoded, malformed = [], []
    for index, text in enumerate(texts):
        try:
            arguments = _decoder(fields).decode(b"".join((b"[", text, b"]")))[0]
        except NOT_DECODED:
            loose_arguments = loose.arguments_of(bytes(text), fields)
            if loose_arguments is None:
                malformed.append(index)
            arguments = loose_arguments or fields()
        decoded.append(arguments)
    return decoded, malformed


def _numbers(decoded: list[Any], name: str) -> Ints:
    missing = 0 if name == "forward_thread" else NONE
    return whole_numbers(decoded, name, missing)


def _texts(decoded: list[Any], name: str) -> list[bytes]:
    older = dialect.OLDER.get(name)
    if older is None:
        return [bytes(value) if value else b"" for value in map(attrgetter(name), decoded)]
    both = map(attrgetter(name, older), decoded)
    return [bytes(new) if new else bytes(old) if old else b"" for new, old in both]


def _collective(decoded: list[Any], fields: type[Arguments]) -> list[tuple[Field, NDArray[np.int64], Values]]:
    if not issubclass(fields, dialect.CollectiveArguments):
        return []
    at = [i for i, a in enumerate(decoded) if a.collective or a.group_name]
    few = [decoded[i] for i in at]
    where = np.array(at, dtype=np.int64)
    return [(field, where[inside], values) for field, inside, values in _sparse(few, dialect.COLLECTIVE_FIELDS)]


def _sparse(decoded: list[Any], fields: Sequence[Field]) -> list[tuple[Field, NDArray[np.int64], Values]]:
    columns: list[tuple[Field, NDArray[np.int64], Values]] = []
    for field in fields:
        values: Values
        if field.form == "text":
            written = list(map(attrgetter(field.name), decoded))
            at = [i for i, value in enumerate(written) if value] if any(written) else []
            inside = np.array(at, dtype=np.int64)
            values = [bytes(written[i]) for i in at]
        elif field.form == "int":
            column = whole_numbers(decoded, field.name, dialect.NO_NUMBER)
            inside = np.flatnonzero(column != dialect.NO_NUMBER)
            values = column[inside]
        else:
            column_of_floats = np.array(
                list(map(attrgetter(field.name), decoded)), dtype=np.float64
            )  # None becomes NaN
            inside = np.flatnonzero(~np.isnan(column_of_floats))
            values = column_of_floats[inside]
        if len(inside):
            columns.append((field, inside, values))
    return columns


def as_text(written: bytes) -> str:
    """A string's own text, and any other value as it is written."""
    if written[:1] == b'"':
        try:
            return msgspec.json.decode(written, type=str)
        except NOT_DECODED:
            pass  # broken inside: as it is written, but for the quotes
        written = written[1:-1]
    return written.decode("utf-8", errors="replace")
