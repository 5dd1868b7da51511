"""Graphs small enough to compute on paper, and laws that hold for all graphs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from profiler_kit.simulation.changes import drop_waits, remove
from profiler_kit.simulation.graph import NEVER_NS, Graph, Link, Node, graph_of
from profiler_kit.simulation.replay import Replay, simulate, simulate_all

HOST, STREAM, OTHER = 0, 10, 11
SEQUENCE, LAUNCH, FIFO, WAIT = Link.SEQUENCE, Link.LAUNCH, Link.STREAM, Link.WAIT


def host(duration_ns: int, *after: tuple[int, int, Link], **options: int) -> Node:
    return Node(lane=HOST, duration_ns=duration_ns, after=after, **options)


def kernel(
    duration_ns: int, launch: int, *after: tuple[int, int, Link], lane: int = STREAM, latency: int = 2, step: int = 0
) -> Node:
    edges = ((launch, latency, LAUNCH), *after)
    return Node(lane=lane, duration_ns=duration_ns, is_device=True, after=edges, launch=launch, step=step)


def launches(host_ns: int, kernel_ns: int, count: int) -> Graph:
    """`count` launches of one kernel each. Nodes: host 0, kernel 1, host 2, kernel 3, ..."""
    nodes: list[Node] = []
    for i in range(count):
        last = 2 * (i - 1)
        nodes.append(host(host_ns, *([(last, 0, SEQUENCE)] if i else []), own_ns=host_ns))
        nodes.append(kernel(kernel_ns, 2 * i, *([(last + 1, 1, FIFO)] if i else [])))
    return graph_of(nodes)


def makespan_ns(replay: Replay) -> int:
    return int(replay.end_ns.max())


def test_launch_bound() -> None:
    """The host launches every 10 ns, and a kernel of 3 ns starts 2 ns later."""
    replay = simulate(launches(10, 3, 4))
    assert replay.start_ns[1::2].tolist() == [12, 22, 32, 42]
    assert makespan_ns(replay) == 45
    assert replay.step_ns == 40


def test_device_bound() -> None:
    """The host is done after 4 ns; kernels of 10 ns follow each other after 1 ns."""
    replay = simulate(launches(1, 10, 4))
    assert replay.start_ns[1::2].tolist() == [3, 14, 25, 36]
    assert replay.step_ns == 43  # from the first kernel to the last


def test_synchronization_in_the_middle() -> None:
    """The host waits for a kernel that ends at 23, returns at 24, and launches the next after 5 ns."""
    graph = graph_of(
        [
            host(1),
            kernel(20, 0),
            host(1, (0, 0, SEQUENCE), (1, 0, WAIT)),
            host(5, (2, 0, SEQUENCE)),
            kernel(4, 3, (1, 1, FIFO)),
        ]
    )
    replay = simulate(graph)
    assert replay.end_ns.tolist() == [1, 23, 24, 29, 35]
    without = simulate(drop_waits(graph, np.array([2])))
    assert without.end_ns.tolist() == [1, 23, 1, 6, 28]


def test_two_streams_with_an_event() -> None:
    """The second kernel of another stream waits for an event: it starts 3 ns after the first stream's kernel."""
    graph = graph_of(
        [
            host(1),
            kernel(20, 0),
            host(1, (0, 0, SEQUENCE)),
            kernel(5, 2, lane=OTHER),
            host(1, (2, 0, SEQUENCE)),
            kernel(5, 4, (3, 1, FIFO), (1, 3, Link.EVENT), lane=OTHER),
        ]
    )
    replay = simulate(graph)
    assert replay.start_ns[[1, 3, 5]].tolist() == [3, 4, 26]


def test_full_queue() -> None:
    """Two places: the third launch returns when the first kernel has ended and the second starts."""
    graph = launches(1, 10, 4)
    places = _with_edges(graph, [(1, 4), (3, 6)])
    replay = simulate(places)
    assert replay.start_ns[[0, 2, 4, 6]].tolist() == [0, 1, 13, 24]
    assert replay.start_ns[1::2].tolist() == simulate(graph).start_ns[1::2].tolist()  # the device is not delayed


def _with_edges(graph: Graph, edges: list[tuple[int, int]]) -> Graph:
    sources, targets = zip(*edges, strict=True)
    source, target = np.append(graph.source, sources), np.append(graph.target, targets)
    order = np.argsort(target, kind="stable")
    none = np.zeros(len(edges), np.int64)
    return replace(
        graph,
        source=source[order].astype(np.int32),
        target=target[order].astype(np.int32),
        delay_ns=np.append(graph.delay_ns, none)[order],
        link=np.append(graph.link, none + int(Link.QUEUE))[order].astype(np.int8),
    )


def test_two_threads() -> None:
    """A second thread works while the first one sleeps, and wakes it 2 ns after it has ended."""
    graph = graph_of(
        [
            host(10),
            Node(lane=1, duration_ns=30, after=((0, 1, Link.THREAD),)),
            host(5, (0, 0, SEQUENCE), (1, 2, Link.THREAD)),
        ]
    )
    assert simulate(graph).end_ns.tolist() == [10, 41, 48]


def test_steps_take_the_longer_of_host_and_device() -> None:
    """The host runs ahead: it marks a step every 4 ns, and the device needs 22."""
    nodes: list[Node] = []
    for i in range(6):
        last = 2 * (i - 1)
        nodes.append(host(2, *([(last, 0, SEQUENCE)] if i else []), step=i // 2))
        nodes.append(kernel(10, 2 * i, *([(last + 1, 1, FIFO)] if i else []), step=i // 2))
    assert simulate(graph_of(nodes)).step_ns == 22


def test_edges_lead_to_higher_numbers() -> None:
    with pytest.raises(ValueError, match="lower to a higher"):
        graph_of([host(1, (1, 0, SEQUENCE)), host(1)])


# ---- changes


def test_a_removed_kernel_goes_with_its_launch() -> None:
    graph = launches(10, 3, 4)
    replay = simulate(remove(graph, np.array([3])))
    assert replay.start_ns[[1, 5, 7]].tolist() == [12, 22, 32]
    kept = replace(graph, own_ns=graph.own_ns // 2)  # half of the host's time belongs to the operator of the launch
    assert simulate(remove(kept, np.array([3]))).start_ns[5] == 27


# ---- laws


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Graphs of one host thread and two streams, with waits, as traces make them."""
    nodes: list[Node] = []
    last: dict[int, int] = {}
    times = st.integers(0, 50)
    for step in range(draw(st.integers(1, 3))):
        for _ in range(draw(st.integers(1, 6))):
            edges = [(last[HOST], 0, SEQUENCE)] if HOST in last else []
            if len(last) > 1 and draw(st.booleans()):
                stream = draw(st.sampled_from(sorted(set(last) - {HOST})))
                edges.append((last[stream], -draw(st.integers(0, 5)), WAIT))
            duration = draw(times)
            nodes.append(host(duration, *edges, own_ns=draw(st.integers(0, duration)), step=step))
            last[HOST] = len(nodes) - 1
            if draw(st.booleans()):
                stream = draw(st.sampled_from((STREAM, OTHER)))
                edges = [(last[stream], draw(st.integers(-3, 3)), FIFO)] if stream in last else []
                latency = draw(st.integers(-duration, 9))
                nodes.append(kernel(draw(times), last[HOST], *edges, lane=stream, latency=latency, step=step))
                last[stream] = len(nodes) - 1
    return graph_of(nodes)


@given(graphs())
def test_no_node_starts_before_what_it_needs(graph: Graph) -> None:
    replay = simulate(graph)
    assert (replay.start_ns[graph.target] >= replay.end_ns[graph.source] + graph.delay_ns).all()
    assert (replay.end_ns - replay.start_ns == graph.duration_ns).all()


@given(graphs(), st.data())
def test_removing_more_never_takes_longer(graph: Graph, data: st.DataObject) -> None:
    work = np.flatnonzero(graph.is_device)
    assert simulate(remove(graph, work[:0])).end_ns.tolist() == simulate(graph).end_ns.tolist()
    if not len(work):
        return
    some = data.draw(st.lists(st.sampled_from(work.tolist()), unique=True))
    more = [*some, *data.draw(st.lists(st.sampled_from(work.tolist()), unique=True))]
    ends = [simulate(remove(graph, np.array(nodes, np.int64))).end_ns for nodes in (some, more)]
    assert (ends[1] <= ends[0]).all()
    assert (ends[0] <= simulate(graph).end_ns).all()


@given(graphs())
def test_without_waits_nothing_ends_later(graph: Graph) -> None:
    dropped = simulate(drop_waits(graph, np.flatnonzero(~graph.is_device)))
    assert (dropped.end_ns <= simulate(graph).end_ns).all()
    assert (dropped.graph.delay_ns[dropped.graph.link == WAIT] == NEVER_NS).all()


@given(graphs(), st.data())
def test_one_pass_replays_several_changes_of_a_graph(graph: Graph, data: st.DataObject) -> None:
    work = np.flatnonzero(graph.is_device)
    some = data.draw(st.lists(st.sampled_from(work.tolist()), unique=True)) if len(work) else []
    changes = [graph, remove(graph, np.array(some, np.int64)), drop_waits(graph, np.flatnonzero(~graph.is_device))]
    for change, replay in zip(changes, simulate_all(changes), strict=True):
        assert replay.end_ns.tolist() == simulate(change).end_ns.tolist()
