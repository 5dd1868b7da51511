"""One step or trace as rules read it: its work, its idle time, and shares of both.

Rules read this record, so that one rule covers the baseline run of a report and each trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Generic, TypeVar

from profiler_kit.diagnosis.facts import Facts, facts_of
from profiler_kit.diagnosis.once import once_per_report
from profiler_kit.diagnosis.phrases import join_list, plural
from profiler_kit.diagnosis.recorded import traces_of
from profiler_kit.diagnosis.timing import weighted_median
from profiler_kit.records.claims import Claim, kernel_claims
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import IdleCause, IdleTime, TraceKernel, TraceSummary, idle_by_cause

Match = TypeVar("Match")

# Less device work than this is not a step: a launch takes 5 to 10 us, and the shares of a few kernels mean nothing.
MIN_BUSY_NS: Final = 100_000
# Neither is a shorter time.
MIN_SPAN_NS: Final = 100_000
# A device that is busy for less than half of the span does not limit it: infinitely fast kernels would save less than half.
MIN_BUSY_SHARE: Final = 0.5
MAX_LISTED_TRACES: Final = 4


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
    op: str | None = None
    math: str | None = None
    float64_ns: int = 0
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """The baseline run of a report, or one trace, as rules read it. Times are those of the whole trace.

    - `trace`: its summary, of the step without the profiler where that is known.
    - `name`: the trace's name, or the run's name in quotes; empty for a single trace.
    - `facts`: the facts that the run or the trace shows about the program.
    - `is_measured`: the tool itself ran the steps. Its own waits at the end of a step are not those of the program.
    """

    trace: TraceSummary
    name: str
    facts: Facts
    is_measured: bool = False

    @property
    def on_device(self) -> bool:
        """Whether the times are those of a device. Otherwise they are those of operators on the host."""
        return self.trace.clock == "device"

    @property
    def span_ns(self) -> int:
        """Busy plus idle time."""
        return self.trace.span_ns

    @property
    def busy_ns(self) -> int:
        """The time in which the device (an operator) runs."""
        return self.trace.busy_ns

    @property
    def idle(self) -> tuple[IdleTime, ...]:
        """Idle time by cause."""
        return self.trace.idle

    @cached_property
    def causes(self) -> Mapping[str, int]:
        """The idle time of each cause, longest first; time without an entry is of cause "unknown"."""
        causes = {str(cause): ns for cause, ns in idle_by_cause(self.idle).items()}
        if (missing_ns := self.trace.idle_ns - sum(causes.values())) > 0:
            causes["unknown"] = causes.get("unknown", 0) + missing_ns
        return dict(sorted(causes.items(), key=lambda item: -item[1]))

    @property
    def marked_steps(self) -> int:
        """The number of marked steps with work; 0 in a trace without marks."""
        return max(int(self.is_measured), len(self.trace.working_steps))

    @property
    def steps(self) -> int:
        """The number of steps in the times; 1 for a trace without marks."""
        return max(1, self.marked_steps)

    @property
    def per_step(self) -> str:
        """The words after a time: ``in 3 steps``."""
        if self.is_measured and not self.trace.steps:
            return "per step"
        if not self.trace.steps or self.trace.outside_ns:
            return "in the whole trace"
        return f"in {plural(self.steps, 'step')}"

    @property
    def prefix(self) -> str:
        """Prefix of a sentence that names the run or trace; empty for a single trace."""
        return f"In {self.name}: " if self.name else ""

    @property
    def clock_name(self) -> str:
        """``device time``, or ``operator time`` where there is no device."""
        return clock_name("kernel" if self.on_device else "operator")

    @property
    def device_type(self) -> str:
        """The type of the step's device, as torch.autocast reads it."""
        return "cuda" if self.on_device else "cpu"

    @property
    def autocast(self) -> str:
        """The call of autocast to bfloat16 on the device of the step."""
        return f"torch.autocast(device_type='{self.device_type}', dtype=torch.bfloat16)"

    @property
    def is_rocm(self) -> bool:
        """Whether the device is an AMD one, on which MIOpen computes convolutions."""
        return any(name.startswith("AMD") for name in self.trace.devices) or any(
            "MIOpen" in kernel.family for kernel in self.trace.kernels
        )

    @property
    def busy_share(self) -> float:
        """The share of the step that is not idle."""
        return 1.0 - self.share(sum(part.ns for part in self.idle))

    @property
    def is_mostly_busy(self) -> bool:
        """Whether a device is busy for at least half of the span, so that kernels decide its length."""
        return self.on_device and self.busy_ns >= MIN_BUSY_SHARE * self.span_ns

    @cached_property
    def operators(self) -> tuple[Work, ...]:
        """The operators; empty for an older run on a device."""
        return tuple(
            Work(name=o.name, family=o.family, calls=o.calls, ns=o.kernel_ns, float64_ns=o.float64_ns, dtypes=o.dtypes)
            for o in self.trace.operators
        )

    @cached_property
    def kernels(self) -> tuple[Work, ...]:
        """The kernels, in an older run those of its modules; on a CPU the operators."""
        if not self.on_device:
            return self.operators
        if not self.trace.kernels:
            return tuple(work_of(kernel) for module in self.trace.modules for kernel in module.kernels)
        return tuple(
            Work(name=k.name, family=k.family, calls=k.calls, ns=k.kernel_ns, op=k.op, math=k.math)
            for k in self.trace.kernels
        )

    @cached_property
    def phase_ns(self) -> Mapping[str, int]:
        """The work of each phase."""
        return {timing.phase: timing.kernel_ns or 0 for timing in self.trace.phases}

    @cached_property
    def phase_calls(self) -> Mapping[str, int]:
        """The number of kernels of each phase."""
        return {timing.phase: timing.events for timing in self.trace.phases}

    @cached_property
    def module_ns(self) -> Counter[str]:
        """The work of each module, excluding children."""
        times: Counter[str] = Counter()
        for module in self.trace.modules:
            times[module.path] += module.kernel_ns
        return times

    @property
    def median_kernel_ns(self) -> float | None:
        """The median duration of kernels; copies and fills are not counted. None without kernels."""
        if self.trace.median_kernel_ns is not None:
            return self.trace.median_kernel_ns
        kernels = [k for k in self.trace.kernels if k.calls > 0 and k.family != "memcpy/memset"]
        return weighted_median((k.duration_ns / k.calls, k.calls) for k in kernels)

    @property
    def host_data_ns(self) -> int:
        """The time of operators that make batches on the host; operators have no phase, so it may be part of any of them."""
        return 0 if self.on_device else self.phase_ns.get("data", 0)

    def share(self, ns: float) -> float:
        """Return `ns` as a share of the step."""
        return min(1.0, ns / self.span_ns)

    def idle_ns(self, *causes: IdleCause) -> int:
        """Return the idle time of `causes`."""
        return sum(part.ns for part in self.idle if part.cause in causes)

    def kernel_ns(self, matches: Callable[[Work], bool]) -> int:
        """Return the time of the kernels that `matches` accepts."""
        return sum(kernel.ns for kernel in self.kernels if matches(kernel))

    def select(self, matches: Callable[[Work], bool], *, operators: bool = False) -> tuple[Work, ...]:
        """Return the kernels (or `operators`) with time that `matches` accepts, longest first."""
        work = self.operators if operators else self.kernels
        return tuple(sorted((item for item in work if item.ns > 0 and matches(item)), key=lambda item: -item.ns))

    def layers(self, matches: Callable[[Work], bool]) -> dict[str, int]:
        """Return the time of the kernels that `matches` accepts in each module, longest first.

        In a trace of `inspect`, work without a path is outside all modules. In a run it is that of the model's own code.
        """
        times: Counter[str] = Counter()
        for module in self.trace.modules:
            if module.path or self.is_measured:
                times[module.path] += sum(item.ns for item in map(work_of, module.kernels) if matches(item))
        return {path: ns for path, ns in times.most_common() if ns}


def work_of(kernel: TraceKernel) -> Work:
    """Return a kernel of a module as work."""
    return Work(
        name=kernel.name, family=kernel.family, calls=kernel.calls, ns=kernel.kernel_ns, op=kernel.op, math=kernel.math
    )


def total_ns(work: Iterable[Work]) -> int:
    """Return the time of all `work`."""
    return sum(item.ns for item in work)


def total_calls(work: Iterable[Work]) -> int:
    """Return the calls of all `work`."""
    return sum(item.calls for item in work)


def work_claims(work: StepWork, items: Iterable[Work]) -> tuple[Claim, ...]:
    """Return claims for `items`: for kernels by name, and for operators on a device by the kernels of their families.

    A record has no link from operators to kernels, so the weight of the finding limits what the claims explain.
    """
    items = tuple(items)
    names = {item.name for item in items}
    families = {item.family.partition(":")[0] for item in items if item not in work.kernels}
    return kernel_claims(
        kernel.name
        for kernel in work.kernels
        if kernel.ns > 0 and (kernel.name in names or kernel.family.partition(":")[0] in families)
    )


@once_per_report  # a trace can have 100,000 names
def all_steps(report: Report | TraceReport) -> tuple[StepWork, ...]:
    """Return the baseline of `report`, or each trace."""
    traces, facts = traces_of(report), facts_of(report) if isinstance(report, Report) else None
    is_single = facts is None and len(traces.traces) == 1
    return tuple(
        StepWork(
            trace=trace,
            name="" if is_single else traces.name(trace),
            facts=facts or facts_of(trace),
            is_measured=facts is not None,
        )
        for trace in traces.traces
    )


def step_works(report: Report | TraceReport) -> Iterator[StepWork]:
    """Yield the baseline of `report`, or each trace; nothing for those with less than `MIN_BUSY_NS`."""
    for work in all_steps(report):
        if work.busy_ns >= MIN_BUSY_NS and work.span_ns >= work.busy_ns:
            yield work


def idle_steps(report: Report | TraceReport) -> Iterator[StepWork]:
    """Yield the baseline of `report`, or each trace; nothing for those that are shorter than `MIN_SPAN_NS` or have no work."""
    for step in all_steps(report):
        if step.span_ns >= MIN_SPAN_NS and step.busy_ns > 0:
            yield step


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstStep(Generic[Match]):
    """The step on which a rule explains most. `other_names`: the names of the other steps on which the rule fires."""

    step: StepWork
    match: Match
    other_names: tuple[str, ...]

    def others_sentence(self) -> str:
        """Return a sentence that names the other traces on which the rule fires; empty without any."""
        if len(self.other_names) > MAX_LISTED_TRACES:
            return f"The same holds for {plural(len(self.other_names), 'other trace')}."
        return f"The same holds for {join_list(self.other_names)}." if self.other_names else ""


def worst_step(
    steps: Iterable[StepWork], find_match: Callable[[StepWork], Match | None], weight: Callable[[Match], float]
) -> WorstStep[Match] | None:
    """Return the step whose result of `find_match` has the largest `weight`; None if it is None for every step."""
    matches = [(step, match) for step in steps if (match := find_match(step)) is not None]
    if not matches:
        return None
    worst, match = max(matches, key=lambda pair: weight(pair[1]))
    return WorstStep(step=worst, match=match, other_names=tuple(step.name for step, _ in matches if step is not worst))
