"""Columns that grow run by run: each distinct text is stored once, numbers are stored in typed arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

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

    def finish(self) -> NDArray[Any]:
        """Return the whole column. No values can be added afterwards."""
        self._data.resize(self._size, refcheck=False)
        return self._data


class GrowingSparse:
    """A `Sparse` that grows. `form` is "int", "float" or "text". `to_text` converts each distinct spelling once."""

    def __init__(self, form: str, to_text: Callable[[bytes], str]) -> None:
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
