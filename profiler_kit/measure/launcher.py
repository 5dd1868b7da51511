"""The parent's side of a run: a fresh process with a time limit, whose end, however it comes, is a `ConfigRun`."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from profiler_kit import process
from profiler_kit.errors import UsageError
from profiler_kit.measure.job import PROGRESS, Job
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.records.target import TargetSpec

START_UP_S = 180.0  # importing torch and the model, creating the context, the first step with its tuning
PATIENCE = 10.0  # budgets a run may take before it counts as hanging: a slow step is no hang


def measure(
    spec: TargetSpec,
    config: RunConfig,
    *,
    device: str,
    budget_s: float,
    trace: Path | None = None,
    steps: int | None = None,
    timeout_s: float | None = None,
    checks: bool = True,
    say: Callable[[str], None] | None = None,
) -> ConfigRun:
    """The run of `config` on `device` in a process of its own; a crash, hang or error of it is the record's failure.

    `budget_s` is the time for steps, `timeout_s` the limit for the whole process (default: 180 s and ten budgets), `trace`
    where to write the Chrome trace, `say` is called with progress. Raises KeyboardInterrupt, the process ended.
    """
    with tempfile.TemporaryDirectory(prefix="profiler_kit_") as folder:
        result = Path(folder) / "result.json"
        traced = Path(folder) / "trace.json.gz"  # here until it is whole: a worker that is ended leaves no half of one
        job = Job(
            spec=spec,
            config=config,
            device=device,
            budget_s=budget_s,
            result=str(result),
            trace=str(traced) if trace is not None else None,
            steps=steps,
            checks=checks,
        )
        file = Path(folder) / "job.json"
        file.write_text(dumps(job), encoding="utf-8")
        limit_s = timeout_s if timeout_s is not None else START_UP_S + PATIENCE * budget_s

        def on_line(line: str) -> None:
            if say is not None and line.startswith(PROGRESS):
                say(line.removeprefix(PROGRESS))

        outcome = process.run(
            [sys.executable, "-m", "profiler_kit.measure.worker", str(file)],
            env=child_environment(),
            timeout_s=limit_s,
            log=Path(folder) / "log.txt",
            on_line=on_line,
        )
        if not result.exists():
            return ConfigRun(config=config, failure=_failure(outcome, limit_s))
        run = from_json(ConfigRun, json.loads(result.read_text(encoding="utf-8")), "the worker's result")
        if trace is None or run.trace is None:
            return run
        _keep(traced, trace)
        return replace(run, trace=str(trace))


def child_environment() -> dict[str, str]:
    """The parent's environment, with the folder of this very package first, so that the child runs the same code."""
    home = str(Path(__file__).resolve().parent.parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{inherited}" if inherited else home}


def _keep(made: Path, wanted: Path) -> None:
    """Copies `made` to `wanted`, which is whole or absent whatever happens; the two may lie on different disks."""
    partial = wanted.with_name(f".{wanted.name}.partial")
    try:
        shutil.copyfile(made, partial)
        partial.replace(wanted)
    except OSError as error:
        raise UsageError(
            f"cannot be written: {error.strerror}", where=str(wanted), hint="give another folder, or make room"
        ) from error
    finally:
        partial.unlink(missing_ok=True)


def _failure(outcome: process.Outcome, limit_s: float) -> Failure:
    kind: FailureKind = "crash"
    if outcome.timed_out:
        kind = "timeout"
        message = f"no result after {limit_s:g} s, so the process was ended; raise --timeout if the model is only slow"
    elif outcome.signal_name == "SIGKILL":
        kind = "out_of_memory"
        message = "killed (SIGKILL), which is what the system does to a process when host memory runs out"
    elif outcome.signal_name is not None:
        message = f"the process crashed ({outcome.signal_name})"
    else:
        message = f"the process ended with exit status {outcome.returncode} and no result"
    return Failure(kind=kind, message=message, log_tail=outcome.log_tail)


def interrupted(config: RunConfig, started: bool) -> ConfigRun:
    """The record of a run that Ctrl-C ended, or kept from starting."""
    message = "interrupted" if started else "not run: interrupted before"
    return ConfigRun(config=config, failure=Failure(kind="interrupted", message=message))
