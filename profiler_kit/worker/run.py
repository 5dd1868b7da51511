"""The process of one run: ``python -m profiler_kit.worker.run JOB.json``.

It runs one configuration and writes a `ConfigRun` as JSON, with samples or a failure. Progress goes to stdout in marked
lines. Output of the user's model goes to stderr, which the parent records as the log.
"""

from __future__ import annotations

import importlib
import os
import re
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Final

import torch

from profiler_kit.errors import KitError
from profiler_kit.loading import example_count, explain_forward_failure
from profiler_kit.process.protocol import OnProgress
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.jobs import RunJob
from profiler_kit.records.runs import ConfigRun, Failure, FailureCode, FailureKind
from profiler_kit.statistics.intervals import median_interval
from profiler_kit.units import text
from profiler_kit.user_code.boundary import error_text
from profiler_kit.user_code.locations import is_out_of_memory, one_line_message
from profiler_kit.worker import accuracy, checks, environment, parts, probe, threads, tracing, variant
from profiler_kit.worker.device_state import device_state, state_after
from profiler_kit.worker.entry import failure_line, serve
from profiler_kit.worker.host_load import load_between, read_host
from profiler_kit.worker.parallel import from_rank_0
from profiler_kit.worker.steps import (
    MAX_WARMUP_STEPS,
    MIN_STEPS,
    Runner,
    is_steady,
    steps_within,
    synced_step_ns,
    timed_steps,
)
from profiler_kit.worker.turns import Gate, steps_in_turns

TIMED_SHARE = 0.5  # share of the budget for timed steps; the rest is for warm-up, traced steps and checks
TRACED_STEPS = 3
SLOW_STEP_NS = 1_000_000_000  # steps of this duration or more are traced only once
NO_ENGINE = "unable to find an engine"  # cuDNN's error if no algorithm fits into the available memory
# What torch says: of a model that leaves out parameters, and of a collective whose other side is gone.
_TORCH_MESSAGES: Final[dict[FailureCode, re.Pattern[str]]] = {
    "unused_parameters": re.compile("find_unused_parameters"),
    "lost_peer": re.compile(
        r"connection (closed|reset|refused)|broken pipe|remote process exited|nccl|gloo", re.IGNORECASE
    ),
}
RESERVED = "The peak is the allocator's reserved memory, because memory inside CUDA graphs appears in no other figure."
LOG_LINES = 40  # the last lines of a traceback
_ERROR_CHECK: Final = "The error against float64"
CHECK_STEPS = 10  # the cost of the checks in steps: three passes for reproducibility, and the slower float64 pass


def run_on_signal(job: RunJob, on_progress: OnProgress) -> ConfigRun:
    """Run `run_job`; start when the parent's message on stdin arrives."""
    go = os.fdopen(os.dup(0), "rb") if job.waits else None
    with Path(os.devnull).open("rb") as nothing:  # a model that reads stdin must not read the parent's message
        os.dup2(nothing.fileno(), 0)
    return run_job(job, on_progress, Gate(go, on_progress))


def run_job(job: RunJob, on_progress: OnProgress, gate: Gate | None = None) -> ConfigRun:
    """The run described by `job`, executed in this process. Every Python exception becomes the record's failure."""
    try:
        return _run(job, on_progress, gate or Gate())
    except BaseException as error:  # noqa: BLE001 the user's code may raise anything; the failure is the result
        return failed_run(job.config, error)


def failed_run(config: RunConfig, error: BaseException) -> ConfigRun:
    """The run of `config` that ended with `error`."""
    if isinstance(error, KitError):
        failure = Failure(kind="target", message=error.place_and_message, hint=error.hint or "", code=_code_of(error))
        return ConfigRun(config=config, failure=failure)
    capped = config.setting("memory_limit") is not None and NO_ENGINE in str(error)
    kind: FailureKind = "out_of_memory" if capped or is_out_of_memory(error) else "error"
    tail = "".join(traceback.format_exception(error)).strip().splitlines()[-LOG_LINES:]
    failure = Failure(kind=kind, message=failure_line(error), log_tail="\n".join(tail), code=_code_of(error))
    return ConfigRun(config=config, failure=failure)


def _code_of(error: BaseException) -> FailureCode:
    """The code of a message of torch, which may be the cause of an error about the target."""
    message = "\n".join(error_text(part) for part in (error, error.__cause__) if part is not None)
    return next((code for code, words in _TORCH_MESSAGES.items() if words.search(message)), "")


def _run(job: RunJob, on_progress: OnProgress, gate: Gate) -> ConfigRun:
    on_progress("loading the model" if job.spec.live is not None else f"loading {job.spec.spec}")
    if job.spec.mode == "train":
        importlib.import_module(
            "torch._dynamo"
        )  # takes seconds; otherwise the first optimizer imports it on the device's time
    # nothing measures while the processes of a round prepare, so they may use the device
    run = _measure(job, variant.load_runner(job, ready=gate.wait if job.turns is None else None), on_progress, gate)
    return replace(run, needed_ns=gate.held_ns)


def _measure(job: RunJob, runner: Runner, on_progress: OnProgress, gate: Gate) -> ConfigRun:
    is_alone = job.member is None
    start = checks.seeded_state(runner) if is_alone else {}
    variant.configure(runner, job)
    target = runner.target
    where, flags = environment.describe(target.device), environment.flags_snapshot()
    cuda = runner.cuda
    if cuda:
        torch.cuda.reset_peak_memory_stats(target.device)
    if job.turns is not None:
        runner.synchronize()
        gate.wait()
    on_progress("first step")
    first_ns = first_step_ns(runner)
    runner.keep_used_redirection()
    first_peak = torch.cuda.max_memory_allocated(target.device) if cuda else None
    deadline_ns = time.perf_counter_ns() + round(job.budget_s * 1e9)
    warmup = warm_up(runner, first_ns, deadline_ns, on_progress)
    remaining_ns = max(0, deadline_ns - time.perf_counter_ns())
    timed_ns = round(remaining_ns * (TIMED_SHARE if not job.again else 1.0))
    step_ns, count = from_rank_0(min(warmup), job.steps or steps_within(timed_ns, min(warmup)))
    number = f"{count} timed steps" if job.turns is None else f"{job.turns.count} turns with timed steps"
    on_progress(f"{number} of about {text(step_ns, 'ns')}")
    if cuda:
        torch.cuda.reset_peak_memory_stats(target.device)
    state = device_state(target.device)
    if job.turns is not None:
        timed, host_load = steps_in_turns(runner, job.turns, gate)
    else:
        host = read_host()
        until_ns = None if job.steps or not is_alone else time.perf_counter_ns() + timed_ns
        timed = timed_steps(runner, count, fewest=MIN_STEPS, until_ns=until_ns)
        host_load = load_between(host, read_host())
    run = ConfigRun(
        config=job.config,
        environment=where,
        first_step_ns=first_ns,
        warmup_steps=len(warmup),
        steps_ns=tuple(timed.steps_ns),
        step_ns=median_interval(timed.steps_ns),
        round_ns=job.turns.round_ns if job.turns is not None else None,
        timed_phases=timed.phases(),
        samples=example_count(target.batch, target.model),
        prepared_batches=target.prepared_batches,
        first_step_peak_bytes=first_peak,
        peak_allocated_bytes=_peak_bytes(runner),
        peak_reserved_bytes=torch.cuda.max_memory_reserved(target.device) if cuda else None,
        peak_rss_bytes=None if cuda else environment.peak_rss_bytes(),
        device_state=state_after(target.device, state),
        host_load=host_load,
        notes=(*runner.notes, *([RESERVED] if cuda and runner.has_own_memory_pool else [])),
    )
    if job.again and is_alone:
        return _with_digests_of_repeat(run, runner, start, on_progress) if job.hashes else run
    if job.trace is not None:
        run = _with_trace(run, runner, job.trace, step_ns, on_progress)
    if job.parts_trace is not None and cuda:
        run = _with_parts(run, runner, job.parts_trace, on_progress)
    run = replace(run, flags_changed=environment.flags_changed(flags, environment.flags_snapshot()))
    if not job.checks:
        return run
    remaining_ns = deadline_ns - time.perf_counter_ns()
    if not cuda and remaining_ns < CHECK_STEPS * step_ns:
        return _with_note(
            run, "Reproducibility and error against float64 were not checked: the budget was used up. Raise --budget."
        )
    if cuda and runner.unobservable_reason is None:
        run = _with_memory(run, runner, on_progress)
    return with_checks(run, runner, start, on_progress)


def _peak_bytes(runner: Runner) -> int | None:
    """The peak of allocated memory in the timed steps; with CUDA graphs of reserved memory, which includes the graphs' memory."""
    if not runner.cuda:
        return None
    device = runner.target.device
    return (
        torch.cuda.max_memory_reserved(device)
        if runner.has_own_memory_pool
        else torch.cuda.max_memory_allocated(device)
    )


def _with_trace(run: ConfigRun, runner: Runner, trace: str, step_ns: int, on_progress: OnProgress) -> ConfigRun:
    traced = 1 if step_ns >= SLOW_STEP_NS else TRACED_STEPS
    on_progress(f"{traced} traced steps")
    try:
        tracing.traced_steps(runner, traced, Path(trace))
    except Exception as error:  # noqa: BLE001 the user's code under the profiler: keep the samples
        return _with_note(run, f"No times by layer: the traced steps raised {one_line_message(error)}")
    return replace(run, traced_steps=traced, trace=trace)


def first_step_ns(runner: Runner) -> int:
    """The first step's duration. An error in forward is explained in terms of the target."""
    try:
        return synced_step_ns(runner)
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        raise explain_forward_failure(runner.target, error) from error  # the same error if there is nothing to explain


def warm_up(runner: Runner, first_ns: int, deadline_ns: int, on_progress: OnProgress) -> list[int]:
    """Durations of warm-up steps. At least one runs; it stops when steps are steady or time is needed for the timed steps."""
    durations_ns: list[int] = []
    while len(durations_ns) < MAX_WARMUP_STEPS:
        on_progress(f"warm-up step {len(durations_ns) + 1}")
        durations_ns.append(synced_step_ns(runner))
        needed_ns = (MIN_STEPS + 3) * min(durations_ns)  # the timed, the traced and one further step
        (is_over,) = from_rank_0(is_steady(durations_ns) or time.perf_counter_ns() + needed_ns > deadline_ns)
        if is_over:
            break
    return durations_ns


def _with_parts(run: ConfigRun, runner: Runner, trace: str, on_progress: OnProgress) -> ConfigRun:
    """`run` with the workspaces of its convolutions' parts. The parent reads the trace."""
    if runner.unobservable_reason is not None:
        return _with_note(run, f"The algorithms of convolutions are unknown: {runner.unobservable_reason}.")
    on_progress("convolutions one by one")
    try:
        return replace(run, part_workspaces=parts.record_parts(runner, Path(trace)))
    except Exception as error:  # noqa: BLE001 the user's code under a dispatch mode: keep the samples
        return _with_note(run, f"The algorithms of convolutions were not recorded: {one_line_message(error)}")


def _with_digests_of_repeat(run: ConfigRun, runner: Runner, start: checks.State, on_progress: OnProgress) -> ConfigRun:
    """`run`, the second process of its configuration, with hashes to compare processes. A failure becomes a note."""
    try:
        on_progress("hashes of outputs and gradients")
        run = _with_digests(run, checks.pass_digests(runner, start))
        if runner.cuda and run.config.benchmark:
            on_progress("forward in a new thread")
            run = replace(run, new_thread=threads.time_new_thread(runner))
    except Exception as error:  # noqa: BLE001 the user's code again: keep the samples
        return _with_note(run, f"The second process could not be compared: {one_line_message(error)}")
    return run


def _with_memory(run: ConfigRun, runner: Runner, on_progress: OnProgress) -> ConfigRun:
    """`run` with memory by category. A probe that fails becomes a note."""
    on_progress("memory probe")
    try:
        memory = probe.measure_peak_memory(runner)
    except Exception as error:  # noqa: BLE001 the user's code under a dispatch mode: keep the samples
        return _with_note(run, f"Memory at the peak could not be checked: {one_line_message(error)}")
    workspace = max((op.workspace_bytes for op in memory.ops), default=0) if memory else None
    return replace(run, memory=memory, workspace_bytes=workspace)


def with_checks(run: ConfigRun, runner: Runner, start: checks.State, on_progress: OnProgress) -> ConfigRun:
    """`run` with reproducibility and error. A check that fails becomes a note."""
    check = "Reproducibility"
    try:
        on_progress("reproducibility")
        reproducibility = checks.compare_passes(runner, start)
        run = replace(
            _with_digests(run, reproducibility.digests),
            repeatable=reproducibility.repeatable,
            repeatable_outputs=reproducibility.outputs,
            repeatable_loss=reproducibility.loss,
            repeatable_gradients=reproducibility.gradients,
        )
        check = _ERROR_CHECK
        on_progress("error against float64")
        errors = accuracy.error_against_float64(runner, start)
    except Exception as error:  # noqa: BLE001 the user's code again, from the start and in float64
        note = f"{check} could not be checked: {one_line_message(error)}"
        return replace(run, error_note=note) if check == _ERROR_CHECK else _with_note(run, note)
    run = replace(
        run,
        max_relative_error=errors.max_relative,
        l2_relative_error=errors.l2_relative,
        gradient_l2_relative_error=errors.gradient_l2_relative,
    )
    return replace(run, error_note=errors.note or "")


def _with_digests(run: ConfigRun, digests: checks.Digests) -> ConfigRun:
    return replace(
        run, output_digest=digests.output, loss_digest=digests.loss, gradient_digest=digests.gradient,
        nan_in=digests.nan_in, infinity_in=digests.infinity_in,
    )  # fmt: skip


def _with_note(run: ConfigRun, note: str) -> ConfigRun:
    return replace(run, notes=(*run.notes, note))


if __name__ == "__main__":
    serve(RunJob, run_on_signal)
