"""The steps of a trace as a model: what a step would take if the parts that a finding claims went away.

A claim (`records/claims.py`) names parts of the step. Device work that is claimed takes less time; if nothing of it is left, it
goes with the host's work for its launch. Host work behind claimed idle time is shortened by the time in which the device
waited for it. Claimed waits of the host go. The replay then decides what the step takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler_kit.attribution.device_time import CAUSE_NUMBERS, device_timeline, idle_gaps
from profiler_kit.attribution.host_time import host_waits
from profiler_kit.attribution.launch_sites import Site, launch_sites
from profiler_kit.attribution.result import Attribution, phase_name
from profiler_kit.records.claims import Claim
from profiler_kit.records.counts import PSEUDO_PATHS
from profiler_kit.records.families import is_product_family
from profiler_kit.records.traces import IDLE_CAUSES, TRACE_PHASES, Saving, TracePhase, TraceSummary, WorkSite
from profiler_kit.simulation.changes import drop_waits, remove, shorten
from profiler_kit.simulation.from_trace import TraceGraph, trace_graph
from profiler_kit.simulation.graph import NEVER_NS, Graph, Ids, Ints, Mask, selected
from profiler_kit.simulation.profiler_cost import (
    LEAST,
    LEAST_CALIBRATED,
    MOST,
    MOST_CALIBRATED,
    ProfilerCost,
    calibrated_scale,
    cost_of,
    untraced_interval,
    untraced_reason,
    without_profiler,
)
from profiler_kit.simulation.replay import simulate
from profiler_kit.traces.kernels import classify
from profiler_kit.traces.table import NONE, Bytes

# Work of which a change leaves less than this part is removed with its launches.
_REMOVED_PART: Final = 0.1
USUAL: Final = 0  # the index of the profiler's usual cost
# A replay takes 2 us for each node, and a report asks for some fifty: the steps in the middle of a long trace are enough.
MAX_NODES: Final = 8_000
MAX_STEP_NODES: Final = 50_000
MAX_SITES: Final = 6  # of each kind
SITE_KINDS: Final = ("source", "operator", "phase", "call")  # the fields of a site by which work is grouped
# What the step's own function launches besides is a place in it from a fifth of all launches on.
MIN_LOOP_LAUNCHES: Final = 0.2
MAX_OPERATORS: Final = 3  # of a function
MIN_RANGED_SAVING: Final = 0.02  # the range of a smaller saving says nothing
_SYNCHRONIZATION: Final = CAUSE_NUMBERS["synchronization"]


class Change(NamedTuple):
    """A change of the step: the parts that it affects, and the share of the traced step that goes."""

    claims: tuple[Claim, ...]
    share: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Labels:
    """What the nodes of a graph belong to.

    Of device nodes: `phase`, `module` and `kernel` are numbers in `PHASE_NUMBERS`, `modules` and `kernels`; `is_product`:
    convolutions, matrix products, attention and recurrent layers; `busy_ns` is the
    time of the traced step that counts for the node. `idle_ns[cause, node]`: of host nodes, the idle time of the device that
    the node caused. `site`: the number of the node's site in `sites`, the place of its launch or wait, or NONE.
    `site_module`: the number of the module of that launch or wait, or NONE. `loops`: the functions that are the step itself.
    """

    sites: tuple[Site, ...]
    loops: frozenset[str]
    site: Ids
    site_module: Ids
    modules: tuple[str, ...]
    kernels: tuple[str, ...]
    phase: Bytes
    module: Ids
    kernel: Ids
    is_product: Mask
    busy_ns: Ints
    idle_ns: NDArray[np.float32]

    def column(self, claim: Claim) -> tuple[Ids | Bytes, Sequence[str]]:
        """Return the number of each node's part of the kind that `claim` names, and the names of these parts."""
        if claim.pool == "site":
            if claim.kind == "module":
                return self.site_module, self.modules
            field = {"function": "source"}.get(claim.kind, claim.kind)
            return self.site, [getattr(site, field) for site in self.sites]
        if claim.kind == "phase":
            return self.phase, TRACE_PHASES
        return (self.kernel, self.kernels) if claim.kind == "kernel" else (self.module, self.modules)


@dataclass(frozen=True, kw_only=True, eq=False)
class StepModel:
    """The steps of a trace, as a graph that the profiler's cost can be taken out of.

    `traced`: the graph of the trace. `untraced`: the graphs without the profiler, for its usual, least and largest cost.
    `idle_ns`: the idle time of the device in these steps, by cause. `span_ns`: the idle and the busy time.
    """

    traced: Graph
    untraced: tuple[Graph, ...]
    labels: Labels
    idle_ns: Ints
    span_ns: int

    @cached_property
    def steps_ns(self) -> tuple[int, ...]:
        """The time of all steps without the profiler, for its usual, least and largest cost."""
        return tuple(simulate(graph).total_ns for graph in self.untraced)

    def saving(self, change: Change, after: Sequence[Change] = (), cost: int = USUAL) -> float:
        """Return the share of the step that `change` takes with it, once `after` is gone."""
        step_ns = self.steps_ns[cost]
        if not step_ns:
            return 0.0
        graph = self.untraced[cost]
        for gone in after:
            graph = self._without(graph, gone)
        before = simulate(graph).total_ns if after else step_ns
        return (before - simulate(self._without(graph, change)).total_ns) / step_ns

    def savings(self, change: Change) -> tuple[float, ...]:
        """Return the share of the step that `change` takes with it, for the usual, least and largest cost of the profiler."""
        return tuple(self.saving(change, cost=cost) for cost in range(len(self.untraced)))

    def _without(self, graph: Graph, change: Change) -> Graph:
        if (site := next((claim for claim in change.claims if claim.pool == "site"), None)) is not None:
            return self._without_nodes(graph, self._members(site), of_function=site.kind != "operator")
        causes = claimed_causes(change.claims)
        device = self.claimed_work(change.claims)
        claimed_ns = float(self.labels.busy_ns[device].sum()) + float(self.idle_ns[causes].sum())
        if claimed_ns <= 0:
            return graph
        part = min(1.0, change.share * self.span_ns / claimed_ns)
        if causes and (idle_ns := self.labels.idle_ns[causes].sum(axis=0)).any():
            graph = self._less_host_work(graph, idle_ns * part)
        if _SYNCHRONIZATION in causes:
            graph = drop_waits(graph, np.flatnonzero(self.labels.idle_ns[_SYNCHRONIZATION] > 0))
        nodes = np.flatnonzero(device)
        if not len(nodes):
            return graph
        if 1.0 - part < _REMOVED_PART:
            return remove(graph, nodes)
        return shorten(graph, nodes, ((1.0 - part) * graph.duration_ns[nodes]).astype(np.int64))

    def _less_host_work(self, graph: Graph, traced_ns: NDArray[np.float32]) -> Graph:
        """Return `graph` with host work that took `traced_ns` in the trace taken out."""
        left = 1.0 - np.minimum(traced_ns / np.maximum(self.traced.duration_ns, 1), 1.0)
        nodes = np.flatnonzero(traced_ns > 0)
        return shorten(graph, nodes, (left * graph.duration_ns)[nodes].astype(np.int64))

    def saving_without(self, members: Mask, *, of_function: bool, cost: int = USUAL) -> float:
        """Return the share of the step that goes with the work and the waits of the nodes `members`.

        Of a function, all host work before its launches goes; of an operator, only the time in it.
        """
        step_ns = self.steps_ns[cost]
        changed = self._without_nodes(self.untraced[cost], members, of_function=of_function)
        return 1.0 - simulate(changed).total_ns / step_ns if step_ns else 0.0

    def _without_nodes(self, graph: Graph, members: Mask, *, of_function: bool) -> Graph:
        changed = drop_waits(remove(graph, np.flatnonzero(members & graph.is_device)), np.flatnonzero(members))
        return shorten(changed, np.flatnonzero(members & ~graph.is_device), 0) if of_function else changed

    def claimed_work(self, claims: Iterable[Claim]) -> Mask:
        """Return which device nodes `claims` name."""
        mask = np.zeros(len(self.labels.phase), np.bool_)
        for claim in claims:
            if claim.pool == "busy":
                mask |= self._members(claim) if claim.kind else self.traced.is_device
        return mask

    def _members(self, claim: Claim) -> Mask:
        """Return which nodes belong to a part of the work, or to a place of the program."""
        numbers, names = self.labels.column(claim)
        return np.isin(numbers, [i for i, name in enumerate(names) if claim.covers(claim.kind, name)])


def work_sites(model: StepModel) -> tuple[WorkSite, ...]:
    """Return the functions, operators, modules and phases without which a step would save most."""
    labels = model.labels
    trains = any(
        site.has_backward for site in labels.sites
    )  # otherwise a loop calls the model, and nothing else shows it
    kinds = SITE_KINDS if trains else SITE_KINDS[:-1]
    by_site = ((kind, [getattr(site, kind) for site in labels.sites], labels.site) for kind in kinds)
    modules = ["" if path in PSEUDO_PATHS else path for path in labels.modules]  # phases, which have sites of their own
    groups = (*by_site, ("module", modules, labels.site_module))
    sites = [site for kind, names, number in groups for site in _sites_by(model, names, number, kind)]
    alone = {(site.source, site.launches) for site in sites}  # functions that call no other
    return tuple(site for site in sites if (site.call, site.launches) not in alone or not site.call)


def _sites_by(model: StepModel, names: Sequence[str], number: Ids, kind: str) -> list[WorkSite]:
    """Return the nodes of the same name as one site. `names`: the name of each `number` of a node, or ""."""
    has_host = kind != "operator"
    labels, is_device, ns = model.labels, model.traced.is_device, model.untraced[USUAL].duration_ns
    index = {name: i for i, name in enumerate(dict.fromkeys(name for name in names if name))}
    group = np.array([*(index.get(name, NONE) for name in names), NONE], np.int32)[number]
    computes = _computes(labels, whole=kind == "call")
    totals = np.bincount(group[group != NONE], ns[group != NONE], minlength=len(index))
    unique = tuple(index)
    rows = []
    for index_of_group in np.argsort(-totals, kind="stable")[:MAX_SITES].tolist():
        members = group == index_of_group
        work = np.flatnonzero(members & is_device)
        launch_share = len(work) / max(int(is_device.sum()), 1)
        if unique[index_of_group] in labels.loops and launch_share < MIN_LOOP_LAUNCHES:
            continue
        savings = [model.saving_without(members, of_function=has_host)]
        if savings[USUAL] >= MIN_RANGED_SAVING:
            others = range(1, len(model.untraced))
            savings += [model.saving_without(members, of_function=has_host, cost=cost) for cost in others]
        rows.append(
            WorkSite(
                source=unique[index_of_group] if kind == "source" else "",
                operator=unique[index_of_group] if kind == "operator" else "",
                module=unique[index_of_group] if kind == "module" else "",
                call=unique[index_of_group] if kind == "call" else "",
                phase=_longest_phase(labels.phase[work], ns[work]),
                launches=len(work) / max(model.traced.steps, 1),
                launch_share=launch_share,
                product_share=float(ns[members & computes].sum()) / max(int(ns[members].sum()), 1),
                saving=Saving(median=savings[USUAL], low=min(savings), high=max(savings)),
                operators=_longest_operators(model, np.flatnonzero(members)) if has_host else (),
            )
        )
    return sorted(rows, key=lambda row: -row.saving.median)


def _computes(labels: Labels, *, whole: bool) -> Mask:
    """Return which nodes are the purpose of a step: operators that launch products, in a training step only with a backward pass.

    `whole`: for a call with all that it calls. Then all work with a backward pass is the purpose.
    """
    products = {labels.sites[i].operator for i in np.unique(labels.site[labels.is_product]).tolist() if i != NONE}
    trains = any(site.has_backward for site in labels.sites)
    purpose = (
        site.has_backward and (whole or site.operator in products) if trains else site.operator in products
        for site in labels.sites
    )
    mask: Mask = np.array([*purpose, False])[labels.site]
    return mask


def _longest_operators(model: StepModel, nodes: Ids | Ints) -> tuple[str, ...]:
    """Return the operators with the most time in `nodes`, at most `MAX_OPERATORS`."""
    totals: Counter[str] = Counter()
    for site, ns in zip(
        model.labels.site[nodes].tolist(), model.untraced[USUAL].duration_ns[nodes].tolist(), strict=True
    ):
        totals[model.labels.sites[site].operator if site != NONE else ""] += ns
    return tuple(name for name, _ in totals.most_common() if name)[:MAX_OPERATORS]


def _longest_phase(phase: Bytes, ns: Ints) -> TracePhase | Literal[""]:
    known = phase != NONE
    return phase_name(int(np.bincount(phase[known], ns[known]).argmax())) if known.any() else ""


def claimed_causes(claims: Sequence[Claim]) -> list[int]:
    """Return the numbers of the causes of idle time that `claims` name."""
    causes = CAUSE_NUMBERS.items()
    return sorted(number for cause, number in causes if any(claim.covers("cause", cause) for claim in claims))


class Replayed(NamedTuple):
    """The replay of a trace.

    - `summary`: with the step without the profiler, and the places without which it would be shorter.
    - `model`: for further questions; None for a trace without device work or steps, and for steps that are too long to ask often.
    - `profiler_scale`: the factor of the usual cost of the profiler with which the replay takes as long as the timed step.
    """

    summary: TraceSummary
    model: StepModel | None = None
    profiler_scale: float | None = None


def replayed(
    attribution: Attribution, summary: TraceSummary, *, timed_ns: int | None = None, own_waits: Mask | None = None
) -> Replayed:
    """Return the replay of the steps of a trace.

    `timed_ns`: the step without the profiler, where it was measured; the cost of the profiler is then the one that explains it.
    `own_waits`: which host events are waits that are no part of the program, as those at the end of a step that is timed.
    """
    if reason := untraced_reason(attribution, summary):
        return Replayed(replace(summary, untraced_reason=reason))
    traced = trace_graph(attribution)
    if own_waits is not None:
        nodes = np.flatnonzero(~traced.graph.is_device & (traced.event >= 0))
        traced = replace(traced, graph=drop_waits(traced.graph, nodes[own_waits[traced.event[nodes]]]))
    part, cost = _middle_steps(traced), cost_of(attribution, summary.missing_share)
    summary = replace(summary, untraced_step_ns=untraced_interval(part.graph, cost))
    scale = calibrated_scale(part.graph, cost, timed_ns) if timed_ns is not None else None
    if not part.graph.is_device.any() or len(part.graph) > MAX_STEP_NODES:
        return Replayed(summary, None, scale)
    range_ = (LEAST, MOST) if scale is None else (LEAST_CALIBRATED, MOST_CALIBRATED)
    model = step_model(attribution, part, cost if scale is None else cost.scaled(scale), range_)
    return Replayed(replace(summary, sites=work_sites(model)), model, scale)


def _middle_steps(trace: TraceGraph) -> TraceGraph:
    """Return the steps in the middle of `trace` with at most `MAX_NODES` nodes, but at least one step."""
    graph, steps = trace.graph, trace.graph.steps
    count = max(1, MAX_NODES * steps // max(len(graph), 1))
    if count >= steps:
        return trace
    first = (steps - count) // 2
    inside = np.flatnonzero((graph.step >= first) & (graph.step < first + count))
    between = np.arange(inside.min(), inside.max())
    kept = np.union1d(
        inside, between[graph.step[between] == NONE]
    )  # without them, the steps of a thread are not in sequence
    host = kept[~graph.is_device[kept]]
    ready_ns = np.full(len(graph), NEVER_NS)
    lanes_first = host[np.unique(graph.lane[host], return_index=True)[1]]
    ready_ns[lanes_first] = trace.begin_ns[lanes_first] - trace.begin_ns[host].min()
    return TraceGraph(
        graph=selected(
            replace(graph, step=np.where(graph.step == NONE, NONE, graph.step - first), ready_ns=ready_ns), kept
        ),
        begin_ns=trace.begin_ns[kept],
        end_ns=trace.end_ns[kept],
        thread=trace.thread[kept],
        event=trace.event[kept],
        origin_ns=trace.origin_ns,
    )


def step_model(
    attribution: Attribution, trace: TraceGraph, cost: ProfilerCost, factors: tuple[float, float] = (LEAST, MOST)
) -> StepModel:
    """Return the model of the steps of a trace with device work, recorded by a profiler of this cost.

    `factors`: the least and the largest cost, as parts of the usual one.
    """
    labels, idle_ns, span_ns = _labels(attribution, trace)
    return StepModel(
        traced=trace.graph,
        untraced=tuple(without_profiler(trace.graph, cost.scaled(factor)) for factor in (1.0, *factors)),
        labels=labels,
        idle_ns=idle_ns,
        span_ns=span_ns,
    )


def _labels(attribution: Attribution, trace: TraceGraph) -> tuple[Labels, Ints, int]:
    """Return the labels of the nodes, and the idle time by cause and the span of these steps."""
    is_device = trace.graph.is_device
    position = np.where(is_device, trace.event, NONE)
    device, table = attribution.device, attribution.table
    name = np.append(table.name[device.rows], np.int32(NONE))[position]
    used, number = np.unique(name, return_inverse=True)
    timeline = device_timeline(device)
    gaps = idle_gaps(attribution, timeline, host_waits(attribution))
    start, end = int(trace.begin_ns.min(initial=0)), int(trace.end_ns.max(initial=0))
    inside = (gaps.end - trace.origin_ns > start) & (gaps.start - trace.origin_ns < end)
    ns = gaps.ns[:, inside]
    begin, finish = gaps.start[inside] - trace.origin_ns, gaps.end[inside] - trace.origin_ns
    idle = np.zeros((len(IDLE_CAUSES), len(position)), np.float32)
    host = np.flatnonzero(~is_device)
    for cause in range(len(IDLE_CAUSES)):
        idle[cause, host] = _part_inside(begin, finish, ns[cause], trace.begin_ns[host], trace.end_ns[host])
    busy = np.append(timeline.event_busy_ns, 0)[position]
    events = np.where(is_device, np.append(device.launch, np.int32(NONE))[position], trace.event)
    sites = launch_sites(attribution, events.astype(np.int32))
    modules = np.append(device.module, np.int32(NONE))[position]
    host_module = np.append(attribution.host.module, np.int32(NONE))
    # work of backward belongs to the module of its forward operator, so the launch has the module of its work
    launched = np.flatnonzero(is_device & (trace.graph.launch != NONE))
    site_module = np.where(is_device, modules, host_module[events])
    site_module[trace.graph.launch[launched]] = modules[launched]
    kernels = tuple(table.names[i] if i != NONE else "" for i in used.tolist())
    labels = Labels(
        sites=sites.sites,
        loops=sites.loops,
        site=sites.number,
        modules=tuple(module.path for module in attribution.modules),
        kernels=kernels,
        phase=np.append(device.phase, np.int8(NONE))[position],
        site_module=site_module,
        module=modules,
        kernel=number.reshape(-1).astype(np.int32),
        is_product=np.array([is_product_family(classify(kernel).family) for kernel in kernels])[number.reshape(-1)],
        busy_ns=busy,
        idle_ns=idle,
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
