"""The child process under Nsight Compute: ``ncu … python -m profiler_kit.worker.counters_run JOB.json``.

It warms the step up, algorithm search included, and then runs it once between the profiler's start and stop, each
convolution's parts one by one in an NVTX range that names them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

import torch

from profiler_kit.process.protocol import OnProgress
from profiler_kit.records import marks
from profiler_kit.records.jobs import CountersEnd, CountersJob
from profiler_kit.records.laboratory import ConvolutionPart
from profiler_kit.worker import environment, variant
from profiler_kit.worker.entry import failure_line, serve
from profiler_kit.worker.parts import ConvolutionParts, Watch
from profiler_kit.worker.steps import Runner

# The first chooses algorithms and makes the optimizer's state, the second has all caches filled.
WARMUP_STEPS: Final = 2


def run_job(job: CountersJob, say: OnProgress) -> CountersEnd:
    """How the step that `job` describes ended in this process; whatever Python can catch of its failing is the reason."""
    try:
        _run(job, say)
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything, and that is a result
        return CountersEnd(failure=failure_line(error))
    return CountersEnd()


def _run(job: CountersJob, say: OnProgress) -> None:
    say(f"loading {job.spec.spec} to read hardware counters")
    runner = variant.load_runner(job)
    if runner.cuda:
        torch.cuda.set_device(environment.index_of(runner.device))  # the profiler starts on the current device
    variant.configure(runner, job)
    say(f"{WARMUP_STEPS} warm-up steps before the counted one")
    for _ in range(WARMUP_STEPS):
        runner.step()
    watched_pass(runner, lambda path, part: contextlib.nullcontext())
    say("one step, each of its kernels run several times to read its counters")
    runner.synchronize()
    with torch.cuda.profiler.profile():
        watched_pass(runner, _marked)


def watched_pass(runner: Runner, watch: Watch) -> None:
    """One step without its optimizer, every convolution's parts inside ``watch(path, part)``; gradients are dropped after."""
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
