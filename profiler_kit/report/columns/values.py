"""Values and conditions that the columns of several tables share."""

from __future__ import annotations

from profiler_kit.records.counts import Cost
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Floor


def trains(report: Report) -> bool:
    """Whether the steps are training steps."""
    return report.target.mode == "train"


def recomputes(report: Report) -> bool:
    """Whether backward recomputes forward work."""
    return report.static is not None and report.static.recompute.flops > 0


def share(part: float | None, total: float | None) -> float | None:
    """`part` as a percentage of `total`; None where one is unknown or `total` is zero."""
    return 100 * part / total if part is not None and total else None


def floor_share(floor: Floor | None, total: Floor | None) -> float | None:
    """A row's floor as a percentage of all floors; None where one is unknown."""
    return share(floor.floor_ns, total.floor_ns) if floor and total else None


def cost_intensity(cost: Cost) -> float | None:
    """FLOPs per byte of min traffic; None where no bytes move."""
    return cost.flops / cost.bytes_moved if cost.bytes_moved else None
