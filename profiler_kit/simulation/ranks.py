"""The ranks of a job as one graph: a collective ends on all ranks when the last of them has arrived and sent its message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np

from profiler_kit.attribution.rank_extract import RankExtract
from profiler_kit.attribution.rank_waits import Block, align_collectives
from profiler_kit.attribution.result import Attribution
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import TraceSummary
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.graph import EDGES, NEVER_NS, NONE, Graph, Ids, Ints, Link
from profiler_kit.simulation.profiler_cost import LEAST, MOST, ProfilerCost, cost_of, interval_of, without_profiler
from profiler_kit.simulation.replay import Replay, simulate, step_ns_of

MAX_NODES: Final = 2_000_000  # of a job: the replay of more takes several seconds


class Job(NamedTuple):
    """The graph of several ranks. `rank`: of each node. `nodes[r]`: the node in `graph` of each node of rank r's own graph."""

    graph: Graph
    rank: Ids
    nodes: tuple[Ints, ...]

    def step_ns(self, replay: Replay, graph: Graph, rank: int) -> int:
        """Return the step of rank `rank` in `replay` of the job. `graph` is that of the rank alone."""
        nodes = self.nodes[rank]
        return step_ns_of(graph, replay.start_ns[nodes], replay.end_ns[nodes])


def job_of(graphs: Sequence[Graph], meetings: Ints, end_ns: Sequence[Ints]) -> Job:
    """Return the graph of a job.

    `meetings[i, r]`: the node of collective i on rank r. `end_ns[r]`: the ends of the nodes of rank r in its trace. A
    collective ends on all ranks at the same time, so they show how far the clocks of the ranks differ. Collectives that
    the ranks run in different orders are left out.

    Each collective becomes two nodes: the arrival, which takes over its place and edges, and the transfer, which
    follows the arrivals of all ranks. It lasts as long as on the rank that waited least.
    """
    meetings = _in_order(meetings)
    ranks, columns = range(len(graphs)), list(meetings.T)
    clocks = [int(np.median(end_ns[r][columns[r]] - end_ns[0][columns[0]])) if len(meetings) else 0 for r in ranks]
    transfer_ns = np.stack([graphs[r].duration_ns[columns[r]] for r in ranks]).min(axis=0)
    # all work before collective i on any rank comes first, then the transfers of collective i, then the work after it
    keys, places = [], []
    for graph, column in zip(graphs, columns, strict=True):
        key = 2 * np.searchsorted(column, np.arange(len(graph)), side="left")
        keys += [np.where(np.isin(np.arange(len(graph)), column), key + 1, key), key[column]]
        places += [np.arange(len(graph)), column]
    rank_of = np.repeat(ranks, [len(graph) + len(meetings) for graph in graphs])
    order = np.lexsort((np.concatenate(places), rank_of, np.concatenate(keys)))
    number = np.empty(len(order), np.int64)
    number[order] = np.arange(len(order))
    numbers = np.split(number, np.cumsum([len(graph) + len(meetings) for graph in graphs])[:-1])
    nodes = tuple(numbers[r][: len(graphs[r])] for r in ranks)
    arrivals = [numbers[r][len(graphs[r]) :] for r in ranks]
    parts = [_node_columns(graphs[r], columns[r], transfer_ns, -clocks[r], numbers[r]) for r in ranks]
    lane_offsets = np.cumsum([0, *(int(graph.lane.max(initial=0)) + 1 for graph in graphs)])
    for part, offset in zip(parts, lane_offsets.tolist(), strict=False):
        part["lane"] = part["lane"] + np.int32(offset)
    joined = {name: np.concatenate([part[name] for part in parts], axis=-1)[..., order] for name in parts[0]}
    edges = [_edges(graphs[r], columns[r], nodes[r], arrivals[r]) for r in ranks]
    edges += [_between(arrival, nodes[r][columns[r]]) for arrival in arrivals for r in ranks]
    source, target, delay_ns, link = (np.concatenate(column) for column in zip(*edges, strict=True))
    by_target = np.argsort(target, kind="stable")
    graph = Graph(
        **joined,
        source=source[by_target].astype(np.int32),
        target=target[by_target].astype(np.int32),
        delay_ns=delay_ns[by_target],
        link=link[by_target].astype(np.int8),
    )
    return Job(graph, rank_of[order].astype(np.int32), nodes)


def _in_order(meetings: Ints) -> Ints:
    """Return the collectives, by those of the first rank, that come in the same order on each rank."""
    meetings = meetings[np.argsort(meetings[:, 0], kind="stable")]
    latest, kept = np.full(meetings.shape[1], NONE), []
    for i, row in enumerate(meetings):
        if (row > latest).all():
            kept.append(i)
            latest = row
    return meetings[kept]


def _node_columns(graph: Graph, meetings: Ints, transfer_ns: Ints, shift_ns: int, number: Ints) -> dict[str, Any]:
    """Return the columns of the nodes of a rank, and after them those of the arrivals at `meetings`."""
    names = [field.name for field in fields(Graph) if field.name not in EDGES]
    columns = {name: getattr(graph, name) for name in names}
    columns = {name: np.concatenate((column, column[..., meetings]), axis=-1) for name, column in columns.items()}
    columns["duration_ns"][meetings] = transfer_ns
    columns["duration_ns"][len(graph) :] = 0
    columns["is_device"][len(graph) :] = False
    columns["waiting_ns"][:] = 0
    launch, ready_ns = columns["launch"], columns["ready_ns"]
    columns["launch"] = np.where(launch == NONE, NONE, number[launch]).astype(np.int32)
    columns["ready_ns"] = np.where(ready_ns == NEVER_NS, NEVER_NS, ready_ns + shift_ns)
    return columns


def _edges(graph: Graph, meetings: Ints, nodes: Ints, arrivals: Ints) -> tuple[Ints, Ints, Ints, Any]:
    target_of = nodes.copy()
    target_of[meetings] = arrivals
    return nodes[graph.source], target_of[graph.target], graph.delay_ns, graph.link


def _between(arrivals: Ints, transfers: Ints) -> tuple[Ints, Ints, Ints, Any]:
    none = np.zeros(len(arrivals), np.int64)
    return arrivals, transfers, none, np.full(len(arrivals), int(Link.RANK), np.int8)


# ---- the ranks of a job, from their traces


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankGraph:
    """The graph of one rank's trace. `collectives`: the node of each collective, or NONE; `end_ns`: as in `TraceGraph`."""

    graph: Graph
    end_ns: Ints
    collectives: Ints
    cost: ProfilerCost


def rank_graph(attribution: Attribution, summary: TraceSummary) -> RankGraph | None:
    """Return the graph of a trace for its job; None if the trace has no collectives on a device, or no estimate."""
    collectives = np.flatnonzero(attribution.device.collective)
    if not len(collectives) or summary.untraced_step_ns is None:
        return None
    traced = trace_graph(attribution)
    node_of = np.full(len(attribution.device.rows), NONE, np.int64)
    work = np.flatnonzero(traced.graph.is_device)
    node_of[traced.event[work]] = work
    cost = cost_of(attribution, summary.missing_share)
    return RankGraph(graph=traced.graph, end_ns=traced.end_ns, collectives=node_of[collectives], cost=cost)


def job_intervals(ranks: Sequence[RankGraph], extracts: Sequence[RankExtract]) -> tuple[Interval, ...]:
    """Return the time of a step of each rank without the profiler, which no rank has then.

    Empty if the ranks share no collectives of all of them, or have more than `MAX_NODES` nodes.
    """
    steps = set.intersection(*(set(extract.steps.number.tolist()) for extract in extracts))
    blocks = align_collectives(extracts, sorted(steps)).blocks
    shared = [_nodes(ranks, block) for block in blocks if block.members == tuple(range(len(ranks)))]
    meetings = np.concatenate([np.zeros((0, len(ranks)), np.int64), *shared])
    meetings = meetings[(meetings != NONE).all(axis=1)]
    if not len(meetings) or sum(len(rank.graph) for rank in ranks) > MAX_NODES:
        return ()
    times = [_steps(ranks, meetings, factor) for factor in (1.0, MOST, LEAST)]
    return tuple(interval_of(*of_rank) for of_rank in zip(*times, strict=True))


def _nodes(ranks: Sequence[RankGraph], block: Block) -> Ints:
    return np.stack([rank.collectives[block.events[:, i]] for i, rank in enumerate(ranks)], axis=1)


def _steps(ranks: Sequence[RankGraph], meetings: Ints, factor: float) -> list[int]:
    """Return the step of each rank without the profiler, if it costs `factor` times the usual."""
    graphs = []
    for rank in ranks:
        graph = replace(rank.graph, waiting_ns=np.zeros_like(rank.graph.waiting_ns))
        graphs.append(without_profiler(graph, rank.cost.scaled(factor)))
    job = job_of(graphs, meetings, [rank.end_ns for rank in ranks])
    replay = simulate(job.graph)
    return [job.step_ns(replay, graph, number) for number, graph in enumerate(graphs)]
