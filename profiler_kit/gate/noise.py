"""How much two steps must differ before the difference is one: more than intervals and than processes of one configuration."""

from __future__ import annotations

from typing import Final

from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.samples import Interval
from profiler_kit.units import digits

# Two processes of one configuration agree by luck now and then, so a small gap between them proves little.
LEAST_NOISE: Final = 0.02
# Without a repeated run: steps of one process are no replicates, processes on a shared machine differ by a few percent.
ASSUMED_NOISE: Final = 0.05


def process_noise(report: Report) -> float | None:
    """The largest relative gap between two processes of one configuration; None where none ran twice."""
    gaps = []
    for run in report.runs:
        if run.failure is not None or run.step_ns is None:
            continue
        if run.repeat is not None and run.repeat.step_ns is not None:
            gaps.append(_gap(run.step_ns, run.repeat.step_ns))
        first = report.run(run.config.repeat_of) if run.config.repeat_of is not None else None
        if first is not None and first.failure is None and first.step_ns is not None:
            gaps.append(_gap(first.step_ns, run.step_ns))
    return max((gap for gap in gaps if gap is not None), default=None)


def time_noise(a: Report, b: Report) -> tuple[float, str]:
    """The relative difference of times up to which nothing is claimed, and the reason for it in words."""
    gaps = [gap for gap in (process_noise(a), process_noise(b)) if gap is not None]
    if not gaps:
        return ASSUMED_NOISE, (
            f"less than {percent(ASSUMED_NOISE)} apart, and no configuration was run twice, so processes may differ by as much"
        )
    noise = max(LEAST_NOISE, *gaps)
    return (
        noise,
        f"less than {percent(noise)} apart; the same configuration, run twice, differed by {percent(max(gaps))}",
    )


def overlap(one: ConfigRun, other: ConfigRun) -> bool:
    """Whether a 95 % interval of one run's step reaches one of the other's, second processes included."""
    sides = [_intervals(run) for run in (one, other)]
    if not all(sides):
        return False
    faster, slower = sorted(sides, key=lambda intervals: intervals[0].median)
    return max(interval.high for interval in faster) >= min(interval.low for interval in slower)


def percent(share: float) -> str:
    """A share as text: ``2.3 %``."""
    return f"{digits(share * 100, 2)} %"


def _intervals(run: ConfigRun) -> tuple[Interval, ...]:
    repeated = run.repeat.step_ns if run.repeat is not None else None
    return tuple(interval for interval in (run.step_ns, repeated) if interval is not None)


def _gap(first: Interval, again: Interval) -> float | None:
    return abs(again.median - first.median) / first.median if first.median > 0 else None
