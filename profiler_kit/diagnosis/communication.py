"""Exposed communication of traces, without the time in which a rank waits for another rank."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.recorded import traces_of
from profiler_kit.diagnosis.step_work import StepWork, WorstStep, idle_steps, worst_step
from profiler_kit.records.claims import idle_claims, phase_claims
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import CollectiveTime, TraceSummary

# The last bucket of gradients cannot overlap; a tenth of the span is more than that.
MIN_EXPOSED_SHARE: Final = 0.10
# NCCL needs about 20 us for any message, and messages of several megabytes to use the bandwidth of the links.
SMALL_MESSAGE_BYTES: Final = 2 << 20
MIN_SMALL_MESSAGES: Final = 20  # per step: a few small ones are statistics of batch norms, or a loss
# The kinds that send activations from stage to stage of a pipeline.
_PIPELINE_KIND: Final = "send_recv"
_SEND: Final = re.compile(r"\Ac10d::(send|recv|recv_|recv_any_source_)\Z")
CLAIMS: Final = (*phase_claims("communication"), *idle_claims("communication"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposed:
    """The exposed communication of a trace. `share`: its part of the span, without waiting for late ranks.

    `wait_share`: that waiting. `main`: the kind of collectives with the largest sum of durations, or None. `small`: the main
    kind if its messages are small. `is_pipeline`: the stages of a pipeline wait for each other.
    """

    exposed_ns: int
    union_ns: int
    share: float
    wait_share: float
    main: CollectiveTime | None
    small: CollectiveTime | None
    is_pipeline: bool


def rank_traces(report: Report | TraceReport) -> TraceReport:
    """Return the traces of all ranks, where a report has them."""
    return report.ranks if isinstance(report, Report) and report.ranks is not None else traces_of(report)


def worst_exposed(report: Report | TraceReport) -> WorstStep[Exposed] | None:
    """Return the trace with the largest exposed share; None if all are below the limit."""
    traces = rank_traces(report)
    return worst_step(
        idle_steps(traces), lambda step: _exposed_communication(traces, step), lambda exposed: exposed.share
    )


def _exposed_communication(report: TraceReport, step: StepWork) -> Exposed | None:
    """Return the exposed communication of `step`; None below the limit.

    Without a device, it is the time in which the host waits for other ranks and no operator runs.
    """
    trace, communication = step.trace, step.trace.communication
    if step.on_device and communication is not None:
        exposed_ns, union_ns, kinds = communication.exposed_ns, communication.union_ns, communication.by_kind
    elif not step.on_device:
        exposed_ns = union_ns = step.idle_ns("communication")
        kinds = ()
    else:
        return None
    wait_share = _wait_share(report, trace)
    share = min(1.0, exposed_ns / trace.span_ns) - wait_share
    if share <= MIN_EXPOSED_SHARE:
        return None
    small = (
        kind
        for kind in kinds
        if kind.bytes is not None
        and kind.events >= MIN_SMALL_MESSAGES * step.steps
        and kind.bytes < SMALL_MESSAGE_BYTES * kind.events
        and 2 * kind.sum_ns >= sum(other.sum_ns for other in kinds)
    )
    main = max(kinds, key=lambda kind: kind.sum_ns, default=None)
    return Exposed(
        exposed_ns=exposed_ns,
        union_ns=union_ns,
        share=share,
        wait_share=wait_share,
        main=main,
        small=next(small, None),
        is_pipeline=main is not None and main.kind == _PIPELINE_KIND and _sends(trace),
    )


def _sends(trace: TraceSummary) -> bool:
    """Return whether the program sends to single ranks. NCCL's kernels of an all-to-all look the same."""
    return any(_SEND.match(operator.name) for operator in trace.operators)


def _wait_share(report: TraceReport, trace: TraceSummary) -> float:
    """Return the share of the step in which the rank of `trace` waits for later ranks; 0 where no rank is a straggler."""
    if report.ranks is None or not report.ranks.stragglers:
        return 0.0
    rank = next((rank for rank in report.ranks.ranks if rank.file == trace.file), None)
    return min(1.0, rank.wait_ns / rank.step_ns) if rank is not None and rank.step_ns > 0 else 0.0
