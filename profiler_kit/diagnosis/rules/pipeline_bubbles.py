"""Stages of a pipeline that wait for each other."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.communication import CLAIMS, MIN_EXPOSED_SHARE, worst_exposed
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

DOC = f"""
Fires on a trace in which exposed communication takes more than {limit_percent(MIN_EXPOSED_SHARE)} of the span, and most of it
is sends and receives between two ranks. NCCL's kernels of an all-to-all have the same name, so the trace also has to hold the
operators `c10d::send` or `c10d::recv_`.

- `high`: from a third of the span.
- `medium`: otherwise.

A receive lasts until the other stage has sent. With `m` micro-batches and `p` stages, a pipeline idles for
`(p - 1) / (m + p - 1)` of its time, even if the stages take equally long.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest exposed share."""
    worst = worst_exposed(report)
    if worst is None or (main := worst.match.main) is None or not worst.match.is_pipeline:
        return
    share = worst.match.share
    yield RULE.finding(
        severity="high" if share >= 1 / 3 else "medium",
        title=f"Pipeline bubbles: the stage waits for other stages for {percent(share)} of the time",
        explanation=join_sentences(
            f"{worst.step.prefix}{plural(main.events, 'send or receive', 'sends and receives')} take "
            f"{text(main.sum_ns, 'ns')}, and no computation overlaps {text(worst.match.exposed_ns, 'ns')} of it.",
            worst.others_sentence(),
        ),
        advice="Use more micro-batches, for example {code} with twice the number; a schedule with smaller bubbles (Schedule1F1B, "
        "ScheduleInterleaved1F1B); stages of equal duration.",
        code="ScheduleGPipe(stage, n_microbatches=8)",
        evidence=(
            Evidence(
                name="waiting for stages, of the span", value=100.0 * share, unit="percent", where=worst.step.name
            ),
            Evidence(name="sends and receives", value=main.events, unit="count", where=worst.step.name),
        ),
        weight=share,
        claims=CLAIMS,
    )


RULE = Rule("pipeline_bubbles", DOC, check, "cause", "both", needs_runs=False)
