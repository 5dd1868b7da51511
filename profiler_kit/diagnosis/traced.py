"""What rules read off inspected traces, and how one finding speaks for many traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from profiler_kit.diagnosis.timing import median_length
from profiler_kit.diagnosis.words import listing, plural
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.report import TraceReport
from profiler_kit.records.traces import IdleCause, TraceKernel, TraceSummary

Found = TypeVar("Found")

# Below half of the span, a device that did its work in no time would still leave most of the time as it is.
WORKS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Gravest(Generic[Found]):
    """What a rule found in the trace where it is gravest. `where`: its name, "" where it is the only one; `also`: the others'."""

    trace: TraceSummary
    found: Found
    where: str
    also: tuple[str, ...]

    @property
    def place(self) -> str:
        """The beginning of a sentence that says which trace it is about; empty where there is only one."""
        return f"In {self.where}: " if self.where else ""

    def others(self) -> str:
        """Which other traces have the same, as a sentence; empty for none."""
        if len(self.also) > 4:
            return f"{plural(len(self.also), 'other trace')} of these have it too."
        return f"It is so in {listing(self.also)} too." if self.also else ""


def gravest(
    report: TraceReport, look: Callable[[TraceSummary], Found | None], weight: Callable[[Found], float]
) -> Gravest[Found] | None:
    """What `look` finds, in the trace where it weighs most; None where it finds nothing in any."""
    seen = [(trace, found) for trace in report.traces if (found := look(trace)) is not None]
    if not seen:
        return None
    trace, found = max(seen, key=lambda pair: weight(pair[1]))
    several = len(report.traces) > 1
    return Gravest(
        trace=trace,
        found=found,
        where=report.name(trace) if several else "",
        also=tuple(report.name(other) for other, _ in seen if other is not trace),
    )


def on_device(trace: TraceSummary) -> bool:
    """Whether the trace holds work of a device, and time in which it ran."""
    return trace.clock == "device" and trace.busy_ns > 0 and trace.span_ns > 0


def works(trace: TraceSummary) -> bool:
    """Whether the device works for at least half of the span, so that what it works on decides how long everything takes."""
    return on_device(trace) and trace.busy_ns >= WORKS * trace.span_ns


def idle_ns(trace: TraceSummary, *causes: IdleCause) -> int:
    """Idle time of `causes`."""
    return sum(idle.ns for idle in trace.idle if idle.cause in causes)


def kernels_ns(trace: TraceSummary, which: Callable[[TraceKernel], bool]) -> int:
    """Busy time of the kernels that `which` takes."""
    return sum(kernel.kernel_ns for kernel in trace.kernels if which(kernel))


def median_kernel_ns(kernels: Iterable[TraceKernel]) -> float | None:
    """The duration that half of all kernels stay below, from each name's mean and its calls; copies and fills left out."""
    return median_length((k.sum_ns / k.calls, k.calls) for k in kernels if k.calls > 0 and k.family != "memcpy/memset")


def step_count(trace: TraceSummary) -> int:
    """How many steps the trace is of: the marked ones, or one where none is."""
    return max(1, len(trace.steps))


def module_times(trace: TraceSummary) -> Counter[str]:
    """Busy time of each module's own work, over all phases; work in no module, and owners that are none, left out."""
    times: Counter[str] = Counter()
    for module in trace.modules:
        if module.path and module.path not in PSEUDO_PATHS:
            times[module.path] += module.kernel_ns
    return times
