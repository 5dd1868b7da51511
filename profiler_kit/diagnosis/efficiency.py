"""The effective FLOP/s of a layer: its counted FLOPs over its device time, compared with the device's peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.phrases import work_text
from profiler_kit.diagnosis.rule import evidence_of
from profiler_kit.diagnosis.timing import layer_timing, module_node
from profiler_kit.records.counts import CountPhase, Phase
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, family_name, main_algorithm
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text


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
