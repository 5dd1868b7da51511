"""Events written as a begin and an end: each pair is one row, where it began."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect

_MOST_OPEN: Final = 100_000  # at a time: what begins inside of so many, and never ends, is not held


class Pairs:
    """Joins the ends of each thread to what began last there, across runs."""

    def __init__(self) -> None:
        self.paired = 0
        self.unpaired = 0
        self.backwards = 0  # entries of pairs that end before they begin
        self._open: dict[int, list[tuple[int, int]]] = {}
        self._ended: dict[int, int] = {}
        self._opened = 0
        self._dropped = array("q")

    def add(
        self, ph: NDArray[np.uint8], threads: NDArray[np.int32], rows: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Takes the begins and ends of a run, in order; `rows` are where the begins stand."""
        for what, thread, row, ns in zip(ph.tolist(), threads.tolist(), rows.tolist(), times.tolist(), strict=True):
            if what == dialect.BEGIN:
                if self._opened == _MOST_OPEN:
                    self.unpaired += 1
                    self._dropped.append(row)
                    continue
                self._opened += 1
                self._open.setdefault(thread, []).append((row, ns))
                continue
            begun = self._open.get(thread)
            if not begun:
                self.unpaired += 1
                continue
            row, start = begun.pop()
            self._opened -= 1
            if ns < start:
                self.backwards += 2
                self._dropped.append(row)
            else:
                self.paired += 1
                self._ended[row] = ns - start

    def close(self, durations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Writes the pairs' durations, and returns the rows that are none: what never ended, or ended before."""
        for begun in self._open.values():
            self.unpaired += len(begun)
            self._dropped.extend(row for row, _ in begun)
        if self._ended:
            durations[list(self._ended)] = list(self._ended.values())
        return np.array(self._dropped, dtype=np.int64)
