"""Times on the host that mislead about phases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import trials_of
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    join_list,
    limit_percent,
    phase_name,
    plural,
    share_range,
)
from profiler_kit.diagnosis.step_rule import Shares, StepPart, step_rule
from profiler_kit.diagnosis.step_work import StepWork, idle_steps
from profiler_kit.diagnosis.timing import phase_shares
from profiler_kit.records.report import Report, Severity, TraceReport
from profiler_kit.records.traces import TraceSummary, WaitByPhase
from profiler_kit.units import percent, text

# In percentage points. Launch gaps and rounding explain smaller differences between the clocks. The networks that led users to
# wrong conclusions differ by 42 to 95 points (StackOverflow 51124101; pytorch/pytorch issues 37264 and 18786).
MAX_DIFFERENCE_POINTS: Final = 20.0
# From this busy share on, the host waits for the device.
MIN_BUSY_SHARE: Final = 0.6
# From this share of a phase on, the host mostly waits for the device there.
MIN_WAIT_SHARE: Final = 0.5
# Phases with less than this share of the kernels that ran during a wait are not named.
MIN_NAMED_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class _Clocks:
    """The phase that `clock` overstates most, and the shares of all phases by it and by kernel time."""

    phase: str
    clock: str
    host: Mapping[str, float]
    kernel: Mapping[str, float]

    def excess(self, phase: str) -> float:
        """By how much the clock overstates `phase`."""
        return self.host[phase] - self.kernel[phase]


def _wrong_phase(report: Report | TraceReport, step: StepWork) -> StepPart | None:
    clocks = _clocks(report, step)
    if clocks is None:
        return None
    phase, host, kernel = clocks.phase, clocks.host, clocks.kernel
    timing = next((timing for timing in step.trace.phases if timing.phase == phase), None)
    is_waiting = isinstance(report, TraceReport) or step.busy_share >= MIN_BUSY_SHARE
    understated = min(host, key=clocks.excess)
    wait_ns, host_ns = (timing.wait_ns, timing.host_ns) if timing is not None else (0, None)
    severity: Severity = "high" if isinstance(report, Report) else "low"
    return StepPart(
        share=clocks.excess(phase),
        share_name="",
        least=severity,
        most=severity,
        title=_title(phase, host[phase], kernel[phase], is_waiting=is_waiting),
        sentences=(
            _cause(phase, is_waiting=is_waiting),
            f"The host waits for kernels for {text(wait_ns, 'ns')} of {text(host_ns, 'ns')} in {phase_name(phase)}."
            if wait_ns and host_ns
            else "",
            _phases_during_wait(step.trace, phase),
            f"The {clocks.clock} shows {percent(host[understated])} for {phase_name(understated)}; by kernel time it "
            f"takes {percent(kernel[understated])}.",
            _all_configurations(report, phase) if isinstance(report, Report) else "",
        ),
        advice=_advice(phase),
        measures=tuple(
            (f"{name} by {clock}", 100.0 * shares[name], "percent")
            for name in (phase, *(name for name in host if name != phase))
            for clock, shares in ((clocks.clock, host), ("kernel time", kernel))
        ),
        # reading the loss in every step keeps the host from running ahead; `no_item` measures the cost
        trials=trials_of(report, *(("no_item",) if phase == "loss" else ())),
        claims=(),
    )


def _clocks(report: Report | TraceReport, step: StepWork) -> _Clocks | None:
    """Return the clocks of a step on a device, of a report those of its timed steps; None below the limit."""
    run = report.baseline() if isinstance(report, Report) else None
    host: Mapping[str, float]
    kernel: Mapping[str, float]
    if not step.on_device:
        return None
    if run is not None:
        clock, host, kernel = "stopwatch", phase_shares(run, "stopwatch"), phase_shares(run, "kernel")
        host = {phase: share for phase, share in host.items() if phase in kernel}
        waiting = list(host)
    else:
        if step.trace.queue is not None and step.trace.queue.full:
            return None
        clock, timed = "host time", [timing for timing in step.trace.phases if timing.host_ns]
        total_ns = sum(timing.host_ns or 0 for timing in timed)
        host = {timing.phase: (timing.host_ns or 0) / total_ns for timing in timed}
        kernel = {timing.phase: (timing.kernel_ns or 0) / step.busy_ns for timing in timed}
        is_wait: dict[str, bool] = {
            timing.phase: (timing.wait_ns or 0) >= MIN_WAIT_SHARE * (timing.host_ns or 0) for timing in timed
        }
        waiting = [phase for phase in host if is_wait[phase] and phase != "other"]
    if not waiting:
        return None
    clocks = _Clocks(max(waiting, key=lambda phase: host[phase] - kernel[phase]), clock, host, kernel)
    return clocks if 100.0 * clocks.excess(clocks.phase) > MAX_DIFFERENCE_POINTS else None


def _title(name: str, host: float, kernel: float, *, is_waiting: bool) -> str:
    if name == "loss" and is_waiting:
        return f"The loss is not the bottleneck: {percent(host)} of the step by stopwatch, {percent(kernel)} by kernel time"
    return f"A stopwatch overstates {phase_name(name)}: it shows {percent(host)} of the step, the kernels take {percent(kernel)}"


def _cause(phase: str, *, is_waiting: bool) -> str:
    if not is_waiting:
        return (
            "A stopwatch on the host shows the phases in which the host works or waits. Kernels run at the same time, and their "
            "time is attributed to the phase that launched them."
        )
    if phase == "loss":
        return (
            "A line of Python returns when its kernels are queued, before they run. loss.item() is the first line that needs a "
            "result: it waits for all kernels queued before it, of this forward pass and of the previous step's backward pass."
        )
    return (
        f"A line of Python returns when its kernels are queued, before they run. In {phase_name(phase)} the host waits "
        "for kernels that other phases launched."
    )


def _all_configurations(report: Report, worst: str) -> str:
    runs = [
        (phase_shares(r, "stopwatch"), phase_shares(r, "kernel")) for r in plain_runs(report) if r.clock == "kernel"
    ]
    shares = [(watch[worst], kernel[worst]) for watch, kernel in runs if worst in watch and worst in kernel]
    if len(shares) < 2:
        return ""
    watch, kernel = zip(*shares, strict=True)
    return (
        f"Over {plural(len(shares), 'configuration')}, the stopwatch shows {share_range(min(watch), max(watch))} for "
        f"{phase_name(worst)}, kernel time {share_range(min(kernel), max(kernel))}."
    )


def _advice(name: str) -> Advice:
    timing = advise(
        "Compare phases by kernel time, or call {code} before and after the code that you time.",
        "torch.cuda.synchronize()",
    )
    if name != "loss":
        return timing
    return Advice(
        f"Do not optimize the loss. {timing.text} Reading the loss in every step also keeps the host from running ahead: "
        "sum up loss.detach() on the device, and call .item() only every few hundred steps."
    )


def _phases_during_wait(trace: TraceSummary, name: str) -> str:
    """Return a sentence about the phases whose kernels ran while the host waited in phase `name`."""
    parts: list[WaitByPhase] = [part for wait in trace.syncs if wait.phase == name for part in wait.waited_for]
    total_ns = sum(part.ns for part in parts)
    if not total_ns:
        return ""
    times: Counter[str] = Counter()
    for part in parts:
        if part.phase:
            times[part.phase] += part.ns
    shares = [
        f"{phase_name(kernel_phase)} ({percent(ns / total_ns)})"
        for kernel_phase, ns in times.most_common()
        if ns / total_ns >= MIN_NAMED_SHARE
    ]
    return f"The kernels of {join_list(shares)} run during this wait." if shares else ""


WRONG_PHASE = step_rule(
    "wrong_phase",
    _wrong_phase,
    Shares(MAX_DIFFERENCE_POINTS / 100.0),
    f"""
Fires if a stopwatch (`time.time()` around each phase, without synchronization) overstates the share of one phase in the
baseline's step by more than {MAX_DIFFERENCE_POINTS:g} percentage points, compared with kernel time. `high` in a report, `low`
in a trace.

A launch returns immediately, and the host waits at the first line that needs a result. In most training loops this line is
`loss.item()`, so the loss looks expensive while kernels of the forward and backward passes run. Kernel time is attributed to the
phase that launched the kernel. The rule does not cover CPUs: they do not queue work, and both clocks agree.

In a trace, the host time of each phase replaces the stopwatch. The same limit holds if the host waits for the device for at least
{limit_percent(MIN_WAIT_SHARE)} of the phase. If the launch queue is full, waits occur everywhere.
""",
    topic="reading",
    steps=idle_steps,
)
