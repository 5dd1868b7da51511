"""How each convolution is done: a step in which its parts run one by one, once under the profiler, once under memory's watch.

The trace is one of its own, as the extra marks and the split gradients have no place in the user's. What torch.compile has
compiled runs as it is written while a dispatch mode is active, so nothing is said of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch.profiler import record_function

from profiler_kit.loading.compiled import compiled_parts
from profiler_kit.records import marks
from profiler_kit.records.laboratory import ConvolutionPart, PartWorkspace
from profiler_kit.worker.parts import ConvolutionParts, Watch
from profiler_kit.worker.steps import Runner
from profiler_kit.worker.tracing import profiled, write_trace


def record(runner: Runner, path: Path) -> tuple[PartWorkspace, ...]:
    """Writes to `path` the trace of one step whose convolutions run in marked parts; returns what each part took as scratch.

    Three steps: one to warm up, one under the profiler, one with the allocator watched. Where the first meets no convolution
    (none there, or compiled or captured into a graph, so that no op passes by) nothing is written and nothing returned.

    Counts: the most that any call of a part held beyond what lived before it and what it returned.
    """
    return _workspaces(runner) if runner.cuda and trace_parts(runner, path) else ()


def trace_parts(runner: Runner, path: Path) -> bool:
    """Whether a warm-up step met a convolution; then the trace of the next one, its parts marked, is at `path`."""
    met: list[str] = []

    def watch(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        met.append(owner)
        return record_function(marks.convolution(part, owner))

    with profiled(runner, 1) as profiler:
        _step(runner, watch)
        if not met:
            return False
        profiler.step()
        with record_function(marks.step(1)):
            _step(runner, watch)
    write_trace(profiler, path)
    return True


def _workspaces(runner: Runner) -> tuple[PartWorkspace, ...]:
    device = runner.target.device
    most: dict[tuple[str, ConvolutionPart], int] = {}

    @contextmanager
    def watch(owner: str, part: ConvolutionPart) -> Iterator[None]:
        before = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        yield
        peak = torch.cuda.max_memory_allocated(device)
        growth = max(0, torch.cuda.memory_allocated(device) - before)
        most[owner, part] = max(most.get((owner, part), 0), peak - before - growth)

    _step(runner, watch)
    return tuple(PartWorkspace(path=path, part=part, bytes=size) for (path, part), size in most.items())


def _step(runner: Runner, watch: Watch) -> None:
    """One step with `watch` around every part of every convolution that runs as in any step."""
    compiled = compiled_parts(runner.target.runs)

    def watch_plain(owner: str, part: ConvolutionPart) -> AbstractContextManager[Any]:
        inside = any(not one or owner == one or owner.startswith(f"{one}.") for one in compiled)
        return nullcontext() if inside else watch(owner, part)

    ConvolutionParts(runner, watch_plain).step()
    runner.synchronize()  # so that every kernel belongs to the step that launched it
