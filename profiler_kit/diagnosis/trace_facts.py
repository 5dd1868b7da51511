"""Times and shares of inspected traces, and the choice of the worst trace for a finding."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from profiler_kit.diagnosis.phrases import plural
from profiler_kit.diagnosis.recorded import traces_of
from profiler_kit.diagnosis.timing import weighted_median
from profiler_kit.diagnosis.worst import Others, find_worst
from profiler_kit.records.comparison import clock_name
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import IdleCause, TraceKernel, TraceSummary

Match = TypeVar("Match")


# The names of what torch.compile makes of a module. A user cannot edit them.
_GENERATED: Final = re.compile(
    r"Torch-Compiled Region|GraphModule(_\d+)?\Z|Compiled(Function|FxGraph)|\A<eval_with_key>"
)

# Less device work than this is not a step: a launch takes 5 to 10 us, and the shares of a few kernels mean nothing.
MIN_BUSY_NS: Final = 100_000

# A device that is busy for less than half of the span does not limit it: infinitely fast kernels would save less than half.
MIN_BUSY_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class WorstTrace(Others, Generic[Match]):
    """The worst of the traces on which a rule fires.

    `match`: the result of the rule's check. `where`: the trace's name, empty for a single trace.
    """

    trace: TraceSummary
    match: Match
    where: str

    @property
    def sentence_prefix(self) -> str:
        """Prefix of a sentence that names the trace; empty for a single trace."""
        return f"In {self.where}: " if self.where else ""


def worst_trace(
    report: Report | TraceReport, find_match: Callable[[TraceSummary], Match | None], weight: Callable[[Match], float]
) -> WorstTrace[Match] | None:
    """Return the trace whose match has the largest `weight`, or the baseline's; None if no trace has a match."""
    traces = traces_of(report)
    if (worst := find_worst(traces.traces, find_match, weight, traces.name)) is None:
        return None
    trace, match, others = worst
    where = traces.name(trace) if isinstance(report, Report) or len(traces.traces) > 1 else ""
    return WorstTrace(trace=trace, match=match, where=where, other_names=others)


def on_device(trace: TraceSummary) -> bool:
    """Return whether the trace has device events with a duration."""
    return trace.clock == "device" and trace.busy_ns > 0 and trace.span_ns > 0


def is_rocm(trace: TraceSummary) -> bool:
    """Return whether the device is an AMD one, on which MIOpen computes convolutions."""
    return any(name.startswith("AMD") for name in trace.devices) or any("MIOpen" in k.family for k in trace.kernels)


def is_mostly_busy(trace: TraceSummary) -> bool:
    """Return whether the device is busy for at least half of the span, so that kernels decide its length.

    A trace with less work than `MIN_BUSY_NS` is not.
    """
    enough_work = on_device(trace) and trace.busy_ns >= MIN_BUSY_NS
    return enough_work and trace.busy_ns >= MIN_BUSY_SHARE * trace.span_ns


def trace_clock_name(trace: TraceSummary) -> str:
    """Return ``device time``, or ``operator time`` for a trace without device work."""
    return clock_name("kernel" if trace.clock == "device" else "operator")


def step_share(trace: TraceSummary, ns: float) -> float:
    """Return `ns` of busy time as a share of the trace's time."""
    return min(1.0, ns / trace.span_ns) if trace.span_ns else 0.0


def idle_ns(trace: TraceSummary, *causes: IdleCause) -> int:
    """Return the idle time attributed to `causes`."""
    return sum(idle.ns for idle in trace.idle if idle.cause in causes)


def kernels_ns(trace: TraceSummary, matches: Callable[[TraceKernel], bool]) -> int:
    """Return the busy time of the kernels that `matches` accepts."""
    return sum(kernel.kernel_ns for kernel in trace.kernels if matches(kernel))


def median_kernel_ns(kernels: Iterable[TraceKernel]) -> float | None:
    """Return the median duration of kernels, from the mean and the calls of each name; copies and fills are not counted."""
    return weighted_median(
        (k.sum_ns / k.calls, k.calls) for k in kernels if k.calls > 0 and k.family != "memcpy/memset"
    )


def extent_text(trace: TraceSummary) -> str:
    """Return words that say of what part of `trace` its times are: ``in 3 steps``."""
    if not trace.steps or trace.outside_ns:
        return "in the whole trace"
    return f"in {plural(step_count(trace), 'step')}"


def step_count(trace: TraceSummary) -> int:
    """Return the number of marked steps with work, or 1 without step marks."""
    return max(1, len(trace.working_steps))


def module_times(trace: TraceSummary) -> Counter[str]:
    """Return the self time of each module of the source over all phases.

    **Counts**: not unattributed work, pseudo paths, and what torch.compile generates.
    """
    times: Counter[str] = Counter()
    for module in trace.modules:
        if module.path and module.path not in PSEUDO_PATHS and not is_generated(module.path):
            times[module.path] += module.kernel_ns
    return times


def compiled_sources(trace: TraceSummary) -> tuple[str, ...]:
    """Return the modules of the source that contain compiled regions, longest first."""
    times: Counter[str] = Counter()
    for module in trace.modules:
        parts = module.path.split(".")
        generated = next((i for i, part in enumerate(parts) if _GENERATED.search(part)), None)
        if generated:
            times[".".join(part for part in parts[:generated] if not part.startswith("OptimizedModule"))] += (
                module.kernel_ns
            )
    return tuple(path for path, _ in times.most_common() if path)


def is_generated(path: str) -> bool:
    """Return whether torch.compile made the module at `path`, so that it is not in the user's source."""
    return any(_GENERATED.search(part) for part in path.split("."))
