"""Sentences about one inspected trace: device, busy time, steps, host and device times by phase, waits, missing attribution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from profiler_kit.records.traces import FULL_QUEUE_NAME, PhaseTime, Queue, TraceSummary
from profiler_kit.report.columns.traces import waited_for
from profiler_kit.report.trace_tables import OUTSIDE
from profiler_kit.units import plural, text

# Host and device time of a phase differ from this ratio on. The profiler alone slows the host by half.
MIN_CLOCK_RATIO: Final = 1.5
MAX_NAME_CHARS: Final = 80
# Of the span: a shorter phase or wait gets no sentence.
MIN_SPAN_SHARE: Final = 0.02
# Of the host events: a file that lacks more was filtered, so the kernels of a phase are not all its work.
MAX_MISSING_SHARE: Final = 0.5
# Of a phase's host time: from here on the phase mostly waits.
MIN_WAIT_SHARE: Final = 0.5


def place(trace: TraceSummary) -> str:
    """Device, rank, and numbers of steps and events."""
    device = devices(trace)
    ranks = f" of {trace.world_size}" if (trace.world_size or 0) > 1 else ""
    rank = f"rank {trace.rank}{ranks}" if trace.rank is not None else ""
    kind = "inferred" if trace.steps_inferred else "marked"
    working = len(trace.working_steps)
    steps = plural(working, f"{kind} step") if trace.steps else "no steps"
    if working < len(trace.steps):
        steps += f" and {len(trace.steps) - working} without work"
    events = f"{plural(trace.events, 'event')}, {trace.device_events:,} on the device"
    sentence = "; ".join(part for part in (device, rank, steps, events) if part)
    return f"{sentence[0].upper()}{sentence[1:]}."


def devices(trace: TraceSummary) -> str:
    """The names of the devices of a trace; empty where it has none."""
    names = [name for name in dict.fromkeys(trace.devices) if name]
    if not names:
        return ""
    count = trace.devices.count(names[0])
    name = shorten(names[0])
    return name if len(names) > 1 or count < 2 else f"{name} (one of {count})"


def shorten(name: str) -> str:
    """`name` as it fits into a sentence: kernels and files may have names of thousands of characters."""
    return name if len(name) <= MAX_NAME_CHARS else f"{name[: MAX_NAME_CHARS - 3]}..."


def steps(trace: TraceSummary) -> str | None:
    """Step time by both clocks; None without steps."""
    if trace.step_ns is None and trace.host_step_ns is None:
        return None
    steady = sum(step.steady for step in trace.steps)
    parts = []
    if trace.step_ns is not None:
        median = f" (median of {steady} steady steps)" if steady > 1 else ""
        parts.append(f"{text(trace.step_ns, 'ns')} on the device{median}")
    if trace.host_step_ns is not None:
        median = (
            f" (median of {len(trace.working_steps)} steps)"
            if trace.clock == "host" and len(trace.working_steps) > 1
            else ""
        )
        parts.append(f"{text(trace.host_step_ns, 'ns')} on the host{median}")
    return f"Step time: {', '.join(parts)}."


def untraced(trace: TraceSummary) -> str | None:
    """The time of a step without the profiler; None where it cannot be estimated."""
    step = trace.untraced_step_ns
    if step is None:
        return None
    low, high = text(step.low, "ns"), text(step.high, "ns")
    return f"Without the profiler, a step takes about {text(step.median, 'ns')} ({low} to {high})."


def clocks(trace: TraceSummary) -> Iterator[str]:
    """The phases whose host time is most misleading, at most two, with the reason; none for a filtered trace."""
    if trace.clock != "device" or trace.missing_share >= MAX_MISSING_SHARE:
        return
    misleading = [timing for timing in trace.step_phases if _is_misleading(timing, trace)]
    misleading.sort(key=lambda timing: -abs((timing.host_ns or 0) - (timing.kernel_ns or 0)))
    for timing in misleading[:2]:
        full_queue_ns = sum(
            wait.wait_ns for wait in trace.syncs if wait.name == FULL_QUEUE_NAME and wait.phase == timing.phase
        )
        yield _clock(timing, full_queue_ns, _start_ns(trace, timing))


def _start_ns(trace: TraceSummary, timing: PhaseTime) -> int:
    """The time of calls that start a library before the first device work, which is work of the phase."""
    return sum(part.ns for part in trace.before if part.cause == "cold start" and part.phase == timing.phase)


def _is_misleading(timing: PhaseTime, trace: TraceSummary) -> bool:
    host, device = timing.host_ns, timing.kernel_ns or 0
    if host is None or timing.phase in ("data", "communication", "other"):
        return False
    if max(host, device) < MIN_SPAN_SHARE * trace.span_ns:
        return False
    return host > MIN_CLOCK_RATIO * device or device > MIN_CLOCK_RATIO * host


def _clock(timing: PhaseTime, full_queue_ns: int, start_ns: int) -> str:
    host, device, wait_ns = timing.host_ns or 0, timing.kernel_ns or 0, timing.wait_ns or 0
    times = f"{timing.phase.capitalize()} takes {text(host, 'ns')} on the host, {text(device, 'ns')} on the device"
    if host < device:
        return f"{times}: the host only launches the work."
    if start_ns >= MIN_WAIT_SHARE * host:
        return f"{times}: its first call starts the library, for {text(start_ns, 'ns')}."
    if full_queue_ns >= MIN_WAIT_SHARE * host:
        return f"{times}: launches wait {text(full_queue_ns, 'ns')} for space in the full launch queue."
    if wait_ns >= MIN_WAIT_SHARE * host:
        return f"{times}: the host waits {text(wait_ns, 'ns')} for the device, also for kernels of other phases."
    return f"{times}: the work takes longer to launch than to run."


def queue(launches: Queue | None) -> str | None:
    """Distance of the launches ahead of the device; None where the trace does not show it."""
    if launches is None or not launches.max_depth:
        return None
    delay, depth = text(launches.delay_ns, "ns"), plural(launches.max_depth, "launch", "launches")
    sentence = f"Launched work waits {delay} (median) to start, at most {depth} at a time."
    if launches.full:
        return f"{sentence} The launch queue was full: launches were blocked for {text(launches.blocked_ns, 'ns')}."
    return f"{sentence} The launch queue was still growing at the end." if launches.growing else sentence


def overlap(trace: TraceSummary) -> str | None:
    """Overlap of streams, and exposed communication; None for a single stream without communication."""
    sentences = []
    if len(trace.streams) > 1:
        devices = f" on {len(trace.accounts)} devices" if len(trace.accounts) > 1 else ""
        sentences.append(f"{len(trace.streams)} streams{devices}, {text(trace.overlap_ns, 'ns')} of overlapping work.")
    communication = trace.communication
    if communication is not None and communication.events:
        names = {"collective": "of unknown kind"}
        kinds = ", ".join(
            f"{kind.events} {names.get(kind.kind, kind.kind.replace('_', '-'))}" for kind in communication.by_kind
        )
        sentences.append(
            f"Communication {text(communication.union_ns, 'ns')}{f' ({kinds})' if kinds else ''}, "
            f"{text(communication.exposed_ns, 'ns')} of it exposed (not overlapped by other work)."
        )
    return " ".join(sentences) or None


def waits(trace: TraceSummary) -> str | None:
    """The longest wait of the host for the device, and the phases that ran meanwhile; None for short waits."""
    if not trace.syncs:
        return None
    longest = max(trace.syncs, key=lambda wait: wait.wait_ns)
    if longest.wait_ns < MIN_SPAN_SHARE * trace.span_ns:
        return None
    phases = waited_for(longest)
    where = f" in {longest.phase}" if longest.phase not in ("", "other") else ""
    during = f" while the device ran {phases}" if phases else ""
    calls = (
        f"{plural(longest.calls, 'launch', 'launches')} into the full launch queue"
        if longest.name == FULL_QUEUE_NAME
        else f"{plural(longest.calls, 'call')} of {shorten(longest.name)}"
    )
    return f"The host waits {text(longest.wait_ns, 'ns')} in {calls}{where}{during}."


def attribution_gaps(trace: TraceSummary) -> str | None:
    """Busy time without a phase, a launch or a module; None where all of it is attributed."""
    if trace.clock != "device":
        return None
    sentences = []
    if trace.unattributed_ns:
        sentences.append(f"{_busy_share(trace.unattributed_ns, trace)} is attributed to no phase.")
    steps = plural(len(trace.steps), "step")
    if trace.unlinked_ns:
        sentence = f"{_busy_share(trace.unlinked_ns, trace)} has no launch in the trace"
        if trace.aligned_ns:
            sentence += f"; {text(trace.aligned_ns, 'ns')} of it was attributed by matching another step"
        sentences.append(f"{sentence}.")
    if trace.outside_ns:
        share = (
            "The work without a launch"
            if trace.outside_ns == trace.unlinked_ns
            else _busy_share(trace.outside_ns, trace)
        )
        sentences.append(f"{share} does not belong to the {steps} and has its own row, {OUTSIDE}.")
    if trace.has_modules and trace.moduleless_ns:
        sentences.append(f"{_busy_share(trace.moduleless_ns, trace)} is outside modules.")
    return " ".join(sentences) or None


def _busy_share(ns: int, trace: TraceSummary) -> str:
    return f"{text(ns, 'ns')} ({_percent(ns, trace.busy_ns)}) of busy time"


def _percent(part: int, total: int) -> str:
    if not total:
        return text(None)
    percent = 100 * part / total
    return text(percent, "percent") if not 99.95 <= percent < 100 else "more than 99.9 %"
