"""Launches that wait to run: how many, whether the queue was full, and what the host lost by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.attribution.times import times
from profiler_kit.records.traces import Queue
from profiler_kit.traces.table import NONE, Ids, Ints, Mask

# How many launches a queue holds differs: 1,022 on a V100, 1,028 on an H200, more than 1,848 on an MI300. So none is taken for
# granted: a queue is full where launches get slow with it at its deepest, again and again, and it never gets deeper.
BRIM: Final = 0.98  # of the deepest: those that waited found 1,012 to 1,022 on the V100, 1,027 and 1,028 on the H200
HINDERED: Final = 10  # times an unhindered launch: the V100's launches take 5 us, those that waited 47 to 2,010
AGAIN: Final = 3  # slow launches at the brim: one or two may have loaded a kernel's code there
LEAST: Final = 64  # places: with fewer launches ahead of it a slow one has another reason (memory, code that is loaded)


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
    """What each launch took beyond an unhindered one's time because the queue was full."""
    nothing = np.zeros(len(duration), np.int64)
    most = int(depth.max(initial=0))
    brim = depth >= BRIM * most
    if most < LEAST or brim.all():
        return nothing
    usual = int(np.median(duration[~brim]))
    slow = brim & (duration > HINDERED * usual)
    return np.where(slow, duration - usual, nothing) if int(slow.sum()) >= AGAIN else nothing


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
