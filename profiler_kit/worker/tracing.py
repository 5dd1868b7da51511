"""Traced steps: torch.profiler around a few steps, with marks for attribution."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import torch
from torch import distributed
from torch.profiler import ProfilerActivity, profile, record_function

from profiler_kit.meta.ownership import Call, wrapped_calls
from profiler_kit.records import marks
from profiler_kit.records.counts import Phase
from profiler_kit.worker.steps import Runner

COLLECTIVE_END_S: Final = 0.05  # between two looks at the threads of collectives
MAX_LOOKS: Final = 100  # a thread of another library may have the same name, and never rest
GLOO_THREAD: Final = "pt_gloo_runloop\n"
THREADS: Final = Path("/proc/self/task")


def traced_steps(runner: Runner, count: int, path: Path) -> None:
    """Run one warm-up and `count` traced steps and write their Chrome trace to `path` (``.json`` or ``.json.gz``).

    The device is synchronized after each step, so every kernel belongs to the step that launched it.
    """
    with wrapped_calls(runner.target.paths(), marked_call), profiled(runner.cuda, count) as profiler:
        for index in range(count + 1):
            with record_function(marks.step(index)):
                _marked_step(runner)
                runner.synchronize()
            if index < count:
                profiler.step()
    write_trace(profiler, path)


def profiled(cuda: bool, count: int, *, stacks: bool = False) -> profile:
    """torch's profiler for one warm-up step and `count` recorded steps.

    `cuda`: record device work too. `stacks`: record the calls of Python functions, which makes steps slower.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=count, repeat=1)
    return _Profile(activities=activities, schedule=schedule, acc_events=True, with_stack=stacks)


class _Profile(profile):
    def stop_trace(self) -> None:
        """Stop, after the threads of collectives on the CPU have written their last events, as far as can be known.

        Gloo announces a result before it closes the event of the collective. A profiler that stops between the two frees the
        memory that the thread then writes to.
        """
        if distributed.is_available() and distributed.is_initialized() and "gloo" in distributed.get_backend_config():
            for _ in range(MAX_LOOKS):
                time.sleep(COLLECTIVE_END_S)
                if not _collectives_run():
                    break
        super().stop_trace()


def _collectives_run() -> bool:
    """Whether a thread of gloo runs, or would run if a core were free. False where the system does not tell."""
    for thread in THREADS.glob("*"):
        with suppress(OSError):  # the thread has ended
            if (thread / "comm").read_text() == GLOO_THREAD:
                state = (thread / "stat").read_text().rpartition(")")[2].split()[0]
                if state == "R":
                    return True
    return False


def write_trace(profiler: profile, path: Path) -> None:
    """Write the trace of `profiler` to `path` atomically."""
    # torch writes beside its target; a name of our own until it is whole keeps half a trace from being taken for one
    partial = path.with_name(f"partial-{path.name}")
    profiler.export_chrome_trace(str(partial))
    partial.replace(path)


def _marked_step(runner: Runner) -> None:
    open_phase: list[Any] = []

    def close() -> None:
        if open_phase:
            open_phase.pop().__exit__(None, None, None)

    def mark(phase: Phase) -> None:
        close()
        if phase != "other" or not runner.train:
            open_phase.append(record_function(marks.phase(phase)))
            open_phase[-1].__enter__()

    try:
        runner.step(mark)
    finally:
        close()


def marked_call(path: str, call: Call) -> Any:
    """The result of `call`, a call of the module at `path`, inside the module's mark."""
    with record_function(marks.module(path)):
        return call()
