"""The parent's side of a run: a fresh process with a time limit, whose end, however it comes, is a `ConfigRun`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from profiler_kit import process
from profiler_kit.errors import KitError
from profiler_kit.process.protocol import GO, hears
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import Job
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.records.target import TargetSpec

RESULT, TRACE, PARTS = "result.json", "trace.json.gz", "parts.json.gz"
START_UP_S = 180.0  # importing torch and the model, creating the context, the first step with its tuning
PATIENCE = 10.0  # budgets a run may take before it counts as hanging: a slow step is no hang


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run to make: the configuration, the time for its steps, and where to keep its trace (None: nowhere).

    `timeout_s` limits the process from the moment it may use the device (default: 180 s and ten budgets); `late` is what to
    say of one that was not done by then. `again`: a second process of a configuration, which only times steps and compares
    bits.
    """

    config: RunConfig
    budget_s: float
    trace: Path | None = None
    steps: int | None = None
    timeout_s: float | None = None
    late: str | None = None
    checks: bool = True
    again: bool = False

    @property
    def limit_s(self) -> float:
        """The limit for the process."""
        return self.timeout_s if self.timeout_s is not None else START_UP_S + PATIENCE * self.budget_s


class Worker:
    """The process of one run, under way: it loads its target at once, and waits for `go`. Made by `launched`."""

    def __init__(self, order: Order, child: process.Child, folder: Path) -> None:
        self.order = order
        self._child = child
        self._folder = folder

    def go(self) -> None:
        """Lets it use the device."""
        self._child.tell(GO)

    def result(self) -> ConfigRun:
        """Its run, once it has ended; a crash, hang or error of it is the record's failure. To be called after `go`."""
        outcome = self._child.finish(self.order.limit_s)
        result = self._folder / RESULT
        if not result.exists():
            return ConfigRun(config=self.order.config, failure=_failure(outcome, self.order))
        run = from_json(ConfigRun, json.loads(result.read_text(encoding="utf-8")), "the worker's result")
        trace = self.order.trace
        if trace is None or run.trace is None:
            return replace(run, trace=None)
        try:
            _keep(self._folder / TRACE, trace)
        except OSError as error:
            said = f"No times by layer: the trace cannot be written to {trace}: {error.strerror or error}"
            return replace(run, trace=None, traced_steps=0, notes=(*run.notes, said))
        return replace(run, trace=str(trace))

    def parts(self) -> Path | None:
        """The trace of its convolutions' parts, while the block of `launched` lasts; None where it left none."""
        made = self._folder / PARTS
        return made if made.exists() else None


class NotStarted:
    """Stands for a `Worker` whose process can't be started: memory, processes or room on the disk may have run out."""

    def __init__(self, order: Order, reason: KitError | OSError) -> None:
        self.order = order
        self._reason = reason

    def go(self) -> None:
        """Nothing is there to be let."""

    def result(self) -> ConfigRun:
        """A failed run that says why."""
        failure = Failure(kind="error", message=f"its process could not be started: {self._reason}")
        return ConfigRun(config=self.order.config, failure=failure)

    def parts(self) -> None:
        """No trace."""


@contextlib.contextmanager
def launched(
    spec: TargetSpec, order: Order, *, device: str, say: Callable[[str], None] | None = None
) -> Iterator[Worker]:
    """The run that `order` asks for, in a fresh process, which is ended when the block is left. `say` hears of progress."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(_own_folder()))
        # traces are here until they are whole: a worker that is ended leaves no half of one
        job = Job(
            spec=spec,
            config=order.config,
            device=device,
            budget_s=order.budget_s,
            result=str(folder / RESULT),
            trace=str(folder / TRACE) if order.trace is not None else None,
            algorithms=str(folder / PARTS) if not order.again else None,
            steps=order.steps,
            checks=order.checks,
            again=order.again,
            waits=True,
        )
        file = folder / "job.json"
        file.write_text(dumps(job), encoding="utf-8")

        child = stack.enter_context(
            process.started(
                [sys.executable, "-m", "profiler_kit.worker.run", str(file)],
                env=child_environment(),
                talks=True,
                log=folder / "log.txt",
                on_line=hears(say),
            )
        )
        yield Worker(order, child, folder)


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

    The words are those of `Order`. Raises KeyboardInterrupt, the process ended.
    """
    order = Order(config=config, budget_s=budget_s, trace=trace, steps=steps, timeout_s=timeout_s, checks=checks)
    with launched(spec, order, device=device, say=say) as worker:
        worker.go()
        return worker.result()


def child_environment() -> dict[str, str]:
    """The parent's environment, with the folder of this very package first, so that the child runs the same code."""
    home = str(Path(__file__).resolve().parent.parent.parent)
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{home}{os.pathsep}{inherited}" if inherited else home}


def _own_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that goes with its block, as far as it can: what the model left running outside its group may write into it."""
    return tempfile.TemporaryDirectory(prefix="profiler_kit_", ignore_cleanup_errors=True)


def _keep(made: Path, wanted: Path) -> None:
    """Copies `made` to `wanted`, which is whole or absent whatever happens; the two may lie on different disks.

    Raises OSError.
    """
    partial = wanted.with_name(f".{wanted.name}.partial")
    try:
        shutil.copyfile(made, partial)
        partial.replace(wanted)
    finally:
        with contextlib.suppress(OSError):  # without the folder there is no half of a file either
            partial.unlink(missing_ok=True)


def _failure(outcome: process.Outcome, order: Order) -> Failure:
    kind: FailureKind = "crash"
    if outcome.timed_out:
        kind = "timeout"
        message = order.late or (
            f"no result after {order.limit_s:g} s, so the process was ended; raise --timeout if the model is only slow"
        )
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
