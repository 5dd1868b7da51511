"""How fast a layer's counted work was done: effective FLOP/s, by which algorithm, beside the device's peak."""

from __future__ import annotations

from dataclasses import dataclass

from profiler_kit.devices.device import Peaks
from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.timing import layer_timing
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
        said = f"does {work(self.flops, 'FLOP')} in {text(self.ns, 'ns')}, an effective {_rate(self)}"
        if self.peak_flops_per_s is not None:
            share = percent(self.rate_flops_per_s / self.peak_flops_per_s)
            said += (
                f", {share} of the {text(self.peak_flops_per_s, 'flops/s')} that {self.device} reaches in {self.math}"
            )
        return f"{said}, by {family_words(self.family)}."

    def evidence(self) -> tuple[Evidence, ...]:
        """Time, rate, and share of the peak where it is known."""
        where = f"{self.path}, {self.phase}, {self.config}"
        found = [
            Evidence(name="device time", value=self.ns, unit="ns", where=where),
            Evidence(name="effective rate", value=self.rate_flops_per_s, unit="flops/s", where=where),
            Evidence(name="algorithm", value=family_words(self.family), unit="text", where=where),
        ]
        if self.peak_flops_per_s is not None:
            share = 100.0 * self.rate_flops_per_s / self.peak_flops_per_s
            found.append(Evidence(name=f"share of {self.math} peak", value=share, unit="percent", where=where))
        return tuple(found)


def efficiency(report: Report, run: ConfigRun, path: str, phase: CountPhase) -> Efficiency | None:
    """The layer's efficiency in `run`; None without a count, without device time, or on a CPU's operator clock."""
    timing = layer_timing(run, path, phase)
    node = next((n for n in report.static.modules if n.path == path), None) if report.static is not None else None
    if timing is None or node is None or run.clock != "kernel" or timing.kernel_ns <= 0:
        return None
    found = algorithm(timing.kernels)
    flops = node.cost(phase).flops
    if found is None or flops <= 0:
        return None
    device = run.environment.device_name if run.environment is not None else None
    peaks = peaks_of(device)
    return Efficiency(
        path=path,
        phase=phase,
        config=run.config.name,
        ns=timing.kernel_ns,
        flops=flops,
        family=found.family,
        math=found.math,
        device=device or "",
        peak_flops_per_s=_peak(peaks, found.family, found.math),
    )


def _peak(peaks: Peaks | None, family: str, math: str | None) -> float | None:
    return peaks.for_math(math) if peaks is not None and family not in FEWER_OPERATIONS else None


def _rate(found: Efficiency) -> str:
    return text(found.rate_flops_per_s, "flops/s")
