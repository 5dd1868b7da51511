"""Decode the arguments of many events of one kind into columns that grow run by run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import DTypeLike, NDArray

from profiler_kit.traces import dialect, malformed
from profiler_kit.traces.chunks import NOT_DECODED
from profiler_kit.traces.dialect import Arguments, Field
from profiler_kit.traces.table import NONE, Ids, Ints, Mask, Sparse

Key = TypeVar("Key", bound=Hashable)

_FIRST_ROWS: Final = 1 << 10
_GROWTH_DIVISOR: Final = 8  # grow to an eighth more than needed


class Pool(dict[Key, int], Generic[Key]):
    """Distinct values, numbered in order of appearance. Values in `absent` have the number NONE."""

    def __init__(self, absent: Iterable[Key] = ()) -> None:
        super().__init__((value, NONE) for value in absent)
        self._absent_count = len(self)

    def __missing__(self, value: Key) -> int:
        number = self[value] = len(self) - self._absent_count
        return number

    def numbers(self, values: Sequence[Key]) -> Ids:
        """Return the number of each of `values`."""
        return np.fromiter(map(self.__getitem__, values), dtype=np.int32, count=len(values))

    def values_in_order(self) -> tuple[Key, ...]:
        """Return all values by number."""
        return tuple(self)[self._absent_count :]


class GrowingColumn:
    """A column that grows in place. A large array is moved, not copied, so that only one exists at any time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._data: NDArray[Any] = np.empty(0, dtype=dtype)
        self._size = 0

    def add(self, values: NDArray[Any]) -> None:
        """Append `values`."""
        size = self._size + len(values)
        if size > len(self._data):
            self._data.resize(max(_FIRST_ROWS, size + size // _GROWTH_DIVISOR), refcheck=False)
        self._data[self._size : size] = values
        self._size = size

    @property
    def values(self) -> NDArray[Any]:
        """The values so far."""
        return self._data[: self._size]

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process needs."""
        return {"_data": self.values, "_size": self._size}

    def finish(self) -> NDArray[Any]:
        """Return the whole column. No values can be added afterwards."""
        self._data.resize(self._size, refcheck=False)
        return self._data


class GrowingSparse:
    """A `Sparse` that grows. `form` is "int", "float" or "text". `to_text` converts each distinct spelling once."""

    def __init__(self, form: str, to_text: Callable[[bytes], str]) -> None:
        self.form = form
        self._rows = GrowingColumn(np.int32)
        self._values = GrowingColumn(np.float64 if form == "float" else np.int64)
        self._spellings: Pool[bytes] = Pool()
        self._to_text = to_text

    def add_numbers(self, rows: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Append one value for each of `rows`."""
        self._rows.add(rows)
        self._values.add(values)

    def add_texts(self, rows: NDArray[np.int64], spellings: Sequence[bytes]) -> None:
        """Append one text for each of `rows`."""
        self.add_numbers(rows, self._spellings.numbers(spellings))

    def extend(self, later: GrowingSparse, first_row: int) -> None:
        """Append the values of a later part of the file."""
        values = later._values.values
        if self.form == "text":
            values = self._spellings.numbers(later._spellings.values_in_order())[values]
        self.add_numbers(later._rows.values + first_row, values)

    def finish(self) -> Sparse:
        """Return the whole column, sorted by row.

        Within a run, different kinds of events were added one after the other.
        """
        rows, values = self._rows.finish(), self._values.finish()
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values[order]
        texts: Pool[str] = Pool()
        numbers = texts.numbers([self._to_text(spellings) for spellings in self._spellings.values_in_order()])
        if len(texts) < len(numbers):  # a text has two spellings
            values = numbers[values].astype(np.int64)
        return Sparse(rows=rows, values=values, texts=texts.values_in_order())


def whole_numbers(records: Sequence[Any], name: str, missing: int) -> Ints:
    """Return the field `name` of `records` (int or None) as a column.

    `missing` replaces None and values beyond 64 bits.
    """
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, records), dtype=np.int64, count=len(records))
    except (TypeError, OverflowError):
        fits = (missing if v is None or not -(2**63) <= v < 2**63 else v for v in map(get, records))
        return np.fromiter(fits, dtype=np.int64, count=len(records))


def keep_rows(sparse: Sparse, keep: Mask, renumbered: NDArray[np.int64]) -> Sparse:
    """Return `sparse` for the rows in `keep`, under their new numbers."""
    is_kept = keep[sparse.rows]
    return Sparse(
        rows=renumbered[sparse.rows[is_kept]].astype(np.int32), values=sparse.values[is_kept], texts=sparse.texts
    )


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
