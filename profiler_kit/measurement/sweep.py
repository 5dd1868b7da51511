"""The visits of an analysis one after the other, each in a fresh process; the next ones get ready while one measures.

However a process ends, by a crash or a time limit too, its end is a `ConfigRun`.

Visits are interleaved (A B C, then C B A): what drifts while a sweep lasts, clocks and temperature, weighs on every
configuration alike, and two processes of each show how far processes differ by themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.measurement.visits import Visit
from profiler_kit.measurement.worker_process import read_result, started_worker, worker_folder
from profiler_kit.process.protocol import GO, OnProgress, silent
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind
from profiler_kit.records.target import TargetSpec

# Getting ready is importing and building: one core busy for several seconds, and host memory. The process that measures must
# not feel it.
CORES_TO_GET_READY: Final = 4
MOST_READY: Final = 3
TRACE, PARTS = "trace.json.gz", "parts.json.gz"


class RunProcess:
    """The process of one run, under way: it loads its target at once, and waits for `go`. Made by `started_run`."""

    def __init__(self, visit: Visit, child: process.Child, folder: Path) -> None:
        self.visit = visit
        self._child = child
        self._folder = folder

    def go(self) -> None:
        """Lets it use the device."""
        self._child.send_line(GO)

    def result(self) -> ConfigRun:
        """Its run, once it has ended; a crash, hang or error of it is the record's failure. To be called after `go`."""
        outcome = self._child.finish(self.visit.limit_s)
        run = read_result(self._folder, ConfigRun)
        if run is None:
            return ConfigRun(config=self.visit.config, failure=_failure(outcome, self.visit))
        trace = self.visit.trace
        if trace is None or run.trace is None:
            return replace(run, trace=None)
        try:
            _keep(self._folder / TRACE, trace)
        except OSError as error:
            note = f"No times by layer: the trace cannot be written to {trace}: {error.strerror or error}"
            return replace(run, trace=None, traced_steps=0, notes=(*run.notes, note))
        return replace(run, trace=str(trace))

    def parts_trace(self) -> Path | None:
        """The trace of its convolutions' parts, while the block of `started_run` lasts; None where it left none."""
        trace = self._folder / PARTS
        return trace if trace.exists() else None


class NotStarted:
    """In place of a `RunProcess` that can't be started: memory, processes or room on the disk may have run out."""

    def __init__(self, visit: Visit, reason: KitError | OSError) -> None:
        self.visit = visit
        self._reason = reason

    def go(self) -> None:
        """Does nothing: there is no process."""

    def result(self) -> ConfigRun:
        """A failed run that says why."""
        failure = Failure(kind="error", message=f"its process could not be started: {self._reason}")
        return ConfigRun(config=self.visit.config, failure=failure)

    def parts_trace(self) -> None:
        """No trace."""


@contextlib.contextmanager
def started_run(
    spec: TargetSpec, visit: Visit, *, device: str, on_progress: OnProgress = silent
) -> Iterator[RunProcess]:
    """The run that `visit` asks for, in a fresh process, which is ended when the block is left."""
    # traces are in the worker's folder until they are whole: a worker that is ended leaves no half of one
    with worker_folder() as folder:
        job = RunJob(
            spec=spec,
            config=visit.config,
            device=device,
            budget_s=visit.budget_s,
            trace=str(folder / TRACE) if visit.trace is not None else None,
            parts_trace=str(folder / PARTS) if not visit.again else None,
            steps=visit.steps,
            checks=visit.checks,
            again=visit.again,
            waits=True,
        )
        with started_worker("run", job, folder, talks=True, on_progress=on_progress) as child:
            yield RunProcess(visit, child, folder)


def _keep(trace: Path, place: Path) -> None:
    """Copies `trace` to `place`, which is whole or absent whatever happens; the two may lie on different disks.

    Raises OSError.
    """
    partial = place.with_name(f".{place.name}.partial")
    try:
        shutil.copyfile(trace, partial)
        partial.replace(place)
    finally:
        with contextlib.suppress(OSError):  # without the folder there is no half of a file either
            partial.unlink(missing_ok=True)


def _failure(outcome: process.Outcome, visit: Visit) -> Failure:
    kind: FailureKind = "crash"
    if outcome.timed_out:
        kind = "timeout"
        message = visit.late or (
            f"no result after {visit.limit_s:g} s, so the process was ended; raise --timeout if the model is only slow"
        )
    elif outcome.signal_name == "SIGKILL":
        kind = "out_of_memory"
        message = "killed (SIGKILL), which is what the system does to a process when host memory runs out"
    elif outcome.signal_name is not None:
        message = f"the process crashed ({outcome.signal_name})"
    else:
        message = f"the process ended with {outcome.ending} and no result"
    return Failure(kind=kind, message=message, log_tail=outcome.log_tail)


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedVisit:
    """A visit that has ended. `parts_trace` of its convolutions has to be read before the next one is asked for."""

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
) -> Generator[FinishedVisit, None, None]:
    """Each visit as soon as it has ended; the next one is under way by then, where it may be.

    On a device beside the host the next processes get ready (import, build the model) while one measures, and wait before
    they touch the device: one process at a time uses it. On the host itself nothing runs beside a measurement, and the next
    visit is asked for when its turn has come. `ahead`: how many get ready (None: what the cores allow). `on_start` is called
    when a visit's process may use the device. A process that can't be started is a failed run.
    """
    most = _ready_ahead(device) if ahead is None else ahead
    remaining = iter(visits)
    waiting: deque[RunProcess | NotStarted] = deque()
    blocks: dict[int, contextlib.ExitStack] = {}
    with contextlib.ExitStack() as stack:

        def prepare(count: int) -> None:
            """Lets processes get ready until so many wait."""
            for visit in itertools.islice(remaining, max(0, count - len(waiting))):
                block = stack.enter_context(contextlib.ExitStack())
                report = partial(on_progress, visit)
                try:
                    started = block.enter_context(started_run(spec, visit, device=device, on_progress=report))
                    waiting.append(started)
                except (KitError, OSError) as error:  # what runs out for this one need not be lacking for the others
                    waiting.append(NotStarted(visit, error))
                blocks[id(waiting[-1])] = block

        def start_next() -> RunProcess | NotStarted | None:
            """The next process, which may use the device from now on."""
            prepare(1)
            if not waiting:
                return None
            run_process = waiting.popleft()
            on_start(run_process.visit)
            run_process.go()
            prepare(most)
            return run_process

        current = start_next()
        while current is not None:
            run = current.result()
            following = start_next() if most else None
            yield FinishedVisit(visit=current.visit, run=run, parts_trace=current.parts_trace())
            blocks.pop(id(current)).close()
            current = following if most else start_next()


def _ready_ahead(device: str) -> int:
    """How many processes may get ready while one measures: each keeps a core busy for some seconds."""
    return min(MOST_READY, process.usable_cores() // CORES_TO_GET_READY) if device.startswith("cuda") else 0


def with_repeat(run: ConfigRun, second: ConfigRun) -> ConfigRun:
    """`run` with what a second process of its configuration measured."""
    repeat = Repeat(
        first_step_ns=second.first_step_ns,
        steps_ns=second.steps_ns,
        step_ns=second.step_ns,
        output_digest=second.output_digest,
        loss_digest=second.loss_digest,
        gradient_digest=second.gradient_digest,
        failure=second.failure.message if second.failure is not None else None,
    )
    return replace(run, repeat=repeat, new_thread=second.new_thread)
