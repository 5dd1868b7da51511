"""Begin and end events, joined to one row at the begin."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect
from profiler_kit.traces.arguments import GrowingColumn

_MAX_OPEN_EVENTS: Final = 100_000  # at a time; further begin events are dropped
_DTYPES: Final = (np.uint8, np.int32, np.int64, np.int64)


class Pairs:
    """Joins each end event to the last open begin event of its thread. `close` does it, once all events are known."""

    def __init__(self) -> None:
        self.paired = 0
        self.unpaired = 0
        self.backwards = 0  # events of pairs that end before they begin
        self._columns = [GrowingColumn(dtype) for dtype in _DTYPES]

    def add(
        self, ph: NDArray[np.uint8], threads: NDArray[np.int32], rows: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Add the begin and end events of a run, in order. `rows`: the rows of the begin events."""
        events: tuple[NDArray[Any], ...] = (ph, threads, rows, times)
        for column, values in zip(self._columns, events, strict=True):
            column.add(values)

    def extend(self, later: Pairs, threads: NDArray[np.int32], first_row: int) -> None:
        """Add the events of a later part of the file. `threads`: the number here of each of its threads."""
        ph, thread, rows, times = (column.values for column in later._columns)
        self.add(ph, threads[thread], rows + first_row, times)

    def close(self, durations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the durations of the pairs.

        Returns the rows to drop: events that never ended, or ended before they began.
        """
        open_events: dict[int, list[tuple[int, int]]] = {}
        dropped: list[int] = []
        opened = 0
        columns = (column.values.tolist() for column in self._columns)
        for phase, thread, row, ns in zip(*columns, strict=True):
            of_thread = open_events.setdefault(thread, [])
            if phase == dialect.BEGIN:
                if opened < _MAX_OPEN_EVENTS:
                    opened += 1
                    of_thread.append((row, ns))
                else:
                    self.unpaired += 1
                    dropped.append(row)
            elif of_thread:
                begin, start = of_thread.pop()
                opened -= 1
                if ns < start:
                    self.backwards += 2
                    dropped.append(begin)
                else:
                    self.paired += 1
                    durations[begin] = ns - start
            else:
                self.unpaired += 1
        left = [row for of_thread in open_events.values() for row, _ in of_thread]
        self.unpaired += len(left)
        return np.array([*dropped, *left], dtype=np.int64)
