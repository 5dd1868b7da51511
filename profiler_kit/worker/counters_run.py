"""The process under Nsight Compute: ``ncu … python -m profiler_kit.worker.counters_run JOB.json``.

It runs warm-up steps, including algorithm search, then one step between the profiler's start and stop. The parts of each
convolution run one by one in NVTX ranges with their names.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import torch

from profiler_kit.process.protocol import OnProgress
from profiler_kit.records import marks
from profiler_kit.records.experiments import ConvolutionPart
from profiler_kit.records.jobs import CountersEnd, CountersJob
from profiler_kit.worker import environment, variant
from profiler_kit.worker.entry import failure_line, serve
from profiler_kit.worker.parts import ConvolutionParts, Watch
from profiler_kit.worker.steps import Runner

# The first step chooses algorithms and creates the optimizer's state; the second fills all caches.
WARMUP_STEPS: Final = 2


def run_job(job: CountersJob, on_progress: OnProgress) -> CountersEnd:
    """The end of the step described by `job`. Every Python exception becomes the failure."""
    try:
        _run(job, on_progress)
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything; the failure is the result
        return CountersEnd(failure=failure_line(error))
    return CountersEnd()


def _run(job: CountersJob, on_progress: OnProgress) -> None:
    on_progress(f"loading {job.spec.spec} to read hardware counters")
    runner = variant.load_runner(job)
    if runner.cuda:
        torch.cuda.set_device(environment.index_of(runner.device))  # the profiler starts on the current device
    variant.configure(runner, job)
    on_progress(f"{WARMUP_STEPS} warm-up steps")
    for _ in range(WARMUP_STEPS):
        runner.step()
    run_in_parts(runner, lambda path, part: contextlib.nullcontext())
    on_progress("counted step (each kernel runs several times)")
    runner.synchronize()
    with torch.cuda.profiler.profile():
        run_in_parts(runner, _marked)


def run_in_parts(runner: Runner, watch: Watch) -> None:
    """Run one step without its optimizer, with every part of a convolution inside ``watch(path, part)``; then drop gradients."""
    batch = runner.fetch()
    parts = ConvolutionParts(runner, watch)
    with parts.watching():
        if runner.train:
            runner.forward_backward(batch)
        else:
            runner.forward(batch)
    runner.synchronize()
    if runner.optimizer is not None:
        runner.optimizer.zero_grad(set_to_none=True)


@contextlib.contextmanager
def _marked(path: str, part: ConvolutionPart) -> Iterator[None]:
    torch.cuda.nvtx.range_push(marks.counted_range(path, part))
    try:
        yield
    finally:
        torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    serve(CountersJob, run_job, under_profiler=True)
