"""Runs a module of `worker/` in a fresh process. Job and result are files; progress is printed line by line."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeVar

from profiler_kit import process
from profiler_kit.process.protocol import JOB_FILE, RESULT_FILE, OnProgress, ignore_progress, parse_progress
from profiler_kit.records.runs import Failure, FailureKind
from profiler_kit.records.saved import Saved
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.records.target import TargetSpec

Result = TypeVar("Result")


FORKED: Final = ("run", "screen", "schedule_run", "ceilings")
# Servers of forks that import together, while nothing measures.
MAX_SERVERS: Final = 8
CORES_PER_SERVER: Final = 2
SERVER_BYTES: Final = 500_000_000  # of host memory, with torch and its compiler
COMPILER: Final = "torch._dynamo"  # the first step of an optimizer imports it


def worker_forks(*specs: TargetSpec) -> contextlib.AbstractContextManager[None]:
    """Within the block, start workers for `specs` as forks of a process that has imported them, where that is possible.

    The block imports in the background at once, so enter it early.
    """
    modules = [_module_name(module) for module in FORKED]
    imports = [COMPILER] if any(spec.mode == "train" for spec in specs) else []
    return process.forking(modules, _environment(), imports=imports, together=servers_together())


def servers_together() -> int:
    """How many servers of forks import at the same time: as many processes of a configuration start as fast as one."""
    return process.workers_for(MAX_SERVERS, SERVER_BYTES, limit=max(1, process.usable_cores() // CORES_PER_SERVER))


@contextlib.contextmanager
def spawn_worker(
    module: str,
    job: Saved,
    folder: Path,
    *,
    talks: bool = False,
    on_progress: OnProgress = ignore_progress,
) -> Iterator[process.Child]:
    """Run ``python -m profiler_kit.worker.MODULE`` on `job`; leaving the block terminates the process and its children.

    `talks` opens a pipe to its stdin.
    `on_progress` is called with its progress. Raises KitError if the process cannot be started.
    """
    file = folder / JOB_FILE
    file.write_text(dumps(job), encoding="utf-8")

    def on_line(line: str) -> None:
        progress = parse_progress(line)
        if progress is not None:
            on_progress(progress)

    argv = [sys.executable, "-m", _module_name(module), str(file)]
    with process.start_child(
        argv,
        env=_environment(),
        accepts_line=talks,
        log=folder / "log.txt",
        on_line=on_line,
    ) as child:
        yield child


def run_worker(
    module: str,
    job: Saved,
    folder: Path,
    result: type[Result],
    *,
    timeout_s: float,
    on_progress: OnProgress = ignore_progress,
) -> tuple[Result | None, process.Outcome]:
    """The result of the worker `module` and the outcome of its process; the result is None if it left none.

    The process is terminated after `timeout_s` seconds.
    """
    with spawn_worker(module, job, folder, on_progress=on_progress) as child:
        outcome = child.finish(timeout_s)
    return read_result(folder, result), outcome


def read_result(folder: Path, kind: type[Result]) -> Result | None:
    """The result that a worker wrote to its `folder`; None if it wrote none."""
    file = folder / RESULT_FILE
    return (
        from_json(kind, json.loads(file.read_text(encoding="utf-8")), "the worker's result") if file.exists() else None
    )


def failure_of(outcome: process.Outcome, limit_s: float, *, late: str | None = None) -> Failure:
    """The failure of a worker that ended with `outcome` and left no result. `late`: the message if it exceeded `limit_s`."""
    kind: FailureKind = "crash"
    if outcome.timed_out:
        kind = "timeout"
        message = late or (
            f"no result after {limit_s:g} s: the process was terminated; raise --timeout if the model is slow"
        )
    elif outcome.signal_name == "SIGKILL":
        kind = "out_of_memory"
        message = (
            "killed (SIGKILL): the system does this when host memory runs out; free host memory or reduce the batch"
        )
    elif outcome.signal_name is not None:
        message = f"the process crashed ({outcome.signal_name})"
    else:
        message = f"the process ended with {outcome.ending} and no result"
    return Failure(kind=kind, message=message, log_tail=outcome.log_tail)


def _module_name(module: str) -> str:
    return f"profiler_kit.worker.{module}"


def _environment() -> dict[str, str]:
    return process.child_environment(os.environ.get("PYTHONPATH", ""))
