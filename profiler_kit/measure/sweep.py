"""The runs of an analysis one after the other, each in a fresh process; the next one gets ready while one measures.

Configurations are visited there and back (A B C, then C B A): what drifts while a sweep lasts, clocks and temperature, weighs
on every configuration alike, and two processes of each show how far processes differ by themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from profiler_kit.measure.launcher import Order, Worker, launched
from profiler_kit.records.laboratory import Repeat
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetSpec

# Getting ready is importing and building: a core of its own, and one for what the measuring process needs besides its own.
CORES_TO_GET_READY: Final = 4
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
    early: bool | None = None,
) -> Generator[Done, None, None]:
    """Each order's run, as soon as it has ended; the next one is under way by then, where it may be.

    On a device beside the host the next process gets ready (imports, builds the model) while one measures, and waits before
    it touches the device: one process at a time uses it. On the host itself nothing runs beside a measurement, and the next
    order is asked for when its turn has come; `early` decides otherwise. `begins` is called when an order's process may use
    the device.
    """
    waiting: Worker | None = None
    todo = iter(orders)
    with contextlib.ExitStack() as stack:

        def launch(order: Order | None) -> Worker | None:
            if order is None:
                return None
            own = stack.enter_context(contextlib.ExitStack())
            worker = own.enter_context(launched(spec, order, device=device, say=lambda text: say(order, text)))
            ends[id(worker)] = own
            return worker

        def start(worker: Worker) -> Worker:
            begins(worker.order)
            worker.go()
            return worker

        ends: dict[int, contextlib.ExitStack] = {}
        early = _gets_ready_early(device) if early is None else early
        current = launch(next(todo, None))
        if current is not None:
            start(current)
            waiting = launch(next(todo, None)) if early else None
        while current is not None:
            run = current.result()
            following = waiting
            if following is not None:
                start(following)
                waiting = launch(next(todo, None))
            yield Done(order=current.order, run=run, parts=current.parts())
            ends.pop(id(current)).close()
            if not early:
                following = launch(next(todo, None))
                if following is not None:
                    start(following)
            current = following


def _gets_ready_early(device: str) -> bool:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return device.startswith("cuda") and cores >= CORES_TO_GET_READY


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
