"""The time that the profiler adds to a step, and the step without it.

The profiler takes time of the host for each event that it records. The device's work takes as long as without it. So the step
without the profiler is the replay with that time taken out of the host's work. Where the device decides, it is not shorter.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from profiler_kit.attribution.result import Attribution
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import TraceSummary, UntracedReason
from profiler_kit.simulation.graph import Graph, Item
from profiler_kit.simulation.replay import simulate
from profiler_kit.traces.table import NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilerCost:
    """The time that the profiler adds to the host's work for each recorded event.

    `shapes_ns`: for each operator, where the shapes of inputs are recorded. `kept_share`: at least this part of a
    stretch of host work is the program's own.
    """

    operator_ns: int
    frame_ns: int
    range_ns: int
    call_ns: int
    shapes_ns: int
    kept_share: float

    def scaled(self, factor: float) -> ProfilerCost:
        """Return the cost with all times multiplied."""
        return replace(
            self,
            operator_ns=round(factor * self.operator_ns),
            frame_ns=round(factor * self.frame_ns),
            range_ns=round(factor * self.range_ns),
            call_ns=round(factor * self.call_ns),
            shapes_ns=round(factor * self.shapes_ns),
        )

    def with_shapes(self) -> ProfilerCost:
        """Return the cost where the profiler also records the shapes of the inputs of operators."""
        return replace(self, operator_ns=self.operator_ns + self.shapes_ns, shapes_ns=0)


# `python -m scripts.bench.untraced_step` prints the fit and its errors. With ProfilerActivity.CUDA, the profiler also
# tells CUPTI each operator, and CUPTI records each call.
ON_DEVICE: Final = ProfilerCost(
    operator_ns=3_500, frame_ns=500, range_ns=3_500, call_ns=1_750, shapes_ns=1_800, kept_share=0.25
)
ON_HOST: Final = ProfilerCost(operator_ns=500, frame_ns=400, range_ns=500, call_ns=0, shapes_ns=0, kept_share=0.5)
LEAST, MOST = 0.5, 2.0  # times the cost: the ends of the range
LEAST_CALIBRATED, MOST_CALIBRATED = 0.8, 1.25  # the same where a timed step gave the cost
MIN_LAUNCHES: Final = 50  # fewer do not tell how fast the host is
USUAL_LAUNCH_NS: Final = (
    7_000  # the median launch of a recorded host with the cost above, and the power that fits 40 programs
)
SLOWNESS_POWER: Final = 1.5
NOISE_SHARE: Final = 0.05  # of the step: what steps of the same program differ by


def without_profiler(graph: Graph, cost: ProfilerCost) -> Graph:
    """Return `graph` with the time of the profiler taken out of the host's work, and all of it between steps.

    Collectives wait for other ranks, whose profilers take time as well: their waits shrink as the host's work does.
    """
    host = np.flatnonzero(~graph.is_device)
    ns = np.zeros(len(Item), np.int64)
    for item, item_ns in (
        (Item.OPERATOR, cost.operator_ns),
        (Item.FRAME, cost.frame_ns),
        (Item.RANGE, cost.range_ns),
        (Item.CALL, cost.call_ns),
    ):
        ns[item] = item_ns
    durations, traced_ns = graph.duration_ns.copy(), graph.duration_ns[host]
    durations[host] = np.maximum(traced_ns - ns @ graph.items[:, host], (cost.kept_share * traced_ns).astype(np.int64))
    durations[host[graph.step[host] == NONE]] = 0
    own_ns = graph.own_ns.copy()
    own_ns[host] = own_ns[host] * (durations[host] / np.maximum(traced_ns, 1))
    share = durations[host].sum() / max(int(traced_ns.sum()), 1)
    durations -= ((1 - share) * graph.waiting_ns).astype(np.int64)
    return replace(graph, duration_ns=durations, own_ns=own_ns)


def untraced_interval(graph: Graph, cost: ProfilerCost) -> Interval:
    """Return the time of a step without the profiler, and the times with `LEAST` and `MOST` of its cost.

    At the upper end, the waits of collectives do not shrink: what other ranks do is unknown.
    """
    waiting = replace(graph, waiting_ns=np.zeros_like(graph.waiting_ns))
    high = simulate(without_profiler(waiting, cost.scaled(LEAST))).step_ns
    median, low = (simulate(without_profiler(graph, cost.scaled(factor))).step_ns for factor in (1.0, MOST))
    return interval_of(median, low, high)


def interval_of(median_ns: int, low_ns: int, high_ns: int) -> Interval:
    """Return the range of an estimate, to which the usual difference between steps is added."""
    low, median, high = sorted((low_ns, median_ns, high_ns))
    return Interval(median=median, low=round((1 - NOISE_SHARE) * low), high=round((1 + NOISE_SHARE) * high))


def cost_of(attribution: Attribution, missing_share: float) -> ProfilerCost:
    """Return the cost of the profiler that recorded a trace.

    `missing_share`: the part of the recorded operators and ranges that is missing in the file.
    """
    table, device = attribution.table, attribution.device
    cost = ON_DEVICE if len(device.rows) else ON_HOST
    cost = cost.with_shapes() if (table.shapes != NONE).any() else cost
    cost = cost.scaled(host_slowness(attribution))
    return replace(cost.scaled(1 / (1 - missing_share)), frame_ns=cost.frame_ns)


def host_slowness(attribution: Attribution) -> float:
    """Return how much longer the host takes than the usual one for what the profiler does; 1 without launches.

    The median launch of the trace tells the speed of the host: a launch is a call of the runtime, and recorded as the others are.
    """
    host, device = attribution.host, attribution.device
    launch = np.unique(device.launch[device.launch != NONE])
    if len(launch) < MIN_LAUNCHES:
        return 1.0
    median_ns = float(np.median(host.end_ns[launch] - host.start_ns[launch]))
    return float(np.clip((median_ns / USUAL_LAUNCH_NS) ** SLOWNESS_POWER, LEAST, MOST))


def untraced_reason(attribution: Attribution, summary: TraceSummary) -> UntracedReason:
    """Return why the step without the profiler cannot be estimated, or ""."""
    if not attribution.steps:
        return "no steps"
    if summary.hardware_counters:
        return "hardware counters"
    if summary.is_unrecorded:
        return "device work is missing"
    return "" if attribution.host.is_operator.any() else "no operators"


_MOST_SCALE: Final = 8.0
_ROUNDS: Final = 12  # of bisection: the scale is then exact to 0.002


def calibrated_scale(graph: Graph, cost: ProfilerCost, step_ns: int) -> float:
    """Return the factor of `cost` with which the replay without the profiler takes `step_ns`, the step timed without it.

    0 if the step took longer without the profiler than with it; the largest factor, if no cost explains the step.
    """
    low, high = 0.0, _MOST_SCALE
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if simulate(without_profiler(graph, cost.scaled(middle))).step_ns > step_ns:
            low = middle
        else:
            high = middle
    return low
