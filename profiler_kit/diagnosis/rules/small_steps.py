"""Steps of little work: many short operators on a CPU, few examples, more threads than cores."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.advice import has_batch, larger_batch, trials_of
from profiler_kit.diagnosis.facts import facts_of
from profiler_kit.diagnosis.idle_time import (
    LAUNCH_CAUSES,
    LAUNCH_CLAIMS,
)
from profiler_kit.diagnosis.phrases import Advice, advise, plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps, work_claims
from profiler_kit.diagnosis.work_groups import MAX_MEAN_NS, MIN_SHORT_CALLS, short_operators
from profiler_kit.records.claims import BUSY, idle_claims, phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.units import percent, text

# From this batch on, fewer calls come before more examples.
LARGE_BATCH: Final = 32


def _small_operators(report: Report | TraceReport, work: StepWork) -> StepPart | None:
    short = short_operators(work)
    if not short.work:
        return None
    phases = [phase for phase, ns in work.phase_ns.items() if ns and phase not in ("data", "optimizer")]
    claims = phase_claims(*phases) if work.phase_ns.get("optimizer", 0) else work_claims(work, short.work)
    calls, ns, gaps_ns = short.calls, short.ns // work.steps, short.gaps_ns // work.steps
    advice, words = _fewer_calls_advice(report)
    return StepPart(
        ns=short.total_ns,
        what=f"Short operators{' and the Python between them' if gaps_ns else ''} take",
        sentences=(
            f"{calls:,} calls{work.facts.each} take {text(ns // calls, 'ns')} each.",
            f"Python between them takes {text(gaps_ns, 'ns')}{work.facts.each}." if gaps_ns else "",
            "Dispatch takes most of this time. It is the same for any size of the tensors.",
        ),
        advice=advice,
        measures=(("calls per step", calls, "count"), ("time of short operators per step", ns, "ns")),
        trials=trials_of(report, *words),
        claims=(
            *claims,
            *(idle_claims("python") if gaps_ns else ()),
        ),
    )


def _fewer_calls_advice(report: Report | TraceReport) -> tuple[Advice, tuple[str, ...]]:
    """Return the advice and the configurations that try it: a larger batch first where the batch is known to be small."""
    facts = facts_of(report)
    optimizer = ", a fused optimizer" if facts.has_optimizer else ""
    fewer = advise(f"Use fewer calls: {_FEWER_CALLS}{optimizer}.", "model = torch.compile(model)")
    if facts.examples is not None and facts.examples < LARGE_BATCH and has_batch(report):
        return Advice(f"{larger_batch(report)} {fewer.text}", fewer.code), ("batch=2x", "compile")
    return fewer.then("A larger batch, or several inputs in one call, costs little more."), ("compile", "batch=2x")


_FEWER_CALLS: Final = "{code}, one operator instead of a loop, fewer small layers"

SMALL_OPERATORS = step_rule(
    "small_operators",
    _small_operators,
    Shares(
        0.20, medium=0.30, high=0.50
    ),  # the profiler adds about a microsecond to each call, so a small share is uncertain
    f"""
Fires on a CPU on operators with a mean self time of at most {MAX_MEAN_NS // 1000} us, and the short gaps of Python between
operators, in at least {MIN_SHORT_CALLS} calls. Operators that make batches do not count (rule `data_bound`), nor do those of the
optimizer (rule `optimizer_bound`).

Each call of an operator costs some microseconds of dispatch, autograd and Python, whatever its size. This part of the step is the
same for any batch size, so a larger batch costs less for each example. Rule `launch_bound` covers devices.
""",
)

# With more examples, the batch is seldom the reason that a step is short.
MAX_EXAMPLES: Final = 4


def _small_batch(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    run = report.baseline() if isinstance(report, Report) else None
    if run is None or run.step_ns is None or not step.facts.trains or not has_batch(report):
        return None
    if run.samples is None or not 0 < run.samples <= MAX_EXAMPLES or run.step_ns.median <= 0:
        return None
    host_share = step.share(step.idle_ns(*LAUNCH_CAUSES))
    optimizer_ns = sum(timing.kernel_ns or 0 for timing in run.phases if timing.phase == "optimizer")
    trials, share = trials_of(report, "batch=2x"), min(1.0, host_share + optimizer_ns / run.step_ns.median)
    return StepPart(
        share=share,
        share_name="share that no batch changes",
        title=f"Small batch: {percent(share)} of the step is the same for any batch size",
        sentences=(
            f"A step of {plural(run.samples, 'example')} takes {text(run.step_ns.median, 'ns')}. "
            f"{'Python, dispatch and launches take' if step.on_device else 'Python between operators takes'} "
            f"{percent(host_share)} of it, the optimizer {text(optimizer_ns, 'ns')}.",
            "A larger batch shares this time among more examples.",
            trials.sentence(),
        ),
        advice=f"{larger_batch(report)} Where small batches are accumulated, accumulate fewer and larger ones.",
        measures=(
            ("examples per step", run.samples, "count"),
            ("median step", run.step_ns.median, "ns"),
            ("optimizer", optimizer_ns, "ns"),
        ),
        trials=trials,
        claims=(*LAUNCH_CLAIMS, *phase_claims("optimizer")),
    )


SMALL_BATCH = step_rule(
    "small_batch",
    _small_batch,
    Shares(0.30, high=0.50),  # less is shared by few examples without much loss
    f"""
Fires for a training step of a report with at most {MAX_EXAMPLES} examples (the leading size of the first input), on the host's
own time (Python, dispatch, launches) and the optimizer. These take equally long for a larger batch, so a larger batch makes
each example cheaper.

If the batch is small because memory is short, activation checkpointing or smaller dtypes make room. A larger batch changes the
training: the learning rate usually has to change with it. Gradient accumulation over small batches has the same fixed cost per
batch.
""",
    topic="bound",
    steps=all_steps,
)


def _oversubscription(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    run = report.baseline() if isinstance(report, Report) else None
    environment = run.environment if run is not None else None
    if step.on_device or environment is None or not environment.threads or not environment.cores:
        return None
    threads, cores = environment.threads, environment.cores
    trials = trials_of(report, f"threads={cores}")
    return StepPart(
        share=1.0 - cores / threads,
        share_name="threads without a core, of all",
        title=f"More threads than cores: {plural(threads, 'thread')} on {plural(cores, 'core')}",
        sentences=(
            f"torch splits operators among {plural(threads, 'thread')}, and the process may use {plural(cores, 'core')}. The "
            "threads of an operator wait for each other at its end.",
            trials.sentence(),
        ),
        advice=f"Use one thread per core: {{code}}, or OMP_NUM_THREADS={cores} in the environment.",
        code=f"torch.set_num_threads({cores})",
        measures=(("threads", threads, "count"), ("cores", cores, "count")),
        trials=trials,
        claims=(BUSY,),
    )


THREAD_OVERSUBSCRIPTION = step_rule(
    "thread_oversubscription",
    _oversubscription,
    Shares(
        1 / 3, high=2 / 3, of="the threads"
    ),  # a few more than cores wait for each other only at the end of each operator
    """
Fires for a run of a report on a CPU in which torch uses more threads than the process has cores, by the share of threads
without a core: a third are 1.5 threads per core, two thirds 3.

The threads of an operator wait for each other at its end. If there are more threads than cores, some of them do not run, and the
others wait. The cores are those that the process may use: its affinity and the limit of its container count.
""",
    states_share=False,
    steps=all_steps,
)
