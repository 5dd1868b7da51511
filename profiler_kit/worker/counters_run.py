"""The child process under Nsight Compute: ``ncu … python -m profiler_kit.worker.counters_run JOB.json``.

It warms the step up, algorithm search included, and then runs it once between the profiler's start and stop, each
convolution's parts one by one in an NVTX range that names them.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import torch

from profiler_kit.errors import KitError
from profiler_kit.loading import load
from profiler_kit.loading.place import first_line, user_place
from profiler_kit.measurement.counter_metrics import range_name
from profiler_kit.measurement.counters_job import CountersEnd, CountersJob
from profiler_kit.process.protocol import Say, streams_apart, write_result
from profiler_kit.records.laboratory import ConvolutionPart
from profiler_kit.records.serde import from_json
from profiler_kit.worker import environment, variant
from profiler_kit.worker.parts import ConvolutionParts, Watch
from profiler_kit.worker.steps import Runner

WARMUP_STEPS: Final = (
    2  # the first chooses algorithms and makes the optimizer's state, the second has all caches filled
)


def main(argv: list[str]) -> int:
    """Runs the job in the file ``argv[0]`` and writes how it ended; the exit status is 0 whenever that was written."""
    job = from_json(CountersJob, json.loads(Path(argv[0]).read_text(encoding="utf-8")), argv[0])

    with streams_apart() as say:
        write_result(run_job(job, say), job.result)
    return 0


def run_job(job: CountersJob, say: Say) -> CountersEnd:
    """How the step that `job` describes ended in this process; whatever Python can catch of its failing is the reason."""
    try:
        _run(job, say)
    except KitError as error:
        return CountersEnd(failure=str(error).splitlines()[0])
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything, and that is a result
        place = user_place(error)
        return CountersEnd(failure=f"{place}: {first_line(error)}" if place else first_line(error))
    return CountersEnd()


def _run(job: CountersJob, say: Say) -> None:
    say(f"loading {job.spec.spec} to read hardware counters")
    runner = _runner(job)
    say(f"{WARMUP_STEPS} warm-up steps before the counted one")
    for _ in range(WARMUP_STEPS):
        runner.step()
    watched_pass(runner, lambda path, part: contextlib.nullcontext())
    say("one step, each of its kernels run several times to read its counters")
    with _profiled(runner):
        watched_pass(runner, _marked)


def _runner(job: CountersJob) -> Runner:
    environment.apply(job.config)
    variant.prepare(job.config, job.device)
    target = load(variant.changed_spec(job.config, job.spec), device=job.device, compiled=True)
    if target.device.type == "cuda":
        torch.cuda.set_device(environment.index_of(target.device))  # the profiler starts on the current device
    runner = Runner(target)
    variant.change(job.config, runner)
    variant.prepare(job.config, job.device)
    environment.apply(job.config)  # the model's file may have set flags of its own on import
    return runner


def watched_pass(runner: Runner, watch: Watch) -> None:
    """One step without its optimizer, every convolution's parts inside ``watch(path, part)``; gradients are dropped after."""
    batch = runner.fetch()
    parts = ConvolutionParts(runner, watch)
    with parts.watching():
        if runner.train:
            runner.forward_backward(batch)
        else:
            with torch.no_grad(), runner.target.autocast():
                runner.target.runs(*batch.args, **batch.kwargs)
    runner.synchronize()
    if runner.optimizer is not None:
        runner.optimizer.zero_grad(set_to_none=True)


@contextlib.contextmanager
def _profiled(runner: Runner) -> Iterator[None]:
    runner.synchronize()
    torch.cuda.profiler.start()
    try:
        yield
    finally:
        torch.cuda.profiler.stop()


@contextlib.contextmanager
def _marked(path: str, part: ConvolutionPart) -> Iterator[None]:
    torch.cuda.nvtx.range_push(range_name(path, part))
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stderr.flush()
    if any(t is not threading.main_thread() and not t.daemon for t in threading.enumerate()):
        os._exit(status)  # threads that the user's code left running would keep the process for ever
    sys.exit(status)  # a regular end where there can be one: the profiler has its own work to do then
