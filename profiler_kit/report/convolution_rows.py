"""The parts of convolutions with roofline figures, and their changes between configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.experiments import ConvolutionTiming
from profiler_kit.records.families import math_name, short_family_name
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import sum_fields

# Times of one kernel on the same shapes vary by 2 to 3 % between processes. From here on a difference counts.
MIN_TIME_DIFFERENCE: Final = 0.05
# Of the time of the baseline's convolutions: a smaller difference in time alone is ignored.
MIN_TOTAL_SHARE: Final = 0.005

Difference = Literal["algorithm", "arithmetic", "kernel", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionRow:
    """A part of a convolution in one run, or several merged (`timing` is None, `label` has their number).

    `total_ns`: device time of all convolutions of the run. `peak_flops_per_s`: the roofline's peak for the part's arithmetic.
    `floor_ns`: shortest possible time, for the part's MACs at that peak or for its operands, each moved once, at the bandwidth.
    """

    config: str
    label: str
    timing: ConvolutionTiming | None = None
    kernel_ns: int
    layout_ns: int
    total_ns: int
    peak_flops_per_s: float | None = None
    floor_ns: float | None = None

    @property
    def executed_ratio(self) -> float | None:
        """Operations executed (hardware counters) divided by 2 per MAC; None without counters."""
        timing = self.timing
        if timing is None or timing.counters is None or not timing.macs:
            return None
        return timing.counters.flops / (2 * timing.macs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A part of a convolution that differs between the baseline and another configuration, in method or time."""

    baseline: str
    config: str
    before: ConvolutionTiming
    after: ConvolutionTiming
    differs: Difference

    @property
    def label(self) -> str:
        """The layer's path as pages show it."""
        return shown_path(self.before.path)

    @property
    def saved_ns(self) -> int:
        """Time saved against the baseline; negative if the part is slower."""
        return self.before.kernel_ns - self.after.kernel_ns


def convolution_rows(report: Report, run: ConfigRun) -> list[ConvolutionRow]:
    """The parts of `run`'s convolutions, longest first."""
    line = report.roofline_of(run) or report.roofline_of(report.baseline())
    roof = line.roof if line is not None else None
    nodes = {node.path: node for node in report.static.modules} if report.static is not None else {}
    total_ns = sum(timing.kernel_ns for timing in run.convolutions)
    rows = [
        ConvolutionRow(
            config=run.config.name,
            label=shown_path(timing.path),
            timing=timing,
            kernel_ns=timing.kernel_ns,
            layout_ns=timing.layout_ns,
            total_ns=total_ns,
            peak_flops_per_s=_peak(timing, roof),
            floor_ns=_floor_ns(timing, nodes.get(timing.path), roof),
        )
        for timing in run.convolutions
    ]
    return sorted(rows, key=lambda row: -row.kernel_ns)  # the sort is stable: equal rows stay in execution order


def merge_convolutions(label: str, rows: Sequence[ConvolutionRow]) -> ConvolutionRow:
    """One row with the summed times of `rows`, which must not be empty."""
    unknown = {"timing": None, "peak_flops_per_s": None, "floor_ns": None}
    return sum_fields(rows, "kernel_ns", "layout_ns", label=label, **unknown)


def change_rows(report: Report) -> list[ChangeRow]:
    """Differences from the baseline in every other configuration, largest time difference first."""
    baseline = next((r for r in report.runs if r.convolutions and r.config.repeat_of is None), None)
    if baseline is None:
        return []
    rows = [
        row
        for run in report.runs
        if run is not baseline and run.config.repeat_of is None
        for row in _changes(baseline, run)
    ]
    return sorted(rows, key=lambda row: -abs(row.saved_ns))


def fastest_changes(report: Report) -> list[ChangeRow]:
    """For each part that is faster elsewhere, the first configuration within noise of the fastest; largest saving first."""
    order = {run.config.name: i for i, run in enumerate(report.runs)}
    by_part: dict[tuple[str, str], list[ChangeRow]] = {}
    for row in sorted(change_rows(report), key=lambda row: order[row.config]):
        if row.saved_ns > MIN_TIME_DIFFERENCE * row.before.kernel_ns:
            by_part.setdefault((row.before.path, row.before.part), []).append(row)
    fastest = []
    for rows in by_part.values():
        limit_ns = (1 + MIN_TIME_DIFFERENCE) * min(row.after.kernel_ns for row in rows)
        fastest.append(next(row for row in rows if row.after.kernel_ns <= limit_ns))
    return sorted(fastest, key=lambda row: -row.saved_ns)


def algorithm_words(timing: ConvolutionTiming) -> str:
    """Algorithm family and arithmetic: ``implicit GEMM (xmma), TF32``."""
    words = short_family_name(timing.family)
    return f"{words}, {math_name(timing.math)}" if timing.math is not None else words


def _changes(baseline: ConfigRun, run: ConfigRun) -> Iterator[ChangeRow]:
    by_part = {(timing.path, timing.part): timing for timing in baseline.convolutions}
    min_ns = MIN_TOTAL_SHARE * sum(timing.kernel_ns for timing in baseline.convolutions)
    for after in run.convolutions:
        before = by_part.get((after.path, after.part))
        difference = _difference(before, after, min_ns) if before is not None else None
        if before is not None and difference is not None:
            yield ChangeRow(
                baseline=baseline.config.name, config=run.config.name, before=before, after=after, differs=difference
            )


def _difference(before: ConvolutionTiming, after: ConvolutionTiming, min_ns: float) -> Difference | None:
    """The most informative difference. Another kernel of the same family counts only if the time differs too."""
    if before.family != after.family:
        return "algorithm"
    if before.math != after.math:
        return "arithmetic"
    difference_ns = abs(after.kernel_ns - before.kernel_ns)
    if difference_ns <= MIN_TIME_DIFFERENCE * before.kernel_ns or difference_ns < min_ns:
        return None
    return "kernel" if before.kernel != after.kernel else "time"


def _peak(timing: ConvolutionTiming, roof: Roof | None) -> float | None:
    return roof.peak(timing.math) if roof is not None and timing.math is not None else None


def _floor_ns(timing: ConvolutionTiming, node: ModuleNode | None, roof: Roof | None) -> float | None:
    """The longer of arithmetic and memory time. All parts have the same operands: input, weight, output, or their gradients."""
    peak = _peak(timing, roof)
    if peak is None or roof is None or node is None or timing.macs is None or not node.forward.macs:
        return None
    moved_bytes = node.forward.bytes_moved * timing.macs / node.forward.macs
    return 1e9 * max(2 * timing.macs / peak, moved_bytes / roof.bandwidth_bytes_per_s)
