"""The lanes of the host: threads that take turns are one sequence of work, threads that run at the same time are several."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from profiler_kit.attribution.host_time import host_waits
from profiler_kit.attribution.result import Attribution, Step
from profiler_kit.simulation.graph import Ids, Ints
from profiler_kit.traces.intervals import Intervals, empty, join, length, overlap, subtract, union
from profiler_kit.traces.table import NONE, Kind

# Threads that run at the same time for a larger part of their time are lanes of their own.
_CONCURRENT_SHARE: Final = 0.05
# A pause of a thread that is longer waits for another thread. Python between two operators takes less.
PAUSE_NS: Final = 100_000


class Window(NamedTuple):
    """The part of a trace that becomes a graph: the longest run of steps, or the whole trace if it has no steps.

    `borders`: the times at which a step ends or begins, and the end of the window.
    """

    start_ns: int
    end_ns: int
    borders: Ints
    steps: tuple[Step, ...]

    def steps_at(self, times: Ints) -> Ids:
        """Return the number of the step at each time, NONE between steps; 0 without steps."""
        if not self.steps:
            return np.zeros(len(times), np.int32)
        starts, ends = (
            np.array([getattr(step, name) for step in self.steps], np.int64) for name in ("start_ns", "end_ns")
        )
        number = np.searchsorted(starts, times, side="right") - 1
        return np.where(times < ends[number], number, NONE).astype(np.int32)


class Lane(NamedTuple):
    """Threads that take turns, and the time in which they run operators or calls."""

    threads: tuple[int, ...]
    active: Intervals


def window_of(attribution: Attribution) -> Window:
    """Return the window of the most steps in a row that the recording does not pause between."""
    steps = _longest_run(_working_steps(attribution))
    start, end = _bounds(attribution, steps)
    # between the marks of two steps, the profiler hands over a step
    borders = np.unique([time for step in steps for time in (step.start_ns, step.end_ns) if time > start] or [end])
    return Window(start, end, borders, steps)


def _longest_run(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Return the most steps in a row that the recording does not pause between."""
    runs: list[list[Step]] = []
    for step in steps:
        if runs and step.number == runs[-1][-1].number + 1:
            runs[-1].append(step)
        else:
            runs.append([step])
    longest: list[Step] = max(runs, key=lambda run: len(run), default=[])
    return tuple(longest)


def _working_steps(attribution: Attribution) -> tuple[Step, ...]:
    """Return the steps in which operators run. The last call of ``profiler.step()`` begins an empty one."""
    host = attribution.host
    used = np.unique(host.step[host.is_operator])
    return tuple(step for i, step in enumerate(attribution.steps) if i in used) or attribution.steps


def _bounds(attribution: Attribution, steps: tuple[Step, ...]) -> tuple[int, int]:
    host, device = attribution.host, attribution.device
    if steps:
        return steps[0].start_ns, steps[-1].end_ns
    for times in (host, device):
        if len(times.start_ns):
            return int(times.start_ns.min()), int(times.end_ns.max())
    return 0, 0


def host_lanes(attribution: Attribution, window: Window) -> list[Lane]:
    """Return the lanes: the main thread and the threads that run while it does not, then the others.

    Threads that neither run operators nor launch or await work, as those that watch collectives, are left out.
    """
    table, host, device = attribution.table, attribution.host, attribution.device
    is_operator, runtime = host.is_operator, table.kind[host.rows] == Kind.RUNTIME
    matters = is_operator.copy()
    matters[device.launch[device.launch != NONE]] = True
    matters[host_waits(attribution).position] = True
    inside = (host.end_ns > window.start_ns) & (host.start_ns < window.end_ns)
    threads = np.unique(host.thread[matters & inside]).tolist()
    active = {}
    for thread in threads:
        runs = (host.thread == thread) & (is_operator | runtime) & inside
        active[thread] = union(host.start_ns[runs], host.end_ns[runs])
    lanes: list[Lane] = [] if threads or not len(host.rows) else [Lane((attribution.main_thread,), empty())]
    for thread in sorted(threads, key=lambda thread: (thread != attribution.main_thread, -length(active[thread]))):
        own = active[thread]
        for i, lane in enumerate(lanes):
            shared = int(overlap(lane.active, own.start, own.end).sum())
            if shared <= _CONCURRENT_SHARE * length(own):
                lanes[i] = Lane((*lane.threads, thread), join(lane.active, own))
                break
        else:
            lanes.append(Lane((thread,), own))
    return lanes


def pauses(lane: Lane, window: Window) -> Intervals:
    """Return the long intervals in which a lane runs neither operators nor calls."""
    gaps = subtract(Intervals(np.array([window.start_ns]), np.array([window.end_ns])), lane.active)
    long = gaps.end - gaps.start >= PAUSE_NS
    return Intervals(gaps.start[long], gaps.end[long])
