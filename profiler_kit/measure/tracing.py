"""Traced steps: torch.profiler around a few steps, with the marks that attribution reads."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile, record_function

from profiler_kit.measure.steps import Runner
from profiler_kit.records import marks
from profiler_kit.records.counts import Phase


def traced_steps(runner: Runner, count: int, path: Path) -> None:
    """Runs one warm-up and `count` traced steps and writes their Chrome trace to `path` (``.json`` or ``.json.gz``).

    The device is waited for before each step, so that every kernel belongs to the step that launched it.
    """
    activities = [ProfilerActivity.CPU]
    if runner.cuda:
        activities.append(ProfilerActivity.CUDA)
    schedule = torch.profiler.schedule(wait=0, warmup=1, active=count, repeat=1)
    # torch writes beside its target; a name of our own until it is whole keeps half a trace from being taken for one
    partial = path.with_name(f"partial-{path.name}")
    with module_marks(runner), profile(activities=activities, schedule=schedule) as profiler:
        for index in range(count + 1):
            with record_function(marks.step(index)):
                _marked_step(runner)
                runner.synchronize()
            if index < count:
                profiler.step()
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


@contextlib.contextmanager
def module_marks(runner: Runner) -> Iterator[None]:
    """While it lasts, every call of a module of the target is inside a range named by its path.

    `nn.Module.__call__` is wrapped once instead of hooking each module: nothing is left on the model, and modules called
    with keywords or returning no tensors are seen too.
    """
    paths = runner.target.paths()
    original = nn.Module.__call__

    def marked(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        path = paths.get(id(module))
        if path is None:
            return original(module, *args, **kwargs)
        with record_function(marks.module(path)):
            return original(module, *args, **kwargs)

    nn.Module.__call__ = marked  # type: ignore[method-assign]
    try:
        yield
    finally:
        nn.Module.__call__ = original  # type: ignore[method-assign]
