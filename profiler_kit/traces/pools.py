"""Columns that grow by runs: texts kept once, numbers in typed arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

from profiler_kit.traces.table import NONE, Ids, Ints, Mask, Sparse

Key = TypeVar("Key", bound=Hashable)


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
    """A column that grows by arrays."""

    def __init__(self, dtype: DTypeLike) -> None:
        self._dtype = dtype
        self._parts: list[NDArray[np.generic]] = []

    def add(self, values: NDArray[np.generic]) -> None:
        """Appends `values`."""
        self._parts.append(values.astype(self._dtype, copy=False))

    def take(self) -> NDArray[Any]:
        """The whole column; the parts are given up, so that there is but one copy of most columns at a time."""
        parts, self._parts = self._parts, []
        return np.concatenate(parts) if parts else np.empty(0, dtype=self._dtype)


class GrowingSparse:
    """A `Sparse` that grows. `form` is "int", "float" or "text"."""

    def __init__(self, form: str) -> None:
        self._rows = Growing(np.int32)
        self._values = Growing(np.float64 if form == "float" else np.int64)
        self._texts: Pool[str] = Pool()

    def add_numbers(self, rows: NDArray[np.int64], values: NDArray[np.generic]) -> None:
        """Appends one value for each of `rows`."""
        self._rows.add(rows)
        self._values.add(values)

    def add_texts(self, rows: NDArray[np.int64], values: Sequence[str]) -> None:
        """Appends one text for each of `rows`."""
        self.add_numbers(rows, self._texts.numbers(values))

    def take(self) -> Sparse:
        """The whole column. Runs came one after the other, but not what different kinds of event add within a run."""
        rows: NDArray[Any] = self._rows.take()
        values: NDArray[Any] = self._values.take()
        if (rows[1:] < rows[:-1]).any():
            order = np.argsort(rows, kind="stable")
            rows, values = rows[order], values[order]
        return Sparse(rows=rows, values=values, texts=self._texts.values_in_order())


def whole_numbers(values: Sequence[int | None], missing: int) -> Ints:
    """`values` as a column; `missing` where one is None or does not fit into 64 bits."""
    try:
        return np.fromiter(values, dtype=np.int64, count=len(values))
    except (TypeError, OverflowError):
        fits = (missing if v is None or not -(2**63) <= v < 2**63 else v for v in values)
        return np.fromiter(fits, dtype=np.int64, count=len(values))


def without(sparse: Sparse, keep: Mask, renumbered: NDArray[np.int64]) -> Sparse:
    """`sparse` for the rows that are kept, under their new numbers."""
    here = keep[sparse.rows]
    return Sparse(rows=renumbered[sparse.rows[here]].astype(np.int32), values=sparse.values[here], texts=sparse.texts)
