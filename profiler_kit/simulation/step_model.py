"""The steps of a trace as a model: what a step would take if the parts that a finding claims went away.

A claim (`records/claims.py`) names parts of the step. Device work that is claimed takes less time; if nothing of it is left, it
goes with the host's work for its launch. Host work behind claimed idle time is shortened by the time in which the device
waited for it. Claimed waits of the host go. The replay then decides what the step takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.busy_time import event_devices
from profiler_kit.attribution.device_time import CAUSE_NUMBERS, device_timeline, gaps_within
from profiler_kit.attribution.host_activity import LONG_GAP_NS
from profiler_kit.attribution.host_time import host_waits
from profiler_kit.attribution.result import PHASE_NUMBERS, Attribution
from profiler_kit.records.claims import HOST_CAUSES, WAITS, Claim
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.families import is_product_family
from profiler_kit.records.traces import IDLE_CAUSES
from profiler_kit.simulation.changes import drop_waits, remove, remove_work, shorten
from profiler_kit.simulation.from_trace import TraceGraph
from profiler_kit.simulation.graph import NEVER_NS, Graph, Ids, Ints, Mask
from profiler_kit.simulation.places import Place, Places, places_of
from profiler_kit.simulation.profiler_cost import LEAST, MOST, ProfilerCost, without_profiler
from profiler_kit.simulation.replay import simulate, simulate_all
from profiler_kit.traces.intervals import Intervals
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Bytes

# Work of which a change leaves less than this part is removed with its launches.
_REMOVED_PART: Final = 0.1
USUAL: Final = 0  # the index of the profiler's usual cost
_SYNCHRONIZATION: Final = CAUSE_NUMBERS["synchronization"]
_TRANSFER: Final = PHASE_NUMBERS["transfer"]  # a wait for the copy of a batch is that of the copy


class Change(NamedTuple):
    """A change of the step: the parts that it affects, and the share of the step without the profiler that goes."""

    claims: tuple[Claim, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """What the nodes of a graph belong to.

    Of device nodes: `phase`, `module` and `kernel` are numbers in `PHASE_NUMBERS`, `modules` and `kernels`; `is_product`:
    convolutions, matrix products, attention and recurrent layers; `busy_ns` is the
    time of the traced step that counts for the node. `idle_ns[cause, node]`: of host nodes, the idle time of the device that
    the node caused; `long_ns`: the part of it in gaps of at least `LONG_GAP_NS`. `places`: the places of the program.
    """

    modules: tuple[str, ...]
    kernels: tuple[str, ...]
    phase: Bytes
    module: Ids
    kernel: Ids
    is_product: Mask
    busy_ns: Ints
    idle_ns: NDArray[np.float32]
    long_ns: NDArray[np.float32]
    places: Places

    def column(self, claim: Claim) -> tuple[Ids | Bytes, Sequence[str]]:
        """Return the number of each node's part of the kind that `claim` names, and the names of these parts."""
        if claim.kind == "phase":
            return self.phase, TRACE_PHASES
        return (self.kernel, self.kernels) if claim.kind == "kernel" else (self.module, self.modules)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepModel:
    """The steps of a trace, as a graph that the profiler's cost can be taken out of.

    `traced`: the graph of the trace. `untraced`: the graphs without the profiler, for its usual, least and largest cost.
    `idle_ns`: the idle time of the device in these steps, by cause. `span_ns`: the idle and the busy time. `lanes`: the names
    of host threads and streams, by the number of the lane. `phase`: of each node, its number in `TRACE_PHASES`, or NONE.
    """

    traced: Graph
    untraced: tuple[Graph, ...]
    labels: Labels
    idle_ns: Ints
    span_ns: int
    lanes: tuple[str, ...]
    phase: Bytes

    @cached_property
    def steps_ns(self) -> tuple[int, ...]:
        """The time of all steps without the profiler, for its usual, least and largest cost."""
        return tuple(replay.total_ns for replay in simulate_all(self.untraced))

    @property
    def _host_idle_ns(self) -> float:
        """The idle time that the host causes."""
        return float(sum(self.idle_ns[CAUSE_NUMBERS[cause]] for cause in HOST_CAUSES))

    @cached_property
    def _untraced_span_ns(self) -> float:
        """The idle and the busy time without the profiler, of which findings state shares: its cost was idle time."""
        untraced_ns = self.span_ns * self.steps_ns[USUAL] / max(simulate(self.traced).total_ns, 1)
        return float(max(self.span_ns - self._host_idle_ns, min(self.span_ns, untraced_ns)))

    @property
    def _untraced_idle_part(self) -> float:
        """The part of the idle time of the host that is left without the profiler."""
        host_ns = self._host_idle_ns
        return 1.0 - (self.span_ns - self._untraced_span_ns) / host_ns if host_ns else 1.0

    def saving(self, change: Change, after: Sequence[Change] = ()) -> float:
        """Return the share of the step that `change` takes with it, once `after` is gone."""
        return self.savings_after([change], after)[0]

    def savings_after(self, changes: Sequence[Change], after: Sequence[Change]) -> list[float]:
        """Return the share of the step that each of `changes` takes with it, once `after` is gone."""
        step_ns = self.steps_ns[USUAL]
        graph = self.untraced[USUAL]
        for gone in after:
            graph = self._without(graph, gone)
        before, *replays = simulate_all([graph, *(self._without(graph, change) for change in changes)])
        return [(before.total_ns - replay.total_ns) / step_ns if step_ns else 0.0 for replay in replays]

    def savings(self, change: Change) -> tuple[float, ...]:
        """Return the share of the step that `change` takes with it, for the usual, least and largest cost of the profiler."""
        replays = simulate_all([self._without(graph, change) for graph in self.untraced])
        return tuple(
            (before - after.total_ns) / before if before else 0.0
            for before, after in zip(self.steps_ns, replays, strict=True)
        )

    def changed(self, change: Change) -> Graph:
        """Return the steps without the profiler after `change`."""
        return self._without(self.untraced[USUAL], change)

    def removed_ns(self, change: Change) -> Ints:
        """Return the work of each node that goes with `change`."""
        graph = self.untraced[USUAL]
        removed: Ints = np.maximum(graph.duration_ns - self._without(graph, change).duration_ns, 0)
        return removed

    def shared_part(self, removed_ns: Ints, other_ns: Ints) -> float:
        """Return the part of the work `removed_ns` that surely goes with the work `other_ns` as well.

        Of a node of 10 us from which one takes 8 and the other 5, at least 3 go with both.
        """
        shared = np.maximum(removed_ns + other_ns - self.untraced[USUAL].duration_ns, 0)
        return int(shared.sum()) / max(int(removed_ns.sum()), 1)

    def _without(self, graph: Graph, change: Change) -> Graph:
        if sites := [claim for claim in change.claims if claim.pool == "site"]:
            for claim in sites:
                graph = self._without_place(graph, self.labels.places.place(claim.kind, claim.name))
            return graph if WAITS not in change.claims else self._without_waits(graph)
        device, idle_ns = self.claimed_work(change.claims), self._claimed_idle(change.claims)
        claimed_ns = float(self.labels.busy_ns[device].sum()) + self._untraced_idle_part * float(idle_ns.sum())
        if claimed_ns <= 0:
            return graph
        part = min(1.0, change.share * self._untraced_span_ns / claimed_ns)
        graph = self._less_host_work(graph, idle_ns * part)
        if WAITS in change.claims:
            graph = self._without_waits(graph)
        elif any(claim.covers("cause", "synchronization") for claim in change.claims):
            graph = drop_waits(graph, np.flatnonzero(self.labels.idle_ns[_SYNCHRONIZATION] > 0))
        nodes = np.flatnonzero(device)
        if not len(nodes):
            return graph
        if 1.0 - part < _REMOVED_PART:
            return remove(graph, nodes)
        return shorten(graph, nodes, ((1.0 - part) * graph.duration_ns[nodes]).astype(np.int64))

    def _without_waits(self, graph: Graph) -> Graph:
        return drop_waits(graph, np.flatnonzero(~self.traced.is_device & (self.phase != _TRANSFER)))

    def _claimed_idle(self, claims: Sequence[Claim]) -> NDArray[np.float32]:
        """Return the idle time of each host node that `claims` name. Of waits, it is that in them: the replay shows the rest."""
        labels, result = self.labels, np.zeros(len(self.labels.phase), np.float32)
        for cause, number in CAUSE_NUMBERS.items():
            covering = {claim.kind for claim in claims if claim.covers("cause", cause)}
            if covering - {"wait", "long"} or (covering and number == _SYNCHRONIZATION):
                result += labels.idle_ns[number]
            elif "long" in covering:
                result += labels.long_ns[number]
        return result

    def _less_host_work(self, graph: Graph, traced_ns: NDArray[np.float32] | Ints) -> Graph:
        """Return `graph` with host work that took `traced_ns` in the trace taken out."""
        left = 1.0 - np.minimum(traced_ns / np.maximum(self.traced.duration_ns, 1), 1.0)
        nodes = np.flatnonzero(traced_ns > 0)
        return shorten(graph, nodes, (left * graph.duration_ns)[nodes].astype(np.int64))

    def savings_without(self, places: Sequence[Place], cost: int = USUAL) -> list[float]:
        """Return the share of the step that goes with the work, the launches and the waits of each of `places`."""
        step_ns = self.steps_ns[cost]
        replays = simulate_all([self._without_place(self.untraced[cost], place) for place in places])
        return [1.0 - replay.total_ns / step_ns if step_ns else 0.0 for replay in replays]

    def _without_place(self, graph: Graph, place: Place) -> Graph:
        """Return `graph` without what goes of `place`, and without its waits."""
        gone = np.flatnonzero(place.gone)
        if place.keeps_launches:
            return shorten(graph, gone, np.minimum(place.left_ns[gone], graph.duration_ns[gone]))
        changed = drop_waits(remove_work(graph, gone), np.flatnonzero(place.nodes))
        changed = shorten(changed, gone, place.left_ns[gone])
        return self._less_host_work(changed, place.host_ns)

    def claimed_share(self, claims: Sequence[Claim], others: Sequence[Claim]) -> float:
        """Return the part of the device's time in the work that `claims` name that `others` name as well."""
        named = self.claimed_work(claims)
        ns, both = self.labels.busy_ns, named & self.claimed_work(others)
        return int(ns[both].sum()) / max(int(ns[named].sum()), 1)

    def claimed_work(self, claims: Iterable[Claim]) -> Mask:
        """Return which device nodes `claims` name."""
        mask = np.zeros(len(self.labels.phase), np.bool_)
        for claim in claims:
            if claim.pool == "site":
                mask |= self.labels.places.place(claim.kind, claim.name).nodes & self.traced.is_device
            elif claim.pool == "busy":
                mask |= self._members(claim) if claim.kind else self.traced.is_device
        return mask

    def _members(self, claim: Claim) -> Mask:
        """Return which nodes belong to a part of the work, or to a place of the program."""
        numbers, names = self.labels.column(claim)
        return np.isin(numbers, [i for i, name in enumerate(names) if claim.covers(claim.kind, name)])


def step_model(
    attribution: Attribution, trace: TraceGraph, cost: ProfilerCost, factors: tuple[float, float] = (LEAST, MOST)
) -> StepModel:
    """Return the model of the steps of a trace with device work, recorded by a profiler of this cost.

    `factors`: the least and the largest cost, as parts of the usual one.
    """
    labels, idle_ns, span_ns = _labels(attribution, trace)
    graph = _without_earlier_work(trace)
    return StepModel(
        traced=graph,
        untraced=tuple(without_profiler(graph, cost.scaled(factor)) for factor in (1.0, *factors)),
        labels=labels,
        idle_ns=idle_ns,
        span_ns=span_ns,
        lanes=_lane_names(attribution, trace),
        phase=_phases(attribution, trace),
    )


def _without_earlier_work(trace: TraceGraph) -> Graph:
    """Return the graph without device work of earlier steps, whose launches the trace does not have, at the start of a stream.

    These steps do not repeat it, and no change shortens it.
    """
    graph, first_ns = trace.graph, np.full(int(trace.graph.lane.max(initial=0)) + 1, np.iinfo(np.int64).max)
    launched = np.flatnonzero(graph.is_device & (graph.launch != NONE))
    np.minimum.at(first_ns, graph.lane[launched], trace.begin_ns[launched])
    earlier = graph.is_device & (graph.launch == NONE) & (trace.begin_ns < first_ns[graph.lane])
    earlier &= first_ns[graph.lane] != np.iinfo(np.int64).max
    return replace(remove_work(graph, np.flatnonzero(earlier)), ready_ns=np.where(earlier, NEVER_NS, graph.ready_ns))


def _lane_names(attribution: Attribution, trace: TraceGraph) -> tuple[str, ...]:
    """Return the names of the lanes of a graph: host threads first, then streams."""
    graph, table = trace.graph, attribution.table
    number, devices = event_devices(attribution)
    names = []
    for lane in range(int(graph.lane.max(initial=NONE)) + 1):
        nodes = np.flatnonzero(graph.lane == lane)
        if not len(nodes) or not graph.is_device[nodes[0]]:
            names.append("host" if lane == 0 else f"host {lane + 1}")
            continue
        event = int(trace.event[nodes[0]])
        title = "device" if len(devices) == 1 else f"device {devices[number[event]]}"
        names.append(f"{title}: stream {table.streams[table.stream[attribution.device.rows[event]]].stream}")
    return tuple(names)


def _phases(attribution: Attribution, trace: TraceGraph) -> Bytes:
    """Return the phase of each node. Host work has that of the launch or the wait that follows it on its lane."""
    graph, event = trace.graph, trace.event
    phase = np.where(
        graph.is_device, NONE, np.append(attribution.host.phase, NONE)[np.where(graph.is_device, NONE, event)]
    )
    for lane in np.unique(graph.lane[~graph.is_device]).tolist():
        nodes = np.flatnonzero(graph.lane == lane)
        following = np.where(event[nodes] != NONE, np.arange(len(nodes)), len(nodes))
        following = np.minimum.accumulate(following[::-1])[::-1]
        phase[nodes] = np.append(phase[nodes], NONE)[following]
    of_device = np.append(attribution.device.phase, NONE)[np.where(graph.is_device, event, NONE)]
    return np.where(graph.is_device, of_device, phase).astype(np.int8)


def _labels(attribution: Attribution, trace: TraceGraph) -> tuple[Labels, Ints, int]:
    """Return the labels of the nodes, and the idle time by cause and the span of these steps."""
    is_device = trace.graph.is_device
    position = np.where(is_device, trace.event, NONE)
    device, table = attribution.device, attribution.table
    name = np.append(table.name[device.rows], np.int32(NONE))[position]
    used, number = np.unique(name, return_inverse=True)
    timeline = device_timeline(device)
    start, end = (int(times) + trace.origin_ns for times in (trace.begin_ns.min(), trace.end_ns.max()))
    positions = np.arange(len(device.rows), dtype=np.int32)
    # the time before the first device work and after the last counts too: a step may begin with a wait for data
    gaps = gaps_within(attribution, Intervals(np.array([start]), np.array([end])), positions, host_waits(attribution))
    ns, begin, finish = gaps.ns, gaps.start - trace.origin_ns, gaps.end - trace.origin_ns
    idle, long = np.zeros((2, len(IDLE_CAUSES), len(position)), np.float32)
    host, is_long = np.flatnonzero(~is_device), finish - begin >= LONG_GAP_NS
    for cause in range(len(IDLE_CAUSES)):
        for column, gap_ns in ((idle, ns[cause]), (long, np.where(is_long, ns[cause], 0))):
            column[cause, host] = _part_inside(begin, finish, gap_ns, trace.begin_ns[host], trace.end_ns[host])
    busy = np.append(timeline.event_busy_ns, 0)[position]
    kernels = tuple(table.names[i] if i != NONE else "" for i in used.tolist())
    is_product = np.array([is_product_family(classify(kernel).family) for kernel in kernels])[number.reshape(-1)]
    labels = Labels(
        modules=tuple(module.path for module in attribution.modules),
        kernels=kernels,
        phase=np.append(device.phase, np.int8(NONE))[position],
        module=np.append(device.module, np.int32(NONE))[position],
        kernel=number.reshape(-1).astype(np.int32),
        is_product=is_product,
        busy_ns=busy,
        idle_ns=idle,
        long_ns=long,
        places=places_of(attribution, trace, is_product),
    )
    totals = ns.sum(axis=1)
    return labels, totals, int(totals.sum() + busy.sum())


def _part_inside(begin: Ints, finish: Ints, ns: Ints, start: Ints, end: Ints) -> NDArray[np.float64]:
    """Return how much of `ns`, spread evenly over the intervals from `begin` to `finish`, lies from `start` to `end`."""
    if not len(begin):
        return np.zeros(len(start))
    times = np.stack([begin, finish], axis=1).reshape(-1)
    total = np.stack([np.cumsum(ns) - ns, np.cumsum(ns)], axis=1).reshape(-1)
    result: NDArray[np.float64] = np.interp(end, times, total) - np.interp(start, times, total)
    return result
