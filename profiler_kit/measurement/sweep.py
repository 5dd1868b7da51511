"""Runs visits one after another, each in a process of its own. The next processes are prepared while one measures.

Every end of a process is recorded as a `ConfigRun`, including crashes and timeouts.

Visits are interleaved (A B C, then C B A). Drift of clocks and temperature then affects all configurations equally, and the
two processes of each configuration show how much processes differ.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.measurement.rank_runs import RankedRun, Ranks
from profiler_kit.measurement.turns import MIN_TURNS
from profiler_kit.measurement.visits import START_UP_S, Condition, Round, RoundProgress, Visit, ignore_rounds
from profiler_kit.measurement.worker_process import failure_of, read_result, spawn_worker
from profiler_kit.process.protocol import END_LINE, PREPARED, START_LINE, OnProgress, ignore_progress
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetSpec
from profiler_kit.temporary_files import replacement, temporary_folder

# A process that is being prepared builds the model: it keeps a core busy and needs host memory. It must not slow down the
# process that measures.
CORES_PER_PREPARED: Final = 4
MAX_PREPARED: Final = 3
COLLECT_S: Final = 10.0  # for the results of a round that Ctrl-C ends: the rest of a turn, and the end of the process
TRACE, PARTS = "trace.json.gz", "parts.json.gz"


class RunProcess:
    """The process of one run. It loads its target at once and waits for `go`. Created by `spawn_run`."""

    def __init__(
        self,
        visit: Visit,
        child: process.Child,
        folder: Path,
        waits: threading.Event,
        ranks: RankedRun | None,
    ) -> None:
        self.visit = visit
        self._child = child
        self._folder = folder
        self._waits = waits  # for the device
        self._ranks = ranks
        self._left_s = visit.limit_s  # for the device

    def wait_until_prepared(self) -> None:
        """Return when the process waits for the device, or has ended, or is as late as a hang."""
        self._child.exits_within(START_UP_S, unless=self._waits.is_set)

    def go(self, *, is_last: bool = True) -> None:
        """Allow the process to use the device. `is_last`: for all that it has to do, and not only until it waits again."""
        self._waits.clear()
        self._child.send_line(START_LINE, is_last=is_last)

    def take_turn(self) -> None:
        """Allow the process to use the device until it waits again, or has ended, or its time limit is over."""
        self.go(is_last=False)
        begin_s = time.monotonic()
        self._child.exits_within(self._left_s, unless=self._waits.is_set)
        self._left_s = max(0.0, self._left_s - (time.monotonic() - begin_s))

    def end_turns(self) -> None:
        """Let the process return what it has measured instead of taking further turns."""
        self._child.send_line(END_LINE)
        self._left_s = min(self._left_s, COLLECT_S)

    def result(self) -> ConfigRun:
        """The run, once the process has finished; a crash, hang or error becomes its failure. Call it after the last `go`."""
        run = self._run() if self._ranks is None else self._ranks.result(self._child, self.visit, self._folder)
        trace = self.visit.trace
        if trace is None or run.trace is None:
            return replace(run, trace=None)
        try:
            with replacement(trace) as copy:  # a copy, because the folders may be on different disks
                shutil.copyfile(self._folder / TRACE, copy)
        except OSError as error:
            note = f"No times by layer: cannot write the trace to {trace}: {error.strerror or error}"
            return replace(run, trace=None, traced_steps=0, notes=(*run.notes, note))
        return replace(run, trace=str(trace))

    def _run(self) -> ConfigRun:
        outcome = self._child.finish(self._left_s)
        failure = partial(failure_of, outcome, self.visit.limit_s, late=self.visit.late)
        return read_result(self._folder, ConfigRun) or ConfigRun(config=self.visit.config, failure=failure())

    def parts_trace(self) -> Path | None:
        """The trace of the convolutions' parts, valid within the block of `spawn_run`; None if the process wrote none."""
        trace = self._folder / PARTS
        return trace if trace.exists() else None


class NotStarted:
    """Replaces a `RunProcess` that could not be started, for example for lack of memory, processes or disk space."""

    def __init__(self, visit: Visit, reason: KitError | OSError) -> None:
        self.visit = visit
        self._reason = reason

    def wait_until_prepared(self) -> None:
        """Do nothing, because no process exists."""

    def go(self, *, is_last: bool = True) -> None:
        """Do nothing, because no process exists."""

    def take_turn(self) -> None:
        """Do nothing, because no process exists."""

    def end_turns(self) -> None:
        """Do nothing, because no process exists."""

    def result(self) -> ConfigRun:
        """A failed run with the reason."""
        failure = Failure(kind="error", message=f"the process could not be started: {self._reason}")
        return ConfigRun(config=self.visit.config, failure=failure)

    def parts_trace(self) -> None:
        """No trace."""


@contextlib.contextmanager
def spawn_run(
    spec: TargetSpec,
    visit: Visit,
    *,
    device: str,
    ranks: Ranks | None = None,
    on_progress: OnProgress = ignore_progress,
) -> Iterator[RunProcess]:
    """Start the run of `visit` in a fresh process, on all `ranks` of a job; leaving the block terminates it."""
    # traces are written to the worker's folder and copied when complete, so a terminated worker leaves no partial trace
    with temporary_folder("worker") as folder:
        job = RunJob(
            spec=spec,
            config=visit.config,
            device=device,
            budget_s=visit.budget_s,
            trace=str(folder / TRACE) if visit.trace is not None else None,
            parts_trace=str(folder / PARTS) if visit.parts and not visit.again else None,
            steps=visit.steps,
            checks=visit.checks,
            again=visit.again,
            hashes=not visit.further,
            building_threads=visit.building_threads,
            waits=True,
            turns=visit.turns,
        )
        waits = threading.Event()

        def on_worker_progress(text: str) -> None:
            if text == PREPARED:
                waits.set()
            else:
                on_progress(text)

        ranked = ranks.announce(job, visit.limit_s) if ranks is not None else None
        job = ranked.job if ranked is not None else job
        with contextlib.ExitStack() as stack:
            if ranked is not None:
                stack.callback(ranked.close)
            child = stack.enter_context(spawn_worker("run", job, folder, talks=True, on_progress=on_worker_progress))
            yield RunProcess(visit, child, folder, waits, ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedVisit:
    """A finished visit. `took_s`: the time for which its process could use the device.

    `parts_trace` must be read before the next visit is requested.
    """

    visit: Visit
    run: ConfigRun
    took_s: float
    parts_trace: Path | None


def measure_visits(
    spec: TargetSpec,
    visits: Iterable[Visit | Round | Condition],
    *,
    device: str,
    on_start: Callable[[Visit], None],
    on_progress: Callable[[Visit, str], None],
    on_round: Callable[[RoundProgress], None] = ignore_rounds,
    ahead: int | None = None,
    may_overlap: Callable[[], bool] = lambda: True,
    ranks: Ranks | None = None,
) -> Generator[FinishedVisit, None, None]:
    """Run `visits` and yield each one when it finishes; on a GPU the next one is already running by then.

    On a GPU up to `ahead` processes are prepared (build the model) while one measures. They wait before they use the device, so
    one process uses it at a time. On a CPU a measurement runs alone, and the next visit is requested when it is due. `ahead`
    None derives the number from the cores. `on_start` is called when a visit's process may use the device. While `may_overlap`
    returns False, nothing is prepared beside a measurement on a GPU either: a process that builds takes caches and cores from
    a step that waits for the host. Then several are prepared together, and measure one after another. A process that cannot
    be started becomes a failed run. With `ranks`, each visit runs on all of them, and nothing is prepared ahead.

    The processes of a round are prepared together, run their first steps one after another, and then alternate in short turns.
    `on_round` is called when they start and after each turn. Ctrl-C ends a round after the current turn, and yields what was
    measured before it is raised again; a second one ends it at once.
    After a condition, the next visit is requested when it is true, or when all earlier visits have been yielded.
    """
    max_prepared = _max_prepared(device) if ahead is None else ahead
    if ranks is not None:
        max_prepared = 0
    with contextlib.ExitStack() as stack:

        def start(visit: Visit) -> _Running:
            block = stack.enter_context(contextlib.ExitStack())
            report = partial(on_progress, visit)
            target = visit.spec or spec
            if not may_overlap():  # the step waits for the host, whose time depends on where libraries are loaded
                process.separate_forks((target, visit.config.repeat_of or visit.config.name))
            try:
                started: RunProcess | NotStarted = block.enter_context(
                    spawn_run(target, visit, device=device, ranks=ranks, on_progress=report)
                )
            except (KitError, OSError) as error:  # a resource missing for this process may be available for others
                started = NotStarted(visit, error)
            return _Running(started, block)

        line = _Line(visits, start)

        def begin_next() -> _Running | None:
            """The next process, with permission to use the device; None if a round, or nothing, is next."""
            line.prepare(1)
            if not line.waiting:
                return None
            running = line.waiting.popleft()
            running.begin(on_start)
            if may_overlap():
                line.prepare(max_prepared)
            return running

        while not line.is_over:
            if not line.waiting:
                line.condition = None
                if max_prepared and not may_overlap():  # together, because nothing measures now
                    line.prepare(1 + max_prepared)
                    for running in line.waiting:
                        running.process.wait_until_prepared()
            current = begin_next()
            if current is None and line.round:
                yield from _take_turns(line.take_round(), start, on_start, on_round)
            while current is not None:
                finished = current.finish()
                following = begin_next() if max_prepared and may_overlap() else None
                yield finished
                current.block.close()
                current = following


@dataclass(slots=True)
class _Running:
    """A process, the block that ends it, and for how long it could use the device."""

    process: RunProcess | NotStarted
    block: contextlib.ExitStack
    took_s: float = 0.0
    _begin_s: float = 0.0

    def begin(self, on_start: Callable[[Visit], None]) -> None:
        """Allow the process to use the device until it ends."""
        on_start(self.process.visit)
        self._begin_s = time.monotonic()
        self.process.go()

    def take_turn(self, *, is_last: bool) -> None:
        """Let the process use the device until its turn is over; until it has ended if `is_last`."""
        self._begin_s = time.monotonic()
        if is_last:
            self.process.go()
            return
        self.process.take_turn()
        self.took_s += time.monotonic() - self._begin_s

    def finish(self) -> FinishedVisit:
        """The finished visit, once the process has ended."""
        run = self.process.result()
        self.took_s += time.monotonic() - self._begin_s
        return FinishedVisit(
            visit=self.process.visit, run=run, took_s=self.took_s, parts_trace=self.process.parts_trace()
        )


def _take_turns(
    visits: Round,
    start: Callable[[Visit], _Running],
    on_start: Callable[[Visit], None],
    on_round: Callable[[RoundProgress], None],
) -> Iterator[FinishedVisit]:
    """The finished visits of a round, in the order of `visits`. `start` starts the process of one."""
    counts = [visit.turns.count if visit.turns is not None else 1 for visit in visits]
    progress = RoundProgress(visits=visits, turns=0, count=max(counts), left_s=None)
    on_round(progress)
    members = [start(visit) for visit in visits]
    for member in members:
        member.process.wait_until_prepared()
    for member in members:
        on_start(member.process.visit)
        member.take_turn(is_last=False)  # the first step and warm-up
    finished: dict[int, FinishedVisit] = {}
    begin_s = time.monotonic()
    interrupt: KeyboardInterrupt | None = None
    try:
        for number in range(max(counts)):
            order = list(zip(members, counts, strict=True))
            for member, count in order if number % 2 == 0 else reversed(order):
                if number < count:
                    member.take_turn(is_last=number == count - 1)
                if number == count - 1:
                    finished[id(member)] = member.finish()
            left_s = (time.monotonic() - begin_s) / (number + 1) * (max(counts) - number - 1)
            progress = replace(progress, turns=number + 1, left_s=left_s)
            on_round(progress)
    except KeyboardInterrupt as error:
        if progress.turns < MIN_TURNS:
            raise
        interrupt = error
        for member in members:
            member.process.end_turns()
        for member in members:
            if id(member) not in finished:
                finished[id(member)] = member.finish()
    for member in members:
        yield finished[id(member)]
        member.block.close()
    if interrupt is not None:
        raise interrupt


class _Line:
    """The visits to come: those that are not requested yet, the processes that wait for the device, and the next round.

    `start` starts the process of a visit. `condition` must be true before the next request.
    """

    def __init__(self, visits: Iterable[Visit | Round | Condition], start: Callable[[Visit], _Running]) -> None:
        self.waiting: deque[_Running] = deque()
        self.round: Round = ()
        self._remaining = iter(visits)
        self.condition: Condition | None = None
        self._start = start
        self._is_exhausted = False

    @property
    def is_over(self) -> bool:
        """Whether nothing is left."""
        return self._is_exhausted and not self.waiting and not self.round

    def prepare(self, count: int) -> None:
        """Start processes until `count` wait, or until a round or a condition that is not true is next."""
        while len(self.waiting) < count and not (self.round or self._is_exhausted):
            if self.condition is not None and not self.condition():
                return
            self.condition = None
            try:
                entry = next(self._remaining)
            except StopIteration:
                self._is_exhausted = True
                return
            if isinstance(entry, Visit):
                self.waiting.append(self._start(entry))
            elif isinstance(entry, tuple):
                self.round = entry
            else:
                self.condition = entry

    def take_round(self) -> Round:
        """The next round, which is then no longer next."""
        taken, self.round = self.round, ()
        return taken


def _max_prepared(device: str) -> int:
    """The number of processes to prepare while one measures. Each keeps a core busy for some seconds."""
    return min(MAX_PREPARED, process.usable_cores() // CORES_PER_PREPARED) if device.startswith("cuda") else 0
