"""The cost of a step of traces, the time that they cover, and what of the device's work they lack, in sentences."""

from __future__ import annotations

from typing import Final

from profiler_kit.diagnosis.phrases import join_list, join_sentences, plural
from profiler_kit.diagnosis.recorded import (
    MIN_UNRECORDED_SHARE,
    has_long_edges,
    lost_text,
    unread_text,
    unrecorded_text,
)
from profiler_kit.records.report import TraceReport
from profiler_kit.records.traces import IdleTime, TraceSummary, idle_by_cause
from profiler_kit.units import text

# Less time around the device work is not mentioned.
MIN_EDGE: Final = 0.1
# A profiler that takes a smaller part of the step is not mentioned.
MIN_PROFILER_SHARE: Final = 0.1
# Shares of a trace are those of a step only if its steps cover most of it.
MIN_COVERED: Final = 0.5
CAUSE_WORDS: Final = {"python": "Python", "unknown": "unknown cause", "op dispatch": "operator dispatch"}


def trace_cost(report: TraceReport) -> str:
    """Return the cost of a step or of what the traces cover, and what of the device they lack."""
    if len(report.traces) != 1:
        return _cost_of_traces(report) if report.traces else ""
    (trace,) = report.traces
    if not trace.span_ns and trace.device_events:
        return join_sentences("The device events of the trace have no times.", _recording(trace))
    if not trace.span_ns:
        which = " that could be read" if trace.unread else " with a duration" if trace.host_events else ""
        return join_sentences(f"The trace has no device events and no operators{which}.", _recording(trace))
    if trace.hardware_counters:
        return "The profiler replayed the kernels one by one to count their work: times are not those of the program."
    if (ns := _step_ns(trace)) is None:
        if trace.clock == "host":
            nothing = "no steps" if trace.is_unrecorded else "no steps and no device work"
            return join_sentences(
                f"The trace covers {text(trace.span_ns, 'ns')} of host time; it has {nothing}.", _recording(trace)
            )
        return join_sentences(
            f"The trace covers {text(trace.recorded_ns, 'ns')} and has no steps.", _around(trace), _recording(trace)
        )
    steady = sum(step.steady for step in trace.steps)
    median = f", the median of {plural(steady, 'steady step')}" if trace.step_ns is not None and steady > 1 else ""
    inferred = ", inferred from the optimizer" if trace.steps_inferred else ""
    clock = "device" if trace.step_ns is not None else "host"
    no_device = "; the trace has no device work" if trace.clock == "host" and not trace.is_unrecorded else ""
    steps_ns = ns * len(trace.working_steps)
    most_outside = f" The marked steps cover {text(steps_ns, 'ns')} of {text(trace.span_ns, 'ns')}."
    is_outside = clock == "host" and not trace.steps_inferred and steps_ns < MIN_COVERED * trace.span_ns
    return join_sentences(
        f"A step takes {text(ns, 'ns')} on the {clock}{median}{inferred}{no_device}{_untraced(trace, ns)}."
        f"{most_outside if is_outside else ''}",
        _around(trace),
        _recording(trace),
    )


def _untraced(trace: TraceSummary, step_ns: int) -> str:
    """The step without the profiler, as the end of a sentence, where the profiler makes it much longer; otherwise empty."""
    untraced = trace.untraced_step_ns
    if untraced is None or untraced.median >= (1.0 - MIN_PROFILER_SHARE) * step_ns:
        return ""
    range_text = f"{text(untraced.low, 'ns')} to {text(untraced.high, 'ns')}"
    return f"; without the profiler, about {text(untraced.median, 'ns')} ({range_text})"


def _around(trace: TraceSummary) -> str:
    """The recorded time before the first device work and after the last, where it is much of what the trace covers."""
    parts = [
        f"{text(ns, 'ns')} {place}{_main_part(idle)}"
        for ns, place, idle in (
            (trace.before_ns, "pass before the first device work", trace.before),
            (trace.after_ns, "after the last", trace.after),
        )
        if ns >= MIN_EDGE * trace.recorded_ns and ns > 0
    ]
    if not parts:
        return ""
    wall = f"; the device works in {text(trace.wall_ns, 'ns')}" if has_long_edges(trace) else ""
    return f"Of {text(trace.recorded_ns, 'ns')}, {join_list(parts)}{wall}."


def _main_part(idle: tuple[IdleTime, ...]) -> str:
    """The cause of most of the time, in parentheses; empty for an unknown one."""
    cause = next(iter(idle_by_cause(idle)), "unknown")
    return "" if cause == "unknown" else f" ({CAUSE_WORDS.get(cause, cause)})"


def _recording(trace: TraceSummary) -> str:
    """What of the file could not be read, and what of the device's work the trace lacks; empty for nothing."""
    unread = f"{unread_text(trace)}." if unread_text(trace) else ""
    if trace.is_unrecorded:
        extent = "recorded only in part" if trace.clock == "device" else "not recorded"
        return join_sentences(
            unread, f"The device was {extent}, so nothing can be said about it: {unrecorded_text(trace)}."
        )
    unread = join_sentences(unread, "The file is cut off: missing work looks idle." if trace.cut_off else "")
    missing = [f"{lost_text(trace)}."] if lost_text(trace) else []
    if _lacks_kernels(trace):
        missing.append(f"{unrecorded_text(trace)}, so the idle time is an upper bound.")
    return join_sentences(unread, *missing)


def _step_ns(trace: TraceSummary) -> int | None:
    return trace.step_ns if trace.step_ns is not None else trace.host_step_ns


def _cost_of_traces(report: TraceReport) -> str:
    if report.ranks is not None and report.ranks.step_ns is not None:
        cost = f"A step of {len(report.ranks.ranks)} ranks takes {text(report.ranks.step_ns, 'ns')}."
        return join_sentences(cost, _recordings(report))
    steps = sorted(ns for trace in report.traces if (ns := _step_ns(trace)) is not None)
    if not steps:
        times = [trace.recorded_ns for trace in report.traces]
        cost = f"{len(times)} traces without steps cover {text(min(times), 'ns')} to {text(max(times), 'ns')}."
    else:
        cost = f"{len(report.traces)} traces: a step takes {text(steps[0], 'ns')} to {text(steps[-1], 'ns')}."
    return join_sentences(cost, _recordings(report))


def _recordings(report: TraceReport) -> str:
    """How many of several traces lack the work of the device, or a part of it."""
    total = len(report.traces)
    faults = (
        ("The device was not recorded in {}: nothing can be said about it.", lambda trace: trace.is_unrecorded),
        ("In {}, some device events could not be read.", lambda trace: lost_text(trace) != ""),
        ("In {}, some events could not be read.", lambda trace: unread_text(trace) != ""),
        ("In {}, launches have no kernel, so the idle time is an upper bound.", _lacks_kernels),
        ("In {}, the file is cut off: missing work looks idle.", lambda trace: trace.cut_off),
    )
    counts = [(sentence, sum(map(has_fault, report.traces))) for sentence, has_fault in faults]
    return join_sentences(*(sentence.format(f"{count} of {total}") for sentence, count in counts if count))


def _lacks_kernels(trace: TraceSummary) -> bool:
    """Whether launches have no kernels, of a trace that says something about the device all the same."""
    return trace.clock == "device" and not trace.is_unrecorded and trace.unrecorded_share >= MIN_UNRECORDED_SHARE
