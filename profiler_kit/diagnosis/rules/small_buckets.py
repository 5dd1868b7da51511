"""Many small collectives, each of which costs its latency."""

from __future__ import annotations

from collections.abc import Iterator

from profiler_kit.diagnosis.communication import (
    CLAIMS,
    MIN_EXPOSED_SHARE,
    MIN_SMALL_MESSAGES,
    SMALL_MESSAGE_BYTES,
    worst_exposed,
)
from profiler_kit.diagnosis.phrases import join_sentences, limit_percent, plural
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.units import percent, text

DOC = f"""
Fires on a trace in which exposed communication takes more than {limit_percent(MIN_EXPOSED_SHARE)} of the span, and most of
it is collectives of one kind with fewer than {text(SMALL_MESSAGE_BYTES, "bytes")} on average, at least
{MIN_SMALL_MESSAGES} per step.

Always `medium`. A collective costs its latency whatever its size. Fewer and larger ones use the bandwidth of the links. The
trace has to state the sizes of collectives.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the largest exposed share."""
    worst = worst_exposed(report)
    if worst is None or (small := worst.match.small) is None or small.bytes is None:
        return
    kind, mean_bytes = small.kind.replace("_", "-"), small.bytes / small.events
    per_step = small.events / worst.step.steps
    yield RULE.finding(
        severity="medium",
        title=f"Small messages: {text(per_step, 'count')} {kind}s per step send {text(mean_bytes, 'bytes')} each",
        explanation=join_sentences(
            f"{worst.step.prefix}{plural(small.events, kind)} take {text(small.sum_ns, 'ns')}. Exposed communication takes "
            f"{percent(worst.match.share)} of the time.",
            "A collective costs its latency whatever its size.",
            worst.others_sentence(),
        ),
        advice="Send fewer and larger messages: {code}, or larger units in FSDP.",
        code="DistributedDataParallel(model, bucket_cap_mb=25)",
        evidence=(
            Evidence(name="mean size of a message", value=mean_bytes, unit="bytes", where=worst.step.name),
            Evidence(name="messages per step", value=per_step, unit="count", where=worst.step.name),
            Evidence(
                name="exposed communication, of the span",
                value=100.0 * worst.match.share,
                unit="percent",
                where=worst.step.name,
            ),
        ),
        weight=worst.match.share,
        claims=CLAIMS,
    )


RULE = Rule("small_buckets", DOC, check, "cause", "both", states_share=False, needs_runs=False)
