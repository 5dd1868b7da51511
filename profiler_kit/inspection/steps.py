"""Steps by the device's clock: from the first work of one to the first work of the next."""

from __future__ import annotations

import numpy as np

from profiler_kit.inspection.launches import Launches, at_steps, grew
from profiler_kit.inspection.ownership import Owned
from profiler_kit.inspection.spans import before, sum_by, union
from profiler_kit.inspection.timeline import Timeline
from profiler_kit.records.traces import TraceStep
from profiler_kit.traces.table import NONE


def steps(owned: Owned, line: Timeline, made: Launches) -> tuple[TraceStep, ...]:
    """The marked steps. A step is steady where the launch queue was no deeper when the next one began, or was full already."""
    total = len(owned.steps)
    step = owned.device.step
    mine = np.flatnonzero(step != NONE)
    kernel = sum_by(step[mine], line.piece[mine], total)
    present, index = np.unique(step[mine], return_index=True)
    first = dict(zip(present.tolist(), line.start[mine[index]].tolist(), strict=True))
    busy = union(line.start, line.end, ordered=True)
    launched = np.unique(made.step[made.step != NONE]).tolist()
    growing = set()
    if len(launched) > 1:
        growing = {launched[i] for i in np.flatnonzero(grew(at_steps(made))).tolist()}
    result = []
    for number, mark in enumerate(owned.steps):
        begin, end = first.get(number), first.get(number + 1)
        device = end - begin if begin is not None and end is not None and end >= begin else None
        idle = None
        if device is not None:
            inside = before(busy, np.array([begin, end], np.int64))
            idle = device - int(inside[1] - inside[0])
        result.append(
            TraceStep(
                number=mark.number,
                host_ns=mark.end_ns - mark.start_ns,
                device_ns=device,
                kernel_ns=int(kernel[number]),
                idle_ns=idle,
                steady=device is not None and number not in growing,
            )
        )
    return tuple(result)


def step_ns(found: tuple[TraceStep, ...]) -> int | None:
    """The median period of the steady steps, of all that have one where none is steady; None without any."""
    periods = [step.device_ns for step in found if step.device_ns is not None and step.steady]
    periods = periods or [step.device_ns for step in found if step.device_ns is not None]
    return int(np.median(np.array(periods))) if periods else None


def host_step_ns(found: tuple[TraceStep, ...]) -> int | None:
    """The median duration of the steps' marks; None without steps."""
    return int(np.median(np.array([step.host_ns for step in found]))) if found else None
