"""The processes of a search over configurations, within limits: one that compares them, and fresh ones. All results are kept."""

from __future__ import annotations

import contextlib
import itertools
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from profiler_kit.measurement import sweep
from profiler_kit.measurement.screening import Screen
from profiler_kit.measurement.turns import rounds
from profiler_kit.measurement.visits import Round, RoundProgress, Visit, report_round
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Screened
from profiler_kit.records.progress import OnProcess, ProcessStart
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec
from profiler_kit.statistics.noise import fills_step

# The first process of the baseline. It also shows how many steps the others need.
BASELINE_SHARE: Final = 1 / 15  # of the search's time
MIN_BASELINE_S: Final = 4.0
MAX_BASELINE_S: Final = 20.0
SHORTER_SHARE: Final = 0.6  # of the time of the baseline's first process, which a later one is expected to take
FINAL_SHARE: Final = 0.6  # of the mean time of a process, which one of the final measurement takes: it has no checks
STEPS_S: Final = 1.2  # half of it for timed steps: the spread between processes decides, not that of steps
OVERTIME: Final = 0.15  # of the search's time, which the final measurement of what was found may need beyond it
FINAL_COPIES: Final = 2  # of each configuration in the final measurement, also without time for them
TURNS_S: Final = 1.2  # the same for a process that takes turns
TIMED_STEPS: Final = 30  # warm-up and timed steps
CHECKED_STEPS: Final = 100  # also traced steps and checks, one of them in float64, of a noisy or slower process
MIN_TIMED_STEPS: Final = 5
MAX_TIMED_STEPS: Final = 50
MAX_SLOWDOWN: Final = 5.0  # a slower change needs no exact figures
MIN_LIMIT_S: Final = 30.0
# Of a comparison in one process. Most need less, because they end when the difference is sure.
COMPARISON_SHARE: Final = 1 / 40  # of the search's time
MIN_COMPARISON_S: Final = 2.0
COMPARED_STEPS: Final = 12  # of both sides together, if the time allows
MAX_COMPARISON_SHARE: Final = 1 / 5
LONG_START: Final = "compile"  # the first step of this axis may take minutes
LONG_START_SHARE: Final = 0.5  # of the remaining time: a useful result must run again
LONG_START_S: Final = 20.0  # the time that must remain for a first step that compiles


@dataclass(slots=True, kw_only=True)
class _Sequence:
    """Processes that are run for one purpose.

    - `reserve`: the processes that must remain for later. `pending`: those that are not requested yet.
    - `in_turns`: whether they take turns. `started_s`: when each visit started, by its identity.
    """

    purpose: str
    reserve: int
    pending: int = 0
    in_turns: bool = False
    started_s: dict[int, float] = field(default_factory=dict)
    _visits: list[Visit] = field(default_factory=list)  # keeps them alive, so that identities stay unique

    def queued(self, visit: Visit) -> Visit:
        """`visit`, which is now requested."""
        self._visits.append(visit)
        return visit

    @property
    def waiting(self) -> int:
        """The number of requested visits that have not started."""
        return len(self._visits) - len(self.started_s)


@dataclass(slots=True, kw_only=True)
class TuningProcesses:
    """The processes of a search, and their results.

    - `read_trace`: adds to a run the results from its trace.
    - `first_runs`: the first process of each configuration by name, with kernels and, if requested, checks.
    - `screen`: compares configurations in one process. `screened`: their runs by name, with errors if they were checked.
    - `answers`: returns the configurations that the final measurement runs beside the baseline, as far as the search has come.
    - `count`: the processes that have started. `max_count`: the largest number of them; None without a limit.
    - `deadline_s`: the time, on the monotonic clock, after which no process of the search starts.
    - `interrupted`: Ctrl-C has stopped a measurement.
    """

    spec: TargetSpec
    device: str
    folder: Path
    budget_s: float
    read_trace: Callable[[ConfigRun, Path], ConfigRun]
    on_progress: OnProgress
    on_process: OnProcess
    screen: Screen
    max_count: int | None = None
    timeout_s: float | None = None
    first_runs: dict[str, ConfigRun] = field(default_factory=dict)
    screened: dict[str, ConfigRun] = field(default_factory=dict)
    answers: Callable[[], Sequence[RunConfig]] = tuple
    count: int = 0
    interrupted: bool = False
    start_s: float = field(default_factory=lambda: time.monotonic())
    _measured_s: list[float] = field(default_factory=list)
    _running_s: float = 0.0  # of sequences after the baseline's, each from the start of its first process
    _preparing_s: float = 0.0  # of the last sequence, until its first process started
    _comparison_s: float = 0.0  # of the longest comparison in one process

    @property
    def deadline_s(self) -> float:
        """When the search ends."""
        return self.start_s + self.budget_s

    @property
    def mean_s(self) -> float:
        """The mean wall time of a process so far; 0 without one.

        The first process of the baseline takes longer than others: it runs more steps, and on a GPU nothing prepares before it.
        """
        others = len(self._measured_s) - 1
        if others > 0:
            return self._running_s / others
        first_run = next(iter(self.first_runs.values()), None)
        if first_run is None:
            return 0.0
        needed_s = (first_run.needed_ns or 0) * 1e-9
        return SHORTER_SHARE * (needed_s if self._may_overlap() and needed_s else self._measured_s[0])

    def has_room(self, processes: int, *, reserve: int = 0, starts_slowly: bool = False) -> bool:
        """Whether `processes` more, and `reserve` shorter ones of the final measurement, fit into the limits."""
        if not self._may_start(processes + reserve):
            return False
        start_s = self._preparing_s if reserve else 0.0  # nothing prepares beside the first process of a sequence
        start_s += LONG_START_S if starts_slowly else 0.0
        return time.monotonic() + start_s + processes * self.mean_s + self._final_s(reserve) <= self.deadline_s

    def has_room_to_compare(self, *, reserve: int, budgets: int = 1) -> bool:
        """Whether one more comparison in one process, and `reserve` fresh processes after it, fit into the limits."""
        if not self._may_start((not self.screen.is_running) + reserve):
            return False
        needed_s = max(self._comparison_s, budgets * self._budget_of_comparison_s) + self._final_s(reserve)
        return time.monotonic() + needed_s <= self.deadline_s

    def has_room_to_confirm(self, answers: Sequence[RunConfig], *, reserve: int) -> bool:
        """Whether the final measurement of `answers`, of `reserve` processes, ends little after the time."""
        return time.monotonic() + self._final_s(reserve, answers) <= self.deadline_s + OVERTIME * self.budget_s

    def _final_s(self, processes: int, answers: Sequence[RunConfig] | None = None) -> float:
        """The expected time of `processes` of the final measurement. Each repeats the first step of its configuration."""
        if not processes:
            return 0.0
        slow_s = sum(map(self.slow_start_s, self.answers() if answers is None else answers))
        return FINAL_SHARE * processes * self.mean_s + FINAL_COPIES * slow_s

    def slow_start_s(self, config: RunConfig) -> float:
        """By how much the first step of `config` takes longer than that of the baseline: it compiles or searches algorithms."""
        first = next(iter(self.first_runs.values()), None)
        run = self.first_runs.get(config.name, self.screened.get(config.name))
        if first is None or run is None:
            return 0.0
        return max(0, (run.first_step_ns or 0) - (first.first_step_ns or 0)) * 1e-9

    @property
    def _budget_of_comparison_s(self) -> float:
        """The time for the steps of a comparison."""
        first = next(iter(self.first_runs.values()), None)
        step_s = first.step_ns.median * 1e-9 if first is not None and first.step_ns is not None else 0.0
        needed_s = max(MIN_COMPARISON_S, COMPARISON_SHARE * self.budget_s, COMPARED_STEPS * step_s)
        return min(needed_s, MAX_COMPARISON_SHARE * self.budget_s)

    def compare(self, base: RunConfig | None, config: RunConfig, *, budgets: int = 1) -> Screened | None:
        """`config` compared with `base` in one process, or only checked without one; None after Ctrl-C.

        `budgets`: the time for it, in times that a comparison usually has.
        """
        if self.interrupted:
            return None
        begin_s = time.monotonic()
        self.count += not self.screen.is_running
        self.on_process(ProcessStart(number=self.count, count=self.count, name=f"comparing: {config.name}"))
        try:
            answer = self.screen.compare(base, config, budget_s=budgets * self._budget_of_comparison_s)
        except KeyboardInterrupt:
            self.interrupted = True
            self.screen.close()
            answer = None
        self.on_process(None)
        if answer is not None:
            self.screened[config.name] = answer.run
            begin_s = max(begin_s, self.screen.ready_s)  # the next comparison starts no process
            self._comparison_s = max(self._comparison_s, time.monotonic() - begin_s)
        return answer

    def measure(
        self, configs: Sequence[RunConfig], purpose: str, *, reserve: int = 0, checks: bool = True, final: bool = False
    ) -> list[ConfigRun]:
        """Run each of `configs` in a fresh process, in this order, and return the runs that finished, failures included.

        `reserve`: the processes that must remain for later. Configurations without room for one process and the reserve are
        left out; `final` ignores the time, not the number of processes. A configuration that failed is not run again. The
        first process of a configuration is traced, and checked with `checks`. After Ctrl-C, which sets `interrupted`, no further
        process starts.
        """
        sequence = _Sequence(purpose=purpose, reserve=reserve, pending=len(configs))
        planned: set[str] = set()

        def visits() -> Iterator[Visit]:
            for index, config in enumerate(configs):
                if self._has_failed(config):
                    continue
                ahead = sequence.waiting
                has_room = self.has_room(1 + ahead, reserve=reserve)
                if final:
                    has_room = self._may_start(1 + ahead)
                if not has_room:
                    return
                is_first = config.name not in planned and config.name not in self.first_runs
                planned.add(config.name)
                sequence.pending = len(configs) - index - 1
                yield sequence.queued(self._visit(config, is_first=is_first, checks=checks))

        return self._run(sequence, visits())

    def takes_turns(self) -> bool:
        """Whether processes that only time steps should take turns: the step of the first run waits for the host."""
        return bool(self.first_runs) and not self._may_overlap()

    def measure_in_turns(
        self, configs: Sequence[RunConfig], purpose: str, *, copies: int, reserve: int = 0, final: bool = False
    ) -> list[ConfigRun] | None:
        """The runs of up to `copies` fresh processes of each configuration that take turns; None where that is not possible.

        The others are compared with the first configuration. `reserve` and `final` as in `measure`; fewer processes run if there
        is no room for all. Long steps need no turns.
        """
        due = [config for config in configs if not self._has_failed(config)]
        fewest = FINAL_COPIES if final else 1
        while copies > fewest and not self.has_room(0, reserve=copies * len(due) + reserve):
            copies -= 1
        has_room = (
            self._may_start(copies * len(due)) if final else self.has_room(0, reserve=copies * len(due) + reserve)
        )
        if self.interrupted or len(due) < 2 or not has_room:
            return None
        visits = [
            replace(self._visit(config, is_first=False), budget_s=TURNS_S, steps=None, again=True, further=True)
            for config in due
        ]
        anchor, *others = ((visit,) for visit in visits)
        largest = _largest([self.first_runs[config.name] for config in due if config.name in self.first_runs])
        entries = rounds(others, anchor=anchor, copies=copies, first=largest, device=self.device)
        if not entries:
            return None
        sequence = _Sequence(purpose=purpose, reserve=reserve, in_turns=True)
        for visit in itertools.chain.from_iterable(entries):
            sequence.queued(visit)
        return self._run(sequence, iter(entries))

    def _has_failed(self, config: RunConfig) -> bool:
        """Whether the first process of `config` failed."""
        earlier = self.first_runs.get(config.name)
        return earlier is not None and earlier.failure is not None

    def _may_start(self, processes: int) -> bool:
        """Whether the limit of their number allows `processes` more."""
        return self.max_count is None or self.count + processes <= self.max_count

    def _run(self, sequence: _Sequence, entries: Iterator[Visit | Round]) -> list[ConfigRun]:
        """The runs of `entries` that finished, failures included."""
        runs: list[ConfigRun] = []
        if self.interrupted:
            return runs
        self.screen.close()  # it would hold memory, and perhaps keep a core busy
        call_s = last_s = time.monotonic()

        def on_start(visit: Visit) -> None:
            nonlocal last_s
            self.count += 1
            sequence.started_s[id(visit)] = now_s = time.monotonic()
            if sequence.in_turns:  # they have all been prepared by now
                return
            if len(sequence.started_s) == 1:
                last_s = now_s
                self._preparing_s = now_s - call_s
            waiting = sequence.waiting + sequence.pending
            left = waiting + 1 + sequence.reserve
            self.on_process(
                ProcessStart(
                    number=self.count,
                    count=self.count + waiting + sequence.reserve,
                    name=f"{sequence.purpose}: {visit.config.name}",
                    left_ns=round(left * self.mean_s * 1e9) if self._measured_s else None,
                )
            )

        def on_progress(visit: Visit, text: str) -> None:
            place = f"[{self.count}] " if id(visit) in sequence.started_s else ""
            self.on_progress(f"{place}{sequence.purpose}: {visit.config.name}: {text}")

        def on_round(progress: RoundProgress) -> None:
            started = sum(id(visit) in sequence.started_s for visit in progress.visits)
            later = sequence.waiting - (len(progress.visits) - started) + sequence.reserve
            report_round(
                progress,
                number=self.count - started + 1,
                count=self.count - started + len(progress.visits) + later,
                purpose=f"{sequence.purpose}: ",
                later_ns=round(later * self.mean_s * 1e9),
                on_process=self.on_process,
                on_progress=self.on_progress,
            )

        try:
            measured = sweep.measure_visits(
                self.spec,
                entries,
                device=self.device,
                on_start=on_start,
                on_progress=on_progress,
                on_round=on_round,
                may_overlap=self._may_overlap,
            )
            with contextlib.closing(measured) as finished_visits:
                for finished in finished_visits:
                    now_s = time.monotonic()
                    if self._measured_s:
                        self._running_s += now_s - last_s
                    last_s = now_s
                    self._measured_s.append(now_s - sequence.started_s[id(finished.visit)])
                    run = finished.run
                    if run.trace is not None:
                        run = self.read_trace(run, Path(run.trace))
                        Path(run.trace or finished.visit.trace or "").unlink(missing_ok=True)
                    self.first_runs.setdefault(run.config.name, run)
                    if run.failure is not None:
                        on_progress(finished.visit, f"failed: {run.failure.message}")
                    runs.append(run)
        except KeyboardInterrupt:
            self.interrupted = True
        self.on_process(None)
        return runs

    def _may_overlap(self) -> bool:
        """Whether processes may prepare beside one that measures: if kernels fill the step of the first run."""
        first = next(iter(self.first_runs.values()), None)
        return first is not None and fills_step(first)

    def _visit(self, config: RunConfig, *, is_first: bool, checks: bool = False) -> Visit:
        base = next(iter(self.first_runs.values()), None)
        trace = self.folder / f"{zlib.crc32(config.name.encode()):08x}.json.gz" if is_first else None
        if base is None or base.step_ns is None:
            budget_s = min(MAX_BASELINE_S, max(MIN_BASELINE_S, self.budget_s * BASELINE_SHARE))
            return Visit(
                config=config, budget_s=budget_s, trace=trace, timeout_s=self.timeout_s, checks=checks, parts=False
            )
        step_s = base.step_ns.median * 1e-9
        steps, budget_s = None, max(STEPS_S, TIMED_STEPS * step_s)
        if not self.device.startswith("cuda"):  # there, checks are skipped if steps have used up the budget
            steps = min(MAX_TIMED_STEPS, max(MIN_TIMED_STEPS, round(STEPS_S / 2 / max(step_s, 1e-9))))
            budget_s = max(STEPS_S, CHECKED_STEPS * step_s)
        limit_s, late = self._limit(config)
        return Visit(
            config=config,
            budget_s=budget_s,
            steps=steps,
            trace=trace,
            timeout_s=limit_s,
            late=late,
            checks=checks and is_first,
            parts=False,
        )

    def _limit(self, config: RunConfig) -> tuple[float, str | None]:
        """The time limit of a process in seconds, and the failure message after it."""
        base_s = self._measured_s[0]
        if config.setting(LONG_START) is not None:
            limit_s = max(MIN_LIMIT_S, LONG_START_SHARE * (self.deadline_s - time.monotonic()))
            late = f"no result within {limit_s:.0f} s, most of the remaining time; raise --budget"
        else:
            limit_s = max(MIN_LIMIT_S, MAX_SLOWDOWN * base_s)
            late = f"no result after {limit_s:.0f} s, while the baseline took {base_s:.1f} s"
        if self.timeout_s is not None and self.timeout_s < limit_s:
            return self.timeout_s, None
        return limit_s, f"{late}. The process was terminated"


def _largest(runs: Sequence[ConfigRun]) -> ConfigRun:
    """The first one of `runs`, with the memory of the largest."""

    def most(figures: Iterable[int | None]) -> int | None:
        return max((size for size in figures if size is not None), default=None)

    return replace(
        runs[0],
        peak_reserved_bytes=most(run.peak_reserved_bytes for run in runs),
        peak_rss_bytes=most(run.peak_rss_bytes for run in runs),
    )
