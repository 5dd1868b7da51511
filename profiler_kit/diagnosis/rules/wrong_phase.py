"""A phase that looks slow on a stopwatch, although its kernels take little time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from profiler_kit.diagnosis.advice import find_trials
from profiler_kit.diagnosis.pairs import plain_runs
from profiler_kit.diagnosis.phrases import (
    Advice,
    advise,
    join_list,
    join_sentences,
    limit_percent,
    phase_name,
    plural,
    share_range,
)
from profiler_kit.diagnosis.rule import Rule
from profiler_kit.diagnosis.timing import phase_shares
from profiler_kit.diagnosis.trace_facts import on_device, worst_trace
from profiler_kit.records.counts import Phase
from profiler_kit.records.report import Evidence, Finding, Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import PhaseTime, TraceSummary, WaitByPhase
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

DOC = f"""
Fires if a stopwatch (`time.time()` around each phase, without synchronization) overstates the share of one phase in the
baseline's step by more than {MAX_DIFFERENCE_POINTS:g} percentage points, compared with kernel time. Always `high`.

A launch returns immediately, and the host waits at the first line that needs a result. In most training loops this line is
`loss.item()`, so the loss looks expensive while kernels of the forward and backward passes run. Kernel time is attributed to the
phase that launched the kernel. The rule does not cover CPUs: they do not queue work, and both clocks agree.

In a trace, the host time of each phase replaces the stopwatch. The same limit holds if the host waits for the device for at least
{limit_percent(MIN_WAIT_SHARE)} of the phase. If the launch queue is full, waits occur everywhere (rule `launch_queue_full`).
"""


def check(report: Report) -> Iterator[Finding]:
    """Yield at most one finding, for the phase that the stopwatch overstates most in the baseline."""
    run = report.baseline()
    if run is None or run.clock != "kernel":
        return
    stopwatch, kernel = phase_shares(run, "stopwatch"), phase_shares(run, "kernel")
    common = [p for p in stopwatch if p in kernel]
    if not common:
        return
    worst = max(common, key=lambda p: stopwatch[p] - kernel[p])
    excess = stopwatch[worst] - kernel[worst]
    if 100.0 * excess <= MAX_DIFFERENCE_POINTS:
        return
    understated = max(common, key=lambda p: kernel[p] - stopwatch[p])
    yield RULE.finding(
        severity="high",
        title=_title(worst, stopwatch[worst], kernel[worst], is_waiting=_waits_for_device(run)),
        explanation=join_sentences(
            _cause(run, worst),
            f"The stopwatch shows {percent(stopwatch[understated])} for {phase_name(understated)}; by kernel time it takes "
            f"{percent(kernel[understated])}.",
            _all_configurations(report, worst),
        ),
        advice=_advice(worst),
        evidence=(
            Evidence(name=f"{p} by {clock}", value=100.0 * shares[p], unit="percent", where=run.config.name)
            for p in (worst, *(p for p in common if p != worst))
            for clock, shares in (("stopwatch", stopwatch), ("kernel time", kernel))
        ),
        # reading the loss in every step keeps the host from running ahead; `no_item` measures the cost
        trials=find_trials(report, run, ("no_item",) if worst == "loss" else ()),
        weight=excess,
    )


def _waits_for_device(run: ConfigRun) -> bool:
    """Return whether the device is busy enough that the host must wait for it."""
    busy = run.busy_share
    return busy is not None and busy >= MIN_BUSY_SHARE


def _title(name: str, host: float, kernel: float, *, is_waiting: bool) -> str:
    if name == "loss" and is_waiting:
        return f"The loss is not the bottleneck: {percent(host)} of the step by stopwatch, {percent(kernel)} by kernel time"
    return f"A stopwatch overstates {phase_name(name)}: it shows {percent(host)} of the step, the kernels take {percent(kernel)}"


def _cause(run: ConfigRun, worst: Phase) -> str:
    if not _waits_for_device(run):
        return (
            "A stopwatch on the host shows the phases in which the host works or waits. Kernels run at the same time, and their "
            "time is attributed to the phase that launched them."
        )
    if worst == "loss":
        return (
            "A line of Python returns when its kernels are queued, before they run. loss.item() is the first line that needs a "
            "result: it waits for all kernels queued before it, of this forward pass and of the previous step's backward pass."
        )
    return (
        f"A line of Python returns when its kernels are queued, before they run. In {phase_name(worst)} the host waits "
        "for kernels that other phases launched."
    )


def _all_configurations(report: Report, worst: Phase) -> str:
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


def check_trace(report: TraceReport) -> Iterator[Finding]:
    """Yield at most one finding, for the phase whose host time is overstated most by waiting, over all traces."""
    if (worst := worst_trace(report, _overstated_phase, lambda match: match.host_share - match.kernel_share)) is None:
        return
    overstated, trace = worst.match, worst.trace
    name, host_ns, wait_ns = overstated.timing.phase, overstated.timing.host_ns, overstated.timing.wait_ns
    host, kernel = 100.0 * overstated.host_share, 100.0 * overstated.kernel_share
    yield RULE.finding(
        severity="low",
        title=_title(name, overstated.host_share, overstated.kernel_share, is_waiting=True),
        explanation=join_sentences(
            f"{worst.sentence_prefix}A line of Python returns when its kernels are queued, before they run. In "
            f"{phase_name(name)} the host waits for kernels for {text(wait_ns, 'ns')} of {text(host_ns, 'ns')}.",
            _phases_during_wait(trace, name),
            worst.others_sentence(),
        ),
        advice=_advice(name),
        evidence=(
            Evidence(name=f"{name} by host time", value=host, unit="percent", where=worst.where),
            Evidence(name=f"{name} by kernel time", value=kernel, unit="percent", where=worst.where),
            Evidence(name=f"host time of {name}", value=host_ns or 0, unit="ns", where=worst.where),
            Evidence(name=f"wait for the device in {name}", value=wait_ns, unit="ns", where=worst.where),
            Evidence(name=f"kernel time of {name}", value=overstated.timing.kernel_ns, unit="ns", where=worst.where),
        ),
        weight=overstated.host_share - overstated.kernel_share,
    )


@dataclass(frozen=True, slots=True)
class _OverstatedPhase:
    """A phase with its share of the host time and its share of the kernel time."""

    timing: PhaseTime
    host_share: float
    kernel_share: float


def _overstated_phase(trace: TraceSummary) -> _OverstatedPhase | None:
    host_ns = sum(timing.host_ns or 0 for timing in trace.phases)
    if not on_device(trace) or not host_ns or (trace.queue is not None and trace.queue.full):
        return None
    waiting = [
        _OverstatedPhase(timing, timing.host_ns / host_ns, timing.kernel_ns / trace.busy_ns)
        for timing in trace.phases
        if timing.host_ns and timing.wait_ns >= MIN_WAIT_SHARE * timing.host_ns and timing.phase != "other"
    ]
    worst = max(waiting, key=lambda item: item.host_share - item.kernel_share, default=None)
    if worst is None or 100.0 * (worst.host_share - worst.kernel_share) <= MAX_DIFFERENCE_POINTS:
        return None
    return worst


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


RULE = Rule("wrong_phase", DOC, check, "reading", check_trace)
