"""Runs visits one after another, each in a process of its own. The next processes are prepared while one measures.

Every end of a process is recorded as a `ConfigRun`, including crashes and timeouts.

Visits are interleaved (A B C, then C B A). Drift of clocks and temperature then affects all configurations equally, and the
two processes of each configuration show how much processes differ.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
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
from profiler_kit.measurement.visits import START_UP_S, Visit
from profiler_kit.measurement.worker_process import failure_of, read_result, spawn_worker
from profiler_kit.process.protocol import PREPARED, START_LINE, OnProgress, ignore_progress
from profiler_kit.records.experiments import Repeat
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.target import TargetSpec
from profiler_kit.temporary_files import replacement, temporary_folder

# A process that is being prepared builds the model: it keeps a core busy and needs host memory. It must not slow down the
# process that measures.
CORES_PER_PREPARED: Final = 4
MAX_PREPARED: Final = 3
POLL_S: Final = 0.02
TRACE, PARTS = "trace.json.gz", "parts.json.gz"


class RunProcess:
    """The process of one run. It loads its target at once and waits for `go`. Created by `spawn_run`."""

    def __init__(
        self, visit: Visit, child: process.Child, folder: Path, is_prepared: Callable[[], bool], ranks: RankedRun | None
    ) -> None:
        self.visit = visit
        self._child = child
        self._folder = folder
        self._is_prepared = is_prepared
        self._ranks = ranks

    def wait_until_prepared(self) -> None:
        """Return when the process waits for the device, or has ended, or is as late as a hang."""
        until_s = time.monotonic() + START_UP_S
        while not self._is_prepared() and time.monotonic() < until_s:
            if self._child.exits_within(POLL_S):
                return

    def go(self) -> None:
        """Allow the process to use the device."""
        self._child.send_line(START_LINE)

    def result(self) -> ConfigRun:
        """The run, once the process has finished; a crash, hang or error becomes its failure. Call it after `go`."""
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
        outcome = self._child.finish(self.visit.limit_s)
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

    def go(self) -> None:
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
            waits=True,
        )
        is_prepared = False

        def on_worker_progress(text: str) -> None:
            nonlocal is_prepared
            if text == PREPARED:
                is_prepared = True
            else:
                on_progress(text)

        ranked = ranks.announce(job, visit.limit_s) if ranks is not None else None
        job = ranked.job if ranked is not None else job
        with contextlib.ExitStack() as stack:
            if ranked is not None:
                stack.callback(ranked.close)
            child = stack.enter_context(spawn_worker("run", job, folder, talks=True, on_progress=on_worker_progress))
            yield RunProcess(visit, child, folder, lambda: is_prepared, ranked)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedVisit:
    """A finished visit. `parts_trace` must be read before the next visit is requested."""

    visit: Visit
    run: ConfigRun
    parts_trace: Path | None


def measure_visits(
    spec: TargetSpec,
    visits: Iterable[Visit],
    *,
    device: str,
    on_start: Callable[[Visit], None],
    on_progress: Callable[[Visit, str], None],
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
    """
    max_prepared = _max_prepared(device) if ahead is None else ahead
    if ranks is not None:
        max_prepared = 0
    remaining = iter(visits)
    waiting: deque[RunProcess | NotStarted] = deque()
    blocks: dict[int, contextlib.ExitStack] = {}
    with contextlib.ExitStack() as stack:

        def prepare(count: int) -> None:
            """Start processes until `count` are waiting."""
            for visit in itertools.islice(remaining, max(0, count - len(waiting))):
                block = stack.enter_context(contextlib.ExitStack())
                report = partial(on_progress, visit)
                if not may_overlap():  # the step waits for the host, whose time depends on where libraries are loaded
                    process.separate_forks((spec, visit.config.repeat_of or visit.config.name))
                try:
                    started = block.enter_context(
                        spawn_run(spec, visit, device=device, ranks=ranks, on_progress=report)
                    )
                    waiting.append(started)
                except (KitError, OSError) as error:  # a resource missing for this process may be available for others
                    waiting.append(NotStarted(visit, error))
                blocks[id(waiting[-1])] = block

        def start_next() -> RunProcess | NotStarted | None:
            """The next process, with permission to use the device."""
            if max_prepared and not waiting and not may_overlap():  # together, because nothing measures now
                prepare(1 + max_prepared)
                for prepared in waiting:
                    prepared.wait_until_prepared()
            prepare(1)
            if not waiting:
                return None
            run_process = waiting.popleft()
            on_start(run_process.visit)
            run_process.go()
            if may_overlap():
                prepare(max_prepared)
            return run_process

        current = start_next()
        while current is not None:
            run = current.result()
            overlaps = max_prepared > 0 and may_overlap()
            following = start_next() if overlaps else None
            yield FinishedVisit(visit=current.visit, run=run, parts_trace=current.parts_trace())
            blocks.pop(id(current)).close()
            current = following if overlaps else start_next()


def _max_prepared(device: str) -> int:
    """The number of processes to prepare while one measures. Each keeps a core busy for some seconds."""
    return min(MAX_PREPARED, process.usable_cores() // CORES_PER_PREPARED) if device.startswith("cuda") else 0


def with_repeat(run: ConfigRun, second: ConfigRun) -> ConfigRun:
    """`run` with the results of a second process of its configuration."""
    return replace(run, repeat=repeat_of(second), new_thread=second.new_thread)


def repeat_of(second: ConfigRun) -> Repeat:
    """The results of a further process of a configuration."""
    return Repeat(
        first_step_ns=second.first_step_ns,
        steps_ns=second.steps_ns,
        step_ns=second.step_ns,
        output_digest=second.output_digest,
        loss_digest=second.loss_digest,
        gradient_digest=second.gradient_digest,
        failure=second.failure.message if second.failure is not None else None,
        host_load=second.host_load,
    )
