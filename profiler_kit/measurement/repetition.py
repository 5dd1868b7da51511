"""Further processes of configurations whose comparison with the baseline is still open."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from profiler_kit.measurement.visits import Visit, further_visit
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.report import baseline_of
from profiler_kit.records.runs import ConfigRun
from profiler_kit.statistics.noise import noise_of_runs
from profiler_kit.statistics.sequential import undecided_runs


@dataclass(slots=True, kw_only=True)
class FurtherPasses:
    """The passes after the first two: short processes of each undecided configuration and of the baseline.

    The order is reversed from pass to pass. Passes end when all configurations are decided, or when another pass would not fit
    into `budget_s`, start-up of processes included. `copies`: the largest number of processes of each configuration in a pass;
    `due_copies`: that of the last pass.
    """

    runs: Sequence[ConfigRun]
    budget_s: float
    visit_of: Callable[[RunConfig], Visit]
    copies: int = 1
    clock_s: Callable[[], float] = time.monotonic
    started_s: float = field(init=False)
    due_copies: int = field(init=False, default=1)
    passes: int = field(init=False, default=0)
    pass_started_s: float = field(init=False)
    earlier_processes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.started_s = self.pass_started_s = self.clock_s()

    def next_pass(self) -> list[Visit]:
        """One visit of each configuration of the next pass, the baseline among them; empty if none is needed or fits."""
        runs = [run for run in self.runs if run.config.repeat_of is None and run.failure is None]
        baseline = baseline_of(self.runs)
        if len(runs) < 2 or baseline is None:
            return []
        undecided = undecided_runs(baseline, [run for run in runs if run is not baseline], noise_of_runs(self.runs))
        if not undecided:
            return []
        now_s = self.clock_s()
        # the first passes also trace and check, and their processes take longer than further ones
        processes = sum(1 + len(run.repeats) for run in self.runs)
        process_s = (now_s - self.pass_started_s) / max(1, processes - self.earlier_processes)
        left_s = self.budget_s - (now_s - self.started_s)
        fitting = int(left_s / max(process_s, 1e-9)) // (1 + len(undecided))
        if fitting < 1:
            return []
        self.due_copies = min(self.copies, fitting)
        self.earlier_processes, self.pass_started_s, self.passes = processes, now_s, self.passes + 1
        visits = [further_visit(self.visit_of(run.config)) for run in (baseline, *undecided)]
        return visits if self.passes % 2 else visits[::-1]
