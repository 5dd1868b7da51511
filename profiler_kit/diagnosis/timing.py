"""Times and shares of one run; None or empty if the run lacks the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.phrases import work_text
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.records.counts import CountPhase, ModuleNode, Phase, StaticCount
from profiler_kit.records.families import (
    REDUCED_OPERATION_FAMILIES,
    family_name,
    is_convolution,
    main_algorithm,
)
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.traces import TraceKernel, TraceModule
from profiler_kit.units import percent, text


def module_node(static: StaticCount | None, path: str) -> ModuleNode | None:
    """Return the counted module at `path`; None without a count."""
    return next((node for node in static.modules if node.path == path), None) if static is not None else None


def layer_algorithm(run: ConfigRun, path: str, phase: Phase) -> TraceKernel | None:
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


def layer_timing(run: ConfigRun, path: str, phase: Phase) -> TraceModule | None:
    """Return the run's times for one module in one phase; None without any."""
    return next((item for item in run.modules if item.path == path and item.phase == phase), None)


def kernels_of(run: ConfigRun) -> tuple[TraceKernel, ...]:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """One layer in one phase of one run.

    `peak_flops_per_s`: the datasheet peak for the arithmetic of the kernels. None if it is unknown, or if the algorithm
    executes fewer operations than are counted (FFT, Winograd): a share of the peak would have no meaning.
    """

    path: str
    phase: Phase
    config: str
    ns: int
    flops: int
    family: str
    math: str | None
    device: str
    peak_flops_per_s: float | None

    @property
    def rate_flops_per_s(self) -> float:
        """Counted (not executed) FLOPs over device time."""
        return self.flops / (self.ns * 1e-9)

    def sentence(self) -> str:
        """Return a predicate: ``computes 402.7 GFLOP in 9.7 ms with implicit GEMM (xmma): 41.5 TFLOP/s, 8.4 % of …``."""
        rate, peak = self.rate_flops_per_s, self.peak_flops_per_s
        share = ""
        if peak is not None:
            share = f", {percent(rate / peak)} of the {self.math} peak of {self.device} ({text(peak, 'flops/s')})"
        return (
            f"computes {work_text(self.flops, 'FLOP')} in {text(self.ns, 'ns')} with {family_name(self.family)}: "
            f"{text(rate, 'flops/s')}{share}."
        )

    def evidence(self) -> Iterator[Evidence]:
        """Return time, rate and algorithm, and the share of the peak if it is known."""
        where = f"{self.path}, {self.phase}, {self.config}"
        rate, peak = self.rate_flops_per_s, self.peak_flops_per_s
        return evidence_of(
            where,
            ("device time", self.ns, "ns"),
            ("effective rate", rate, "flops/s"),
            ("algorithm", family_name(self.family), "text"),
            (f"share of {self.math} peak", 100.0 * rate / peak if peak is not None else None, "percent"),
        )


def efficiency(report: Report, run: ConfigRun, path: str, phase: CountPhase) -> Efficiency | None:
    """Return the efficiency of a layer in `run`; None without a count, without device time, or on a CPU."""
    timing = layer_timing(run, path, phase)
    node = module_node(report.static, path)
    if timing is None or node is None or run.clock != "kernel" or timing.kernel_ns <= 0:
        return None
    used = main_algorithm(timing.kernels)
    flops = node.cost(phase).flops
    if used is None or flops <= 0:
        return None
    device = run.environment.device_name if run.environment is not None else None
    peaks = peaks_of(device) if used.family not in REDUCED_OPERATION_FAMILIES else None
    return Efficiency(
        path=path,
        phase=phase,
        config=run.config.name,
        ns=timing.kernel_ns,
        flops=flops,
        family=used.family,
        math=used.math,
        device=device or "",
        peak_flops_per_s=peaks.for_math(used.math) if peaks is not None else None,
    )
