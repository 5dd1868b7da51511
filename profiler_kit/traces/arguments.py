"""Decode the arguments of many events of one kind into columns."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect, malformed
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import Arguments, Field
from profiler_kit.traces.pools import whole_numbers
from profiler_kit.traces.table import NONE, Ints

DeviceAndStream = tuple[int | str | None, int | str | None]
Values = NDArray[Any] | list[bytes]


class ArgumentColumns(NamedTuple):
    """Columns over some events.

    `numbers`, `texts`: a value for each event. `devices`: device and stream of device work. `sparse`: for each field
    that few events have, the events and their values. `unreadable`: the number of events whose arguments are not an object.
    """

    numbers: dict[str, Ints]
    texts: dict[str, list[bytes]]
    devices: list[DeviceAndStream] | None
    sparse: list[tuple[Field, NDArray[np.int64], Values]]
    unreadable: int


@cache
def _decoder(fields: type[Arguments]) -> msgspec.json.Decoder[list[Arguments]]:
    return msgspec.json.Decoder(list[fields], strict=False)  # type: ignore[valid-type]


@cache
def _sparse_fields(fields: type[Arguments]) -> tuple[Field, ...]:
    collective = dialect.COLLECTIVE_FIELDS if issubclass(fields, dialect.CollectiveArguments) else ()
    return tuple(field for field in dialect.sparse_fields(fields) if field not in collective)


def arguments_of(texts: Sequence[bytes | msgspec.Raw], fields: type[Arguments]) -> ArgumentColumns:
    """Return the columns in `texts`, JSON objects with `fields`."""
    decoded, unreadable = _decode(texts, fields)
    has = fields.__struct_fields__
    numbers: dict[str, Ints] = {}
    for name in dialect.NUMBER_COLUMNS:
        if name in has:
            numbers[name] = _numbers(decoded, name)
            if name in dialect.OLD_SPELLINGS and (numbers[name] == NONE).any():
                older = _numbers(decoded, dialect.OLD_SPELLINGS[name])
                numbers[name] = np.where(numbers[name] == NONE, older, numbers[name])
    return ArgumentColumns(
        numbers=numbers,
        texts={name: _texts(decoded, name) for name in dialect.TEXT_COLUMNS if name in has},
        devices=list(map(attrgetter("device", "stream"), decoded))
        if issubclass(fields, dialect.DeviceArguments)
        else None,
        sparse=[*_sparse(decoded, _sparse_fields(fields)), *_collective(decoded, fields)],
        unreadable=unreadable,
    )


def _decode(texts: Sequence[bytes | msgspec.Raw], fields: type[Arguments]) -> tuple[list[Any], int]:
    decoder = _decoder(fields)
    try:
        return list(decoder.decode(b"".join((b"[", b",".join(texts), b"]")))), 0
    except NOT_DECODED:
        pass  # one of them is malformed: decode them one by one
    decoded: list[Any] = []
    unreadable = 0
    for text in texts:
        try:
            decoded.append(decoder.decode(b"".join((b"[", text, b"]")))[0])
        except NOT_DECODED:
            decoded.append(malformed.arguments_of(bytes(text), fields))
            unreadable += not bytes(text).startswith(b"{")
    return decoded, unreadable


def _numbers(decoded: list[Any], name: str) -> Ints:
    missing = 0 if name == "forward_thread" else NONE
    return whole_numbers(decoded, name, missing)


def _texts(decoded: list[Any], name: str) -> list[bytes]:
    older = dialect.OLD_SPELLINGS.get(name)
    if older is None:
        return [bytes(value) if value else b"" for value in map(attrgetter(name), decoded)]
    spellings = map(attrgetter(name, older), decoded)
    return [bytes(current) if current else bytes(old) if old else b"" for current, old in spellings]


def _collective(decoded: list[Any], fields: type[Arguments]) -> list[tuple[Field, NDArray[np.int64], Values]]:
    if not issubclass(fields, dialect.CollectiveArguments):
        return []
    indices = [i for i, a in enumerate(decoded) if a.collective or a.group_name]
    collectives = [decoded[i] for i in indices]
    positions = np.array(indices, dtype=np.int64)
    return [
        (field, positions[selected], values)
        for field, selected, values in _sparse(collectives, dialect.COLLECTIVE_FIELDS)
    ]


def _sparse(decoded: list[Any], fields: Sequence[Field]) -> list[tuple[Field, NDArray[np.int64], Values]]:
    columns: list[tuple[Field, NDArray[np.int64], Values]] = []
    for field in fields:
        values: Values
        if field.form == "text":
            texts = list(map(attrgetter(field.name), decoded))
            indices = [i for i, value in enumerate(texts) if value] if any(texts) else []
            selected = np.array(indices, dtype=np.int64)
            values = [bytes(texts[i]) for i in indices]
        elif field.form == "int":
            column = whole_numbers(decoded, field.name, dialect.NO_NUMBER)
            selected = np.flatnonzero(column != dialect.NO_NUMBER)
            values = column[selected]
        else:
            column_of_floats = np.array(
                list(map(attrgetter(field.name), decoded)), dtype=np.float64
            )  # None becomes NaN
            selected = np.flatnonzero(~np.isnan(column_of_floats))
            values = column_of_floats[selected]
        if len(selected):
            columns.append((field, selected, values))
    return columns


def as_text(written: bytes) -> str:
    """Return the content of a JSON string; any other value as written."""
    if written[:1] == b'"':
        try:
            return msgspec.json.decode(written, type=str)
        except NOT_DECODED:
            pass  # an invalid string: as written, without the quotes
        written = written[1:-1]
    return written.decode("utf-8", errors="replace")
