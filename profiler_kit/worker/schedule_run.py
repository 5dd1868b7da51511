"""The child process of a run over changing shapes: ``python -m profiler_kit.worker.schedule_run JOB.json``.

It runs one step per shape, the device waited for before and after, and adds a line to a file after each, so that whatever
ends the process takes no step with it. Progress goes to stdout in marked lines, what the user's model prints to stderr.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from profiler_kit import process
from profiler_kit.configurations import shapes
from profiler_kit.configurations.shapes import PlannedStep, Schedule
from profiler_kit.errors import KitError
from profiler_kit.loading import Batch, Target
from profiler_kit.loading.batch import map_batch, map_tensors
from profiler_kit.loading.failure import NeedsDataError
from profiler_kit.loading.kinds import on_first_kind, telling
from profiler_kit.loading.losses import plain
from profiler_kit.loading.place import first_line, is_out_of_memory
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob
from profiler_kit.records.laboratory import ShapeStep
from profiler_kit.records.serde import dumps
from profiler_kit.worker import variant
from profiler_kit.worker.entry import failure_line, serve

STATM: Final = Path("/proc/self/statm")
PS_S: Final = 5.0


def run_to_file(job: ScheduleJob, say: OnProgress) -> ScheduleEnd:
    """As `run_job`, each step a line of the file that `job` names."""
    with Path(job.steps).open("w", encoding="utf-8") as steps:

        def keep(step: ShapeStep) -> None:
            steps.write(dumps(step, indent=None))
            steps.flush()

        return run_job(job, say, keep)


def run_job(job: ScheduleJob, say: OnProgress, keep: Callable[[ShapeStep], None]) -> ScheduleEnd:
    """Runs the schedule of `job` in this process; `keep` gets each step. Whatever Python can catch ends in a sentence."""
    try:
        steps = _Steps(job, say)
    except KitError as error:
        return ScheduleEnd(failure=str(error).replace("\nhint:", "; hint:"))
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything, and that is a result
        return ScheduleEnd(failure=_failure(error))
    notes = steps.schedule.notes
    for number, step in enumerate(steps.schedule.steps, start=1):
        say(f"cycle {step.cycle}: {shapes.told(step.shape)} ({number} of {len(steps.schedule.steps)})")
        try:
            keep(steps.run(step))
        except BaseException as error:  # noqa: BLE001 a shape that cannot be run is a result
            return ScheduleEnd(notes=notes, failure=f"{shapes.told(step.shape)}: {_failure(error)}")
    return ScheduleEnd(notes=notes)


def _failure(error: BaseException) -> str:
    """Why a shape could not be run, in one line."""
    if is_out_of_memory(error):
        return f"it does not fit into memory ({first_line(error).partition('. ')[0]})"
    return failure_line(error)


class _Steps:
    """Runs the steps of a schedule: a target with its runner, and what is known of outputs' shapes."""

    def __init__(self, job: ScheduleJob, say: OnProgress) -> None:
        say(f"loading {job.spec.spec}")
        self._runner = variant.load_runner(job)
        target = self._runner.target
        self.schedule = shapes.schedule(job.text, target.info.inputs)
        variant.configure(self._runner, job)
        self._labels = _Labels(target, self.schedule)
        self._seen: set[tuple[int, ...]] = set()

    def run(self, step: PlannedStep) -> ShapeStep:
        """One step of the shape, timed; its inputs and labels are made before."""
        runner, target = self._runner, self._runner.target
        batch = target.to_device(shaped(target.batch, self.schedule, step))
        if runner.train:
            batch = self._labels.on(batch, step)
        if runner.cuda:
            torch.cuda.reset_peak_memory_stats(target.device)
        runner.synchronize()
        begin_ns = time.perf_counter_ns()
        runner.step_on(batch)
        runner.synchronize()
        ns = time.perf_counter_ns() - begin_ns
        seen = step.shape in self._seen
        self._seen.add(step.shape)
        return ShapeStep(
            cycle=step.cycle,
            shape=step.shape,
            seen=seen,
            ns=ns,
            peak_bytes=torch.cuda.max_memory_allocated(target.device) if runner.cuda else None,
            rss_bytes=rss_bytes(),
            last_batch=step.last_batch,
        )


def shaped(batch: Batch, schedule: Schedule, step: PlannedStep) -> Batch:
    """`batch` with every tensor in the shape it has in `step`: cut off, or repeated from its beginning.

    Its values stay those of the batch, so that indices stay within their tables.
    """

    def change(tensor: Tensor) -> Tensor:
        reshaped = tensor
        for dim, size in enumerate(schedule.follow(tuple(tensor.shape), step)):
            if reshaped.shape[dim] != size:
                reshaped = reshaped.index_select(dim, torch.arange(size, device=reshaped.device) % reshaped.shape[dim])
        return reshaped if reshaped is tensor else reshaped.detach().requires_grad_(tensor.requires_grad)

    return map_batch(batch, change, change)


class _Labels:
    """Labels for outputs of any shape. An output's shape is found without the device: a pass there would be a first one."""

    def __init__(self, target: Target, schedule: Schedule) -> None:
        self._target = target
        self._schedule = schedule
        self._meta: Target | None = None
        self._outputs: dict[tuple[int, ...], Any] = {}

    def on(self, batch: Batch, step: PlannedStep) -> Batch:
        """`batch`, on the device, with labels: its own in their new shape, else made up."""
        if batch.labels:
            return batch
        if step.shape not in self._outputs:
            self._outputs[step.shape] = self._output(batch, step)
        # as the output's: shapes alone matter, and memory that is never written to takes none
        like = map_tensors(self._outputs[step.shape], _empty)
        labels = self._target.labels_of(like, batch)
        return self._target.to_device(replace(batch, labels=labels))

    def _output(self, batch: Batch, step: PlannedStep) -> Any:
        """The output's tensors on meta, in their places."""
        if self._meta is None and self._target.again is not None:
            self._meta = self._target.again("meta")
        if self._meta is not None:

            def attempt(target: Target) -> Any:
                batch_of_step = shaped(target.batch, self._schedule, step)
                with telling("forward"):
                    return target.model(*batch_of_step.args, **batch_of_step.kwargs)

            with contextlib.suppress(NeedsDataError):  # then the device has to tell
                return map_tensors(plain(on_first_kind(self._meta, attempt).value), _on_meta)
        return map_tensors(plain(self._on_device(batch)), _on_meta)

    def _on_device(self, batch: Batch) -> object:
        """The output for `batch`, by a pass without the libraries that keep something per shape."""
        target = self._target
        cudnn, onednn = torch.backends.cudnn.enabled, torch._C._get_mkldnn_enabled()
        torch.backends.cudnn.enabled = False
        torch._C._set_mkldnn_enabled(False)
        try:
            with target.autocast():
                return target.model(*batch.args, **batch.kwargs)
        finally:
            torch.backends.cudnn.enabled = cudnn
            torch._C._set_mkldnn_enabled(onednn)


def _empty(tensor: Tensor, device: str | None = None) -> Tensor:
    empty = torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device=device)
    return empty.requires_grad_(tensor.requires_grad)


_on_meta = partial(_empty, device="meta")


def rss_bytes() -> int | None:
    """The process's resident memory now; None where neither /proc nor ``ps`` tells."""
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return _rss_by_ps()


def _rss_by_ps() -> int | None:
    try:
        kibibytes = process.run(["ps", "-o", "rss=", "-p", str(os.getpid())], timeout_s=PS_S).stdout.strip()
    except KitError:  # there is no ps
        return None
    return int(kibibytes) * 1024 if kibibytes.isdecimal() else None  # in KiB, everywhere


if __name__ == "__main__":
    serve(ScheduleJob, run_to_file)
