"""The child process of one run: ``python -m profiler_kit.measure.worker JOB.json``.

It runs one configuration and writes a `ConfigRun` as JSON, with samples or a failure. Progress goes to stdout in marked
lines; whatever the user's model prints goes to stderr, which the parent keeps as the log.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

from profiler_kit.errors import KitError
from profiler_kit.measure import checks, environment, probe, samples, tracing
from profiler_kit.measure.job import PROGRESS, Job
from profiler_kit.measure.steps import Runner, synced_step_ns, timed_steps
from profiler_kit.records.runs import ConfigRun, Failure, FailureKind, RunConfig
from profiler_kit.records.serde import dumps, from_json
from profiler_kit.target import explain_forward_failure, load

Say = Callable[[str], None]

TIMED_SHARE = 0.5  # of the budget for timed steps; the rest is for warm-up, traced steps and checks
TRACED_STEPS = 3
SLOW_STEP_NS = 1_000_000_000  # from here on a single traced step is all the budget can spare
CHECK_STEPS = 8  # what the checks cost, in steps: two passes for the bits, and float64 at several times the price


def main(argv: list[str]) -> int:
    """Runs the job in the file ``argv[0]`` and writes its result; the exit status is 0 whenever a result was written."""
    job = from_json(Job, json.loads(Path(argv[0]).read_text()), argv[0])
    print_to_user = sys.stdout

    def say(text: str) -> None:
        print(f"{PROGRESS}{text}", file=print_to_user, flush=True)

    with contextlib.redirect_stdout(sys.stderr):
        run = _run_or_failure(job, say)
        result = Path(job.result)
        partial = result.with_suffix(".partial")
        partial.write_text(dumps(run))
        partial.replace(result)
    return 0


def _run_or_failure(job: Job, say: Say) -> ConfigRun:
    try:
        return _run(job, say)
    except KitError as error:
        return ConfigRun(config=job.config, failure=Failure(kind="target", message=str(error)))
    except (torch.OutOfMemoryError, MemoryError) as error:
        return _failed(job.config, "out_of_memory", error)
    except RuntimeError as error:
        # the CPU allocator raises a plain RuntimeError
        return _failed(job.config, "out_of_memory" if "can't allocate memory" in str(error) else "error", error)
    except Exception as error:  # noqa: BLE001 the user's code may raise anything, and that is a result
        return _failed(job.config, "error", error)


def _failed(config: RunConfig, kind: FailureKind, error: BaseException) -> ConfigRun:
    first_line = (str(error).strip() or type(error).__name__).splitlines()[0]
    place = traceback.extract_tb(error.__traceback__)[-1] if error.__traceback__ else None
    user = [f for f in traceback.extract_tb(error.__traceback__) if not _ours_or_torch(f.filename)]
    place = user[-1] if user else place
    where = f"{place.filename}:{place.lineno}: " if place else ""
    tail = "".join(traceback.format_exception(error)).strip().splitlines()[-40:]
    return ConfigRun(
        config=config,
        failure=Failure(kind=kind, message=f"{where}{type(error).__name__}: {first_line}", log_tail="\n".join(tail)),
    )


def _ours_or_torch(filename: str) -> bool:
    return "/torch/" in filename or str(Path(__file__).parent.parent) in filename or filename.startswith("<")


def _run(job: Job, say: Say) -> ConfigRun:
    say(f"loading {job.spec.spec}")
    environment.apply(job.config)
    target = load(job.spec, device=job.device)
    runner = Runner(target)
    start = checks.seeded_state(runner)
    environment.prewarm(target.device)
    environment.apply(job.config)  # the model's file may have set flags of its own on import
    where = environment.describe(target.device)
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
    timed_ns = round(left_ns * TIMED_SHARE)
    count = job.steps or samples.steps_within(timed_ns, step_ns)
    say(f"{count} timed steps of about {step_ns / 1e6:.4g} ms")
    if cuda:
        torch.cuda.reset_peak_memory_stats(target.device)
    until_ns = None if job.steps else time.perf_counter_ns() + timed_ns
    timed = timed_steps(runner, count, fewest=samples.FEWEST_STEPS, until_ns=until_ns)
    run = ConfigRun(
        config=job.config,
        environment=where,
        first_step_ns=first_ns,
        warmup_steps=len(warmup),
        steps_ns=tuple(timed.steps_ns),
        step_ns=samples.median_interval(timed.steps_ns),
        phases=timed.phases(),
        first_step_peak_bytes=first_peak,
        peak_allocated_bytes=torch.cuda.max_memory_allocated(target.device) if cuda else None,
        peak_reserved_bytes=torch.cuda.max_memory_reserved(target.device) if cuda else None,
        peak_rss_bytes=None if cuda else environment.peak_rss_bytes(),
        clock="kernel" if cuda else "operator",
    )
    if job.trace is not None:
        traced = 1 if step_ns >= SLOW_STEP_NS else TRACED_STEPS
        say(f"{traced} traced steps")
        tracing.traced_steps(runner, traced, Path(job.trace))
        run = replace(run, traced_steps=traced, trace=job.trace)
    if not job.checks:
        return run
    left_ns = deadline_ns - time.perf_counter_ns()
    if not cuda and left_ns < CHECK_STEPS * step_ns:
        note = "Repeatability and error against float64 were not checked: the budget was spent on timed steps."
        return replace(run, notes=(*run.notes, note))
    return _checked(run, runner, start, say)


def _first_step(runner: Runner) -> int:
    """The first step's duration; a failure of its forward is explained in terms of the target."""
    try:
        return synced_step_ns(runner)
    except (torch.OutOfMemoryError, MemoryError, KitError):
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError) as error:
        if "can't allocate memory" in str(error):
            raise
        raise explain_forward_failure(runner.target, error) from error


def _warm_up(runner: Runner, first_ns: int, deadline_ns: int, say: Say) -> list[int]:
    """Durations of warm-up steps, run until steady; at least one, and no more than leaves time for the fewest timed steps."""
    done: list[int] = []
    while len(done) < samples.MOST_WARMUP_STEPS:
        say(f"warm-up step {len(done) + 1}")
        done.append(synced_step_ns(runner))
        needed_ns = (samples.FEWEST_STEPS + 3) * min(done)  # the timed, the traced and one step more
        if samples.is_steady(done) or time.perf_counter_ns() + needed_ns > deadline_ns:
            break
    return done


def _checked(run: ConfigRun, runner: Runner, start: checks.State, say: Say) -> ConfigRun:
    """`run` with memory taken apart, repeatability and error; what can't be checked is a note, the samples stand."""
    if runner.cuda:
        say("memory probe")
        memory = probe.peak_memory(runner)
        workspace = max((op.workspace_bytes for op in memory.ops), default=0) if memory else None
        run = replace(run, memory=memory, workspace_bytes=workspace)
    try:
        say("repeatability")
        bits = checks.bits(runner, start)
        run = replace(
            run,
            repeatable=bits.outputs and bits.gradients is not False,
            repeatable_outputs=bits.outputs,
            repeatable_gradients=bits.gradients,
            output_digest=bits.output_digest,
            gradient_digest=bits.gradient_digest,
        )
        say("error against float64")
        return replace(run, max_relative_error=checks.error_against_float64(runner, start))
    except (torch.OutOfMemoryError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        line = (str(error).strip() or type(error).__name__).splitlines()[0]
        note = f"Repeatability or error against float64 could not be checked: {type(error).__name__}: {line}"
        return replace(run, notes=(*run.notes, note))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
