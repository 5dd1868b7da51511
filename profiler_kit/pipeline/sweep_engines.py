"""Where the tasks of a sweep run: processes on this machine, or a Ray cluster.

Both run the same command for a task. An engine yields each task when it ends.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

from profiler_kit import process
from profiler_kit.command_lines import install_command
from profiler_kit.errors import KitError, UsageError
from profiler_kit.process import Outcome
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.sweeps import SweepTask
from profiler_kit.temporary_files import temporary_folder

RETRIES: Final = 3  # of a task whose worker or node is lost; an error of the model is not tried again
WAIT_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnd:
    """The end of a task: the text of its report (empty without one), and the message and hint of its failure (empty after a
    success). `place`, `attempts`, `wall_ns`: as in `SweepResult`."""

    place: str
    wall_ns: int
    report: str = ""
    failure: str = ""
    hint: str = ""
    attempts: int = 1


class Engine(Protocol):
    """Runs tasks."""

    def run(self, tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        """Yield each task when it ends. Closing the iterator stops the tasks that run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEngine:
    """Processes on this machine: one task at a time on each of `devices`, or a count on each core (`devices` empty)."""

    devices: tuple[str, ...]
    timeout_s: float

    def run(self, tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        """Yield each task when it ends. Closing the iterator stops the tasks that run."""
        slots = self.devices or tuple(f"core {core}" for core in range(process.usable_cores()))
        with temporary_folder("sweep") as folder:
            files = {task.key: folder / f"{number}" for number, task in enumerate(tasks)}

            def command_of(task: SweepTask, slot: str) -> process.SlotCommand:
                argv = command_line(task, slot, files[task.key])
                return process.SlotCommand(argv=argv, timeout_s=self.timeout_s)

            with contextlib.closing(process.run_in_slots(tasks, slots, command_of)) as ended:
                for task, slot, outcome in ended:
                    end = task_end(outcome, files[task.key], self.timeout_s)
                    yield task, replace(end, place=slot if self.devices else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayEngine:
    """A Ray cluster, which places the tasks, and runs one again if its worker or node is lost.

    `address`: of the cluster; empty for a cluster of this machine alone. `kind`: the device that a task needs, ``cuda`` or
    ``cpu``; empty for counts. A measurement on CUDA asks Ray for one GPU. One on a CPU asks for as many cores as the smallest
    node has, so that two never share a node of that size.
    """

    address: str
    kind: str
    timeout_s: float
    on_progress: OnProgress

    def run(self, tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        """Yield each task when it ends. Closing the iterator stops the tasks that run. Raises UsageError."""
        try:
            import ray
        except ImportError as error:
            raise UsageError(
                "Ray is not installed", where="--engine ray", hint=install_command("profiler-kit[ray]")
            ) from error
        is_ours = not ray.is_initialized()
        if is_ours:
            try:
                ray.init(address=self.address or None, logging_level=logging.WARNING, log_to_driver=False)
            except (ConnectionError, RuntimeError, ValueError) as error:
                raise UsageError(
                    f"no Ray cluster: {error}",
                    where=f"--ray-address {self.address}",
                    hint="start one: ray start --head",
                ) from error
        try:
            yield from self._run(ray, tasks)
        finally:
            if is_ours:
                ray.shutdown()

    def _run(self, ray: Any, tasks: Sequence[SweepTask]) -> Generator[tuple[SweepTask, TaskEnd], None, None]:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = 1 if self.kind == "cuda" else 0
        if gpus and not any(node.get("GPU") for node in nodes):
            raise UsageError("the Ray cluster has no GPU", where="--devices", hint="use --devices cpu")
        cores = 1 if gpus or not self.kind else math.floor(min(node["CPU"] for node in nodes if node.get("CPU")))
        self.on_progress(
            f"Ray cluster of {len(nodes)} nodes; a task takes {gpus or cores} {'GPU' if gpus else 'cores'}"
        )
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        starts = ray.remote(num_cpus=0)(_Starts).options(scheduling_strategy=here).remote()
        run = ray.remote(max_retries=RETRIES, num_cpus=cores, num_gpus=gpus)(_run_on_node)
        device = "cuda" if gpus else self.kind  # Ray shows a task only its own GPU
        pending = {run.options(name=task.model).remote(task, device, self.timeout_s, starts): task for task in tasks}
        try:
            while pending:
                ready, _ = ray.wait(list(pending), timeout=WAIT_S)
                for reference in ready:
                    task = pending.pop(reference)
                    try:
                        yield task, ray.get(reference)
                    except ray.exceptions.RayError as error:
                        attempts = ray.get(starts.count.remote(task.key))
                        message = f"its worker was lost {attempts} times: {str(error).splitlines()[0]}"
                        hint = "see the logs of Ray; less memory per task may help"
                        yield task, TaskEnd(place="", wall_ns=0, failure=message, hint=hint, attempts=max(1, attempts))
        finally:
            for reference in pending:
                ray.cancel(reference, force=True)


class _Starts:
    """An actor of Ray that counts how often each task was started."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def start(self, key: str) -> int:
        self._counts[key] = self.count(key) + 1
        return self._counts[key]

    def count(self, key: str) -> int:
        return self._counts.get(key, 0)


def _run_on_node(task: SweepTask, device: str, timeout_s: float, starts: Any) -> TaskEnd:
    """A task of Ray: run the command of `task` on this node."""
    import socket

    import ray

    attempts = ray.get(starts.start.remote(task.key))
    with temporary_folder("sweep") as folder:
        outcome = process.run(command_line(task, device, folder / "out"), timeout_s=timeout_s)
        end = task_end(outcome, folder / "out", timeout_s)
    return replace(
        end, place=f"{socket.gethostname()} {ray.get_runtime_context().get_node_id()[:8]}", attempts=attempts
    )


def command_line(task: SweepTask, device: str, out: Path) -> list[str]:
    """The command of `task` on `device`, which writes its report to `out`."""
    argv = process.own_command(task.verb, task.model, *task.argv, "--quiet")
    if task.verb == "analyze":
        return [*argv, "--device", device, "--out", str(out)]
    return [*argv, "-o", str(_report_file(task.verb, out))]


def _report_file(verb: str, out: Path) -> Path:
    return out / "report.json" if verb == "analyze" else out.with_suffix(".json")


def task_end(outcome: Outcome | KitError, out: Path, timeout_s: float) -> TaskEnd:
    """The end of the task whose command wrote to `out`. An analysis whose runs all failed has a report and a failure."""
    if isinstance(outcome, KitError):
        return TaskEnd(place="", wall_ns=0, failure=outcome.message, hint=outcome.hint or "")
    file = next((file for verb in ("analyze", "count") if (file := _report_file(verb, out)).exists()), None)
    report = file.read_text(encoding="utf-8") if file is not None else ""
    failure, hint = ("", "") if outcome.ok else outcome.error
    if outcome.timed_out:
        failure, hint = f"not finished after {timeout_s:g} s", "raise --task-timeout"
    elif outcome.signal_name == "SIGKILL":
        failure, hint = "killed (SIGKILL), probably because memory ran out", "use a smaller batch"
    return TaskEnd(place="", wall_ns=outcome.duration_ns, report=report, failure=failure, hint=hint)
