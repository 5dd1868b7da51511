"""Each convolution's parts beside the roof, and beside the same parts under other configurations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.records.counts import ModuleNode
from profiler_kit.records.families import brief_words, math_words
from profiler_kit.records.laboratory import ConvolutionTiming
from profiler_kit.records.paths import shown_path
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.sums import added

# The same kernel on the same shapes takes 2 to 3 % more or less in another process; from here on it is another time.
TIME_DIFFERS: Final = 0.05
# Of the baseline's convolutions in sum: where less is at stake, a difference in time alone is not told.
LEAST_SHARE: Final = 0.005

Difference = Literal["algorithm", "arithmetic", "kernel", "time"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvolutionRow:
    """A part of a convolution in one run, or several in one row (then `timing` is None and `label` says how many).

    `whole_ns`: device time of all the run's convolutions. `peak_flops_per_s`: the roof's in the part's arithmetic.
    `floor_ns`: the least time for the part's MACs at that peak and for its operands, each moved once, at the bandwidth.
    """

    config: str
    label: str
    timing: ConvolutionTiming | None = None
    kernel_ns: int
    layout_ns: int
    whole_ns: int
    peak_flops_per_s: float | None = None
    floor_ns: float | None = None

    @property
    def executed_ratio(self) -> float | None:
        """Operations executed, by hardware counters, over the two per MAC that are asked for."""
        timing = self.timing
        if timing is None or timing.counters is None or not timing.macs:
            return None
        return timing.counters.flops / (2 * timing.macs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeRow:
    """A part of a convolution that another configuration does in another way, or in another time."""

    baseline: str
    config: str
    before: ConvolutionTiming
    after: ConvolutionTiming
    differs: Difference

    @property
    def label(self) -> str:
        """The layer, as people are shown it."""
        return shown_path(self.before.path)

    @property
    def saved_ns(self) -> int:
        """How much less time it takes; negative where it takes more."""
        return self.before.kernel_ns - self.after.kernel_ns


def convolution_rows(report: Report, run: ConfigRun) -> list[ConvolutionRow]:
    """The parts of `run`'s convolutions, those that take most time first."""
    line = report.roofline_of(run) or report.roofline_of(report.baseline())
    roof = line.roof if line is not None else None
    nodes = {node.path: node for node in report.static.modules} if report.static is not None else {}
    whole_ns = sum(timing.kernel_ns for timing in run.convolutions)
    rows = [
        ConvolutionRow(
            config=run.config.name,
            label=shown_path(timing.path),
            timing=timing,
            kernel_ns=timing.kernel_ns,
            layout_ns=timing.layout_ns,
            whole_ns=whole_ns,
            peak_flops_per_s=_peak(timing, roof),
            floor_ns=_floor_ns(timing, nodes.get(timing.path), roof),
        )
        for timing in run.convolutions
    ]
    return sorted(rows, key=lambda row: -row.kernel_ns)  # stable: equals stay in the order in which they ran


def together(label: str, rows: Sequence[ConvolutionRow]) -> ConvolutionRow:
    """One row with the times of `rows` (at least one) in sum."""
    unknown = {"timing": None, "peak_flops_per_s": None, "floor_ns": None}
    return added(rows, "kernel_ns", "layout_ns", label=label, **unknown)


def change_rows(report: Report) -> list[ChangeRow]:
    """What differs from the baseline in every other configuration, the largest differences in time first."""
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


def fastest_ways(report: Report) -> list[ChangeRow]:
    """For each part that another configuration does faster, the first configuration that is about as fast as the fastest one.

    The largest savings first.
    """
    order = {run.config.name: i for i, run in enumerate(report.runs)}
    by_part: dict[tuple[str, str], list[ChangeRow]] = {}
    for row in sorted(change_rows(report), key=lambda row: order[row.config]):
        if row.saved_ns > TIME_DIFFERS * row.before.kernel_ns:
            by_part.setdefault((row.before.path, row.before.part), []).append(row)
    found = []
    for rows in by_part.values():
        fastest_ns = min(row.after.kernel_ns for row in rows)
        found.append(next(row for row in rows if row.after.kernel_ns <= (1 + TIME_DIFFERS) * fastest_ns))
    return sorted(found, key=lambda row: -row.saved_ns)


def algorithm_words(timing: ConvolutionTiming) -> str:
    """Family and arithmetic in few words: ``implicit GEMM (xmma), TF32``."""
    words = brief_words(timing.family)
    return f"{words}, {math_words(timing.math)}" if timing.math is not None else words


def _changes(baseline: ConfigRun, run: ConfigRun) -> Iterator[ChangeRow]:
    before = {(timing.path, timing.part): timing for timing in baseline.convolutions}
    least_ns = LEAST_SHARE * sum(timing.kernel_ns for timing in baseline.convolutions)
    for after in run.convolutions:
        one = before.get((after.path, after.part))
        differs = _difference(one, after, least_ns) if one is not None else None
        if one is not None and differs is not None:
            yield ChangeRow(
                baseline=baseline.config.name, config=run.config.name, before=one, after=after, differs=differs
            )


def _difference(before: ConvolutionTiming, after: ConvolutionTiming, least_ns: float) -> Difference | None:
    """What differs, the most telling first; another kernel of one family only where the time differs too."""
    if before.family != after.family:
        return "algorithm"
    if before.math != after.math:
        return "arithmetic"
    apart_ns = abs(after.kernel_ns - before.kernel_ns)
    if apart_ns <= TIME_DIFFERS * before.kernel_ns or apart_ns < least_ns:
        return None
    return "kernel" if before.kernel != after.kernel else "time"


def _peak(timing: ConvolutionTiming, roof: Roof | None) -> float | None:
    return roof.peak(timing.math) if roof is not None and timing.math is not None else None


def _floor_ns(timing: ConvolutionTiming, node: ModuleNode | None, roof: Roof | None) -> float | None:
    """The longer of arithmetic and operands. All parts have the same operands: input, weight and output, or their gradients."""
    peak = _peak(timing, roof)
    if peak is None or roof is None or node is None or timing.macs is None or not node.forward.macs:
        return None
    moved_bytes = node.forward.bytes_moved * timing.macs / node.forward.macs
    return 1e9 * max(2 * timing.macs / peak, moved_bytes / roof.bandwidth_bytes_per_s)
