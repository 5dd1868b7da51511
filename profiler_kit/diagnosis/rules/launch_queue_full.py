"""A launch queue so full that the host's clock tells of the device."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.diagnosis.rule import Rule, never
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import phase, plural, sentences
from profiler_kit.records.report import Evidence, Finding, TraceReport
from profiler_kit.records.traces import Queue, TraceSummary
from profiler_kit.units import text

# Marks of steps that are as long as what the device takes for one need no sentence.
AGREES: Final = 0.8

DOC = """
In a trace, the queue of launches that wait for the device is full, so that launching itself waits for a free place: launches get
slow again and again with the queue at its deepest, whatever that is (some 1,024 on CUDA, more on ROCm): `medium`. What a
stopwatch then shows of a line of Python is the time of kernels launched many lines before. Where the queue still grows when the
trace ends, the host's times are too short for the work instead: `low`. The device loses nothing by either; only times taken on
the host mislead.
"""


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires once, for the trace whose launches wait longest."""
    if (seen := gravest(report, _look, lambda queue: float(queue.delay_ns))) is None:
        return
    queue, trace = seen.found, seen.trace
    depth = plural(queue.max_depth, "launch", "launches")
    yield RULE.finding(
        severity="medium" if queue.full else "low",
        title=(
            f"The launch queue is full ({depth}): times taken on the host are not those of the work"
            if queue.full
            else f"The host runs ahead, up to {depth}: its clock shows less time than the work takes"
        ),
        explanation=sentences(
            f"{seen.place}Half of all kernels start more than {text(queue.delay_ns, 'ns')} after they were launched, with up to "
            f"{depth} in the queue.",
            f"It is full, and launching waited {text(queue.blocked_ns, 'ns')} for a free place, wherever in the loop that "
            "happened to be."
            if queue.full
            else "It still grew when the trace ended.",
            _worst(trace),
            _steps(trace),
            seen.others(),
        ),
        advice="Judge phases by the device's times here. To time them in your own code use torch.cuda.Event, or "
        "torch.cuda.synchronize() at both ends; record more warm-up steps, so that the queue is in its steady state.",
        evidence=(
            Evidence(name="launches in the queue, at most", value=queue.max_depth, unit="count", where=seen.where),
            Evidence(name="median delay of a launch", value=queue.delay_ns, unit="ns", where=seen.where),
            Evidence(name="launching waited", value=queue.blocked_ns, unit="ns", where=seen.where),
        ),
        weight=queue.blocked_ns / trace.span_ns,
    )


def _look(trace: TraceSummary) -> Queue | None:
    queue = trace.queue
    return queue if on_device(trace) and queue is not None and (queue.full or queue.growing) else None


def _worst(trace: TraceSummary) -> str:
    """The phase that the host's clock is most wrong about."""
    timed = [timing for timing in trace.phases if timing.host_ns and timing.kernel_ns]
    if not timed:
        return ""
    worst = max(timed, key=lambda timing: abs((timing.host_ns or 0) - timing.kernel_ns))
    host, device = text(worst.host_ns, "ns"), text(worst.kernel_ns, "ns")
    return f"By the host {phase(worst.phase)} takes {host}, by the device {device}."


def _steps(trace: TraceSummary) -> str:
    """How far the steps' marks are from what the device takes for a step, where that is far."""
    marks = [step.host_ns for step in trace.steps]
    if not marks or not trace.step_ns or min(marks) > AGREES * trace.step_ns:
        return ""
    low, high = text(min(marks), "ns"), text(max(marks), "ns")
    return f"Single steps take {low} to {high} by their marks on the host, {text(trace.step_ns, 'ns')} on the device."


RULE = Rule("launch_queue_full", DOC, never, "reading", check_trace)
