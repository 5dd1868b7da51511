"""The process of a run over changing shapes: ``python -m profiler_kit.worker.schedule_run JOB.json``.

It runs one step per shape and synchronizes before and after. Each step is appended to a file at once, so a crash loses no
completed step. Progress goes to stdout in marked lines, output of the user's model to stderr.
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
from profiler_kit.loading.failure import NeedsDataError
from profiler_kit.loading.tensor_kinds import as_step_errors, run_on_first_kind
from profiler_kit.loading.training_step.losses import as_mapping
from profiler_kit.meta.batch import map_batch, map_tensors
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.experiments import ShapeStep
from profiler_kit.records.jobs import ScheduleEnd, ScheduleJob
from profiler_kit.records.serde import dumps
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message
from profiler_kit.worker import variant
from profiler_kit.worker.entry import failure_line, serve

STATM: Final = Path("/proc/self/statm")
PS_S: Final = 5.0


def run_to_file(job: ScheduleJob, on_progress: OnProgress) -> ScheduleEnd:
    """Run `run_job` and write each step as a line of the job's file."""
    with Path(job.steps).open("w", encoding="utf-8") as steps:

        def write(step: ShapeStep) -> None:
            steps.write(dumps(step, indent=None))
            steps.flush()

        return run_job(job, on_progress, write)


def run_job(job: ScheduleJob, on_progress: OnProgress, write: Callable[[ShapeStep], None]) -> ScheduleEnd:
    """Run the schedule of `job` in this process; `write` receives each step. Every Python exception becomes the failure."""
    try:
        steps = _Steps(job, on_progress)
    except KitError as error:
        return ScheduleEnd(failure=str(error).replace("\nhint:", "; hint:"))
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything; the failure is the result
        return ScheduleEnd(failure=_failure(error))
    notes = steps.schedule.notes
    with contextlib.closing(steps):
        for number, step in enumerate(steps.schedule.steps, start=1):
            on_progress(
                f"cycle {step.cycle}: {shapes.sizes_text(step.shape)} ({number} of {len(steps.schedule.steps)})"
            )
            try:
                write(steps.run(step))
            except BaseException as error:  # noqa: BLE001 the user's code may raise anything; the failure is the result
                return ScheduleEnd(notes=notes, failure=f"{shapes.sizes_text(step.shape)}: {_failure(error)}")
    return ScheduleEnd(notes=notes)


def _failure(error: BaseException) -> str:
    """The reason why a shape could not be run, in one line."""
    if is_out_of_memory(error):
        return f"it does not fit into memory ({one_line_message(error).partition('. ')[0]})"
    return failure_line(error)


class _Steps:
    """Runs the steps of a schedule."""

    def __init__(self, job: ScheduleJob, on_progress: OnProgress) -> None:
        on_progress(f"loading {job.spec.spec}")
        self._runner = variant.load_runner(job)
        target = self._runner.target
        self.schedule = shapes.parse_schedule(job.text, target.info.inputs)
        variant.configure(self._runner, job)
        self._labels = _Labels(target, self.schedule)
        self._seen: set[tuple[int, ...]] = set()

    def close(self) -> None:
        """End the changes of torch that the steps needed."""
        self._runner.close()

    def run(self, step: PlannedStep) -> ShapeStep:
        """Run and time one step of the shape. Inputs and labels are created before the clock starts."""
        runner, target = self._runner, self._runner.target
        batch = target.to_device(reshape_batch(target.batch, self.schedule, step))
        if runner.train:
            batch = self._labels.add_to(batch, step)
        if runner.cuda:
            torch.cuda.reset_peak_memory_stats(target.device)
        runner.synchronize()
        begin_ns = time.perf_counter_ns()
        runner.step_on(batch)
        runner.synchronize()
        ns = time.perf_counter_ns() - begin_ns
        was_seen = step.shape in self._seen
        self._seen.add(step.shape)
        return ShapeStep(
            cycle=step.cycle,
            shape=step.shape,
            seen=was_seen,
            ns=ns,
            peak_bytes=torch.cuda.max_memory_allocated(target.device) if runner.cuda else None,
            rss_bytes=rss_bytes(),
            last_batch=step.last_batch,
        )


def reshape_batch(batch: Batch, schedule: Schedule, step: PlannedStep) -> Batch:
    """`batch` with every tensor in its shape for `step`: truncated, or repeated from its start.

    Values come from the batch, so indices stay within their tables.
    """

    def change(tensor: Tensor) -> Tensor:
        reshaped = tensor
        for dim, size in enumerate(schedule.follow(tuple(tensor.shape), step)):
            if reshaped.shape[dim] != size:
                reshaped = reshaped.index_select(dim, torch.arange(size, device=reshaped.device) % reshaped.shape[dim])
        return reshaped if reshaped is tensor else reshaped.detach().requires_grad_(tensor.requires_grad)

    return map_batch(batch, change, change)


class _Labels:
    """Creates labels for outputs of any shape. It finds the output's shape without the device, to leave the shape's first pass
    to the timed step.
    """

    def __init__(self, target: Target, schedule: Schedule) -> None:
        self._target = target
        self._schedule = schedule
        self._meta: Target | None = None
        self._outputs: dict[tuple[int, ...], Any] = {}

    def add_to(self, batch: Batch, step: PlannedStep) -> Batch:
        """`batch` on the device with labels: its own in their new shape, or generated ones."""
        if batch.labels:
            return batch
        if step.shape not in self._outputs:
            self._outputs[step.shape] = self._meta_output(batch, step)
        # only the output's shapes matter; memory that is never written is not allocated
        like = map_tensors(self._outputs[step.shape], _empty_like)
        labels = self._target.labels_of(like, batch)
        return self._target.to_device(replace(batch, labels=labels))

    def _meta_output(self, batch: Batch, step: PlannedStep) -> Any:
        """The output's structure with its tensors on the meta device."""
        if self._meta is None and self._target.rebuild is not None:
            self._meta = self._target.rebuild("meta")
        if self._meta is not None:

            def attempt(target: Target) -> Any:
                batch_of_step = reshape_batch(target.batch, self._schedule, step)
                with as_step_errors("forward"):
                    return target.model(*batch_of_step.args, **batch_of_step.kwargs)

            with contextlib.suppress(NeedsDataError):  # the shape depends on values: run on the device instead
                return map_tensors(as_mapping(run_on_first_kind(self._meta, attempt).value), _on_meta)
        return map_tensors(as_mapping(self._on_device(batch)), _on_meta)

    def _on_device(self, batch: Batch) -> object:
        """The output for `batch`, computed without cuDNN and oneDNN, because these cache plans per shape."""
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


def _empty_like(tensor: Tensor, device: str | None = None) -> Tensor:
    empty = torch.empty(tuple(tensor.shape), dtype=tensor.dtype, device=device)
    return empty.requires_grad_(tensor.requires_grad)


_on_meta = partial(_empty_like, device="meta")


def rss_bytes() -> int | None:
    """The current resident memory of the process; None if neither /proc nor ``ps`` is available."""
    try:
        return int(STATM.read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return _rss_by_ps()


def _rss_by_ps() -> int | None:
    try:
        kibibytes = process.run(["ps", "-o", "rss=", "-p", str(os.getpid())], timeout_s=PS_S).stdout.strip()
    except KitError:  # ps is not installed
        return None
    return int(kibibytes) * 1024 if kibibytes.isdecimal() else None  # ps reports KiB on all systems


if __name__ == "__main__":
    serve(ScheduleJob, run_to_file)
