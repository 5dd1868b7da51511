"""The parent's side of a run: a fresh process with a time limit, whose end, however it comes, is a `ConfigRun`."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.measurement.visits import Visit
from profiler_kit.measurement.worker_process import read_result, started_worker, worker_folder
from profiler_kit.process.protocol import GO, OnProgress, silent
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind
from profiler_kit.records.target import TargetSpec

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


def interrupted(config: RunConfig, started: bool) -> ConfigRun:
    """The record of a run that Ctrl-C ended, or kept from starting."""
    message = "interrupted" if started else "not run: interrupted before"
    return ConfigRun(config=config, failure=Failure(kind="interrupted", message=message))
