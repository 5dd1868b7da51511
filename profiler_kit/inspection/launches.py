"""Launches that wait to run: how many, whether the queue was full, and what the host lost by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.inspection.ownership import Owned
from profiler_kit.inspection.timeline import Timeline
from profiler_kit.inspection.times import times
from profiler_kit.records.traces import Queue
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

# CUDA takes 1,022 (V100) to 1,028 (H200) launches before the next one has to wait for a place; a launch that takes long with far
# fewer ahead of it has another reason. ROCm's queue is longer: an MI300 held 1,848 without one launch that waited.
FULL_DEPTH: Final = 900
_HINDERED: Final = 10  # times an unhindered launch: the V100's launches take 5 us, those that waited 135 to 2,000


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Launches:
    """Launches with work in the trace, in order of time: positions in `Owned.host`. A graph's launch is one.

    `start`, `end`: of the call. `begun`: when its first work began. `depth`: launches that had not begun to run when it was
    made, itself included. `blocked`: what the call took beyond an unhindered one's time because the queue was full.
    """

    position: Ids
    start: Ints
    end: Ints
    begun: Ints
    depth: Ints
    step: Ids
    blocked: Ints


def launches(owned: Owned, line: Timeline) -> Launches:
    """The launches of `owned` with the queue that each found."""
    linked = np.flatnonzero(owned.device.launch != NONE)
    position, first = np.unique(
        owned.device.launch[linked], return_index=True
    )  # the first is the earliest: they ascend
    rows = owned.host.rows[position]
    order = np.argsort(times(owned.table, rows)[0], kind="stable")
    position, first = position[order], linked[first[order]]
    start, end = times(owned.table, rows[order])
    begun, duration = line.start[first], end - start
    depth = np.arange(1, len(start) + 1) - np.searchsorted(np.sort(begun), start, side="right")
    depth = np.maximum(depth, 0)  # clocks of host and device may differ: work that begins before its launch
    return Launches(
        position=position.astype(np.int32),
        start=start,
        end=end,
        begun=begun,
        depth=depth,
        step=owned.device.step[first],
        blocked=_blocked(duration, depth),
    )


def _blocked(duration: Ints, depth: Ints) -> Ints:
    deep = depth >= FULL_DEPTH
    if not deep.any():
        return np.zeros(len(duration), np.int64)
    usual = int(np.median(duration[~deep] if (~deep).any() else duration))
    return np.where(deep & (duration > _HINDERED * usual), duration - usual, 0)


def queue(made: Launches) -> Queue | None:
    """The launch queue as a whole; None without launches."""
    if not len(made.start):
        return None
    blocked = int(made.blocked.sum())
    return Queue(
        max_depth=int(made.depth.max()),
        median_depth=float(np.median(made.depth)),
        delay_ns=int(np.median(np.maximum(made.begun - made.end, 0))),
        full=blocked > 0,
        growing=blocked == 0 and bool(grew(at_steps(made))[-1:].any()),
        blocked_ns=blocked,
    )


def at_steps(made: Launches) -> Ints:
    """The depth that each step with launches found; without steps, the least depth in each quarter of the launches."""
    steps = np.unique(made.step[made.step != NONE])
    if len(steps) > 1:
        marked = np.flatnonzero(made.step != NONE)
        _, first = np.unique(made.step[marked], return_index=True)
        return made.depth[marked[first]]
    return np.array([part.min() for part in np.array_split(made.depth, 4) if len(part)], np.int64)


def grew(depth: Ints) -> Mask:
    """Between which of successive depths the queue grew, by more than a tenth and more than a step's launches vary by."""
    margin = 16
    return depth[1:] > depth[:-1] * 1.1 + margin
