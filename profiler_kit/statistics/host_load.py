"""Whether other work on the host, or too many threads, lengthened the steps of a run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.experiments import HostLoad
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent

# On an idle host, the threads of a step wait for a core for less than 1 % of their time.
MAX_WAITING_SHARE: Final = 0.10
# Of the time of the steps. A container's CPU limit stops all of its threads for the rest of a period of 100 ms.
MAX_THROTTLED_SHARE: Final = 0.02
# With less other work on the machine, threads that wait for a core wait for each other.
MIN_OTHER_CORES: Final = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """What kept the threads of a run from running, over all of its processes.

    - `waiting_share`: the share of their time in which they waited for a core. `throttled_share`: the share of the steps in which
      a CPU limit stopped them. `contended_share`: the share of the steps in which any thread of the machine waited.
    - `other_cores`: the mean number of cores that other work used. `machine_cores`: those of the machine.
    """

    waiting_share: float
    throttled_share: float
    contended_share: float | None
    other_cores: float | None
    machine_cores: int | None

    @property
    def is_foreign(self) -> bool:
        """Whether other work took the cores; otherwise, the threads of the run waited for each other."""
        return self.other_cores is not None and self.other_cores >= MIN_OTHER_CORES

    @property
    def is_large(self) -> bool:
        """Whether it may decide the length of the step."""
        return self.waiting_share >= MAX_WAITING_SHARE or self.throttled_share >= MAX_THROTTLED_SHARE


def host_loads(run: ConfigRun) -> tuple[HostLoad, ...]:
    """The load during the timed steps of each process of `run`, where it is known."""
    loads = (run.host_load, *(repeat.host_load for repeat in run.repeats))
    return tuple(load for load in loads if load is not None)


def disturbance_of(run: ConfigRun) -> Disturbance | None:
    """What kept the threads of `run` from running; None where no process reports it."""
    loads = host_loads(run)
    scheduled = [load for load in loads if load.waiting_share is not None]
    limited = [load for load in loads if load.throttled_ns is not None]
    if not scheduled and not limited:
        return None
    waiting_ns = sum(load.waiting_ns or 0 for load in scheduled)
    runnable_ns = waiting_ns + sum(load.running_ns or 0 for load in scheduled)
    contended = [load for load in loads if load.contended_share is not None]
    others = [load for load in loads if load.other_cores is not None]
    return Disturbance(
        waiting_share=waiting_ns / runnable_ns if runnable_ns else 0.0,
        throttled_share=_share(sum(load.throttled_ns or 0 for load in limited), limited),
        contended_share=_share(sum(load.contended_ns or 0 for load in contended), contended) if contended else None,
        other_cores=_share(sum(load.other_cpu_ns or 0 for load in others), others) if others else None,
        machine_cores=next((load.machine_cores for load in loads if load.machine_cores is not None), None),
    )


def load_allowance(before: ConfigRun, after: ConfigRun) -> float:
    """The logarithm of the ratio that different waits for cores may have caused between the steps of two runs."""
    shares = [
        disturbance.waiting_share if (disturbance := disturbance_of(run)) is not None else 0.0
        for run in (before, after)
    ]
    if max(shares) < MAX_WAITING_SHARE:
        return 0.0
    return abs(math.log1p(-min(shares[0], 0.99)) - math.log1p(-min(shares[1], 0.99)))


def load_sentence(*runs: ConfigRun) -> str:
    """A sentence on the waits for cores while `runs` were measured; empty if they were small."""
    shares = [disturbance.waiting_share for run in runs if (disturbance := disturbance_of(run)) is not None]
    largest = max(shares, default=0.0)
    if largest < MAX_WAITING_SHARE:
        return ""
    return f"The host was busy: threads waited for a core for {percent(largest)} of their time."


def _share(total_ns: int, loads: list[HostLoad]) -> float:
    wall_ns = sum(load.wall_ns for load in loads)
    return total_ns / wall_ns if wall_ns > 0 else 0.0
