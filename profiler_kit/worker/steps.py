"""One training (or inference) step, and the clocks that may watch it.

`Runner.step` is the only place that knows what a step is; what watches it is a `mark` called at each phase's beginning:
nothing (bare), stopwatch and events (timed), profiler ranges (traced), or the memory probe.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.errors import TargetError
from profiler_kit.loading import Batch, Target
from profiler_kit.loading.checkpointing import checkpointed
from profiler_kit.loading.place import first_line
from profiler_kit.records.counts import Phase
from profiler_kit.records.runs import PhaseTiming
from profiler_kit.records.target import TargetInfo
from profiler_kit.worker.graphed import Graphed

Mark = Callable[[Phase], None]
MARKS_A_STEP: Final = 7  # at most: data, transfer, forward, loss, backward, optimizer, other

FEWEST_STEPS: Final = 3  # below three samples a median says no more than one of them
MOST_STEPS: Final = 100  # beyond this the interval narrows more slowly than the user waits
MOST_WARMUP_STEPS: Final = 20
STEADY_SPREAD: Final = 0.05  # three warm-up steps within 5 % of each other: caches, clocks and plans have settled

_FUSED: Final = "fused"
_HINT: Final = "of torch's own SGD, Adam and AdamW have one: take --optimizer adamw, or leave fused_optimizer out"


def unwatched(_: Phase) -> None:
    """A mark that watches nothing."""


class Runner:
    """Runs steps of a target on its device, keeping optimizer, loader and labels between them.

    It is the `StepControls` that axes change before the first step. `lasting` are contexts that hold for all steps.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.train = target.spec.mode == "train"
        self.cuda = target.device.type == "cuda"
        self.optimizer = target.make_optimizer() if self.train else None
        self.reads_loss = True
        self.lasting = contextlib.ExitStack()
        self.unseen: str | None = None
        self.memory_apart = False
        self.notes: list[str] = []
        self._labels: tuple[object, ...] | None = None
        self._feed = _endless(target) if target.loader is not None else None

    @property
    def device(self) -> torch.device:
        """The device that the target is on."""
        return self.target.device

    @property
    def info(self) -> TargetInfo:
        """What the target resolved to."""
        return self.target.info

    @property
    def runs(self) -> nn.Module:
        """The module that a step calls."""
        return self.target.runs

    def run_as(self, runs: nn.Module) -> None:
        """From now on a step calls `runs`, which computes what the target's model does."""
        self.target = self.target.running(runs)

    def capture_graphs(self) -> None:
        """From now on forward and backward are replayed as CUDA graphs, which the first step captures."""
        self.run_as(Graphed(self.runs, self.target.model))

    def checkpoint(self, paths: Sequence[str]) -> None:
        """From now on the modules at `paths` compute their insides again in backward. Raises UsageError for a wrong path."""
        self.lasting.enter_context(checkpointed(self.target.model, paths))

    def fuse_optimizer(self) -> None:
        """Replaces the optimizer, where there is one, by its fused form. Raises TargetError where it has none."""
        if self.optimizer is not None:
            self.optimizer = _fused(self.optimizer)

    def step(self, mark: Mark = unwatched) -> None:
        """One step; `mark` is called with each phase as it begins and with ``other`` when the last has ended."""
        self.step_on(self.fetch(mark), mark)

    def step_on(self, batch: Batch, mark: Mark = unwatched) -> None:
        """One step on `batch`, of any shape, which is on the device already."""
        if self.train:
            self._train_step(batch, mark)
        else:
            mark("forward")
            self.forward(batch)
            # Nothing in an inference loop waits for the device until its output is read: this is that reading.
            mark("other")
            self.synchronize()

    def fetch(self, mark: Mark = unwatched) -> Batch:
        """The next batch on the device: from the target's loader where it has one, else always the same."""
        if self._feed is None:
            return self.target.batch
        mark("data")
        batch = next(self._feed)
        mark("transfer")
        return self.target.to_device(batch)

    def forward(self, batch: Batch) -> object:
        """The output on `batch`, without anything kept for backward."""
        with torch.no_grad(), self.target.autocast():
            return self.target.runs(*batch.args, **batch.kwargs)

    def forward_backward(self, batch: Batch, mark: Mark = unwatched) -> tuple[object, torch.Tensor]:
        """The output of forward on `batch` and its loss, after backward; gradients stay on the parameters."""
        target = self.target
        with target.autocast():
            mark("forward")
            output = target.runs(*batch.args, **batch.kwargs)
            mark("loss")
            loss = target.loss(output, batch, self.labels(output, batch))
            if self.reads_loss:
                loss.item()  # what training loops do to print the loss: the host waits here for all the queued work
        mark("backward")
        loss.backward()
        return output, loss

    def labels(self, output: object, batch: Batch) -> tuple[object, ...]:
        """The labels of `batch`: its own, else made once from the output's shape and kept."""
        if batch.labels:
            return batch.labels
        if self._labels is None:
            self._labels = self.target.labels_for(output)
        return self._labels

    def synchronize(self) -> None:
        """Waits until the device has done all that was asked of it."""
        if self.cuda:
            torch.cuda.synchronize(self.target.device)
        elif self.target.device.type == "mps":
            torch.mps.synchronize()

    def _train_step(self, batch: Batch, mark: Mark) -> None:
        assert self.optimizer is not None
        self.forward_backward(batch, mark)
        mark("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        mark("other")


def _fused(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """An optimizer of the same class, parameters and settings, made with ``fused=True``, before its first step.

    Raises TargetError where the class has no fused implementation, none for these parameters, or is fused already.
    """
    kind: Any = type(optimizer)
    takes = inspect.signature(kind.__init__).parameters
    if _FUSED not in takes:
        raise TargetError(f"{kind.__name__} has no fused implementation", hint=_HINT)
    if all(group.get(_FUSED) for group in optimizer.param_groups):
        raise TargetError(f"the target's {kind.__name__} is fused already", hint="leave fused_optimizer out")
    # foreach and fused are two ways to do the same, of which only one may be asked for
    groups = [{**group, _FUSED: True, "foreach": False} for group in optimizer.param_groups]
    settings = {name: value for name, value in optimizer.defaults.items() if name in takes}
    try:
        replacement: torch.optim.Optimizer = kind(groups, **{**settings, _FUSED: True, "foreach": False})
    except (RuntimeError, TypeError, ValueError) as error:
        raise TargetError(f"{kind.__name__} can't be fused here: {first_line(error)}", hint=_HINT) from error
    return replacement


def _endless(target: Target) -> Iterator[Batch]:
    assert target.loader is not None
    while True:
        empty = True
        for batch in target.loader():
            empty = False
            yield batch
        if empty:
            raise TargetError("the loader yields no batch", where=target.spec.spec, hint="check its dataset's length")


def is_steady(warmup_ns: Sequence[int]) -> bool:
    """Whether the last three warm-up steps lie within 5 % of each other."""
    last = warmup_ns[-3:]
    return len(last) == 3 and max(last) <= min(last) * (1 + STEADY_SPREAD)


def steps_within(budget_ns: int, step_ns: int) -> int:
    """How many timed steps of `step_ns` fit into `budget_ns`: at least three, at most a hundred."""
    return max(FEWEST_STEPS, min(MOST_STEPS, budget_ns // max(1, step_ns)))


@dataclass(slots=True)
class TimedSteps:
    """Durations in ns of steps timed without the profiler, whole and by phase (one list per phase, one entry per step)."""

    steps_ns: list[int] = field(default_factory=list)
    stopwatch_ns: dict[Phase, list[int]] = field(default_factory=dict)
    event_ns: dict[Phase, list[int]] = field(default_factory=dict)

    def phases(self) -> tuple[PhaseTiming, ...]:
        """The median of each phase by stopwatch and by events, in the order the phases ran."""
        return tuple(
            PhaseTiming(
                phase=phase,
                stopwatch_ns=round(statistics.median(samples)),
                event_ns=round(statistics.median(self.event_ns[phase])) if phase in self.event_ns else None,
            )
            for phase, samples in self.stopwatch_ns.items()
        )


Marked = tuple[Phase, int, "torch.cuda.Event | None"]


def _watch(events: bool, count: int) -> tuple[Mark, list[Marked]]:
    """A mark that notes host time, and on CUDA an event, and the list it notes into. As short as can be: it is in the step.

    Events for `count` marks are made, and recorded once so that the driver has made its part too, before anything is timed.
    """
    noted: list[Marked] = []
    note, clock = noted.append, time.perf_counter_ns
    if not events:
        return lambda phase: note((phase, clock(), None)), noted
    pool = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for event in pool:
        event.record()
    torch.cuda.synchronize()
    take = pool.pop
    stream = torch.cuda.current_stream()

    def mark(phase: Phase) -> None:
        event = take() if pool else torch.cuda.Event(enable_timing=True)
        event.record(stream)
        note((phase, clock(), event))

    return mark, noted


def timed_steps(runner: Runner, count: int, *, fewest: int = 1, until_ns: int | None = None) -> TimedSteps:
    """`count` steps timed without the profiler and without a synchronisation of our own.

    Once the clock (`time.perf_counter_ns`) has passed `until_ns` it stops early, after no fewer than `fewest` steps.
    A step's duration runs from its beginning to the next one's: the device works behind the host, so only this period is
    the step's true cost. On CUDA one more step is run to close the last period; then the device is waited for.

    Where the loss is not read, the host runs ahead by as many steps as the launch queue holds, and its clock says nothing
    about the first ones: there the period is that of the events at the steps' beginnings, on the device's own clock.
    """
    closing = 1 if runner.cuda else 0
    mark, noted = _watch(runner.cuda, (count + closing) * MARKS_A_STEP)
    begins: list[int] = []
    firsts: list[int] = []  # where each step's marks begin in `noted`
    while len(begins) < count + closing:
        now_ns = time.perf_counter_ns()
        if until_ns is not None and now_ns > until_ns and len(begins) >= fewest + closing:
            break
        firsts.append(len(noted))
        begins.append(now_ns)
        runner.step(mark)
    begins.append(time.perf_counter_ns())
    firsts.append(len(noted))
    runner.synchronize()
    done = len(begins) - 1 - closing
    timed = TimedSteps(steps_ns=[end - begin for begin, end in itertools.pairwise(begins)][:done])
    if runner.cuda and runner.train and not runner.reads_loss:
        events = [noted[first][2] for first in firsts[: done + 1]]
        timed.steps_ns = [_between(begin, end) for begin, end in itertools.pairwise(events)]
    for step in range(done):
        _add_phases(timed, noted[firsts[step] : firsts[step + 1]], begins[step + 1])
    return timed


def _between(begin: torch.cuda.Event | None, end: torch.cuda.Event | None) -> int:
    assert begin is not None
    assert end is not None
    elapsed_ms: float = begin.elapsed_time(end)
    return round(elapsed_ms * 1e6)


def _add_phases(timed: TimedSteps, marks: list[Marked], end_ns: int) -> None:
    """Adds one step's phases: each runs until the next mark; the closing ``other`` counts only where something ran in it."""
    for i, (phase, begin, event) in enumerate(marks):
        last = i == len(marks) - 1
        until = end_ns if last else marks[i + 1][1]
        if last and "optimizer" in {m[0] for m in marks}:
            return  # a training step's last mark only closes the optimizer phase
        timed.stopwatch_ns.setdefault(phase, []).append(until - begin)
        if event is not None and not last:
            timed.event_ns.setdefault(phase, []).append(_between(event, marks[i + 1][2]))


def synced_step_ns(runner: Runner) -> int:
    """The duration of one step, the device idle before it and waited for after it (for first and warm-up steps)."""
    runner.synchronize()
    begin = time.perf_counter_ns()
    runner.step()
    runner.synchronize()
    return time.perf_counter_ns() - begin
