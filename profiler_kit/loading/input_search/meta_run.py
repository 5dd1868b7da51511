"""Runs forward on tensors without data, and reports the failing operation with the inputs that reached it."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from collections.abc import Iterator, Mapping
from typing import Any, Final

import torch
from torch import nn

from profiler_kit.loading.input_search.outcomes import Failure, Outcome
from profiler_kit.loading.input_search.recorder import RUN_S, Recorder, check_channels, check_layer_input
from profiler_kit.meta.batch import copied_containers
from profiler_kit.meta.control_flow import control_flow_in_python
from profiler_kit.meta.drawn_values import DrawnShadow
from profiler_kit.meta.values import ValueTracking
from profiler_kit.user_code.boundary import user_boundary
from profiler_kit.user_code.environment import seeded
from profiler_kit.user_code.locations import is_out_of_memory, is_user_code, user_source
from profiler_kit.user_code.restoration import restored_objects
from profiler_kit.user_code.time_limit import TimeLimitError, time_limit

_LOOP_S: Final = 3 * RUN_S  # of the clock: another process may use the core meanwhile


class MetaRunner:
    """Runs forward of a copy of a model, on meta tensors. Prints nothing, and needs no data."""

    def __init__(
        self,
        model: nn.Module,
        *,
        seed: int = 0,
        needs_batch: bool = True,
        reads_values: bool = False,
    ) -> None:
        """`model` is on the meta device, and is changed by the runs.

        With `needs_batch`, layers refuse tensors without a batch. With `reads_values`, code can read the values of small
        tensors that follow from constants, and random ones where nothing determines them.
        """
        self.model = model
        self.reads_values = reads_values
        self.needs_batch = needs_batch
        self._seed = seed
        self.finished: dict[int, None] = {}  # the leaf modules that finished in the last run, by id, in order
        for module in model.modules():
            if not any(True for _ in module.children()) and not isinstance(module, torch.jit.ScriptModule):
                module.register_forward_hook(self._after)
            if not isinstance(module, torch.jit.ScriptModule):
                module.register_forward_pre_hook(self._before)
        self._outcome = Outcome()

    def run(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Outcome:
        """Call the model once. Raises out-of-memory errors."""
        self.finished.clear()
        self._outcome = outcome = Outcome()
        recorder = Recorder(outcome, time.thread_time() + RUN_S, needs_batch=self.needs_batch)
        state = restored_objects(self.model, args, kwargs)
        limit = None  # until another limit, which may end first, lets this one begin
        try:
            # the recorder limits calls of torch; a loop of Python over the size of an input makes none
            with self._quiet(), state, user_boundary(), time_limit(_LOOP_S) as limit, recorder:
                outcome.output = copied_containers(self.model(*args, **kwargs))
        except TimeLimitError as error:
            if error.limit is not limit:
                raise
            late = RuntimeError(str(error)).with_traceback(error.__traceback__)
            outcome.failure = failure_of(late, recorder, len(self.finished))
        except (Exception, SystemExit) as error:
            if is_out_of_memory(error):
                raise
            outcome.failure = failure_of(error, recorder, len(self.finished))
        return outcome

    @contextlib.contextmanager
    def _quiet(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            stack.enter_context(seeded(self._seed))
            stack.enter_context(torch.no_grad())
            stack.enter_context(control_flow_in_python())
            if self.reads_values:
                stack.enter_context(ValueTracking(DrawnShadow))
            yield

    def _before(self, module: nn.Module, args: tuple[Any, ...]) -> None:
        check_channels(module, args)
        if self.needs_batch:
            check_layer_input(module, args)

    def _after(self, module: nn.Module, args: object, output: object) -> None:
        self.finished[id(module)] = None


def failure_of(error: BaseException, recorder: Recorder, finished: int = 0) -> Failure:
    """The operation at which a trial failed with `error`, after `finished` modules."""
    failed = recorder.failed if recorder.failed is not None and recorder.failed[0] is error else None
    module, module_arguments = _innermost_module(error)
    line, names = _user_frame(error)
    return Failure(
        error=error if isinstance(error, Exception) else RuntimeError(f"the model called sys.exit: {error}"),
        module=module,
        module_arguments=module_arguments,
        function=failed[1] if failed is not None else None,
        arguments=failed[2] if failed is not None else (),
        source=user_source(error),
        names=names,
        line=line,
        progress=(finished, recorder.calls),
    )


def _innermost_module(error: BaseException) -> tuple[nn.Module | None, tuple[Any, ...]]:
    module, arguments = None, ()
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "_call_impl" and isinstance(frame.f_locals.get("self"), nn.Module):
            module = frame.f_locals["self"]
            arguments = (*frame.f_locals.get("args", ()), *frame.f_locals.get("kwargs", {}).values())
    return module, arguments


def _user_frame(error: BaseException) -> tuple[tuple[str, int] | None, Mapping[str, Any]]:
    """The innermost line outside torch and this package, and the local variables of its frame."""
    line: tuple[str, int] | None = None
    names: Mapping[str, Any] = {}
    for frame, number in traceback.walk_tb(error.__traceback__):
        if is_user_code(frame.f_code.co_filename):
            line, names = (frame.f_code.co_filename, number), dict(frame.f_locals)
    return line, names
