"""How fast a layer's counted work was done: effective FLOP/s, by which algorithm, beside the device's peak."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.rule import known
from profiler_kit.diagnosis.timing import layer_timing, node_of
from profiler_kit.diagnosis.words import work
from profiler_kit.records.counts import CountPhase, Phase
from profiler_kit.records.families import FEWER_OPERATIONS, algorithm, family_words
from profiler_kit.records.report import Evidence, Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.units import percent, text


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """One layer in one phase of one run. `rate_flops_per_s` is the counted work over its device time, not executed work.

    `peak_flops_per_s` is the datasheet's for the kernels' arithmetic; None where either is unknown, or where the algorithm
    executes fewer operations than are counted, so that a share of the peak would say nothing.
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
        """Counted FLOPs over device time."""
        return self.flops / (self.ns * 1e-9)

    def sentence(self) -> str:
        """A sentence's end: ``runs 402.7 GFLOP in 9.7 ms, an effective 41.5 TFLOP/s …, by implicit GEMM (xmma).``"""
        rate, peak = self.rate_flops_per_s, self.peak_flops_per_s
        beside = ""
        if peak is not None:
            beside = (
                f", {percent(rate / peak)} of the {text(peak, 'flops/s')} that {self.device} reaches in {self.math}"
            )
        return (
            f"does {work(self.flops, 'FLOP')} in {text(self.ns, 'ns')}, an effective {text(rate, 'flops/s')}{beside}, by "
            f"{family_words(self.family)}."
        )

    def evidence(self) -> Iterator[Evidence]:
        """Time, rate, and share of the peak where it is known."""
        where = f"{self.path}, {self.phase}, {self.config}"
        rate, peak = self.rate_flops_per_s, self.peak_flops_per_s
        return known(
            where,
            ("device time", self.ns, "ns"),
            ("effective rate", rate, "flops/s"),
            ("algorithm", family_words(self.family), "text"),
            (f"share of {self.math} peak", 100.0 * rate / peak if peak is not None else None, "percent"),
        )


def efficiency(report: Report, run: ConfigRun, path: str, phase: CountPhase) -> Efficiency | None:
    """The layer's efficiency in `run`; None without a count, without device time, or on a CPU's operator clock."""
    timing = layer_timing(run, path, phase)
    node = node_of(report.static, path)
    if timing is None or node is None or run.clock != "kernel" or timing.kernel_ns <= 0:
        return None
    found = algorithm(timing.kernels)
    flops = node.cost(phase).flops
    if found is None or flops <= 0:
        return None
    device = run.environment.device_name if run.environment is not None else None
    peaks = peaks_of(device) if found.family not in FEWER_OPERATIONS else None
    return Efficiency(
        path=path,
        phase=phase,
        config=run.config.name,
        ns=timing.kernel_ns,
        flops=flops,
        family=found.family,
        math=found.math,
        device=device or "",
        peak_flops_per_s=peaks.for_math(found.math) if peaks is not None else None,
    )
