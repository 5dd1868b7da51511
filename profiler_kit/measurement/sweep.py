"""The visits of an analysis one after the other, each in a fresh process; the next ones get ready while one measures.

Visits are interleaved (A B C, then C B A): what drifts while a sweep lasts, clocks and temperature, weighs on every
configuration alike, and two processes of each show how far processes differ by themselves.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit.errors import KitError
from profiler_kit.measurement.launcher import NotStarted, RunProcess, started_run
from profiler_kit.measurement.visits import Visit
from profiler_kit.process import usable_cores
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec

# Getting ready is importing and building: one core busy for several seconds, and host memory. The process that measures must
# not feel it.
CORES_TO_GET_READY: Final = 4
MOST_READY: Final = 3


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
    return min(MOST_READY, usable_cores() // CORES_TO_GET_READY) if device.startswith("cuda") else 0


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
