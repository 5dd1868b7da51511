"""Columns that grow by runs: texts kept once, numbers in typed arrays."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from profiler_kit.traces.table import NONE, Ids, Ints, Mask, Sparse

Key = TypeVar("Key", bound=Hashable)

_FIRST_ROWS: Final = 1 << 10
_SLACK: Final = 8  # an eighth more than needed


class Pool(dict[Key, int], Generic[Key]):
    """Values kept once, numbered as they come; those in `no` are NONE."""

    def __init__(self, no: Iterable[Key] = ()) -> None:
        super().__init__((value, NONE) for value in no)
        self._none = len(self)

    def __missing__(self, value: Key) -> int:
        number = self[value] = len(self) - self._none
        return number

    def numbers(self, values: Sequence[Key]) -> Ids:
        """The number of each of `values`."""
        return np.fromiter(map(self.__getitem__, values), dtype=np.int32, count=len(values))

    def values_in_order(self) -> tuple[Key, ...]:
        """All values, by number."""
        return tuple(self)[self._none :]


class Growing:
    """A column that grows in place: the memory of a large one is moved, not copied, so that there is one of it at any time."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._data: NDArray[Any] = np.empty(0, dtype=dtype)
        self._size = 0

    def add(self, values: NDArray[Any]) -> None:
        """Appends `values`."""
        size = self._size + len(values)
        if size > len(self._data):
            self._data.resize(max(_FIRST_ROWS, size + size // _SLACK), refcheck=False)
        self._data[self._size : size] = values
        self._size = size

    def take(self) -> NDArray[Any]:
        """The whole column; nothing can be added afterwards."""
        self._data.resize(self._size, refcheck=False)
        return self._data


class GrowingSparse:
    """A `Sparse` that grows. `form` is "int", "float" or "text"; `read` makes a text of what is written, once for each."""

    def __init__(self, form: str, read: Callable[[bytes], str]) -> None:
        self._rows = Growing(np.int32)
        self._values = Growing(np.float64 if form == "float" else np.int64)
        self._written: Pool[bytes] = Pool()
        self._read = read

    def add_numbers(self, rows: NDArray[np.int64], values: NDArray[Any]) -> None:
        """Appends one value for each of `rows`."""
        self._rows.add(rows)
        self._values.add(values)

    def add_texts(self, rows: NDArray[np.int64], written: Sequence[bytes]) -> None:
        """Appends one text for each of `rows`."""
        self.add_numbers(rows, self._written.numbers(written))

    def take(self) -> Sparse:
        """The whole column. Runs came one after the other, but not what different kinds of event add within a run."""
        rows, values = self._rows.take(), self._values.take()
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values[order]
        texts: Pool[str] = Pool()
        numbers = texts.numbers([self._read(written) for written in self._written.values_in_order()])
        if len(texts) < len(numbers):  # a text was written in two ways
            values = numbers[values].astype(np.int64)
        return Sparse(rows=rows, values=values, texts=texts.values_in_order())


def whole_numbers(records: Sequence[Any], name: str, missing: int) -> Ints:
    """The field `name` of `records`, int or None, as a column; `missing` where it is None or does not fit into 64 bits."""
    get = attrgetter(name)
    try:
        return np.fromiter(map(get, records), dtype=np.int64, count=len(records))
    except (TypeError, OverflowError):
        fits = (missing if v is None or not -(2**63) <= v < 2**63 else v for v in map(get, records))
        return np.fromiter(fits, dtype=np.int64, count=len(records))


def without(sparse: Sparse, keep: Mask, renumbered: NDArray[np.int64]) -> Sparse:
    """`sparse` for the rows that are kept, under their new numbers."""
    here = keep[sparse.rows]
    return Sparse(rows=renumbered[sparse.rows[here]].astype(np.int32), values=sparse.values[here], texts=sparse.texts)
