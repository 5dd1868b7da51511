"""What the columns of several tables are computed by, and shown for."""

from __future__ import annotations

from profiler_kit.records.counts import Cost
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor


def trains(report: Report) -> bool:
    """Whether the steps are of training."""
    return report.target.mode == "train"


def recomputes(report: Report) -> bool:
    """Whether backward does forward work again."""
    return report.static is not None and report.static.recompute.flops > 0


def share(part: float | None, whole: float | None) -> float | None:
    """`part` in percent of `whole`; None where one is unknown or there is no whole."""
    return 100 * part / whole if part is not None and whole else None


def floor_share(floor: Floor | None, whole: Floor | None) -> float | None:
    """The least time of a row in percent of that of all; None where one is unknown."""
    return share(floor.floor_ns, whole.floor_ns) if floor and whole else None


def cost_intensity(cost: Cost) -> float | None:
    """FLOPs per byte of minimum traffic; None where nothing moves."""
    return cost.flops / cost.bytes_moved if cost.bytes_moved else None
