"""What is said of inspected traces in sentences: the span, the step, whom the clocks agree with, who waited."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.traces import PhaseTime, Queue, TraceSummary
from profiler_kit.report.columns.traces import waited_for
from profiler_kit.report.trace_tables import idle_lines
from profiler_kit.units import plural, text

# The two clocks of a phase tell of something else than each other from here on: the profiler itself slows the host by half.
APART: Final = 1.5
# A phase shorter than this share of the span is not worth a sentence about its clocks.
WORTH: Final = 0.02
# The host's time in a phase is mostly waiting from here on.
MOSTLY: Final = 0.5


def place(trace: TraceSummary) -> str:
    """On what it was recorded, and what the file holds."""
    devices = _devices(trace)
    ranks = f" of {trace.world_size}" if (trace.world_size or 0) > 1 else ""
    rank = f"rank {trace.rank}{ranks}" if trace.rank is not None else ""
    steps = (
        plural(len(trace.steps), "inferred step" if trace.steps_inferred else "marked step")
        if trace.steps
        else "no marked steps"
    )
    events = f"{plural(trace.events, 'event')}, {trace.device_events:,} of the device"
    said = "; ".join(part for part in (devices, rank, steps, events) if part)
    return f"{said[0].upper()}{said[1:]}."


def _devices(trace: TraceSummary) -> str:
    names = [name for name in dict.fromkeys(trace.devices) if name]
    if not names:
        return ""
    count = trace.devices.count(names[0])
    return names[0] if len(names) > 1 or count < 2 else f"{names[0]} (one of {count})"


def headline(trace: TraceSummary) -> str:
    """How much of its span the device worked, and what it waited for most; on the host how much operators ran."""
    span = text(trace.span_ns, "ns")
    if trace.clock == "host":
        if not trace.span_ns:
            return "There is no work of a device in it, and no operator."
        return f"No work of a device in it: times are the operators' own on the host, {text(trace.busy_ns, 'ns')} over {span}."
    said = f"The device works {_percent(trace.busy_ns, trace.span_ns)} of {span}"
    lines, _ = idle_lines(trace.idle)
    if not lines:
        return f"{said}."
    most = [f"{line.cause} {text(line.ns, 'ns')}" for line in lines[:2] if 4 * line.ns >= trace.idle_ns]
    return f"{said} and is idle for {text(trace.idle_ns, 'ns')}{': ' if most else ''}{', '.join(most)}."


def steps(trace: TraceSummary) -> str | None:
    """What a step takes by both clocks; None without steps."""
    if trace.step_ns is None and trace.host_step_ns is None:
        return None
    steady = sum(step.steady for step in trace.steps)
    parts = []
    if trace.step_ns is not None:
        of = f" (median of {steady} steady)" if steady > 1 else ""
        parts.append(f"A step takes {text(trace.step_ns, 'ns')} on the device{of}")
    if trace.host_step_ns is not None:
        host = text(trace.host_step_ns, "ns")
        parts.append(f"its mark on the host {host}" if parts else f"A step's mark takes {host} on the host")
    return f"{', '.join(parts)}."


def clocks(trace: TraceSummary) -> Iterator[str]:
    """For the phases that the host's clock is most wrong about, at most two: what it shows instead."""
    if trace.clock != "device":
        return
    apart = [timing for timing in trace.phases if _apart(timing, trace)]
    apart.sort(key=lambda timing: -abs((timing.host_ns or 0) - timing.kernel_ns))
    full = trace.queue is not None and trace.queue.full
    for timing in apart[:2]:
        yield _clock(timing, full)


def _apart(timing: PhaseTime, trace: TraceSummary) -> bool:
    host, device = timing.host_ns, timing.kernel_ns
    if host is None or timing.phase in ("data", "communication", "other") or max(host, device) < WORTH * trace.span_ns:
        return False
    return host > APART * device or device > APART * host


def _clock(timing: PhaseTime, full: bool) -> str:
    host, device = timing.host_ns or 0, timing.kernel_ns
    said = f"The host's clock gives {timing.phase} {text(host, 'ns')}, the device {text(device, 'ns')}"
    if host < device:
        return f"{said}: what the host shows is launching alone."
    if timing.wait_ns >= MOSTLY * host:
        return f"{said}: for {text(timing.wait_ns, 'ns')} of it the host stands waiting for work of other phases too."
    if full:
        return f"{said}: launching itself waits for a free place in the queue."
    return f"{said}: the host takes longer to launch the work than the device to do it."


def queue(found: Queue | None) -> str | None:
    """How far launches run ahead of the device; None where the trace does not tell."""
    if found is None or not found.max_depth:
        return None
    said = f"Launches wait {text(found.delay_ns, 'ns')} (median) to run, at most {found.max_depth:,} at once"
    if found.full:
        return f"{said}: the queue was full, and launches themselves waited {text(found.blocked_ns, 'ns')} for a place."
    return f"{said}; the queue still grew at the end." if found.growing else f"{said}."


def overlap(trace: TraceSummary) -> str | None:
    """Streams beside each other, and what of the communication is exposed; None for a single stream."""
    parts = []
    if len(trace.streams) > 1:
        parts.append(f"on {len(trace.streams)} streams, {text(trace.overlap_ns, 'ns')} of work beside other work")
    found = trace.communication
    if found is not None and found.events:
        kinds = ", ".join(f"{kind.events} {kind.kind.replace('_', '-')}" for kind in found.by_kind)
        parts.append(
            f"communication {text(found.union_ns, 'ns')}{f' ({kinds})' if kinds else ''}, "
            f"{text(found.exposed_ns, 'ns')} of it not covered by other work"
        )
    said = "; ".join(parts)
    return f"{said[0].upper()}{said[1:]}." if said else None


def waits(trace: TraceSummary) -> str | None:
    """Where the host waited for the device most, and for whose kernels; None where it hardly did."""
    if not trace.syncs:
        return None
    longest = max(trace.syncs, key=lambda wait: wait.wait_ns)
    if longest.wait_ns < WORTH * trace.span_ns:
        return None
    whose = waited_for(longest)
    where = f" in {longest.phase}" if longest.phase else ""
    during = f", while the device ran {whose}" if whose else ""
    return f"The host waits {text(longest.wait_ns, 'ns')} in {plural(longest.calls, 'call')} of {longest.name}{where}{during}."


def unknown(trace: TraceSummary) -> str | None:
    """What of the busy time has no owner, and why; None where all of it has one."""
    if trace.clock != "device":
        return None
    parts = []
    if trace.unattributed_ns:
        parts.append(f"{_amount(trace.unattributed_ns, trace)} has no phase")
    if trace.unlinked_ns:
        parts.append(f"{_amount(trace.unlinked_ns, trace)} was launched before the trace began")
        if trace.aligned_ns:
            parts[-1] += f", {text(trace.aligned_ns, 'ns')} of it placed by the same kernels of another step"
    if trace.has_modules and trace.moduleless_ns:
        parts.append(f"{_amount(trace.moduleless_ns, trace)} belongs to no module")
    return f"Of the busy time {'; '.join(parts)}." if parts else None


def _amount(ns: int, trace: TraceSummary) -> str:
    return f"{text(ns, 'ns')} ({_percent(ns, trace.busy_ns)})"


def _percent(part: int, whole: int) -> str:
    if not whole:
        return text(None)
    percent = 100 * part / whole
    return text(percent, "percent") if not 99.95 <= percent < 100 else "more than 99.9 %"
