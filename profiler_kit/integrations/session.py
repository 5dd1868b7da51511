"""Measures a training loop from inside: `session` around the loop, `trace_handler` for a profiler that runs already."""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

from profiler_kit.display.records import save
from profiler_kit.errors import KitError, UsageError
from profiler_kit.recording.guard import Guard
from profiler_kit.records.counts import DEFAULT_CONVENTION, PHASES, Phase
from profiler_kit.records.lanes import StepTimeline
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.temporary_files import folder_problem, replacement

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import nn
    from torch.profiler import profile

    from profiler_kit.pipeline.loop_report import LoopReport
    from profiler_kit.recording.loop import Recorder
    from profiler_kit.recording.observations import Observations

FILES: Final = ("report.html", "report.json", "report.md")
RANK_FILES: Final = ("ranks.html", "ranks.json")  # beside the report of rank 0, in a distributed job
RANK_WAIT_S: Final = (
    60.0  # for the traces of the other ranks; the next collective of these waits for this rank meanwhile
)
POLL_S: Final = 0.1
WARMUP, TIMED, TRACED = 5, 20, 3

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What is recorded of a loop, and the folder of its report.

    `skip`: warm-up steps; None until steps are steady, or `WARMUP` in a job of several ranks, which all record the same steps.
    `steps`, `traced`: timed and traced steps. `stacks`: traces have the calls of Python functions. `loss_fn`, `labels`: the
    loss that is counted.
    """

    out: Path
    skip: int | None = WARMUP
    steps: int = TIMED
    traced: int = TRACED
    stacks: bool = False
    quiet: bool = False
    convention: str = DEFAULT_CONVENTION
    loss_fn: Callable[..., Any] | None = None
    labels: Any = ()


_LOCK: Final = threading.Lock()
_RUNNING: Final[list[tuple[LoopSession, threading.Thread]]] = []  # the session that started last, and its thread


class LoopSession:
    """Records steps of the loop that runs inside its ``with`` block, and writes their report. Created by `session`.

    `report` is the report, None until it is written. In a distributed job, each rank writes its trace into the same folder, and
    rank 0 writes the report on itself and `ranks`, the comparison of all ranks.
    """

    def __init__(self, model: nn.Module | None, options: LoopOptions) -> None:
        self.report: Report | None = None
        self.ranks: TraceReport | None = None
        self.folder = options.out
        self._rank, self._job_size = 0, 1
        self._model = model
        self._options = options
        self._recorder: Recorder | None = None
        self._rank_wait_s = RANK_WAIT_S
        self._guard = Guard(self._give_up)

    def __enter__(self) -> LoopSession:
        if self.is_recording:
            raise UsageError("this session is already running", hint="use a second session for a second loop")
        require_folder(self.folder)
        from profiler_kit.recording.distributed import distributed_rank, job_size

        self.report = self.ranks = None
        self._guard.is_closed = False
        self._rank, self._job_size = distributed_rank() or 0, job_size()
        trace = self._trace_of(self._rank)
        with contextlib.suppress(OSError):  # writing such a file fails later, with a message
            trace.unlink(missing_ok=True)  # rank 0 must not take the trace of an earlier run for this one's
        with _LOCK:
            self._end_earlier()
            self._recorder = self._new_recorder(trace)
            self._recorder.start()
            _RUNNING[:] = [(self, threading.current_thread())]
        return self

    def _new_recorder(self, trace: Path) -> Recorder:
        from profiler_kit.recording.loop import Recorder

        assert self._model is not None
        options = self._options
        warmup = WARMUP if options.skip is None and self._job_size > 1 else options.skip
        parts, others, direct = self._parts()
        return Recorder(
            self._model,
            models=parts,
            others=others,
            direct=direct,
            warmup=warmup,
            timed=options.steps,
            traced=options.traced,
            stacks=options.stacks,
            trace=trace,
            guard=self._guard,
        )

    def _give_up(self, error: Exception) -> None:
        """An error of ours inside the loop, which goes on."""
        if self._recorder is not None:
            with contextlib.suppress(Exception):  # the first error is the one to show
                self._recorder.give_up()
        self._report_failure(f"the program goes on without a report: {type(error).__name__}: {error}")

    def _parts(self) -> tuple[Sequence[nn.Module], Sequence[nn.Module], Sequence[nn.Module]]:
        """The models that the loop calls, if they are known; the other modules; those of which it calls ``forward`` itself."""
        return (), (), ()

    def _end_earlier(self) -> None:
        """End a session that its loop left without an end, such as by an exception. Raises UsageError if its loop may run.

        Hooks and the profiler are those of the process: two sessions at a time would remove each other's.
        """
        for earlier, thread in _RUNNING:
            if not earlier.is_recording:
                continue
            if thread is not threading.current_thread() and thread.is_alive():
                raise UsageError(
                    f"a session is running in the thread {thread.name}, and a process can record one loop at a time",
                    hint="start this session after that one has ended, or in another process",
                )
            earlier.__exit__(None, None, None)
            self._report_failure("the session before this one had no end; its loop was over")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._recorder is not None and not self._recorder.is_done:
            self._recorder.stop()
            self._write()

    def __call__(self, function: Function) -> Function:
        """As a decorator: each call of `function` runs inside the session."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return run  # type: ignore[return-value]

    @property
    def is_recording(self) -> bool:
        """Whether further steps will be recorded."""
        return self._recorder is not None and not self._recorder.is_done

    def step(self) -> None:
        """Say that one step of the loop is over. When the last recorded step is over, the report is written."""
        if self._recorder is None:
            raise UsageError(
                "step() outside the session", hint="call it inside: with profiler_kit.session(model) as s:"
            )
        if not self._recorder.is_done and self._recorder.end_step():
            self._write()

    def phase(self, name: Phase) -> AbstractContextManager[None]:
        """Attribute a block to the phase `name`: data, transfer, forward, loss, backward, optimizer or other.

        Forward, backward, the optimizer and a DataLoader are found without it.

        Raises: UsageError for another name, or outside the session.
        """
        if name not in PHASES:
            raise UsageError(f"no phase {name!r}", hint=f"choose one of: {', '.join(PHASES)}")
        if self._recorder is None:
            raise UsageError(
                "phase() outside the session", hint="call it inside: with profiler_kit.session(model) as s:"
            )
        context: AbstractContextManager[None] = self._recorder.phase(name)
        return context

    def _trace_of(self, rank: int) -> Path:
        """The file of a rank's trace."""
        return self.folder / "traces" / (f"rank{rank}.json.gz" if self._job_size > 1 else "loop.json.gz")

    def _write(self) -> None:
        """Build and write the report. The random state of the loop is kept: imports may draw numbers, as that of rich does."""
        from profiler_kit.user_code.environment import random_states_kept

        with random_states_kept():
            self._write_report()

    def _write_report(self) -> None:
        """Build and write the report. A failure is a message: the loop goes on."""
        assert self._recorder is not None
        if self._rank:
            return  # the trace is written, and rank 0 reads it
        observed = self._recorder.observations
        if not observed.steps_ns:
            needed = (self._options.skip or 0) + 1
            self._report_failure(
                f"no report: the loop ended before a timed step; {needed} steps are needed, and step() after each"
            )
            return
        start_s = time.monotonic()
        try:
            result = self._new_report(self._recorder.models, observed)
            self.report = result.report
            write_report(result.report, self.folder, result.timeline)
            files: tuple[str, ...] = FILES
            if self._job_size > 1 and observed.trace is not None:
                files += self._write_ranks()
        except (KitError, OSError) as error:
            self._report_failure(f"no report: {error}")
            return
        took_s = time.monotonic() - start_s
        self._say(
            f"report: {self.folder}/ ({', '.join(files)}), built in {took_s:.1f} s; the loop runs without hooks now"
        )

    def _new_report(self, models: Sequence[nn.Module], observed: Observations) -> LoopReport:
        from profiler_kit.pipeline.loop_report import loop_report

        options = self._options
        return loop_report(
            models, observed, loss_fn=options.loss_fn, labels=options.labels, convention=options.convention
        )

    def _write_ranks(self) -> tuple[str, ...]:
        """Wait for the traces of the other ranks, compare all, and return the names of the files written.

        Ranks whose trace does not come, because they died or write to another machine's disk, are named and left out.
        """
        from profiler_kit.pipeline.inspect import inspect

        traces = {rank: self._trace_of(rank) for rank in range(self._job_size)}
        until_s = time.monotonic() + self._rank_wait_s
        while not all(file.exists() for file in traces.values()) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        present = [file for file in traces.values() if file.exists()]
        missing = [rank for rank, file in traces.items() if not file.exists()]
        if missing:
            ranks = ", ".join(map(str, missing))
            self._report_failure(
                f"no trace of rank {ranks} after {self._rank_wait_s:g} s in {self._trace_of(0).parent}"
            )
        if len(present) < 2:
            return ()
        inspection = inspect(present, timelines=True)
        note = (f"No trace of rank {', '.join(map(str, missing))}.",) if missing else ()
        self.ranks = replace(inspection.report, notes=(*inspection.report.notes, *note))
        for name in RANK_FILES:
            _save(self.ranks, self.folder / name, inspection.timelines)
        return RANK_FILES

    def _say(self, text: str) -> None:
        if not self._options.quiet:
            self._report_failure(text)

    def _report_failure(self, text: str) -> None:
        """Print `text`, also where the session is quiet."""
        self._print(f"profiler_kit: {text}")

    def _print(self, text: str) -> None:
        print(text, file=sys.stderr)


def session(
    model: nn.Module,
    out: str | Path = "profiler_kit_out/loop",
    *,
    warmup: int = WARMUP,
    steps: int = TIMED,
    traced: int = TRACED,
    stacks: bool = False,
    loss_fn: Callable[..., Any] | None = None,
    labels: Any = (),
    convention: str = DEFAULT_CONVENTION,
    quiet: bool = False,
) -> LoopSession:
    """Measure a loop that exists: ``with session(model) as s:`` around it, ``s.step()`` at the end of each step.

    The first `warmup` steps are not timed, the next `steps` are timed without the profiler, one step warms the profiler up and
    `traced` steps are traced. Then the report is written to the folder `out` and all hooks are removed. If the loop ends
    earlier, the report has the steps so far. With `stacks`, the traced steps record the calls of Python functions, so that
    findings name functions and lines; they take longer.

    `model` is the module that the loop calls (after ``torch.compile``, inside or outside of DistributedDataParallel). Its
    FLOPs and memory are counted for the inputs that the loop passes. With `loss_fn` and the `labels` of a batch, the loss
    ``loss_fn(output, *labels)`` is counted too; otherwise a usual loss for the output takes its place.

    In a distributed job, start a session on every rank, with the same folder, after the process group. The report is that of
    rank 0, and ``ranks.html`` compares all ranks.

    Raises:
        UsageError: `model` is not a module, or a number of steps is negative. Entering the session raises it if the folder
            cannot be written, or if a session runs in another thread.
    """
    from profiler_kit.recording.loop import require_module

    require_module(model)
    if warmup < 0 or steps < 1 or traced < 0:
        raise UsageError("a session needs at least one timed step", hint="use warmup=5, steps=20, traced=3")
    options = LoopOptions(
        out=Path(out),
        skip=max(1, warmup),
        steps=steps,
        traced=traced,
        stacks=stacks,
        loss_fn=loss_fn,
        labels=labels,
        convention=convention,
        quiet=quiet,
    )
    return LoopSession(model, options)


def trace_handler(out: str | Path) -> Callable[[profile], None]:
    """A handler for ``torch.profiler.profile(on_trace_ready=...)`` that writes each trace and its report into the folder `out`.

    The files are ``trace_0.json.gz`` with ``report_0.html`` and ``report_0.json``, and so on. In a distributed job their names
    begin with the rank.

    Raises:
        UsageError: the folder cannot be written.
    """
    folder = Path(out)
    require_folder(folder)
    written = 0

    def handle(profiler: profile) -> None:
        nonlocal written
        from profiler_kit.pipeline.inspect import inspect
        from profiler_kit.recording.distributed import distributed_rank

        rank = distributed_rank()
        label = f"rank{rank}_{written}" if rank is not None else str(written)
        written += 1
        folder.mkdir(parents=True, exist_ok=True)
        trace = folder / f"trace_{label}.json.gz"
        with replacement(trace) as partial:
            whole = partial.with_name(f"{partial.name}.json.gz")  # the profiler compresses by the suffix
            try:
                profiler.export_chrome_trace(str(whole))
                whole.replace(partial)
            finally:
                whole.unlink(missing_ok=True)
        try:
            result = inspect(trace, timelines=True)
            for suffix in ("html", "json"):
                _save(result.report, folder / f"report_{label}.{suffix}", result.timelines)
        except KitError as error:  # the training that is profiled must go on
            print(f"profiler_kit: no report on {trace}: {error}", file=sys.stderr)
        else:
            print(f"profiler_kit: report: {folder / f'report_{label}.html'}", file=sys.stderr)

    return handle


def require_folder(folder: Path, hint: str = "use another folder: out=...") -> None:
    """Raise UsageError, before a step runs, if `folder` cannot be written."""
    problem = folder_problem(folder)
    if problem:
        raise UsageError(problem, where=str(folder), hint=hint)


def write_report(report: Report, folder: Path, timeline: StepTimeline | None) -> None:
    """Write the report files into `folder`. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    with _forgotten("tabulate"):
        for name in FILES:
            _save(report, folder / name, {0: timeline} if timeline is not None else {})


@contextlib.contextmanager
def _forgotten(package: str) -> Iterator[None]:
    """Afterwards, `package` is as little imported as before.

    An exit handler of torch imports tabulate, and Python ends in another way after Ctrl-C if code is evaluated then: the
    program would have another exit status than alone.
    """
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            if name.split(".")[0] == package:
                del sys.modules[name]


def _save(report: Report | TraceReport, file: Path, timelines: Mapping[int, StepTimeline]) -> None:
    with replacement(file) as partial:
        named = partial.with_name(f"{partial.name}{file.suffix}")  # the format follows the suffix
        try:
            save(report, named, timelines=timelines)
            named.replace(partial)
        finally:
            named.unlink(missing_ok=True)
