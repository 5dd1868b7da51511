"""The work of one step or trace: kernels (on a CPU: operators), phases and modules, with their shares of the step.

Rules about device and operator time read this record, so that one rule covers the baseline run of a report and each trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, Literal, TypeVar

from profiler_kit.diagnosis.advice import NO_TRIALS, AdviceTrials, find_trials
from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.idle_time import LAUNCH_CAUSES
from profiler_kit.diagnosis.once import once_per_report
from profiler_kit.diagnosis.recorded import traces_of
from profiler_kit.diagnosis.trace_facts import MIN_BUSY_NS, extent_text
from profiler_kit.diagnosis.worst import Others, find_worst
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import IdleTime, ShapedOperator, TraceSummary

Match = TypeVar("Match")


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The calls and the time of one kernel or operator, excluding operators that it calls.

    `float64_ns`: the part of `ns` in calls whose first input is a float64 tensor, where a trace records types.
    `dtypes`: the recorded types of the first inputs, the one with the most time first.
    """

    name: str
    family: str
    calls: int
    ns: int
    math: str | None = None
    float64_ns: int = 0
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of the baseline run, per step, or of one trace.

    - `source`: the trace's name, or the run's name in quotes; empty for a single trace.
    - `clock`: ``device``, or ``operator`` where the times are those of operators on the host.
    - `steps`: the number of steps in the times; 1 for a run, and for a trace without step marks.
    - `span_ns`: busy plus idle time. `busy_ns`: the time in which the device (an operator) runs.
    - `kernels`: kernels; with the clock ``operator``, operators. `operators`: operators; empty for a run on a device.
    - `phase_ns`, `module_ns`: work by phase and by module. `phase_calls`: the number of kernels of each phase.
    - `idle`: idle time. `shapes`: operators by input shapes. `per_step`: the words after a time: ``in 3 steps``.
    - `facts`: the facts that the run or the trace shows about the program.
    """

    source: str
    clock: Literal["device", "operator"]
    steps: int
    span_ns: int
    busy_ns: int
    kernels: tuple[Work, ...]
    operators: tuple[Work, ...]
    phase_ns: Mapping[str, int]
    phase_calls: Mapping[str, int]
    module_ns: Mapping[str, int]
    idle: tuple[IdleTime, ...]
    shapes: tuple[ShapedOperator, ...] = ()
    per_step: str = "per step"
    facts: Facts = field(default_factory=Facts)

    @property
    def clock_name(self) -> str:
        """``device time``, or ``operator time`` where there is no device."""
        return clock_name("kernel" if self.clock == "device" else "operator")

    @property
    def device_type(self) -> str:
        """The type of the step's device, as torch.autocast reads it."""
        return "cuda" if self.clock == "device" else "cpu"

    @property
    def autocast(self) -> str:
        """The call of autocast to bfloat16 on the device of the step."""
        return f"torch.autocast(device_type='{self.device_type}', dtype=torch.bfloat16)"

    @property
    def host_data_ns(self) -> int:
        """The time of operators that make batches on the host; operators have no phase, so it may be part of any of them."""
        return self.phase_ns.get("data", 0) if self.clock == "operator" else 0

    @property
    def sentence_prefix(self) -> str:
        """Prefix of a sentence that names the run or trace; empty for a single trace."""
        return f"In {self.source}: " if self.source else ""

    def share(self, ns: float) -> float:
        """Return `ns` as a share of the step."""
        return min(1.0, ns / self.span_ns)

    def kernel_ns(self, matches: Callable[[Work], bool]) -> int:
        """Return the time of the kernels that `matches` accepts."""
        return sum(kernel.ns for kernel in self.kernels if matches(kernel))

    def select(self, matches: Callable[[Work], bool], *, operators: bool = False) -> tuple[Work, ...]:
        """Return the kernels (or `operators`) with time that `matches` accepts, longest first."""
        work = self.operators if operators else self.kernels
        return tuple(sorted((item for item in work if item.ns > 0 and matches(item)), key=lambda item: -item.ns))


def total_ns(work: Iterable[Work]) -> int:
    """Return the time of all `work`."""
    return sum(item.ns for item in work)


def total_calls(work: Iterable[Work]) -> int:
    """Return the calls of all `work`."""
    return sum(item.calls for item in work)


def launch_idle_ns(work: StepWork, items: Iterable[Work]) -> float:
    """Return the idle time before the launches of kernels `items`: their part of all launches, of the idle time of launches."""
    idle_ns = sum(part.ns for part in work.idle if part.cause in LAUNCH_CAUSES)
    return idle_ns * total_calls(items) / max(1, total_calls(work.kernels)) if work.clock == "device" else 0.0


def work_claims(work: StepWork, items: Iterable[Work]) -> tuple[str, ...]:
    """Return claims for `items`: for kernels by name, and for operators on a device by the kernels of their families.

    A record has no link from operators to kernels, so the weight of the finding limits what the claims explain.
    """
    items = tuple(items)
    names = {item.name for item in items}
    families = {item.family.partition(":")[0] for item in items if item not in work.kernels}
    return tuple(
        f"busy:kernel:{kernel.name}"
        for kernel in work.kernels
        if kernel.ns > 0 and (kernel.name in names or kernel.family.partition(":")[0] in families)
    )


def step_works(report: Report | TraceReport) -> Iterator[StepWork]:
    """Yield the work of the baseline of `report`, or of each trace; nothing for those with less than `MIN_BUSY_NS`."""
    works = _works(report)
    for work in works:
        if work.busy_ns >= MIN_BUSY_NS and work.span_ns >= work.busy_ns:
            yield work


@once_per_report  # a trace can have 100,000 names
def _works(report: Report | TraceReport) -> tuple[StepWork, ...]:
    traces, facts = traces_of(report), facts_of(report) if isinstance(report, Report) else None
    several = isinstance(report, Report) or len(traces.traces) > 1
    works = (trace_work(trace, traces.name(trace) if several else "") for trace in traces.traces)
    return tuple(work if facts is None else replace(work, facts=facts) for work in works)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstStep(Others, Generic[Match]):
    """The step on which a rule explains most."""

    work: StepWork
    match: Match


def worst_step(
    report: Report | TraceReport, find_match: Callable[[StepWork], Match | None], weight: Callable[[Match], float]
) -> WorstStep[Match] | None:
    """Return the step whose result of `find_match` has the largest `weight`; None if it is None for every step."""
    if (worst := find_worst(step_works(report), find_match, weight, lambda work: work.source)) is None:
        return None
    work, match, others = worst
    return WorstStep(work=work, match=match, other_names=others)


def busy_share(report: Report) -> float:
    """Return the share of the baseline's step in which the device (on a CPU: an operator) is busy; 1 if unknown.

    A share of the device time times this is a share of the step.
    """
    run = report.baseline()
    share = run.busy_share if run is not None else None
    return 1.0 if share is None else share


def names_claims(names: Iterable[str]) -> tuple[str, ...]:
    """Return a claim for each kernel name."""
    return tuple(f"busy:kernel:{name}" for name in names)


def module_claims(paths: Iterable[str]) -> tuple[str, ...]:
    """Return a claim for each module path."""
    return tuple(f"busy:module:{path}" for path in paths)


def trials_of(report: Report | TraceReport, *words: str) -> AdviceTrials:
    """Return the configurations that add one of `words` to the baseline, with trials; none for traces."""
    run = report.baseline() if isinstance(report, Report) else None
    return find_trials(report, run, words) if isinstance(report, Report) and run is not None else NO_TRIALS


def trace_work(trace: TraceSummary, source: str) -> StepWork:
    """Return the work of `trace`."""
    operators = tuple(
        Work(name=o.name, family=o.family, calls=o.calls, ns=o.kernel_ns, float64_ns=o.float64_ns, dtypes=o.dtypes)
        for o in trace.operators
    )
    on_device = trace.clock == "device"
    modules: Counter[str] = Counter()
    for module in trace.modules:
        modules[module.path] += module.kernel_ns
    kernels = tuple(
        Work(name=k.name, family=k.family, calls=k.calls, ns=k.kernel_ns, math=k.math) for k in trace.kernels
    )
    return StepWork(
        source=source,
        clock="device" if on_device else "operator",
        steps=max(1, len(trace.working_steps)),
        span_ns=trace.span_ns,
        busy_ns=trace.busy_ns,
        kernels=kernels if on_device else operators,
        operators=operators,
        phase_ns={timing.phase: timing.kernel_ns for timing in trace.phases},
        phase_calls={timing.phase: timing.events for timing in trace.phases},
        module_ns=modules,
        idle=trace.idle,
        shapes=trace.shapes,
        per_step=extent_text(trace),
        facts=facts_of(trace),
    )
