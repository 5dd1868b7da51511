"""The child process of one run: ``python -m profiler_kit.worker.run JOB.json``.

It runs one configuration and writes a `ConfigRun` as JSON, with samples or a failure. Progress goes to stdout in marked
lines; whatever the user's model prints goes to stderr, which the parent keeps as the log.
"""

from __future__ import annotations

import importlib
import os
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import IO

import torch

from profiler_kit.errors import KitError
from profiler_kit.loading import Batch, explain_forward_failure
from profiler_kit.loading.place import first_line, is_out_of_memory
from profiler_kit.process.protocol import GO, OnProgress
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.worker import accuracy, checks, environment, parts, probe, threads, tracing, variant
from profiler_kit.worker.device_state import device_state
from profiler_kit.worker.entry import failure_line, serve
from profiler_kit.worker.steps import (
    FEWEST_STEPS,
    MOST_WARMUP_STEPS,
    Runner,
    is_steady,
    steps_within,
    synced_step_ns,
    timed_steps,
)

TIMED_SHARE = 0.5  # of the budget for timed steps; the rest is for warm-up, traced steps and checks
TRACED_STEPS = 3
SLOW_STEP_NS = 1_000_000_000  # from here on a single traced step is all the budget can spare
NO_ENGINE = "unable to find an engine"  # what cuDNN says where none of its algorithms gets the memory it wants
RESERVED = (
    "Its peak is what torch's allocator reserved: memory that CUDA graphs hold for themselves is in no other count."
)
LOG_LINES = 40  # of a traceback, its end
CHECK_STEPS = 10  # what the checks cost, in steps: three passes for the bits, and float64 at several times the price


def run_when_told(job: RunJob, say: OnProgress) -> ConfigRun:
    """As `run_job`, with the parent's word that the device is free to come on stdin."""
    go = os.fdopen(os.dup(0), "rb") if job.waits else None
    with Path(os.devnull).open("rb") as nothing:  # a model that asks its user gets no answer, and no word of ours
        os.dup2(nothing.fileno(), 0)
    return run_job(job, say, go)


def run_job(job: RunJob, say: OnProgress, go: IO[bytes] | None = None) -> ConfigRun:
    """The run that `job` describes, done in this process; whatever Python can catch of its failing is the record's failure."""
    try:
        return _run(job, say, go)
    except KitError as error:
        return ConfigRun(config=job.config, failure=Failure(kind="target", message=str(error)))
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything, and that is a result
        capped = job.config.setting("memory_limit") is not None and NO_ENGINE in str(error)
        kind: FailureKind = "out_of_memory" if capped or is_out_of_memory(error) else "error"
        tail = "".join(traceback.format_exception(error)).strip().splitlines()[-LOG_LINES:]
        failure = Failure(kind=kind, message=failure_line(error), log_tail="\n".join(tail))
        return ConfigRun(config=job.config, failure=failure)


class _Gate:
    """Where a process that got ready early waits until it may use the device."""

    def __init__(self, go: IO[bytes] | None) -> None:
        self._go = go
        self.opened_ns = time.perf_counter_ns()

    def wait(self) -> None:
        """Returns once the device is free for this process. Without a word from its parent the process ends."""
        if self._go is not None and self._go.readline().strip() != GO.encode():
            raise SystemExit("the parent has gone")
        self.opened_ns = time.perf_counter_ns()


def _run(job: RunJob, say: OnProgress, go: IO[bytes] | None) -> ConfigRun:
    say(f"loading {job.spec.spec}")
    if job.spec.mode == "train":
        importlib.import_module("torch._dynamo")  # for seconds; the first optimizer would import it, the device waiting
    gate = _Gate(go if job.waits else None)
    run = _measured(job, variant.load_runner(job, ready=gate.wait), say)
    return replace(run, needed_ns=time.perf_counter_ns() - gate.opened_ns)


def _measured(job: RunJob, runner: Runner, say: OnProgress) -> ConfigRun:
    start = checks.seeded_state(runner)
    variant.configure(runner, job)
    target = runner.target
    where, flags = environment.describe(target.device), environment.flags_snapshot()
    cuda = runner.cuda
    if cuda:
        torch.cuda.reset_peak_memory_stats(target.device)
    say("first step")
    first_ns = _first_step(runner)
    first_peak = torch.cuda.max_memory_allocated(target.device) if cuda else None
    deadline_ns = time.perf_counter_ns() + round(job.budget_s * 1e9)
    warmup = _warm_up(runner, first_ns, deadline_ns, say)
    step_ns = min(warmup)
    left_ns = max(0, deadline_ns - time.perf_counter_ns())
    timed_ns = round(left_ns * (TIMED_SHARE if not job.again else 1.0))
    count = job.steps or steps_within(timed_ns, step_ns)
    say(f"{count} timed steps of about {step_ns / 1e6:.4g} ms")
    if cuda:
        torch.cuda.reset_peak_memory_stats(target.device)
    until_ns = None if job.steps else time.perf_counter_ns() + timed_ns
    timed = timed_steps(runner, count, fewest=FEWEST_STEPS, until_ns=until_ns)
    run = ConfigRun(
        config=job.config,
        environment=where,
        first_step_ns=first_ns,
        warmup_steps=len(warmup),
        steps_ns=tuple(timed.steps_ns),
        step_ns=median_interval(timed.steps_ns),
        phases=timed.phases(),
        samples=_examples(target.batch),
        first_step_peak_bytes=first_peak,
        peak_allocated_bytes=_peak_bytes(runner),
        peak_reserved_bytes=torch.cuda.max_memory_reserved(target.device) if cuda else None,
        peak_rss_bytes=None if cuda else environment.peak_rss_bytes(),
        device_state=device_state(target.device),
        clock="kernel" if cuda else "operator",
        notes=(*runner.notes, *([RESERVED] if cuda and runner.memory_apart else [])),
    )
    if job.again:
        return _second(run, runner, start, say)
    if job.trace is not None:
        run = _traced(run, runner, job.trace, step_ns, say)
    if job.parts_trace is not None and cuda:
        run = _with_parts(run, runner, job.parts_trace, say)
    run = replace(run, flags_changed=environment.flags_changed(flags, environment.flags_snapshot()))
    if not job.checks:
        return run
    left_ns = deadline_ns - time.perf_counter_ns()
    if not cuda and left_ns < CHECK_STEPS * step_ns:
        return _noted(
            run, "Repeatability and error against float64 were not checked: the budget was spent on timed steps."
        )
    return _checked(run, runner, start, say)


def _peak_bytes(runner: Runner) -> int | None:
    """The most that was allocated in the timed steps; what a graph holds for itself is in no such count, but in the reserved."""
    if not runner.cuda:
        return None
    device = runner.target.device
    return torch.cuda.max_memory_reserved(device) if runner.memory_apart else torch.cuda.max_memory_allocated(device)


def _traced(run: ConfigRun, runner: Runner, trace: str, step_ns: int, say: OnProgress) -> ConfigRun:
    traced = 1 if step_ns >= SLOW_STEP_NS else TRACED_STEPS
    say(f"{traced} traced steps")
    try:
        tracing.traced_steps(runner, traced, Path(trace))
    except Exception as error:  # noqa: BLE001 the user's code under the profiler: the samples stand
        return _noted(run, f"No times by layer: the traced steps raised {first_line(error)}")
    return replace(run, traced_steps=traced, trace=trace)


def _examples(batch: Batch) -> int | None:
    """The leading size of the first input, which is how many examples a step takes."""
    first = next(iter(batch.tensors()), None)
    return first.shape[0] if first is not None and first.dim() else None


def _first_step(runner: Runner) -> int:
    """The first step's duration; a failure of its forward is explained in terms of the target."""
    try:
        return synced_step_ns(runner)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise explain_forward_failure(runner.target, error) from error  # or as it is, where there is nothing to explain


def _warm_up(runner: Runner, first_ns: int, deadline_ns: int, say: OnProgress) -> list[int]:
    """Durations of warm-up steps, run until steady; at least one, and no more than leaves time for the fewest timed steps."""
    durations_ns: list[int] = []
    while len(durations_ns) < MOST_WARMUP_STEPS:
        say(f"warm-up step {len(durations_ns) + 1}")
        durations_ns.append(synced_step_ns(runner))
        needed_ns = (FEWEST_STEPS + 3) * min(durations_ns)  # the timed, the traced and one step more
        if is_steady(durations_ns) or time.perf_counter_ns() + needed_ns > deadline_ns:
            break
    return durations_ns


def _with_parts(run: ConfigRun, runner: Runner, trace: str, say: OnProgress) -> ConfigRun:
    """`run` with the scratch of its convolutions' parts, whose trace is left for the parent to read."""
    if runner.unseen is not None:
        return _noted(run, f"How its convolutions are done is not known: {runner.unseen}.")
    say("convolutions one by one")
    try:
        return replace(run, part_workspaces=parts.record(runner, Path(trace)))
    except Exception as error:  # noqa: BLE001 the user's code under a dispatch mode: the samples stand
        return _noted(run, f"How its convolutions are done was not recorded: {first_line(error)}")


def _second(run: ConfigRun, runner: Runner, start: checks.State, say: OnProgress) -> ConfigRun:
    """`run`, the second of its configuration, with what is compared across processes; what can't be is left out."""
    try:
        say("the same bits again")
        run = _digested(run, checks.digests_only(runner, start))
        if runner.cuda and run.config.benchmark:
            say("a new thread")
            run = replace(run, new_thread=threads.first_call(runner))
    except Exception as error:  # noqa: BLE001 the user's code again: the samples stand
        return _noted(run, f"The second process could not be compared: {first_line(error)}")
    return run


def _checked(run: ConfigRun, runner: Runner, start: checks.State, say: OnProgress) -> ConfigRun:
    """`run` with memory taken apart, repeatability and error; what can't be checked is a note, the samples stand."""
    doing = "Memory at the peak"
    try:
        if runner.cuda and runner.unseen is None:
            say("memory probe")
            memory = probe.peak_memory(runner)
            workspace = max((op.workspace_bytes for op in memory.ops), default=0) if memory else None
            run = replace(run, memory=memory, workspace_bytes=workspace)
        doing = "Repeatability"
        say("repeatability")
        bits = checks.bits(runner, start)
        run = replace(
            _digested(run, bits.digests),
            repeatable=bits.repeatable,
            repeatable_outputs=bits.outputs,
            repeatable_loss=bits.loss,
            repeatable_gradients=bits.gradients,
        )
        doing = "The error against float64"
        say("error against float64")
        errors = accuracy.error_against_float64(runner, start)
    except Exception as error:  # noqa: BLE001 the user's code again, from the start and in float64
        return _noted(run, f"{doing} could not be checked: {first_line(error)}")
    run = replace(
        run,
        max_relative_error=errors.max_relative,
        l2_relative_error=errors.l2_relative,
        gradient_l2_relative_error=errors.gradient_l2_relative,
    )
    return _noted(run, errors.note) if errors.note is not None else run


def _digested(run: ConfigRun, digests: checks.Digests) -> ConfigRun:
    return replace(run, output_digest=digests.output, loss_digest=digests.loss, gradient_digest=digests.gradient)


def _noted(run: ConfigRun, note: str) -> ConfigRun:
    return replace(run, notes=(*run.notes, note))


if __name__ == "__main__":
    serve(RunJob, run_when_told)
