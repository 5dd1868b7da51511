"""The ranks of a job in one graph: by hand, and beside the clocks of recorded jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from published_traces import PUBLISHED, published

from profiler_kit.pipeline.inspect import inspect
from profiler_kit.pipeline.trace_reading import extract_trace
from profiler_kit.simulation.changes import shorten
from profiler_kit.simulation.graph import Graph, Link, Node, graph_of
from profiler_kit.simulation.ranks import Job, RankGraph, job_intervals, job_of
from profiler_kit.simulation.replay import Replay, simulate

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "traces"
TRANSFER = 5


def rank(host_ns: int, *waiting_ns: int) -> Graph:
    """Two launches of a kernel and a collective that follows it; the collectives of this rank wait for `waiting_ns`."""
    nodes: list[Node] = []
    for i in range(2):
        first = 4 * i
        nodes.append(Node(lane=0, duration_ns=host_ns, after=((first - 2, 0, Link.SEQUENCE),) if i else ()))
        before = ((first - 1, 0, Link.EVENT),) if i else ()
        nodes.append(
            Node(lane=1, duration_ns=2, is_device=True, after=((first, 1, Link.LAUNCH), *before), launch=first)
        )
        nodes.append(Node(lane=0, duration_ns=1, after=((first, 0, Link.SEQUENCE),)))
        after = ((first + 2, 1, Link.LAUNCH), (first + 1, 0, Link.EVENT))
        nodes.append(Node(lane=2, duration_ns=TRANSFER + waiting_ns[i], is_device=True, after=after, launch=first + 2))
    return graph_of(nodes)


MEETINGS = np.array([[3, 3], [7, 7]])


def replayed(graphs: Sequence[Graph], ends: Sequence[Graph]) -> tuple[Job, Replay]:
    job = job_of(graphs, MEETINGS, [simulate(graph).end_ns for graph in ends])
    return job, simulate(job.graph)


def test_a_collective_ends_when_the_last_rank_has_arrived() -> None:
    """Rank 0 arrives at 13, rank 1 at 33: both are done at 38. Rank 1 launches again at 61, and both are done at 69."""
    graphs = [rank(10, 20, 24), rank(30, 0, 0)]
    job, replay = replayed(graphs, graphs)
    ends = [replay.end_ns[nodes[[3, 7]]].tolist() for nodes in job.nodes]
    assert ends == [[38, 69], [38, 69]]
    assert np.count_nonzero(job.rank == 0) == len(graphs[0]) + len(MEETINGS)


def test_no_rank_waits_for_one_that_is_faster_now() -> None:
    graphs = [rank(10, 20, 24), rank(30, 0, 0)]
    faster = [graphs[0], shorten(graphs[1], np.array([0, 4]), 10)]
    job, replay = replayed(faster, graphs)
    assert [replay.end_ns[nodes[3]] for nodes in job.nodes] == [18, 18]


def test_clocks_that_differ() -> None:
    """The clock of rank 1 is 1000 ns ahead: its work starts at 1000 in its trace, and at 0 in the job."""
    graphs = [rank(10, 20, 24), rank(30, 0, 0)]
    ahead = replace(graphs[1], ready_ns=graphs[1].ready_ns + 1000)
    job, replay = replayed([graphs[0], ahead], [graphs[0], ahead])
    assert [replay.end_ns[nodes[3]] for nodes in job.nodes] == [38, 38]


def test_collectives_in_another_order_are_left_out() -> None:
    graphs = [rank(10, 20, 24), rank(30, 0, 0)]
    ends = [simulate(graph).end_ns for graph in graphs]
    job = job_of(graphs, np.array([[3, 7], [7, 3]]), ends)
    assert np.count_nonzero(job.graph.link == Link.RANK) == 4


def recorded(paths: Sequence[Path]) -> tuple[list[RankGraph], list[Graph]]:
    graphs = [extract_trace(path).graph for path in paths]
    assert all(graph is not None for graph in graphs)
    return [graph for graph in graphs if graph is not None], [graph.graph for graph in graphs if graph is not None]


def test_an_unchanged_job_takes_as_long_as_its_traces() -> None:
    paths = [FIXTURES / "ranks_cuda" / f"rank{number}.json.gz" for number in (0, 1)]
    ranks, graphs = recorded(paths)
    meetings = np.stack([rank.collectives for rank in ranks], axis=1)
    job = job_of(graphs, meetings, [rank.end_ns for rank in ranks])
    replay = simulate(job.graph)
    for number, graph in enumerate(graphs):
        traced_ns = simulate(graph).step_ns
        assert job.step_ns(replay, graph, number) == pytest.approx(traced_ns, rel=0.001)
        moved = replay.end_ns[job.nodes[number]] - ranks[number].end_ns
        assert np.abs(moved - np.median(moved)).max() < 200_000


@pytest.mark.parametrize(("folder", "error"), [("ranks_cuda", 0.02), ("ranks_cuda_small", 0.26)])
def test_recorded_jobs_agree_with_their_clocks(folder: str, error: float) -> None:
    """As traced, the steps of the second job are 60 % longer."""
    path = FIXTURES / folder
    traces = inspect(sorted(path.glob("rank*.json.gz"))).report.traces
    for trace, truth in zip(traces, json.loads((path / "truth.json").read_text())["ranks"], strict=True):
        assert trace.untraced_step_ns is not None
        untraced_ns = 1e6 * truth["step_ms"]
        assert trace.untraced_step_ns.low <= untraced_ns <= trace.untraced_step_ns.high
        assert trace.untraced_step_ns.median == pytest.approx(untraced_ns, rel=error)


@published
def test_a_host_bound_job_agrees_with_its_clocks() -> None:
    """As traced, its steps are two thirds longer. Rank 1 alone, which waits for rank 0, seems to take 11 % longer."""
    paths = [PUBLISHED / "h200_ddp" / f"ddp_plain_rank{number}.json.gz" for number in (0, 1)]
    for trace in inspect(paths).report.traces:
        truth = paths[trace.rank or 0].with_name(f"ddp_plain_rank{trace.rank}.truth.json")
        untraced_ns = 1e6 * json.loads(truth.read_text())["step_ms"]
        assert trace.untraced_step_ns is not None
        assert trace.untraced_step_ns.median == pytest.approx(untraced_ns, rel=0.05)


def test_ranks_without_common_collectives_have_no_job() -> None:
    extract = extract_trace(FIXTURES / "ranks_cuda" / "rank0.json.gz")
    assert extract.graph is not None
    alone = replace(extract.graph, collectives=np.full_like(extract.graph.collectives, -1))
    assert job_intervals([extract.graph, alone], [extract.rank, extract.rank]) == ()
