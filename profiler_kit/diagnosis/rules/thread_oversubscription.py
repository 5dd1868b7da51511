"""More threads than cores."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural, quoted_name
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.claims import BUSY
from profiler_kit.records.report import Evidence, Finding, Report

# A few threads more than cores wait for each other only at the end of each operator.
MIN_FACTOR: Final = 1.5
HIGH_FACTOR: Final = 3.0

DOC = f"""
Fires for a run on a CPU in which torch uses at least {limit_percent(MIN_FACTOR)} as many threads as the process has cores.

- `high`: at least {HIGH_FACTOR:g} threads per core.
- `medium`: below that.

The threads of an operator wait for each other at its end. If there are more threads than cores, some of them do not run, and the
others wait. The cores are those that the process may use: its affinity and the limit of its container count.
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for a baseline on a CPU."""
    run = report.baseline()
    environment = run.environment if run is not None else None
    if (
        run is None
        or environment is None
        or run.clock != "operator"
        or not environment.threads
        or not environment.cores
    ):
        return
    threads, cores = environment.threads, environment.cores
    factor = threads / cores
    if factor < MIN_FACTOR:
        return
    trials = find_trials(report, run, (f"threads={cores}",))
    yield RULE.finding(
        severity="high" if factor >= HIGH_FACTOR else "medium",
        title=f"More threads than cores: {plural(threads, 'thread')} on {plural(cores, 'core')}",
        explanation=join_sentences(
            f"In {quoted_name(run)}, torch splits operators among {plural(threads, 'thread')}, and the process may use "
            f"{plural(cores, 'core')}. The threads of an operator wait for each other at its end.",
            trials.sentence(),
        ),
        advice=f"Use one thread per core: {{code}}, or OMP_NUM_THREADS={cores} in the environment.",
        code=f"torch.set_num_threads({cores})",
        evidence=(
            Evidence(name="threads", value=threads, unit="count", where=run.config.name),
            Evidence(name="cores", value=cores, unit="count", where=run.config.name),
        ),
        trials=trials,
        weight=1.0 - cores / threads,
        claims=(BUSY,),
    )


RULE = Rule("thread_oversubscription", DOC, check, "cause", states_share=False)
