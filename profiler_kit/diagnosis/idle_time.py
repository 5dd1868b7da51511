"""Idle time and host waits of one step or trace.

Rules about the host read this record, so that one rule covers the baseline run of a report and each trace.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final, Generic, TypeVar

from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.once import once_per_report
from profiler_kit.diagnosis.phrases import join_list, quoted_name
from profiler_kit.diagnosis.recorded import measured_trace, traces_of
from profiler_kit.diagnosis.timing import weighted_median
from profiler_kit.diagnosis.trace_facts import extent_text
from profiler_kit.diagnosis.worst import Others, find_worst
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import (
    FIRST_STEP_FACTOR,
    HostActivity,
    IdleCause,
    IdleTime,
    SyncWait,
    TraceSummary,
    WorkSite,
)
from profiler_kit.units import text

Match = TypeVar("Match")

# A launch takes 5 to 10 us. A shorter time is not a step, and its shares mean nothing.
MIN_SPAN_NS: Final = 100_000
# The usual gap between two launches is 5 to 50 us. A call that keeps the device idle for a millisecond is other work.
LONG_CALL_NS: Final = 1_000_000
# Idle time from here on always has a finding.
LARGE_IDLE_SHARE: Final = 0.20
# The time between one step and the next of two steps may be that of any of them.
MIN_COMPARED_STEPS: Final = 3
# The profiler's own start adds some milliseconds to the first step.
FIRST_STEP_NS: Final = 50_000_000
MAX_LISTED_CALLS: Final = 3
# If half of the events were removed from the file, a gap may have held some of them.
MAX_MISSING_SHARE: Final = 0.5

# Causes of idle time in which the host works, but has not launched enough.
LAUNCH_CAUSES: Final[tuple[IdleCause, ...]] = ("op dispatch", "python", "launch latency")
LAUNCH_CLAIMS: Final = tuple(f"idle:{cause}" for cause in LAUNCH_CAUSES)
# Fewer launches save at most the idle time before launches. Less than a tenth of the step is not worth the change.
MIN_LAUNCH_SHARE: Final = 0.1
# Below `LARGE_IDLE_SHARE` of the step, launches have to be the main cause of the idle time that no other rule explains.
MIN_LAUNCH_SHARE_OF_IDLE: Final = 0.5
# The forward pass of a small model has ten launches. With fewer events and without a marked step, a trace does not show a loop.
MIN_DEVICE_EVENTS: Final = 10
# Operators that copy a number or the size of their result to the host and wait for it: launches and waits inside them are
# the price of reading.
_READS: Final = frozenset(
    f"aten::{name}"
    for name in (
        "item",
        "_local_scalar_dense",
        "is_nonzero",
        "equal",
        "nonzero",
        "masked_select",
        "_unique2",
        "unique_dim",
    )
)
# Moving a line that waits, or other work of the host, saves about its idle time. Below a twentieth it does not pay.
MIN_HOST_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleStep:
    """The idle time of the baseline run, per step, or of one trace.

    - `name`: the trace's name, or the run's name in quotes; empty for a single trace. `where`: the same for evidence.
    - `on_device`: the idle time is that of a device. Otherwise it is time outside operators.
    - `steps`: the number of steps in the times; 0 for a trace without steps. `span_ns`: busy plus idle time.
    - `scale`: the idle share of the step over that of the traced one; 1 for traces.
    - `median_kernel_ns`: None without kernels. `compile_ns`: compilation, which on a CPU is operator time.
    - `launching`: the operators that launch device work; empty where unknown.
    - `from_user`: the host's waits are those of the user's own loop, not of the tool that times the steps.
    - `compiled`, `graphs`: torch.compile, CUDA graphs are in use already.
    - `first_excess_ns`: by how much the idle time of the first step (without a device, its duration) exceeds the median of the
      others; 0 with fewer than three steps.
    - `single`: the Python with the gap at the start that is many times as long as all others together; None without.
    - `per_step`: the words after a time: ``in 3 steps``.
    - `with_stack`: stacks were recorded. `has_launches`: launches were recorded.
    - `facts`: the facts that the run or the trace shows about the program.
    - `sites`: the places without which a step would save most.
    """

    name: str
    where: str
    on_device: bool
    steps: int
    span_ns: int
    busy_ns: int
    idle: tuple[IdleTime, ...]
    waits: tuple[SyncWait, ...]
    activities: tuple[HostActivity, ...]
    median_kernel_ns: float | None
    events: int
    scale: float = 1.0
    compile_ns: int = 0
    launching: frozenset[str] = frozenset()
    from_user: bool = False
    compiled: bool = False
    graphs: bool = False
    first_excess_ns: int = 0
    single: IdleTime | None = None
    per_step: str = "per step"
    with_stack: bool = True
    has_launches: bool = True
    facts: Facts = field(default_factory=Facts)
    sites: tuple[WorkSite, ...] = ()

    @property
    def prefix(self) -> str:
        """Prefix of a sentence that names the run or trace; empty for a single trace."""
        return f"In {self.name}: " if self.name else ""

    @property
    def busy_share(self) -> float:
        """The share of the step that is not idle."""
        return 1.0 - self.share(sum(part.ns for part in self.idle))

    def share(self, ns: float) -> float:
        """Return idle time as a share of the step."""
        return min(1.0, self.scale * ns / self.span_ns)

    @property
    def start_ns(self) -> int:
        """The excess of the first step, without compilation; on a device, at most its idle time that may happen once."""
        excess_ns = self.first_excess_ns - max(self.compile_ns, self.idle_ns("compilation"))
        if self.on_device:
            excess_ns = min(excess_ns, self.idle_ns("cold start", *LAUNCH_CAUSES))
        return excess_ns if excess_ns >= FIRST_STEP_NS else 0

    @property
    def single_ns(self) -> int:
        """The time of the gap that happens once."""
        return self.single.longest_ns if self.single is not None else 0

    def repeats(self, ns: int) -> bool:
        """Return whether idle time of `ns` is enough to matter without the first step, whose excess happens once."""
        return self.share(ns - self.start_ns) >= MIN_HOST_SHARE

    def idle_ns(self, *causes: IdleCause) -> int:
        """Return the idle time of `causes`."""
        return sum(part.ns for part in self.idle if part.cause in causes)

    def idle_before(self, phase: str, *causes: IdleCause) -> int:
        """Return the idle time of `causes` before work of `phase`."""
        return sum(part.ns for part in self.idle if part.cause in causes and part.phase == phase)

    def long_calls(self) -> tuple[HostActivity, ...]:
        """Return Python and operators in idle gaps of at least `LONG_CALL_NS`, outside data loading."""
        return tuple(
            activity
            for activity in self.activities
            if activity.long_ns > 0
            and not activity.launched
            and activity.phase not in ("data", "communication")
            and not is_runtime_call(activity.name)
        )

    def wait_idle_ns(self, waits: Iterable[SyncWait]) -> int:
        """Return the idle time that `waits` of the host cause, at most the idle time of the causes that it can have.

        Without waits, the host is ahead by the time that it waited, and fills later gaps too, except those of long calls. Waits
        of a tool that times steps are not those of the user's loop, so only the gap after each of them counts.
        """
        followed = [wait for wait in waits if wait.idle_ns]
        caused_ns = sum(wait.idle_ns for wait in followed)
        possible_ns = self.idle_ns("synchronization", *LAUNCH_CAUSES)
        if self.from_user and followed:
            ahead_ns = sum(wait.wait_ns for wait in followed)
            long_ns = sum(activity.long_ns for activity in self.long_calls())
            reading_ns = sum(activity.ns for activity in self.activities if _is_wait(activity))
            caused_ns = max(caused_ns, min(ahead_ns, possible_ns - long_ns), reading_ns)
        return min(caused_ns, possible_ns)

    def launch_ns(self) -> int:
        """Return the idle time before launches: without long calls, the first step's start, and what follows a wait."""
        launching_ns = self.idle_ns(*LAUNCH_CAUSES)
        waiting_ns = max(0, self.wait_idle_ns(self.waits) - self.idle_ns("synchronization"))
        long_ns = sum(activity.long_ns for activity in self.long_calls())
        # the start contains long calls
        return max(0, launching_ns - waiting_ns - max(long_ns, self.start_ns - self.idle_ns("cold start")))

    def launch_share(self) -> float | None:
        """Return the share of the step that is idle before launches; None below the limits."""
        if self.events < MIN_DEVICE_EVENTS and not self.steps:
            return None
        launching_ns = self.launch_ns()
        share = self.share(launching_ns)
        if share < MIN_LAUNCH_SHARE:
            return None
        is_main = launching_ns >= MIN_LAUNCH_SHARE_OF_IDLE * self.idle_ns("unknown", *LAUNCH_CAUSES)
        return share if is_main or share >= LARGE_IDLE_SHARE else None


def is_operator(name: str) -> bool:
    """Return whether `name` is that of an operator, as ``aten::sort``."""
    return "::" in name and ".py(" not in name


def _is_wait(activity: HostActivity) -> bool:
    return not activity.launched and (activity.name in _READS or "Synchronize" in activity.name)


def is_runtime_call(name: str) -> bool:
    """Return whether `name` is that of a call of the device's runtime or driver."""
    return name.startswith(
        ("cuda", "hip", "cuMem", "cuLaunch", "cuModule", "cuLibrary", "cuCtx", "cuStream", "cuEvent")
    )


def idle_steps(report: Report | TraceReport) -> Iterator[IdleStep]:
    """Yield the idle time of the baseline of `report`, or of each trace; nothing for those that are too short."""
    steps = _steps(report)
    for step in steps:
        if step.span_ns >= MIN_SPAN_NS and step.busy_ns > 0:
            yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstIdle(Others, Generic[Match]):
    """The step on which a rule explains most."""

    step: IdleStep
    match: Match


def worst_idle(
    report: Report | TraceReport, find_match: Callable[[IdleStep], Match | None], weight: Callable[[Match], float]
) -> WorstIdle[Match] | None:
    """Return the step whose result of `find_match` has the largest `weight`; None if it is None for every step."""
    if (worst := find_worst(idle_steps(report), find_match, weight, lambda step: step.name)) is None:
        return None
    step, match, others = worst
    return WorstIdle(step=step, match=match, other_names=others)


def calls_text(activities: Iterable[HostActivity]) -> str:
    """Return the longest of `activities` in words: ``train.py(12): augment (31 ms) and aten::sort (2 ms)``.

    Calls from one place in the user's own code count together. Of calls in long gaps, the time in these gaps counts.
    """
    places: Counter[str] = Counter()
    for activity in activities:
        places[activity.source or call_name(activity)] += activity.long_ns or activity.ns
    return join_list([f"{place} ({text(ns, 'ns')})" for place, ns in places.most_common(MAX_LISTED_CALLS)])


def is_own_call(activity: HostActivity) -> bool:
    """Return whether an activity is a call that the user's own code makes outside torch, as ``<built-in function sleep>``."""
    return bool(activity.source) and not activity.name.startswith(
        ("torch/", "nn.Module: ", "<built-in method run_backward")
    )


def call_name(activity: HostActivity) -> str:
    """Return the name of an activity, with the user's own code around it where the trace shows it."""
    name = activity.name or "Python between operators"
    return f"{name} in {activity.source}" if activity.source and activity.source != name else name


def run_step(run: ConfigRun) -> IdleStep | None:
    """Return the traced steps of `run` with the idle time of its timed steps; None without a trace."""
    trace = measured_trace(run)
    return _run_step(_trace_step(trace, quoted_name(run)), Facts()) if trace is not None else None


def _run_step(step: IdleStep, facts: Facts) -> IdleStep:
    """Return `step` as one that the tool measured: its waits are not all the program's, and older files have no marks."""
    return replace(step, facts=facts, from_user=False, steps=max(1, step.steps))


@once_per_report
def _steps(report: Report | TraceReport) -> tuple[IdleStep, ...]:
    traces, facts = traces_of(report), facts_of(report) if isinstance(report, Report) else None
    several = isinstance(report, Report) or len(traces.traces) > 1
    steps = (_trace_step(trace, traces.name(trace) if several else "") for trace in traces.traces)
    return tuple(step if facts is None else _run_step(step, facts) for step in steps)


def _trace_step(trace: TraceSummary, name: str) -> IdleStep:
    median: float | None = trace.median_kernel_ns
    if median is None:
        kernels = [k for k in trace.kernels if k.calls > 0 and k.family != "memcpy/memset"]
        median = weighted_median((k.sum_ns / k.calls, k.calls) for k in kernels)
    return IdleStep(
        name=name,
        where=name,
        on_device=trace.clock == "device",
        steps=len(trace.working_steps),
        span_ns=trace.span_ns,
        busy_ns=trace.busy_ns,
        idle=trace.idle,
        waits=trace.syncs,
        activities=trace.activities,
        median_kernel_ns=median,
        events=trace.device_events,
        compile_ns=trace.compile_ns,
        launching=frozenset(operator.name for operator in trace.operators if operator.kernel_ns > 0),
        from_user=True,
        compiled=trace.compiled,
        graphs=trace.graph_launches > 0,
        first_excess_ns=_first_excess_ns(trace),
        single=_single_gap(trace),
        per_step=extent_text(trace),
        with_stack=trace.with_stack,
        has_launches=trace.linked > 0,
        facts=facts_of(trace),
        sites=trace.sites,
    )


def _single_gap(trace: TraceSummary) -> IdleTime | None:
    """Return the Python with a gap that is many times as long as all others together, in the first step.

    In a trace without several steps it may be the program's own work in each pass, if a call of its code is recorded there.
    """
    if trace.missing_share >= MAX_MISSING_SHARE:
        return None  # the events in the gap may have been removed
    python = [part for part in trace.idle if part.cause == "python"]
    longest = max(python, key=lambda part: part.longest_ns, default=None)
    if longest is None or longest.longest_ns < LONG_CALL_NS:
        return None
    total_ns = sum(part.ns for part in python)
    if longest.longest_ns <= FIRST_STEP_FACTOR * (total_ns - longest.longest_ns):
        return None
    if len(trace.working_steps) > 1:
        idle = [step.idle_ns or 0 for step in trace.working_steps]
        return longest if idle[0] == max(idle) else None
    is_named = any(_is_program(activity) and 2 * activity.ns > total_ns for activity in trace.activities)
    return None if is_named else longest


def _is_program(activity: HostActivity) -> bool:
    """Return whether an activity shows what the program does: its own call, a range that it marks, or its data loading."""
    return is_own_call(activity) or (activity.name != "" and activity.phase in ("", "other", "data"))


def _first_excess_ns(trace: TraceSummary) -> int:
    steps = trace.working_steps
    if len(steps) < MIN_COMPARED_STEPS:
        return 0
    times = [step.idle_ns if trace.clock == "device" else step.host_ns for step in steps]
    others = [ns for ns in times[1:] if ns is not None]
    if times[0] is None or not others:
        return 0
    usual_ns = statistics.median(others)
    if len(others) == 1 and steps[0].host_ns <= FIRST_STEP_FACTOR * statistics.median(
        step.host_ns for step in steps[1:]
    ):
        return 0  # the idle time of one other step is not the usual one
    return max(0, round(times[0] - usual_ns)) if times[0] > FIRST_STEP_FACTOR * usual_ns else 0
