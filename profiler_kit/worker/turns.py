"""Waits for the parent's permission to use the device, and timed steps that several processes take in turns.

The length of a step that waits for the host changes within tenths of a second, by more than processes differ. A process that is
measured in short turns, alternating with the processes it is compared with, sees the same moments as they do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import IO

from profiler_kit.process.protocol import END_LINE, PREPARED, START_LINE, OnProgress, ignore_progress
from profiler_kit.records.experiments import HostLoad
from profiler_kit.records.jobs import Turns
from profiler_kit.worker.host_load import load_between, read_host
from profiler_kit.worker.steps import Runner, TimedSteps, timed_steps


class Gate:
    """Blocks a process while it may not use the device.

    `held_ns` is the time for which it could use the device so far. `is_over`: the parent wants no further turns.
    """

    def __init__(self, go: IO[bytes] | None = None, on_progress: OnProgress = ignore_progress) -> None:
        self._go = go
        self._on_progress = on_progress
        self._opened_ns: int | None = None
        self._earlier_ns = 0
        self.is_over = False

    @property
    def held_ns(self) -> int:
        """The time from permission to the next wait, or until now, in total."""
        current_ns = time.perf_counter_ns() - self._opened_ns if self._opened_ns is not None else 0
        return self._earlier_ns + current_ns

    def wait(self) -> None:
        """Return when this process may use the device (again) or should end its turns. Exits if the parent is gone."""
        self._earlier_ns, self._opened_ns = self.held_ns, None
        if self._go is not None:
            self._on_progress(PREPARED)
            line = self._go.readline().strip().decode()
            if line not in (START_LINE, END_LINE):
                raise SystemExit("the parent process is gone")
            self.is_over = line == END_LINE
        self._opened_ns = time.perf_counter_ns()


def steps_in_turns(runner: Runner, turns: Turns, gate: Gate) -> tuple[TimedSteps, HostLoad | None]:
    """The timed steps of all `turns`, or of those until the parent has enough, and the load of the host during them.

    A turn also starts with as many untimed steps as a loader has prepared batches for meanwhile.
    """
    timed = TimedSteps()
    loads: list[HostLoad] = []
    for _ in range(turns.count):
        gate.wait()
        if gate.is_over:
            break
        for _ in range(turns.untimed + runner.target.prepared_batches):
            runner.step()
        runner.synchronize()
        host = read_host()
        until_ns = time.perf_counter_ns() + turns.turn_ns
        timed.extend(timed_steps(runner, turns.most, fewest=turns.fewest, until_ns=until_ns))
        loads.append(load_between(host, read_host()))
    return timed, total_load(loads)


def total_load(loads: Sequence[HostLoad]) -> HostLoad | None:
    """The load over several periods of one process; None without any."""
    if not loads:
        return None

    def total(figure: Callable[[HostLoad], int | None]) -> int | None:
        figures = [ns for load in loads if (ns := figure(load)) is not None]
        return sum(figures) if len(figures) == len(loads) else None

    return replace(
        loads[0],
        wall_ns=sum(load.wall_ns for load in loads),
        own_cpu_ns=total(lambda load: load.own_cpu_ns),
        other_cpu_ns=total(lambda load: load.other_cpu_ns),
        running_ns=total(lambda load: load.running_ns),
        waiting_ns=total(lambda load: load.waiting_ns),
        contended_ns=total(lambda load: load.contended_ns),
        throttled_ns=total(lambda load: load.throttled_ns),
        end_clock_hz=loads[-1].end_clock_hz,
        end_loop_ns=loads[-1].end_loop_ns,
    )
