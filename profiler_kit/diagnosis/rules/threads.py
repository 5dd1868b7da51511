"""Threads of a CPU: more of them than cores."""

from __future__ import annotations

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.phrases import plural
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, all_steps
from profiler_kit.records.claims import BUSY
from profiler_kit.records.report import Report, TraceReport


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
