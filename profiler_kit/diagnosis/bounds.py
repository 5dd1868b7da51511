"""What bounds a step: its largest part, of busy time by the kind of its kernels, of idle time by its cause."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from profiler_kit.diagnosis.account import Account, Cell, step_account
from profiler_kit.diagnosis.step_work import all_steps, step_works
from profiler_kit.diagnosis.timing import kernels_of
from profiler_kit.diagnosis.work_groups import MEMORY_FAMILIES, is_product, short_operators
from profiler_kit.records.families import is_host_copy, is_product_family
from profiler_kit.records.report import Report, TraceReport
from profiler_kit.records.traces import TraceKernel
from profiler_kit.records.verdict import Bound

# From this share of the busy time on, one kind of kernels decides its length.
MIN_KIND_SHARE: Final = 0.5
# From a tenth of the step on, waiting for one rank decides how long the others take.
MIN_WAIT_SHARE: Final = 0.1
_BOUND_OF_CAUSE: Final[dict[str, Bound]] = {
    "waiting for data": "data",
    "synchronization": "synchronization",
    "op dispatch": "launches",
    "launch latency": "launches",
    "python": "python",
    "communication": "communication",
    "compilation": "compilation",
    "cold start": "cold start",
    "memory allocation": "memory allocation",
    "another stream": "communication",
}
# The host causes compete with busy time as one part, because they all are the host's work.
HOST_BOUNDS: Final[tuple[Bound, ...]] = ("launches", "python", "synchronization")
_BOUND_OF_KIND: Final[dict[str, Bound]] = {
    "compute": "compute",
    "memory": "memory bandwidth",
    "copies": "copies",
}


class StepBound(NamedTuple):
    """What limits a step, and the share of the part that makes it so.

    `late_rank`: the rank that others wait for, whose own parts then decide; None without one.
    """

    kind: Bound
    share: float
    late_rank: int | None = None


def step_bound(report: Report | TraceReport, account: Account) -> StepBound:
    """Return what limits the step of `report`, whose `account` has cells."""
    late_rank, late_report = _late_rank(report)
    if late_report is not None:
        report, account = late_report, step_account(late_report)
    kind, share = _bound(report, account.cells)
    return StepBound(kind, share, late_rank)


def device_shares(report: Report | TraceReport) -> tuple[float, ...]:
    """Return the busy share of each device of a single trace with several; else nothing."""
    if not isinstance(report, TraceReport) or len(report.traces) != 1 or len(report.traces[0].accounts) < 2:
        return ()
    (trace,) = report.traces
    return tuple(account.busy_ns * len(trace.accounts) / trace.span_ns for account in trace.accounts)


def _late_rank(report: Report | TraceReport) -> tuple[int | None, TraceReport | None]:
    """Return the rank that costs the others most waiting, with a report of its trace; None where the waiting is short.

    The others end a step when it does, so its own work decides how long a step takes.
    """
    if (
        not isinstance(report, TraceReport)
        or (ranks := report.ranks) is None
        or not ranks.step_ns
        or not ranks.stragglers
    ):
        return None, None
    latest = max(ranks.stragglers, key=lambda straggler: straggler.cost_ns)
    files = [rank.file for rank in ranks.ranks if rank.rank == latest.rank]
    traces = tuple(trace for trace in report.traces if trace.file in files)
    if latest.cost_ns < MIN_WAIT_SHARE * ranks.step_ns or not traces:
        return None, None
    return latest.rank, replace(report, traces=traces, ranks=None)


def is_on_device(report: Report | TraceReport) -> bool:
    """Return whether busy time is that of a device. Otherwise it is that of operators on the host."""
    return any(step.on_device for step in all_steps(report))


def _bound(report: Report | TraceReport, cells: Sequence[Cell]) -> tuple[Bound, float]:
    """What limits the step, and the share of the part that makes it so."""
    parts, on_device = defaultdict[Bound, float](float), is_on_device(report)
    for cell in cells:
        parts[_bound_of(cell)] += cell.share
    largest = max(parts, key=lambda bound: 0.0 if bound in HOST_BOUNDS else parts[bound])
    host = math.fsum(parts[bound] for bound in HOST_BOUNDS)
    if largest == "communication" and device_shares(report) and not any(c.phase == "communication" for c in cells):
        largest = "other devices"
        parts[largest] = parts.pop("communication")
    if host > parts[largest] or largest in HOST_BOUNDS:
        if not on_device and _operator_bound(report) == "overhead":
            return "overhead", host
        return max(HOST_BOUNDS, key=lambda bound: parts[bound]), host
    if largest != "kernels":
        return largest, parts[largest]
    return _kernel_bound(report) if on_device else _operator_bound(report), parts[largest]


def _operator_bound(report: Report | TraceReport) -> Bound:
    """What limits the operators of a CPU: the cost of each call, the arithmetic of products, or neither alone."""
    works = list(step_works(report))
    if not works:
        return "operators"
    if sum(work.share(short_operators(work).total_ns) for work in works) >= MIN_KIND_SHARE * len(works):
        return "overhead"
    products_ns = sum(work.kernel_ns(is_product) for work in works)
    return "compute" if products_ns >= MIN_KIND_SHARE * sum(work.busy_ns for work in works) else "operators"


def _bound_of(cell: Cell) -> Bound:
    if cell.cause:
        return _BOUND_OF_CAUSE.get(cell.cause, "unknown")
    if cell.phase in ("data", "communication"):
        return "data" if cell.phase == "data" else "communication"
    return "kernels"


def _kernel_bound(report: Report | TraceReport) -> Bound:
    """What limits the busy time: by the roofline, or else by the kind of most kernels."""
    kernels: list[TraceKernel | TraceKernel]
    if isinstance(report, TraceReport):
        kernels = [kernel for trace in report.traces for kernel in trace.kernels]
    else:
        run = report.baseline()
        line = report.roofline_of(run)
        times = Counter[str]()
        for layer in line.layers if line is not None else ():
            times[layer.binds] += layer.time_ns or 0
        if times.total():
            return _BOUND_OF_KIND[times.most_common(1)[0][0]]
        kernels = list(kernels_of(run)) if run is not None else []
    times = Counter[str]()
    for kernel in kernels:
        if kernel.family != "comm":
            times[_kernel_kind(kernel)] += kernel.kernel_ns
    kind = next((kind for kind, ns in times.items() if ns >= MIN_KIND_SHARE * times.total()), "")
    return _BOUND_OF_KIND.get(kind, "kernels")


def _kernel_kind(kernel: TraceKernel | TraceKernel) -> str:
    if is_host_copy(kernel.name):
        return "copies"
    if is_product_family(kernel.family):
        return "compute"
    return "memory" if kernel.family in MEMORY_FAMILIES else ""
