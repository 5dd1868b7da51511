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
    """The largest relative gap between two processes of one configuration; None where none ran twice.

    Those with benchmark on are left out: its search may end otherwise the second time, which is no noise of the others.
    """
    gaps = [
        gap
        for run in report.runs
        if run.config.repeat_of is None and not run.config.benchmark
        if (gap := own_gap(report, run)) is not None
    ]
    return max(gaps, default=None)


def own_gap(report: Report, run: ConfigRun) -> float | None:
    """How far the processes of one configuration lie apart, the largest of them; None where it ran once."""
    if run.failure is not None or run.step_ns is None or run.step_ns.median <= 0:
        return None
    again = [one.step_ns for one in report.runs if one.config.repeat_of == run.config.name and one.failure is None]
    if run.repeat is not None and run.repeat.failure is None:
        again.append(run.repeat.step_ns)
    first = run.step_ns.median
    return max((abs(one.median - first) / first for one in again if one is not None), default=None)


def time_noise(a: Report, b: Report, *runs: ConfigRun) -> tuple[float, str]:
    """The relative difference of times up to which nothing is claimed, and the reason for it in words.

    `runs`: those that are compared, one of each report; what they differ from themselves counts whatever their flags.
    """
    own = (own_gap(report, run) for report, run in zip((a, b), runs, strict=False))
    gaps = [gap for gap in (process_noise(a), process_noise(b), *own) if gap is not None]
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
    repeated = run.repeat.step_ns if run.repeat is not None and run.repeat.failure is None else None
    return tuple(interval for interval in (run.step_ns, repeated) if interval is not None)
