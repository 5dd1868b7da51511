"""Times and shares of one run; None or empty if the run lacks the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from profiler_kit.records.counts import ModuleNode, Phase, StaticCount
from profiler_kit.records.families import Algorithm, is_convolution, main_algorithm
from profiler_kit.records.mean_step import LayerTiming
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import KernelStat


def module_node(static: StaticCount | None, path: str) -> ModuleNode | None:
    """Return the counted module at `path`; None without a count."""
    return next((node for node in static.modules if node.path == path), None) if static is not None else None


def layer_algorithm(run: ConfigRun, path: str, phase: Phase) -> Algorithm | None:
    """Return the algorithm that the run uses for one module and phase; None if it is unknown."""
    timing = layer_timing(run, path, phase)
    return main_algorithm(timing.kernels) if timing is not None else None


def ratio(part: float | None, total: float | None) -> float | None:
    """Return `part` / `total`; None if either is unknown or the total is zero."""
    return part / total if part is not None and total is not None and total > 0 else None


def phase_shares(run: ConfigRun, clock: Literal["stopwatch", "event", "kernel"]) -> dict[str, float]:
    """Return each phase's share of the time by `clock`; empty if the clock has no times.

    **Counts**: recomputation belongs to backward, because it runs there.
    """
    times: Counter[str] = Counter()
    for timing in run.phases:
        value = {"stopwatch": timing.stopwatch_ns, "event": timing.event_ns, "kernel": timing.kernel_ns}[clock]
        if value is not None:
            times["backward" if timing.phase == "recompute" else timing.phase] += value
    total = sum(times.values())
    return {phase: value / total for phase, value in times.items()} if total > 0 else {}


def busy_share(report: Report) -> float:
    """Return the share of the baseline's step in which the device (on a CPU: an operator) is busy; 1 if unknown.

    A share of the device time times this is a share of the step.
    """
    run = report.baseline()
    share = run.busy_share if run is not None else None
    return 1.0 if share is None else share


def layer_timing(run: ConfigRun, path: str, phase: Phase) -> LayerTiming | None:
    """Return the run's times for one module in one phase; None without any."""
    return next((item for item in run.modules if item.path == path and item.phase == phase), None)


def ns_by_family(run: ConfigRun) -> Counter[str]:
    """Return device time per kernel family, ns per step."""
    times: Counter[str] = Counter()
    for kernel in kernels_of(run):
        times[kernel.family] += kernel.kernel_ns
    return times


def kernels_of(run: ConfigRun) -> tuple[KernelStat, ...]:
    """Return all kernels of the run; those of its modules if the run has no kernel list."""
    return run.kernels or tuple(kernel for item in run.modules for kernel in item.kernels)


def tf32_convolution_ns(run: ConfigRun) -> int:
    """Return the device time of convolution kernels in TF32 arithmetic, ns per step."""
    return sum(k.kernel_ns for k in kernels_of(run) if k.math == "tf32" and is_convolution(k.family))


def weighted_median(lengths: Iterable[tuple[float, int]]) -> float | None:
    """Return the median length of calls, from pairs (length, calls); None without any."""
    ordered = sorted(lengths)
    total_calls = sum(calls for _, calls in ordered)
    cumulative_calls = 0
    for length, calls in ordered:
        cumulative_calls += calls
        if 2 * cumulative_calls >= total_calls:
            return length
    return None
