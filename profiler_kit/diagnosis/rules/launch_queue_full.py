"""A launch queue that is full or still growing, which makes times on the host misleading."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.phrases import join_sentences, phase_name, plural
from profiler_kit.diagnosis.rule import Rule, new_finding
from profiler_kit.diagnosis.step_work import idle_steps, worst_step
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.traces import Queue, TraceSummary
from profiler_kit.units import text

# A step mark on the host that is shorter than this share of the device's step is worth a sentence.
AGREEING_STEP_SHARE: Final = 0.8

DOC = """
Fires for a trace in which the launch queue is full or still growing.

- `low`: the queue is full. Launches are slow again and again while the queue is at its maximum depth (about 1,024 launches on
  CUDA, more on ROCm), because each waits for a free slot. A stopwatch around a line of Python then shows the time of kernels
  that were launched many lines earlier.
- `info`: the queue still grows when the trace ends. Times on the host are then too short for the work.

Neither slows the device down. Only times on the host are misleading.
"""


def check(report: Report | TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the trace with the longest delay between launch and kernel."""
    if (
        worst := worst_step(
            idle_steps(report), lambda step: _misleading_queue(step.trace), lambda queue: float(queue.delay_ns)
        )
    ) is None:
        return
    queue, trace = worst.match, worst.step.trace
    depth = plural(queue.max_depth, "launch", "launches")
    yield new_finding(
        severity="low" if queue.full else "info",
        title=(
            f"The launch queue is full ({depth}): times on the host do not show the time of the work"
            if queue.full
            else f"The host runs ahead by up to {depth}: times on the host are shorter than the work"
        ),
        explanation=join_sentences(
            f"{worst.step.prefix}Half of the kernels start more than {text(queue.delay_ns, 'ns')} after their launch.",
            f"The queue holds up to {depth}, and it is full: the host waited {text(queue.blocked_ns, 'ns')} for a free slot, at "
            "arbitrary lines of the loop."
            if queue.full
            else f"The queue holds up to {depth}, and it was still growing when the trace ended.",
            _largest_difference(trace),
            _step_marks(trace),
            worst.others_sentence(),
        ),
        advice="Compare phases by device time. To time them in your own code, use torch.cuda.Event, or call {code} before and "
        "after. Record more warm-up steps, so that the queue reaches its steady state.",
        code="torch.cuda.synchronize()",
        evidence=(
            Evidence(
                name="maximum depth of the launch queue", value=queue.max_depth, unit="count", where=worst.step.name
            ),
            Evidence(name="median delay of a launch", value=queue.delay_ns, unit="ns", where=worst.step.name),
            Evidence(name="wait for a free slot", value=queue.blocked_ns, unit="ns", where=worst.step.name),
        ),
    )


def _misleading_queue(trace: TraceSummary) -> Queue | None:
    """Return the launch queue of `trace` if it is full or growing."""
    queue = trace.queue
    return queue if trace.clock == "device" and queue is not None and (queue.full or queue.growing) else None


def _largest_difference(trace: TraceSummary) -> str:
    """Return a sentence about the phase with the largest difference between host time and device time."""
    timed = [timing for timing in trace.step_phases if timing.host_ns and timing.kernel_ns]
    if not timed:
        return ""
    widest = max(timed, key=lambda timing: abs((timing.host_ns or 0) - timing.kernel_ns))
    host, device = text(widest.host_ns, "ns"), text(widest.kernel_ns, "ns")
    return f"The host shows {host} for {phase_name(widest.phase)}, the device {device}."


def _step_marks(trace: TraceSummary) -> str:
    """Return a sentence that compares step marks on the host with the device's step; empty if they agree."""
    marks = [step.host_ns for step in trace.working_steps]
    if not marks or not trace.step_ns or min(marks) > AGREEING_STEP_SHARE * trace.step_ns:
        return ""
    low, high = text(min(marks), "ns"), text(max(marks), "ns")
    return f"Step marks on the host last {low} to {high}; a step takes the device {text(trace.step_ns, 'ns')}."


RULE = Rule("launch_queue_full", DOC, check, "reading", "both")
