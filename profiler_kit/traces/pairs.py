"""Begin and end events, joined to one row at the begin."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from profiler_kit.traces import dialect

_MAX_OPEN_EVENTS: Final = 100_000  # at a time; further begin events are dropped


class Pairs:
    """Joins each end event to the last open begin event of its thread, across runs."""

    def __init__(self) -> None:
        self.paired = 0
        self.unpaired = 0
        self.backwards = 0  # events of pairs that end before they begin
        self._open: dict[int, list[tuple[int, int]]] = {}
        self._ended: dict[int, int] = {}
        self._opened = 0
        self._dropped = array("q")

    def add(
        self, ph: NDArray[np.uint8], threads: NDArray[np.int32], rows: NDArray[np.int64], times: NDArray[np.int64]
    ) -> None:
        """Add the begin and end events of a run, in order. `rows`: the rows of the begin events."""
        for phase, thread, row, ns in zip(ph.tolist(), threads.tolist(), rows.tolist(), times.tolist(), strict=True):
            if phase == dialect.BEGIN:
                if self._opened == _MAX_OPEN_EVENTS:
                    self.unpaired += 1
                    self._dropped.append(row)
                    continue
                self._opened += 1
                self._open.setdefault(thread, []).append((row, ns))
                continue
            open_events = self._open.get(thread)
            if not open_events:
                self.unpaired += 1
                continue
            row, start = open_events.pop()
            self._opened -= 1
            if ns < start:
                self.backwards += 2
                self._dropped.append(row)
            else:
                self.paired += 1
                self._ended[row] = ns - start

    def close(self, durations: NDArray[np.int64]) -> NDArray[np.int64]:
        """Write the durations of the pairs.

        Returns the rows to drop: events that never ended, or ended before they began.
        """
        for open_events in self._open.values():
            self.unpaired += len(open_events)
            self._dropped.extend(row for row, _ in open_events)
        if self._ended:
            durations[list(self._ended)] = list(self._ended.values())
        return np.array(self._dropped, dtype=np.int64)
