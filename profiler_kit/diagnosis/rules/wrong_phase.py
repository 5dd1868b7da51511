"""Time that a stopwatch gives to a phase whose kernels do not take it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import attempt
from profiler_kit.diagnosis.pairs import plain
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import device_share, phase_shares
from profiler_kit.diagnosis.traced import gravest, on_device
from profiler_kit.diagnosis.words import capital, listing, phase, plural, sentences, span
from profiler_kit.records.counts import Phase
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import PhaseTime, TraceSummary, WaitedFor
from profiler_kit.units import percent, text

# Percentage points between the two clocks. Below this, launch gaps and rounding explain the difference; the networks that
# led people to wrong conclusions differ by 42 to 95 (StackOverflow 51124101; pytorch/pytorch issues 37264 and 18786).
POINTS: Final = 20.0
# With the device busy for this share of the step the host must be waiting for it, rather than the other way round.
BUSY: Final = 0.6

# Half of the phase: the host stands there for the device rather than working.
WAITING: Final = 0.5

DOC = f"""
A stopwatch (`time.time()` around each phase, no synchronisation) and the kernels disagree by more than {POINTS:g}
percentage points about one phase's share of the step, in the baseline run.

Launching a kernel returns at once; the host pays where it first has to wait. That is `loss.item()` in most training
loops, so the loss looks expensive while the kernels of the forward and backward passes run. Kernel time goes to the phase
that launched the kernel. On a CPU nothing is queued and both clocks agree, so the rule looks at devices only.

In a trace the host's wall time of each phase is the stopwatch, and the same limit holds where the host waited for the device for
at least {percent(WAITING)} of that phase. Where the launch queue is full the wait is everywhere (rule `launch_queue_full`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Fires on the phase that the stopwatch overrates most."""
    run = report.baseline()
    if run is None or run.clock != "kernel":
        return
    stopwatch, kernel = phase_shares(run, "stopwatch"), phase_shares(run, "kernel")
    both = [p for p in stopwatch if p in kernel]
    if not both:
        return
    worst = max(both, key=lambda p: stopwatch[p] - kernel[p])
    excess = stopwatch[worst] - kernel[worst]
    if 100.0 * excess <= POINTS:
        return
    short = max(both, key=lambda p: kernel[p] - stopwatch[p])
    # reading the loss each step keeps the host from running ahead: what that costs can be tried
    tried = attempt(report, run, ("no_item",) if worst == "loss" else ())
    yield RULE.finding(
        severity="high",
        title=_title(run, worst, stopwatch[worst], kernel[worst]),
        explanation=sentences(
            _why(run, worst),
            f"By kernel time {phase(short)} takes {percent(kernel[short])}, where the stopwatch shows "
            f"{percent(stopwatch[short])}.",
            _everywhere(report, worst),
        ),
        advice=_advice(worst),
        evidence=(
            Evidence(name=f"{p} by {clock}", value=100.0 * shares[p], unit="percent", where=run.config.name)
            for p in (worst, *(p for p in both if p != worst))
            for clock, shares in (("stopwatch", stopwatch), ("kernel time", kernel))
        ),
        attempt=tried,
        weight=excess,
    )


def _waits(run: ConfigRun) -> bool:
    """Whether the device is busy enough that what the host does in a phase is waiting for it."""
    busy = device_share(run)
    return busy is not None and busy >= BUSY


def _title(run: ConfigRun, worst: Phase, watch: float, kernel: float) -> str:
    said = f"a stopwatch gives {phase(worst)} {percent(watch)} of the step, its kernels take {percent(kernel)}"
    return f"Not the loss: {said}" if worst == "loss" and _waits(run) else capital(said)


def _why(run: ConfigRun, worst: Phase) -> str:
    if not _waits(run):
        return (
            "A stopwatch on the host shows where the host works or waits; the kernels run beside it, and their time "
            "belongs to the phase that launched them."
        )
    if worst == "loss":
        return (
            "Kernels are queued, not run, when a line of Python returns. loss.item() is the first line that needs a result: "
            "it waits for all kernels queued before it, those of this forward pass and of the previous step's backward pass."
        )
    return (
        "Kernels are queued, not run, when a line of Python returns. The host has to wait for the device in "
        f"{phase(worst)}, and the time it waits there was queued by other phases."
    )


def _everywhere(report: Report, worst: Phase) -> str:
    runs = [(phase_shares(r, "stopwatch"), phase_shares(r, "kernel")) for r in plain(report) if r.clock == "kernel"]
    both = [(watch[worst], kernel[worst]) for watch, kernel in runs if worst in watch and worst in kernel]
    if len(both) < 2:
        return ""
    watch, kernel = zip(*both, strict=True)
    return (
        f"Over {plural(len(both), 'configuration')} the stopwatch gives {phase(worst)} {span(min(watch), max(watch))}, kernel "
        f"time {span(min(kernel), max(kernel))}."
    )


def _advice(worst: str) -> str:
    look = "Judge phases by kernel time, or put torch.cuda.synchronize() at both ends of what you time."
    if worst != "loss":
        return look
    return (
        f"Do not optimise the loss. {look} Reading the loss every step also keeps the host from running ahead: "
        "add up loss.detach() on the device and call .item() once in a while."
    )


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Fires for the trace, and the phase in it, that a stopwatch on the host overrates most by waiting."""
    if (seen := gravest(report, _overrated, lambda found: found.host - found.device)) is None:
        return
    found, trace = seen.found, seen.trace
    name, wait_ns = found.timing.phase, found.timing.wait_ns
    said = f"by the host's clock {phase(name)} takes {percent(found.host)} of the step, its kernels take {percent(found.device)}"
    yield RULE.finding(
        severity="high",
        title=f"Not the loss: {said}" if name == "loss" else capital(said),
        explanation=sentences(
            f"{seen.place}Kernels are queued, not run, when a line of Python returns; in {phase(name)} the host has to wait for "
            f"them, {text(wait_ns, 'ns')} of {text(found.timing.host_ns, 'ns')}.",
            _waited_for(trace, name),
            seen.others(),
        ),
        advice=_advice(name),
        evidence=(
            Evidence(name=f"{name} by the host's clock", value=100.0 * found.host, unit="percent", where=seen.where),
            Evidence(name=f"{name} by kernel time", value=100.0 * found.device, unit="percent", where=seen.where),
            Evidence(name=f"{name} on the host", value=found.timing.host_ns or 0, unit="ns", where=seen.where),
            Evidence(name="of it waiting for the device", value=wait_ns, unit="ns", where=seen.where),
            Evidence(name=f"{name}'s kernels", value=found.timing.kernel_ns, unit="ns", where=seen.where),
        ),
        weight=found.host - found.device,
    )


@dataclass(frozen=True, slots=True)
class _Overrated:
    """A phase's share by the host's clock and by the device's."""

    timing: PhaseTime
    host: float
    device: float


def _overrated(trace: TraceSummary) -> _Overrated | None:
    host = sum(timing.host_ns or 0 for timing in trace.phases)
    if not on_device(trace) or not host or (trace.queue is not None and trace.queue.full):
        return None
    waiting = [
        _Overrated(timing, timing.host_ns / host, timing.kernel_ns / trace.busy_ns)
        for timing in trace.phases
        if timing.host_ns and timing.wait_ns >= WAITING * timing.host_ns and timing.phase != "other"
    ]
    worst = max(waiting, key=lambda found: found.host - found.device, default=None)
    return worst if worst is not None and 100.0 * (worst.host - worst.device) > POINTS else None


def _waited_for(trace: TraceSummary, name: str) -> str:
    """Whose kernels ran while the host stood in phase `name`."""
    parts: list[WaitedFor] = [part for wait in trace.syncs if wait.phase == name for part in wait.waited_for]
    whole = sum(part.ns for part in parts)
    if not whole:
        return ""
    times = {part.phase: sum(other.ns for other in parts if other.phase == part.phase) for part in parts if part.phase}
    said = [
        f"{phase(of)} ({percent(ns / whole)})"
        for of, ns in sorted(times.items(), key=lambda item: -item[1])
        if 20 * ns >= whole
    ]
    return f"What ran meanwhile is {listing(said)}." if said else ""


RULE = Rule("wrong_phase", DOC, check, "reading", check_trace)
