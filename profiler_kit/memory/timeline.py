"""The last step's curve of live bytes, drawn with few points: the most that each stretch of it held."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.log import Log
from profiler_kit.records.counts import MemoryPoint

MOST_POINTS: Final = 64


def timeline(log: Log, levels: list[int]) -> tuple[MemoryPoint, ...]:
    """The most bytes held in each stretch of births in one phase and module, in order; neighbours are merged if many."""
    peaks: list[tuple[str, str, int]] = []  # phase, path, bytes
    start = log.steps[-1]
    for place in range(start, len(log.events)):
        change, life = log.events[place]
        if change <= 0:
            continue
        level = levels[place + 1]
        if peaks and peaks[-1][:2] == (life.phase, life.path):
            peaks[-1] = (life.phase, life.path, max(peaks[-1][2], level))
        else:
            peaks.append((life.phase, life.path, level))
    at_once = -(-len(peaks) // MOST_POINTS)
    points = []
    for first in range(0, len(peaks), max(at_once, 1)):
        phase, path, level = max(peaks[first : first + at_once], key=lambda peak: peak[2])
        points.append(MemoryPoint(at=f"{phase} {path}".strip(), bytes=level))
    return tuple(points)
