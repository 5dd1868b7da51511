"""Steps by the device's clock: from the first work of one to the first work of the next."""

from __future__ import annotations

import numpy as np

from profiler_kit.attribution.launches import Launches, at_steps, grew
from profiler_kit.attribution.ownership import Owned
from profiler_kit.attribution.spans import overlap, sum_by, union
from profiler_kit.attribution.timeline import Timeline
from profiler_kit.records.traces import TraceStep
from profiler_kit.traces.table import NONE, Ids


def steps(owned: Owned, line: Timeline, made: Launches) -> tuple[TraceStep, ...]:
    """The marked steps. A step is steady where the launch queue was no deeper when the next one began, or was full already."""
    total, step = len(owned.steps), owned.device.step
    mine = np.flatnonzero(step != NONE)
    kernel = sum_by(step[mine], line.piece[mine], total)
    present, index = np.unique(step[mine], return_index=True)
    first = np.zeros(total + 1, np.int64)
    first[present] = line.start[mine[index]]
    known = np.zeros(total + 1, np.bool_)
    known[present] = True
    ended = known[:-1] & known[1:] & (first[1:] >= first[:-1])
    period = first[1:] - first[:-1]
    idle = period - overlap(union(line.start, line.end, ordered=True), first[:-1], first[1:])
    steady = ended.copy()
    steady[_growing(made)] = False
    return tuple(
        TraceStep(
            number=mark.number,
            host_ns=mark.end_ns - mark.start_ns,
            device_ns=int(period[i]) if ended[i] else None,
            kernel_ns=int(kernel[i]),
            idle_ns=int(idle[i]) if ended[i] else None,
            steady=bool(steady[i]),
        )
        for i, mark in enumerate(owned.steps)
    )


def _growing(made: Launches) -> Ids:
    """The steps after which the launch queue was deeper than before."""
    launched = np.unique(made.step[made.step != NONE])
    return launched[:-1][grew(at_steps(made))] if len(launched) > 1 else launched[:0]


def step_ns(found: tuple[TraceStep, ...]) -> int | None:
    """The median period of the steady steps, of all that have one where none is steady; None without any."""
    periods = [step.device_ns for step in found if step.device_ns is not None and step.steady]
    periods = periods or [step.device_ns for step in found if step.device_ns is not None]
    return int(np.median(np.array(periods))) if periods else None


def host_step_ns(found: tuple[TraceStep, ...]) -> int | None:
    """The median duration of the steps' marks; None without steps."""
    return int(np.median(np.array([step.host_ns for step in found]))) if found else None
