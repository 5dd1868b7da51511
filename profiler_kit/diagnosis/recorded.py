"""The recorded part of traces: which of them say something about the device, and of what time their shares are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from profiler_kit.diagnosis.phrases import plural, quoted_name
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import DeviceEvidence, IdleCause, IdleTime, TraceSummary

# Where the device works in less than half of the recorded time, the time around its work decides what a trace shows.
MIN_DEVICE_SHARE: Final = 0.5
# Fewer events that cannot be read do not change what a trace shows.
MIN_UNREAD_SHARE: Final = 0.01
MAX_REASONS: Final = 2
# Below this, the kernels of the last launches had not ended when the recording stopped.
MIN_UNRECORDED_SHARE: Final = 0.02
# Causes of idle time that last as long as the host's work, which the profiler lengthens.
HOST_CAUSES: Final[frozenset[IdleCause]] = frozenset(("op dispatch", "python", "launch latency", "synchronization"))
_RECORD: Final = "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.{}])"
BOTH_ACTIVITIES: Final = _RECORD.format("CUDA")
_EVIDENCE: Final[dict[DeviceEvidence, str]] = {
    "copies": "the program calls {}",
    "operators": "the program calls {}, which runs on a device",
    "memory": "the program allocates memory on a device",
    "threads": "autograd's thread of a device, {}, runs the backward pass",
    "inputs": "operators have inputs on {}",
}


def traces_of(report: Report | TraceReport) -> TraceReport:
    """Return the traces of a report as rules read them: of a target report, the traced steps of its baseline."""
    if isinstance(report, TraceReport):
        return report
    run = report.baseline()
    trace = measured_trace(run) if run is not None else None
    return TraceReport(tool=report.tool, created=report.created, traces=(trace,) if trace is not None else ())


def rank_traces(report: Report | TraceReport) -> TraceReport:
    """Return the traces of all ranks, where a report has them."""
    return report.ranks if isinstance(report, Report) and report.ranks is not None else traces_of(report)


def measured_trace(run: ConfigRun) -> TraceSummary | None:
    """Return the traced steps of `run` with the idle time of its timed steps; None without device (or operator) time."""
    traced = run.traced
    if traced is None or not traced.busy_ns:
        return None
    traced = replace(traced, file=quoted_name(run))
    if not traced.span_ns:
        return _with_timed_idle(traced, run)
    ns = traced.span_ns // (max(1, len(traced.steps)) * max(1, len(traced.accounts)))
    return without_profiler(replace(traced, step_ns=ns, untraced_step_ns=run.step_ns or traced.untraced_step_ns))


def _with_timed_idle(traced: TraceSummary, run: ConfigRun) -> TraceSummary:
    """Return a mean step of an older report with the rest of the timed step as idle time, whose causes were not recorded."""
    span_ns = max(traced.busy_ns, run.step_ns.median if run.step_ns is not None else 0)
    timing = next((timing for timing in run.phases if timing.phase == "data"), None)
    waits_ns = (timing.stopwatch_ns or 0) - (timing.kernel_ns or 0) if timing is not None else 0
    idle_ns = span_ns - traced.busy_ns
    data_ns = min(idle_ns, max(0, waits_ns))
    # outside operators the CPU runs Python; a device waits for something that was not recorded
    other: IdleCause = "python" if traced.clock == "host" else "unknown"
    parts = (IdleTime(cause="waiting for data", phase="data", ns=data_ns), IdleTime(cause=other, ns=idle_ns - data_ns))
    return replace(traced, span_ns=span_ns, idle_ns=idle_ns, idle=tuple(part for part in parts if part.ns))


def readable_traces(report: TraceReport) -> TraceReport:
    """Return `report` with the traces whose times say something about the program, on the time that they cover.

    A trace without the work of its device has only the time that the host takes to launch it: it is left out. Where the
    device works in the lesser part of the recorded time, and no step shows how it repeats, the time before and after is
    idle time. The time that the profiler adds to the host's work is taken out of the idle time.
    """
    traces = tuple(without_profiler(_on_recorded_time(trace)) for trace in report.traces if not trace.is_unrecorded)
    if len(traces) == len(report.traces):
        is_same = all(a is b for a, b in zip(traces, report.traces, strict=True))
        return report if is_same else replace(report, traces=traces)
    return replace(report, traces=traces, ranks=None)


def has_long_edges(trace: TraceSummary) -> bool:
    """Return whether the device works in the lesser part of the recorded time, and no step shows how its work repeats."""
    return trace.step_ns is None and trace.wall_ns < MIN_DEVICE_SHARE * trace.recorded_ns


def _on_recorded_time(trace: TraceSummary) -> TraceSummary:
    if not has_long_edges(trace):
        return trace
    devices = max(1, len(trace.accounts))
    edges = tuple(replace(part, ns=devices * part.ns) for part in (*trace.before, *trace.after))
    edges_ns = sum(part.ns for part in edges)
    return replace(
        trace,
        span_ns=trace.span_ns + edges_ns,
        idle_ns=trace.idle_ns + edges_ns,
        idle=(*trace.idle, *edges),
        before=(),
        after=(),
    )


def without_profiler(trace: TraceSummary) -> TraceSummary:
    """Return `trace` with the idle time that its device would have without the profiler, so that shares are those of such steps.

    The device's work takes as long without the profiler. So what a step is shorter than the traced one was idle time that the
    host caused. All of its causes shrink by the same part.
    """
    ns, untraced = trace.step_ns or trace.host_step_ns, trace.untraced_step_ns
    if trace.clock != "device" or not ns or untraced is None or untraced.median >= ns:
        return trace
    host_ns = sum(part.ns for part in trace.idle if part.cause in HOST_CAUSES)
    gone_ns = min(host_ns, round(trace.span_ns * (1.0 - untraced.median / ns)))
    if not gone_ns:
        return trace
    left = 1.0 - gone_ns / host_ns
    idle = shortened_idle(trace.idle, gone_ns)
    return replace(
        trace,
        span_ns=trace.span_ns - gone_ns,
        idle_ns=trace.idle_ns - gone_ns,
        idle=idle,
        phases=tuple(replace(phase, idle_ns=round(left * phase.idle_ns)) for phase in trace.phases),
        syncs=tuple(replace(wait, idle_ns=round(left * wait.idle_ns)) for wait in trace.syncs),
        activities=tuple(
            replace(item, ns=round(left * item.ns), long_ns=round(left * item.long_ns)) for item in trace.activities
        ),
    )


def shortened_idle(idle: Sequence[IdleTime], gone_ns: int) -> tuple[IdleTime, ...]:
    """Return `idle` with `gone_ns` less of what the host causes, each entry by the same part."""
    host_ns = sum(part.ns for part in idle if part.cause in HOST_CAUSES)
    entries, taken_ns, seen_ns = [], 0, 0
    for part in idle:
        if part.cause in HOST_CAUSES:
            seen_ns += part.ns
            until_ns = gone_ns * seen_ns // host_ns
            part, taken_ns = replace(part, ns=part.ns - (until_ns - taken_ns)), until_ns
        entries.append(part)
    return tuple(entries)


def record_code(trace: TraceSummary) -> str:
    """Return the line that records the host and the device; empty for a device that torch.profiler does not record."""
    example = trace.device_record.example.lower() if trace.device_record is not None else ""
    if "mps" in example:
        return ""
    return _RECORD.format("XPU" if "xpu" in example or example.startswith(("ur", "ze")) else "CUDA")


def unrecorded_text(trace: TraceSummary) -> str:
    """Return why the device's work is known to be missing: ``18 launches, no kernels``."""
    record = trace.device_record
    assert record is not None
    if trace.device_events and not trace.busy_ns:
        return f"{plural(trace.device_events, 'device event')}, all with a duration of 0"
    if record.evidence == "launches":
        launches = plural(record.launches, "launch", "launches")
        if trace.clock == "device":
            return f"{record.unrecorded_launches:,} of {launches} have no kernel in the trace"
        return f"{launches}, no kernels"
    if record.evidence == "lost events":
        return lost_text(trace)
    return f"{_EVIDENCE[record.evidence].format(record.example)}, and the trace has no kernels"


def lost_text(trace: TraceSummary) -> str:
    """Return how many device events could not be read; empty for none."""
    lost = trace.device_record.lost_events if trace.device_record is not None else 0
    return (
        f"{lost:,} of {plural(trace.device_events + lost, 'device event')} could not be read ({_reasons(trace)})"
        if lost
        else ""
    )


def unread_text(trace: TraceSummary) -> str:
    """Return how many events of the file could not be read, and why; empty for few."""
    unread = sum(part.events for part in trace.unread)
    if unread < MIN_UNREAD_SHARE * trace.events or not unread or (lost_text(trace) and trace.span_ns):
        return ""
    return f"{unread:,} of {plural(trace.events, 'event')} could not be read ({_reasons(trace)})"


def _reasons(trace: TraceSummary) -> str:
    return "; ".join(part.reason for part in trace.unread[:MAX_REASONS])
