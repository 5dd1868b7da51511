"""The runs of an analysis one after the other, each in a fresh process; the next ones get ready while one measures.

Configurations are visited there and back (A B C, then C B A): what drifts while a sweep lasts, clocks and temperature, weighs
on every configuration alike, and two processes of each show how far processes differ by themselves.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from profiler_kit.errors import KitError
from profiler_kit.measurement.launcher import NotStarted, Order, Worker, launched
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec

# Getting ready is importing and building: one core busy for several seconds, and host memory. The process that measures must
# not feel it.
CORES_TO_GET_READY: Final = 4
MOST_READY: Final = 3
AGAIN_SHARE: Final = 0.5  # of the first process's time for steps: the second one only has to show where its median lies


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A run that has ended. `parts`: the trace of its convolutions' parts, to be read before the next one is asked for."""

    order: Order
    run: ConfigRun
    parts: Path | None


def runs(
    spec: TargetSpec,
    orders: Iterable[Order],
    *,
    device: str,
    begins: Callable[[Order], None],
    say: Callable[[Order, str], None],
    ahead: int | None = None,
) -> Generator[Done, None, None]:
    """Each order's run, as soon as it has ended; the next one is under way by then, where it may be.

    On a device beside the host the next processes get ready (import, build the model) while one measures, and wait before
    they touch the device: one process at a time uses it. On the host itself nothing runs beside a measurement, and the next
    order is asked for when its turn has come. `ahead`: how many get ready (None: what the cores allow). `begins` is called
    when an order's process may use the device. A process that can't be started is a failed run.
    """
    most = _ready_ahead(device) if ahead is None else ahead
    todo = iter(orders)
    waiting: deque[Worker | NotStarted] = deque()
    ends: dict[int, contextlib.ExitStack] = {}
    with contextlib.ExitStack() as stack:

        def launch(count: int) -> None:
            """Lets processes get ready until so many wait."""
            for order in itertools.islice(todo, max(0, count - len(waiting))):
                own = stack.enter_context(contextlib.ExitStack())
                heard = partial(say, order)
                try:
                    waiting.append(own.enter_context(launched(spec, order, device=device, say=heard)))
                except (KitError, OSError) as error:  # what runs out for this one need not be lacking for the others
                    waiting.append(NotStarted(order, error))
                ends[id(waiting[-1])] = own

        def begun() -> Worker | NotStarted | None:
            """The next process, which may use the device from now on."""
            launch(1)
            if not waiting:
                return None
            worker = waiting.popleft()
            begins(worker.order)
            worker.go()
            launch(most)
            return worker

        current = begun()
        while current is not None:
            run = current.result()
            following = begun() if most else None
            yield Done(order=current.order, run=run, parts=current.parts())
            ends.pop(id(current)).close()
            current = following if most else begun()


def _ready_ahead(device: str) -> int:
    """How many processes may get ready while one measures: each keeps a core busy for some seconds."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MOST_READY, cores // CORES_TO_GET_READY) if device.startswith("cuda") else 0


def way_back(orders: Sequence[Order]) -> Iterator[Order]:
    """The second processes of `orders`, last first: shorter, and without a trace. The A/A run of the first is its own."""
    for order in reversed(orders):
        yield replace(order, budget_s=order.budget_s * AGAIN_SHARE, trace=None, checks=False, again=True)


def repeated(run: ConfigRun, second: ConfigRun) -> ConfigRun:
    """`run` with what a second process of its configuration found."""
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
