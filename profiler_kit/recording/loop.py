"""Records a few steps of a loop: first steps without a clock, then timed steps, then traced steps, then nothing."""

from __future__ import annotations

import gzip
import importlib
import itertools
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import nn
from torch.profiler import profile, record_function

from profiler_kit.errors import UsageError
from profiler_kit.meta.compilation import uncompiled_path, unwrap_compiled
from profiler_kit.meta.ownership import Call
from profiler_kit.meta.ownership import wrapped_calls as calls_by_path
from profiler_kit.recording.copies import model_of_copy
from profiler_kit.recording.guard import Guard, raise_error
from profiler_kit.recording.modules import parameters_of
from profiler_kit.recording.observations import Observations, ObservedCall, describe_arguments
from profiler_kit.recording.outermost_calls import OutermostCalls, wrapped_calls, wrapped_forwards
from profiler_kit.recording.phases import PhaseHooks
from profiler_kit.recording.tracer import detach_tracer_afterwards
from profiler_kit.records import marks
from profiler_kit.records.counts import Phase
from profiler_kit.temporary_files import replacement
from profiler_kit.user_code.locations import one_line_message
from profiler_kit.worker.steps import MARKS_A_STEP, Mark, clock_mark, elapsed_ns, is_steady
from profiler_kit.worker.tracing import marked_call, profiled, write_trace

Stage = Literal["warm-up", "timed", "traced", "done"]
_Clock = tuple[Mark, list[Any], list[tuple[int, int]]]  # how to mark a period, all marks, and those of each step

MAX_WARMUP_STEPS: Final = 10  # a program of an unknown number of steps must not spend them all on warming up

_MARKS_A_STEP: Final = (
    4 * MARKS_A_STEP
)  # a loop may change phases more often than our own step; more events are created if needed


class Recorder:
    """Records steps of a loop. Call `start` before the first step and `end_step` after each.

    `warmup` steps run without a clock (None: until their times agree), then `timed` steps with clocks, then one with the
    profiler's own warm-up and `traced` steps in the profiler. After that all hooks are gone, and `end_step` only returns.
    `models` are the parts of `model` that the loop calls, where they are known, and `others` further modules that it calls.
    `direct` are those of both of which it calls ``forward`` itself.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        warmup: int | None,
        timed: int,
        traced: int,
        stacks: bool = False,
        trace: Path,
        models: Sequence[nn.Module] = (),
        others: Sequence[nn.Module] = (),
        direct: Sequence[nn.Module] = (),
        guard: Guard | None = None,
    ) -> None:
        self._direct = direct
        self._guard = guard = guard or Guard(raise_error)
        devices = (parameter.device for parameter in parameters_of(model))
        self.device = next((device for device in devices if device.type != "meta"), torch.device("cpu"))
        self.observations = Observations(device=self.device)
        self.models: tuple[nn.Module, ...] = tuple(models) or (model,)
        self._model = model
        self._are_models_known = bool(models)
        self._warmup, self._until_steady = warmup or MAX_WARMUP_STEPS, warmup is None
        self._timed, self._traced, self._stacks = timed, traced, stacks
        self._trace_file = trace
        self._cuda = self.device.type == "cuda"
        self._hooks = PhaseHooks(
            self.models, _no_mark, self._on_forward, self._on_optimizer, others=others, guard=guard
        )
        self._forwards = ExitStack()  # the hooks of `direct`
        self._copies = ExitStack()  # that of copies of the models
        self._has_copies, self._others = False, tuple(others)
        self._searches, self._calls = False, OutermostCalls(guard)
        self._first_traced, self._roots = 0, dict[str, nn.Module]()
        self._traced_paths: dict[int, str] = {}
        self._stage: Stage = "warm-up"
        self._step = 0
        self._start_ns = self._warmup_start_ns = 0
        self._timed_mark: Mark = _no_mark
        self._marks: list[Any] = []
        self._timed_ranges: list[
            tuple[int, int]
        ] = []  # of each timed step: its first mark in `_marks`, and the one after it
        self._warmup_clock: _Clock = (_no_mark, [], [])
        self._first_mark = 0  # of the current step
        self._dropped_marks: set[str] = set()  # marks of traced steps that do not count
        self._profiler: profile | None = None
        self._trace_marks = ExitStack()  # the step and the phase that are open in the trace
        self._phase_mark: Any = None
        self._on_call: Callable[[nn.Module, bool], bool] | None = None
        self._step_start_ns = 0
        self._patches = ExitStack()

    @property
    def is_done(self) -> bool:
        """Whether all steps are recorded."""
        return self._stage == "done"

    @property
    def has_clocks(self) -> bool:
        """Whether all timed steps are recorded."""
        return self._stage in ("traced", "done")

    def start(self) -> None:
        """Install the hooks; the first step begins."""
        self._timed_mark, self._marks = clock_mark(self._cuda, (self._warmup + 1) * _MARKS_A_STEP)
        self._hooks.mark = self._note_phase
        self._hooks.install()
        self._forwards.enter_context(wrapped_forwards(self._direct, self._around_forward, self._guard))
        self._start_ns = self._warmup_start_ns = self._step_start_ns = time.perf_counter_ns()
        self._hooks.start_step()

    def phase(self, phase: Phase) -> Any:
        """A context that attributes its block to `phase`."""
        self.observations.is_loss_stated |= phase == "loss"
        return self._hooks.inside(phase)

    def watch_steps(
        self, before_work: Callable[[], None], on_call: Callable[[nn.Module, bool], bool] | None = None
    ) -> None:
        """Call `before_work` where a step may end, and `on_call` before each outermost call of a model, from `start` on.

        `on_call` receives the model and whether autograd records the call, and says whether it is part of the forward pass.
        """
        self._hooks.before_work = before_work
        self._on_call = on_call

    def follow_copies(self) -> None:
        """Take calls of modules that are like a model for calls of it, from now on."""
        if not self._has_copies and not self.is_done:
            self._has_copies = True
            self._copies.enter_context(wrapped_calls(self._around_any, self._guard))

    def end_step(self, *, is_kept: bool = True) -> bool:
        """The current step ends and the next begins. Returns whether the recording is over.

        A step that is not kept, because it has an evaluation, is neither timed nor part of the trace.
        """
        if self._stage == "done":
            return True
        self._step += 1
        now_ns = time.perf_counter_ns()
        (self.observations.kept_ns if is_kept else self.observations.evaluated_ns).append(now_ns - self._step_start_ns)
        self._step_start_ns = now_ns
        if self._stage == "warm-up":
            self._end_warmup_step(is_kept)
        elif self._stage == "timed":
            self._end_timed_step(is_kept)
        else:
            self._end_traced_step(is_kept)
        if self.is_done:
            return True
        self._hooks.start_step()
        return False

    def stop(self, *, times_warmup: bool = False) -> None:
        """Stop recording, at any time. Complete steps are kept, and the model is as before.

        With `times_warmup`, the steps of a loop without timed steps are those of its warm-up, without the first if it has others.
        """
        clock = self._clock_of_first_steps() if times_warmup else None
        stage, self._stage = (
            self._stage,
            "done",
        )  # first: a signal that ends the program may come while the trace is written
        if clock is not None:
            self._time_warmup(clock)
        elif stage == "warm-up":
            self.observations.warmup_steps = self._step
        elif stage == "timed":
            self._read_clocks()
        elif stage == "traced":
            self._finish_trace()
        self.abandon()

    def give_up(self) -> None:
        """Remove all of it from the program, with the profiler, after an error of ours."""
        profiler, self._profiler = self._profiler, None
        self.abandon()
        if profiler is not None:
            self._close_trace_marks()
            profiler.__exit__(None, None, None)

    def abandon(self) -> None:
        """Remove the hooks without a result, in a forked process or after an error of ours."""
        self._stage = "done"
        self._hooks.mark = _no_mark
        self._hooks.remove()
        self._calls.stop()
        self._patches.close()
        self._copies.close()
        self._forwards.close()

    # ---- stages

    def _clock_of_first_steps(self) -> _Clock | None:
        """The clock of the warm-up, if the recording is there and has complete steps, and no timed step has followed."""
        if self._stage not in ("warm-up", "timed"):
            return None
        clock = (self._timed_mark, self._marks, self._timed_ranges)
        if self._stage == "timed":
            clock = self._warmup_clock if not self._timed_ranges else (_no_mark, [], [])
        return clock if clock[2] else None

    def _time_warmup(self, clock: _Clock) -> None:
        observed = self.observations
        self._timed_mark, self._marks, self._timed_ranges = clock
        del self._timed_ranges[: len(self._timed_ranges) > 1]
        observed.warmup_steps = self._step - len(self._timed_ranges)
        observed.notes.append("The program ended while it warmed up: the times are those of its first steps.")
        self._read_clocks()

    def _end_warmup_step(self, is_kept: bool) -> None:
        observed = self.observations
        if is_kept:
            self._timed_ranges.append((self._first_mark, len(self._marks)))
        self._first_mark = len(self._marks)
        if observed.first_step_ns is None:
            self._synchronize()
            observed.first_step_ns = time.perf_counter_ns() - self._start_ns
            if observed.arguments is None and not self._are_models_known:
                self._start_search()
        elif self._searches:
            self._end_search()
        now_ns = time.perf_counter_ns()
        observed.warmup_ns.append(now_ns - self._warmup_start_ns)
        self._warmup_start_ns = now_ns
        if self._step < self._warmup and not (self._until_steady and is_steady(observed.warmup_ns)):
            observed.calls.clear()
            return
        observed.warmup_steps = self._step
        self._stage = "timed"
        self._timed_mark("other")  # closes the last period
        self._warmup_clock = (self._timed_mark, self._marks, self._timed_ranges)
        self._timed_mark, self._marks = clock_mark(self._cuda, (self._timed + 1) * _MARKS_A_STEP)
        self._hooks.mark = self._timed_mark
        self._first_mark = 0
        self._timed_ranges = []

    def _end_timed_step(self, is_kept: bool) -> None:
        if is_kept:
            self._timed_ranges.append((self._first_mark, len(self._marks)))
        self._first_mark = len(self._marks)
        if len(self._timed_ranges) < self._timed:
            return
        self._read_clocks()
        self._start_trace()

    def _end_traced_step(self, is_kept: bool) -> None:
        assert self._profiler is not None
        self._close_trace_marks()
        self._synchronize()  # every kernel belongs to the step that launched it
        observed = self.observations
        is_warmup = self._step == self._first_traced + 1
        if not is_kept and not is_warmup:
            self._dropped_marks.add(marks.step(self._step - 1 - self._first_traced))
        observed.traced_steps += is_kept and not is_warmup
        if observed.traced_steps >= self._traced:
            self.stop()
            return
        if is_warmup or is_kept:  # the profiler stops by itself after `traced` steps
            self._profiler.step()
        self._open_step_mark()

    # ---- the modules that the loop calls, where it never calls the model as a whole

    def _start_search(self) -> None:
        """Watch all modules for one step. A Lightning module, for example, is often not called itself, but its parts are."""
        self._searches = True
        self._warmup = max(self._warmup, self._step + 2)  # one step for the search, one for the arguments
        self._calls.watch(module for module in self._model.modules() if module is not self._model)

    def _end_search(self) -> None:
        self._searches = False
        self._calls.stop()
        if self._calls.called:
            self._hooks.remove()
            self.models = self._hooks.models = tuple(self._calls.called.values())
            direct = [model for model in self.models if id(model) in self._calls.direct]
            self._forwards.enter_context(wrapped_forwards(direct, self._around_forward, self._guard))
            self._hooks.install()

    # ---- timed steps

    def _read_clocks(self) -> None:
        """Turn the marks of the timed steps into durations. A period ends at the first mark of the next step."""
        self._hooks.mark = _no_mark
        observed = self.observations
        self._timed_mark("other")  # closes the last period
        self._synchronize()
        if self._cuda:
            observed.peak_allocated_bytes = torch.cuda.max_memory_allocated(self.device)
            observed.peak_reserved_bytes = torch.cuda.max_memory_reserved(self.device)
        for first, last in self._timed_ranges:
            marked = self._marks[first : last + 1]
            host_ns: dict[Phase, int] = {}
            device_ns: dict[Phase, int] = {}
            phases: list[Phase] = [phase for phase, _, _ in marked[:-1]]
            between_ns = between_event_ns = 0
            for ((phase, begin_ns, begin), (_, end_ns, end)), is_between in zip(
                itertools.pairwise(marked), _between_calls(phases), strict=True
            ):
                host_ns[phase] = host_ns.get(phase, 0) + end_ns - begin_ns
                between_ns += is_between * (end_ns - begin_ns)
                if self._cuda:
                    period_ns = elapsed_ns(begin, end)
                    device_ns[phase] = device_ns.get(phase, 0) + period_ns
                    between_event_ns += is_between * period_ns
            observed.between_calls_ns.append(between_ns)
            observed.between_calls_event_ns.append(between_event_ns)
            # the host may run ahead of the device, whose clock is then the real one
            observed.steps_ns.append(sum((device_ns if self._cuda else host_ns).values()))
            _add_step(observed.stopwatch_ns, host_ns)
            _add_step(observed.event_ns, device_ns)
            observed.forward_calls += phases.count("forward")
            observed.backward_passes += phases.count("backward")
            observed.has_backward |= "backward" in phases
        self._marks.clear()

    # ---- traced steps

    def _start_trace(self) -> None:
        if not self._traced:
            self._stage = "done"
            self.stop()
            return
        if (
            torch._C._autograd._profiler_enabled() or torch.autograd.profiler._is_profiler_enabled
        ):  # here, in any thread
            self.observations.notes.append(
                "No times by layer: another profiler ran in the loop, and only one can. Stop it, or give its trace to inspect."
            )
            self._traced = 0
            self._stage = "done"
            self.stop()
            return
        self._stage, self._first_traced = "traced", self._step
        self._hooks.remove()
        self._hooks.mark = self._trace_phase
        self._hooks.around_call = partial(marked_call, "")
        self._hooks.install(around_model=False)  # the mark of the model must lie inside the mark of the phase
        paths = self._traced_paths = self._paths()
        self._roots = {paths[id(model)]: model for model in self.models}
        around = self._guard.around
        self._patches.enter_context(
            calls_by_path(paths, lambda path, call: around(partial(self._around_call, path), call))
        )
        self._synchronize()
        # The profiler imports torch._inductor, and optimizers import torch._dynamo. The two import each other: in two threads
        # at once, from different ends, Python breaks the import of one of them.
        importlib.import_module("torch._dynamo")
        if self._cuda:
            detach_tracer_afterwards()
        self._profiler = profiled(self._cuda, self._traced, stacks=self._stacks)
        self._profiler.__enter__()
        self._open_step_mark()

    def _paths(self) -> dict[int, str]:
        """id of each module -> its path in the only module that the loop calls, else in the model of the session."""
        root = inner_model(self.models[0] if len(self.models) == 1 else self._model)
        paths = {id(module): uncompiled_path(path) for path, module in root.named_modules()}
        return {**paths, **{id(model): paths.get(id(model), "") for model in self.models}}

    def _open_step_mark(self) -> None:
        self._trace_marks.enter_context(record_function(marks.step(self._step - self._first_traced)))

    def _close_trace_marks(self) -> None:
        if self._phase_mark is not None:
            self._phase_mark.__exit__(None, None, None)
            self._phase_mark = None
        self._trace_marks.close()

    def _trace_phase(self, phase: Phase) -> None:
        if self._phase_mark is not None:
            self._phase_mark.__exit__(None, None, None)
        if phase == "loss" and not self.observations.has_backward:
            phase = "other"
        self._phase_mark = record_function(marks.phase(phase))
        self._phase_mark.__enter__()

    def _around_call(self, path: str, call: Call) -> Any:
        mark_module = partial(marked_call, path, call)
        root = self._roots.get(path)
        return mark_module() if root is None else self._hooks.around_forward(root, (), {}, mark_module)

    def _around_forward(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call) -> Any:
        """The result of `call`, in which the loop calls ``forward`` itself, unless it is inside of a call of the module."""
        if self._hooks.is_in_call:
            return call()
        if all(module is not model for model in self.models):
            return self._hooks.around_other(call)
        if self._stage == "traced":
            return self._around_call(next((path for path, model in self._roots.items() if model is module), ""), call)
        return self._hooks.around_forward(module, args, kwargs, call)

    def _around_any(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call) -> Any:
        """The result of `call`, a call of any `module`, which may be a copy of a model."""
        model = None if self._hooks.is_in_call else self._represented(module)
        if model is None or model is module:
            return call()
        return self._around_copy(module, model, args, kwargs, call)

    def _represented(self, module: nn.Module) -> nn.Module | None:
        """The model that `module` is or of which it is a copy; None if it is another one."""
        if any(module is known for known in (*self.models, *self._others)):
            return module
        return model_of_copy(module, self.models) if self._has_copies else None

    def _around_copy(
        self, module: nn.Module, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], call: Call
    ) -> Any:
        """The result of `call`, a call of `module`, a copy of `model`."""
        if self._stage != "traced":
            return self._hooks.around_forward(module, args, kwargs, call)
        path = next((path for path, root in self._roots.items() if root is model), "")
        prefix = f"{path}." if path else ""
        parts = {id(part): uncompiled_path(f"{prefix}{name}") for name, part in module.named_modules() if name}
        self._traced_paths.update(parts)
        try:
            return self._around_call(path, call)
        finally:
            for part in parts:
                self._traced_paths.pop(part, None)

    def _finish_trace(self) -> None:
        assert self._profiler is not None
        observed, profiler, self._profiler = self.observations, self._profiler, None
        self._close_trace_marks()
        self._synchronize()
        complete = observed.traced_steps > 0
        try:
            profiler.__exit__(None, None, None)
            if complete:
                self._trace_file.parent.mkdir(parents=True, exist_ok=True)
                write_trace(profiler, self._trace_file)
                if observed.traced_steps < self._traced:
                    self._dropped_marks.add(marks.step(self._step - self._first_traced))
                if self._dropped_marks:
                    _remove_marks(self._trace_file, self._dropped_marks)
                observed.trace = self._trace_file
        except Exception as error:  # noqa: BLE001 the loop must go on, and the times are known
            observed.notes.append(f"No times by layer: the trace could not be written: {one_line_message(error)}")

    # ---- observations

    def _note_phase(self, phase: Phase) -> None:
        self.observations.has_backward |= phase == "backward"
        self._timed_mark(phase)

    def _on_forward(self, model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
        is_forward = self._on_call is None or self._on_call(model, torch.is_grad_enabled())
        if self._stage == "warm-up" and is_forward:  # timed steps must not wait for this
            observed = self.observations
            observed.arguments = describe_arguments(args, dict(kwargs))
            represented = self._represented(model)
            represented = model if represented is None else represented  # a module may have a length of 0, or none
            call = ObservedCall(
                model=id(inner_model(represented)), arguments=observed.arguments, has_gradients=torch.is_grad_enabled()
            )
            observed.calls.append(call)
            observed.signatures.setdefault(call.model, set()).add(observed.arguments.signature)
        return is_forward

    def _on_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        if self._stage == "timed":
            self.observations.optimizer_steps += 1
        elif self.observations.optimizer is None:
            self.observations.optimizer = optimizer

    def _synchronize(self) -> None:
        if self._cuda:
            torch.cuda.synchronize(self.device)


def require_module(model: object) -> None:
    """Raise UsageError unless `model` is a module."""
    if not isinstance(model, nn.Module):
        raise UsageError(
            f"expected an nn.Module, got {type(model).__name__}", hint="pass the model that the loop calls"
        )


def inner_model(model: nn.Module) -> nn.Module:
    """The user's module inside of wrappers: torch.compile, DistributedDataParallel, DataParallel."""
    wrappers = (nn.parallel.DistributedDataParallel, nn.DataParallel)
    while True:
        inner, _ = unwrap_compiled(model)
        if isinstance(inner, wrappers):
            inner = inner.module
        if inner is model:
            return model
        model = inner


def _remove_marks(trace: Path, removed: Collection[str]) -> None:
    """Remove the marks of steps that do not count from the trace. Their work then counts as work outside of steps."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        content = json.load(file)
    content["traceEvents"] = [event for event in content["traceEvents"] if event.get("name") not in removed]
    with replacement(trace) as partial, gzip.open(partial, "wt", encoding="utf-8") as file:
        json.dump(content, file)


def _between_calls(phases: Sequence[Phase]) -> list[bool]:
    """Which of the `phases` of a step are a loss with no backward pass before the next call of a model."""
    before_backward, found = False, []
    for phase in reversed(phases):
        if phase in ("forward", "backward"):
            before_backward = phase == "backward"
        found.append(phase == "loss" and not before_backward)
    return found[::-1]


def _add_step(samples: dict[Phase, list[int]], step: Mapping[Phase, int]) -> None:
    """Add one step. A phase that it lacks took no time; phases that earlier steps lacked get zeros for these."""
    known = max((len(values) for values in samples.values()), default=0)
    for phase in {**samples, **step}:
        values = samples.setdefault(phase, [0] * known)
        values.append(step.get(phase, 0))


def _no_mark(_: Phase) -> None:
    """A mark that does nothing."""
