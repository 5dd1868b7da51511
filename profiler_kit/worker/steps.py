"""One training (or inference) step, and the clocks that measure it.

`Runner.step` is the only definition of a step. A `mark` is called at the start of each phase. It may do nothing, or record
times and CUDA events, open profiler ranges, or tell the memory probe the phase.
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
from profiler_kit.meta.checkpointing import checkpointed
from profiler_kit.meta.device_moves import moves_redirected, names_accelerator
from profiler_kit.records.counts import Phase
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import PhaseTime
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.worker.graphed import Graphed, GraphedStep

Mark = Callable[[Phase], None]
MARKS_A_STEP: Final = 7  # at most: data, transfer, forward, loss, backward, optimizer, other

MIN_STEPS: Final = 3  # a median of fewer samples is as uncertain as a single sample
MAX_STEPS: Final = 100  # more steps narrow the interval too little for the time they take
MAX_WARMUP_STEPS: Final = 20
STEADY_SPREAD: Final = 0.05  # three warm-up steps within 5 % of each other: caches, clocks and plans have settled

_FUSED, _CAPTURABLE = "fused", "capturable"  # forms of an optimizer, and the changes that need them
_CHANGE_OF: Final = {_FUSED: "fused_optimizer", _CAPTURABLE: "cuda_graph=step"}


def no_mark(_: Phase) -> None:
    """A mark that does nothing."""


class Runner:
    """Runs steps of a target on its device, and keeps the optimizer, the loader and labels between them.

    It implements `StepControls`, which axes use before the first step. `lasting` holds contexts that are active in all steps.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.train = target.spec.mode == "train"
        self.cuda = target.device.type == "cuda"
        self.optimizer = target.make_optimizer() if self.train else None
        self.reads_loss = True
        self.lasting = contextlib.ExitStack()
        self.unobservable_reason: str | None = None
        self.has_own_memory_pool = False
        self.notes: list[str] = []
        self._redirected_moves = contextlib.ExitStack()
        self._labels: tuple[object, ...] | None = None
        self._graphed_step: GraphedStep | None = None
        self._feed = _endless_batches(target) if target.loader is not None else None

    @property
    def device(self) -> torch.device:
        """The device of the target."""
        return self.target.device

    @property
    def info(self) -> TargetInfo:
        """The resolved target."""
        return self.target.info

    @property
    def step_module(self) -> nn.Module:
        """The module that a step calls."""
        return self.target.step_module

    def replace_module(self, module: nn.Module) -> None:
        """Make steps call `module`, which computes the same as the target's model."""
        self.target = self.target.with_step_module(module)

    def capture_graphs(self) -> None:
        """Replay forward and backward as CUDA graphs. The first step captures them."""
        self.replace_module(Graphed(self.step_module, self.target.model))

    def capture_step(self) -> None:
        """Replay forward, loss, backward and optimizer as one CUDA graph. The first step captures it."""
        self._graphed_step = GraphedStep(self._captured_step, self._zero_grad)

    def checkpoint(self, paths: Sequence[str]) -> None:
        """Checkpoint the modules at `paths`. Raises UsageError for a wrong path."""
        self.lasting.enter_context(checkpointed(self.target.model, paths))

    def configure_loader(self, *, workers: int | None = None, pinned: bool = False) -> None:
        """Load data with `workers` processes, and into pinned memory. Raises TargetError without a DataLoader."""
        self.target = self.target.with_loader(workers=workers, pinned=pinned)
        self._feed = _endless_batches(self.target)

    def fuse_optimizer(self) -> None:
        """Replace the optimizer, if there is one, by its fused form. Raises TargetError if it has none."""
        if self.optimizer is not None:
            self.optimizer = _rebuilt(
                self.optimizer, _FUSED, foreach=False
            )  # of foreach and fused, only one may be set

    def redirect_moves(self) -> None:
        """On the CPU, redirect moves to a GPU in the following steps, if the target's code may make any. Call it once."""
        target = self.target
        may_move = bool(target.requested_devices)
        if not may_move and target.step_module is target.model:  # a compiler would compile again when the mode is left
            classes = [type(module) for module in target.model.modules()]
            may_move = names_accelerator([*classes, target.objective.function if target.objective else None])
        if may_move:
            mode = moves_redirected(target.device, requested=target.requested_devices)
            self._redirected_moves.enter_context(mode)

    def close(self) -> None:
        """Stop redirecting moves. The process is then as before the first step."""
        self._redirected_moves.close()

    def keep_used_redirection(self) -> None:
        """After the first step: stop redirecting moves if the target made none, because redirection slows every op down."""
        if not self.target.requested_devices:
            self._redirected_moves.close()

    def step(self, mark: Mark = no_mark) -> None:
        """Run one step; `mark` is called at the start of each phase, and with ``other`` after the last one."""
        self.step_on(self.fetch(mark), mark)

    def step_on(self, batch: Batch, mark: Mark = no_mark) -> None:
        """Run one step on `batch`, which may have any shape and is already on the device."""
        if self.train:
            self._train_step(batch, mark)
        else:
            mark("forward")
            self.forward(batch)
            # An inference loop waits for the device when it reads the output; this replaces that read.
            mark("other")
            self.synchronize()

    def fetch(self, mark: Mark = no_mark) -> Batch:
        """The next batch on the device: from the target's loader, or always the same batch without a loader."""
        if self._feed is None:
            return self.target.batch.fresh()
        mark("data")
        batch = next(self._feed)
        mark("transfer")
        return self.target.to_device(batch)

    def forward(self, batch: Batch) -> object:
        """The output for `batch`, without saving tensors for backward."""
        with torch.no_grad(), self.target.autocast():
            return self.target.step_module(*batch.args, **batch.kwargs)

    def forward_backward(self, batch: Batch, mark: Mark = no_mark) -> tuple[object, torch.Tensor]:
        """The output and loss for `batch`, after backward. Gradients stay on the parameters."""
        target = self.target
        with target.autocast():
            mark("forward")
            output = target.step_module(*batch.args, **batch.kwargs)
            mark("loss")
            loss = target.loss(output, batch, self.labels(output, batch))
            if self.reads_loss:
                loss.item()  # training loops read the loss, for example to print it: the host waits for all queued work
        mark("backward")
        loss.backward()
        return output, loss

    def labels(self, output: object, batch: Batch) -> tuple[object, ...]:
        """The labels of `batch`: its own, or ones generated once from the output's shape."""
        if batch.labels:
            return batch.labels
        if self._labels is None:
            self._labels = self.target.labels_for(output)
        return self._labels

    def synchronize(self) -> None:
        """Wait until the device has finished all work."""
        if self.cuda:
            torch.cuda.synchronize(self.target.device)
        elif self.target.device.type == "mps":
            torch.mps.synchronize()

    def _captured_step(self, batch: Batch) -> torch.Tensor:
        """The loss of a step that a graph can contain: it reads no value. Before its first call, nothing has run."""
        assert self.optimizer is not None
        if not self.optimizer.state:
            self.optimizer = _capturable(self.optimizer)
        reads_loss, self.reads_loss = self.reads_loss, False
        try:
            _, loss = self.forward_backward(batch)
        finally:
            self.reads_loss = reads_loss
        self.optimizer.step()
        return loss.detach()

    def _zero_grad(self) -> None:
        assert self.optimizer is not None
        self.optimizer.zero_grad(set_to_none=True)

    def _train_step(self, batch: Batch, mark: Mark) -> None:
        if self._graphed_step is not None:
            mark("other")  # a replay has no phases
            loss = self._graphed_step(batch)
            if self.reads_loss:
                loss.item()
            return
        assert self.optimizer is not None
        self.forward_backward(batch, mark)
        mark("optimizer")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        mark("other")


def _capturable(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """`optimizer` in a form that a CUDA graph can contain. Raises TargetError if its steps may depend on a number on the host."""
    if type(optimizer) is torch.optim.SGD or all(group.get(_CAPTURABLE) for group in optimizer.param_groups):
        return optimizer
    return _rebuilt(optimizer, _CAPTURABLE)


def _rebuilt(optimizer: torch.optim.Optimizer, form: str, **others: bool) -> torch.optim.Optimizer:
    """An optimizer of the same class, parameters and settings with `form` (``fused``, ``capturable``), before the first step.

    `others` are further settings of the form. Raises TargetError if the class has no such form, none for these parameters, or if
    it has it already.
    """
    kind: Any = type(optimizer)
    hint = f"torch's Adam and AdamW have one: use --optimizer adamw, or leave {_CHANGE_OF[form]} out"
    parameters = inspect.signature(kind.__init__).parameters
    if form not in parameters:
        raise TargetError(f"{kind.__name__} has no {form} implementation", hint=hint)
    if all(group.get(form) for group in optimizer.param_groups):
        raise TargetError(f"the target's {kind.__name__} is {form} already", hint=f"leave {_CHANGE_OF[form]} out")
    changed = {form: True, **others}
    groups = [{**group, **changed} for group in optimizer.param_groups]
    settings = {name: value for name, value in optimizer.defaults.items() if name in parameters}
    try:
        replacement: torch.optim.Optimizer = kind(groups, **{**settings, **changed})
    except (RuntimeError, TypeError, ValueError) as error:
        raise TargetError(f"{kind.__name__} can't be {form} here: {one_line_message(error)}", hint=hint) from error
    return replacement


def _endless_batches(target: Target) -> Iterator[Batch]:
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
    """The number of timed steps of `step_ns` that fit into `budget_ns`: at least three, at most a hundred."""
    return max(MIN_STEPS, min(MAX_STEPS, budget_ns // max(1, step_ns)))


@dataclass(slots=True)
class TimedSteps:
    """Durations in ns of steps timed without the profiler, in total and by phase (one list per phase, one entry per step)."""

    steps_ns: list[int] = field(default_factory=list)
    stopwatch_ns: dict[Phase, list[int]] = field(default_factory=dict)
    event_ns: dict[Phase, list[int]] = field(default_factory=dict)

    def extend(self, later: TimedSteps) -> None:
        """Add the steps of `later`."""
        self.steps_ns += later.steps_ns
        for mine, others in ((self.stopwatch_ns, later.stopwatch_ns), (self.event_ns, later.event_ns)):
            for phase, samples in others.items():
                mine.setdefault(phase, []).extend(samples)

    def phases(self) -> tuple[PhaseTime, ...]:
        """The median of each phase by stopwatch and by events, in execution order."""
        return tuple(
            PhaseTime(
                phase=phase,
                stopwatch_ns=round(statistics.median(samples)),
                event_ns=round(statistics.median(self.event_ns[phase])) if phase in self.event_ns else None,
            )
            for phase, samples in self.stopwatch_ns.items()
        )


Marked = tuple[Phase, int, "torch.cuda.Event | None"]


def clock_mark(events: bool, count: int) -> tuple[Mark, list[Marked]]:
    """A mark that records host times and CUDA events, and the list it writes to. It must be fast: it is part of the step.

    The events for `count` marks are created and recorded once beforehand, so that the driver's set-up is not timed.
    """
    marks: list[Marked] = []
    append, clock = marks.append, time.perf_counter_ns
    if not events:
        return lambda phase: append((phase, clock(), None)), marks
    pool = [torch.cuda.Event(enable_timing=True) for _ in range(count)]
    for event in pool:
        event.record()
    torch.cuda.synchronize()
    next_event = pool.pop
    stream = torch.cuda.current_stream()

    def mark(phase: Phase) -> None:
        event = next_event() if pool else torch.cuda.Event(enable_timing=True)
        event.record(stream)
        append((phase, clock(), event))

    return mark, marks


def timed_steps(runner: Runner, count: int, *, fewest: int = 1, until_ns: int | None = None) -> TimedSteps:
    """Time `count` steps without the profiler and without an additional synchronization.

    Stops early once `time.perf_counter_ns` has passed `until_ns`, but not before `fewest` steps.

    A step's duration is the time from its start to the start of the next step: the device runs behind the host, so only this
    period is the real cost. On CUDA one further step closes the last period; then the device is synchronized. And one step
    before the first one is not timed: after an idle device, reading the loss waits for one forward, and not for the backward
    and the optimizer of the step before, so the period would be shorter.

    If the loss is not read, the host runs ahead until the launch queue is full, and its clock is wrong for the first steps.
    The period is then measured by CUDA events at the starts of the steps.
    """
    opening = closing = 1 if runner.cuda else 0
    outer = opening + closing
    mark, marks = clock_mark(runner.cuda, (count + outer) * MARKS_A_STEP)
    starts: list[int] = []
    firsts: list[int] = []  # the index of each step's first mark in `marks`
    while len(starts) < count + outer:
        now_ns = time.perf_counter_ns()
        if until_ns is not None and now_ns > until_ns and len(starts) >= fewest + outer:
            break
        firsts.append(len(marks))
        starts.append(now_ns)
        runner.step(mark)
    starts.append(time.perf_counter_ns())
    firsts.append(len(marks))
    runner.synchronize()
    starts, firsts = starts[opening:], firsts[opening:]
    done = len(starts) - 1 - closing
    timed = TimedSteps(steps_ns=[end - begin for begin, end in itertools.pairwise(starts)][:done])
    if runner.cuda and runner.train and not runner.reads_loss:
        events = [marks[first][2] for first in firsts[: done + 1]]
        timed.steps_ns = [elapsed_ns(begin, end) for begin, end in itertools.pairwise(events)]
    for step in range(done):
        _add_phases(timed, marks[firsts[step] : firsts[step + 1]], starts[step + 1])
    return timed


def elapsed_ns(begin: torch.cuda.Event | None, end: torch.cuda.Event | None) -> int:
    """The time on the device between two recorded events, in ns. Both must be complete."""
    assert begin is not None
    assert end is not None
    elapsed_ms: float = begin.elapsed_time(end)
    return round(elapsed_ms * 1e6)


def _add_phases(timed: TimedSteps, marks: list[Marked], end_ns: int) -> None:
    """Add one step's phases. Each runs until the next mark; the closing ``other`` only counts if something ran in it."""
    for i, (phase, begin, event) in enumerate(marks):
        last = i == len(marks) - 1
        until = end_ns if last else marks[i + 1][1]
        if last and "optimizer" in {m[0] for m in marks}:
            return  # a training step's last mark only closes the optimizer phase
        timed.stopwatch_ns.setdefault(phase, []).append(until - begin)
        if event is not None and not last:
            timed.event_ns.setdefault(phase, []).append(elapsed_ns(event, marks[i + 1][2]))


def synced_step_ns(runner: Runner) -> int:
    """The duration of one step with synchronization before and after it (for first and warm-up steps)."""
    runner.synchronize()
    begin = time.perf_counter_ns()
    runner.step()
    runner.synchronize()
    return time.perf_counter_ns() - begin
