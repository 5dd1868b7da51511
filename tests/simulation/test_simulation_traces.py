"""Graphs of traces: handwritten ones, and all recorded ones, whose replay gives the trace back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from inspection_traces import ENGINE, MAIN, Event, copy, kernel, launch, mark, op, table
from published_traces import PUBLISHED, TRACES, published

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import PHASE_NUMBERS
from profiler_kit.simulation.changes import drop_waits, remove, shorten
from profiler_kit.simulation.from_trace import QUEUE_DEPTH, TraceGraph, trace_graph
from profiler_kit.simulation.graph import NONE, Item, Link
from profiler_kit.simulation.replay import Replay, simulate, step_ns_of
from profiler_kit.traces.intervals import overlap, union
from profiler_kit.traces.reader import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
RECORDED = sorted(FIXTURES.glob("traces/**/*.json.gz"))
RECORDED += [path for path in sorted(FIXTURES.glob("diagnosis/*.json.gz")) if ".analyze." not in path.name]
US = 1_000
WORKER = 300


def graph_of(tmp_path: Path, events: list[Event]) -> TraceGraph:
    return trace_graph(attribute(table(tmp_path, events)))


def assert_gives_the_trace_back(traced: TraceGraph) -> Replay:
    replay = simulate(traced.graph)
    assert np.abs(replay.start_ns + traced.graph.duration_ns - traced.end_ns).max(initial=0) == 0
    return replay


def step(number: int, start: float, end: float) -> Event:
    return mark(f"ProfilerStep#{number}", start, end)


def launched(
    number: int, start: float, kernel_start: float, kernel_end: float, *, thread: int = MAIN, stream: int = 7
) -> list[Event]:
    """An operator of 8 us that launches in its last 5 us, and its kernel."""
    return [
        op("aten::relu", start, start + 8, thread=thread),
        launch(number, start + 3, start + 8, thread=thread),
        kernel(f"kernel_{number}", kernel_start, kernel_end, number, stream=stream),
    ]


def edges(traced: TraceGraph, link: Link) -> list[tuple[int, int]]:
    at = traced.graph.link == link
    return list(zip(traced.graph.source[at].tolist(), traced.graph.target[at].tolist(), strict=True))


def nodes_of_kernels(traced: TraceGraph) -> list[int]:
    return np.flatnonzero(traced.graph.is_device).tolist()


# ---- all recorded traces


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name)
def test_the_replay_of_a_recorded_trace_is_the_trace(path: Path) -> None:
    attribution = attribute(read(path, details=False))
    traced = trace_graph(attribution)
    replay = assert_gives_the_trace_back(traced)
    assert replay.step_ns == step_ns_of(traced.graph, traced.begin_ns, traced.end_ns) > 0
    steps = attribution.steps
    marked_ns = float(np.median(np.diff([steps[0].start_ns, *(step.end_ns for step in steps)])))
    if replay.step_ns != pytest.approx(marked_ns, rel=0.03):
        assert replay.step_ns > marked_ns
        assert host_runs_ahead(replay)


def host_runs_ahead(replay: Replay) -> bool:
    """Whether the device ends the work of a step after the host has."""
    graph = replay.graph
    ends = np.zeros((2, graph.steps), np.int64)
    inside = graph.step != NONE
    np.maximum.at(ends, (graph.is_device[inside].astype(np.int64), graph.step[inside]), replay.end_ns[inside])
    return bool((ends[1] > ends[0]).any())


@published
@pytest.mark.parametrize("name", TRACES)
def test_the_replay_of_a_published_trace_is_the_trace(name: str) -> None:
    assert_gives_the_trace_back(trace_graph(attribute(read(PUBLISHED / name, details=False))))


# ---- what a trace says about its graph


def test_launches_and_items(tmp_path: Path) -> None:
    """Two launches in a step of 100 us; operators, ranges and calls are counted where they begin."""
    traced = graph_of(tmp_path, [step(1, 0, 100), *launched(1, 10, 20, 30), *launched(2, 40, 50, 60)])
    graph = traced.graph
    host = ~graph.is_device
    assert (graph.duration_ns[host] // US).tolist() == [18, 30, 52]
    assert (graph.own_ns[host] // US).tolist() == [8, 8, 0]
    assert graph.items[Item.OPERATOR, host].tolist() == [1, 1, 0]
    assert graph.items[Item.CALL, host].tolist() == [1, 1, 0]
    assert graph.items[Item.RANGE, host].tolist() == [1, 0, 0]
    assert edges(traced, Link.LAUNCH) == [(0, 1), (2, 3)]
    assert edges(traced, Link.STREAM) == [(1, 3)]
    assert_gives_the_trace_back(traced)


def test_autograd_takes_turns_with_the_main_thread(tmp_path: Path) -> None:
    """The main thread waits in backward, so both threads are one lane in the order of time."""
    events = [
        step(1, 0, 100),
        *launched(1, 10, 20, 30),
        *launched(2, 40, 50, 60, thread=ENGINE),
        *launched(3, 70, 80, 90),
    ]
    traced = graph_of(tmp_path, events)
    assert set(traced.graph.lane[~traced.graph.is_device].tolist()) == {0}
    assert len(set(traced.thread[~traced.graph.is_device].tolist())) == 2
    assert len(edges(traced, Link.SEQUENCE)) == 3


def test_a_thread_that_runs_at_the_same_time_is_another_lane(tmp_path: Path) -> None:
    """Both threads run operators for 800 us. Then the main thread pauses until the other one is done."""
    events = [step(1, 0, 2000)]
    for i in range(8):
        events += [op("aten::mul", 100 * i, 100 * i + 90), op("aten::add", 100 * i + 5, 100 * i + 95, thread=WORKER)]
    events += [op("aten::cat", 800, 1500, thread=WORKER), op("aten::sum", 1510, 1600)]
    traced = graph_of(tmp_path, events)
    replay = assert_gives_the_trace_back(traced)
    assert len(set(traced.graph.lane.tolist())) == 2
    (waiting,) = edges(traced, Link.THREAD)
    graph = traced.graph
    assert traced.end_ns[list(waiting)].tolist() == [1500 * US, 1510 * US]
    faster = graph.duration_ns[waiting[0]] - 600 * US
    changed = simulate(shorten(graph, np.array([waiting[0]]), int(faster)))
    assert replay.end_ns.max() - changed.end_ns.max() == 600 * US


def test_a_wait_ends_with_the_work_that_it_waits_for(tmp_path: Path) -> None:
    """The host waits from 30 to 62 for a kernel that ends at 60, and returns 2 us later."""
    events = [
        step(1, 0, 100),
        *launched(1, 10, 20, 60),
        launch(2, 30, 62, name="cudaDeviceSynchronize"),
        *launched(3, 70, 80, 90),
    ]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    ((source, target),) = edges(traced, Link.WAIT)
    assert traced.graph.duration_ns[target] == 2 * US
    assert simulate(drop_waits(traced.graph, np.array([target]))).start_ns[nodes_of_kernels(traced)[1]] == 60 * US
    assert simulate(remove(traced.graph, np.array([source]))).end_ns[-1] < 80 * US


def test_a_blocking_copy_waits_for_itself(tmp_path: Path) -> None:
    """`.item()`: the call launches a copy, and returns when it has ended."""
    events = [step(1, 0, 100), *launched(1, 10, 20, 60), op("aten::item", 25, 70)]
    events += [launch(2, 30, 66, name="cudaMemcpyAsync"), copy("Memcpy DtoH (Device -> Pageable)", 61, 63, 2)]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    first, second = nodes_of_kernels(traced)
    assert [source for source, _ in edges(traced, Link.WAIT)] == [second]
    assert (first, second) in edges(traced, Link.STREAM)
    assert simulate(remove(traced.graph, np.array([first]))).end_ns[-1] < 66 * US


def test_an_event_between_streams(tmp_path: Path) -> None:
    """A kernel of another stream, launched early, starts when a long kernel has ended."""
    events = [
        step(1, 0, 300),
        *launched(1, 10, 20, 200),
        launch(2, 20, 21, name="cudaEventRecord"),
        launch(3, 22, 23, name="cudaStreamWaitEvent"),
        *launched(4, 30, 203, 210, stream=9),
        *launched(5, 50, 204, 220),
    ]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    kernels = nodes_of_kernels(traced)
    assert edges(traced, Link.EVENT) == [(kernels[0], kernels[1])]
    without_calls = graph_of(tmp_path, [event for event in events if "Event" not in event["name"]])
    assert len(edges(without_calls, Link.EVENT)) == 1  # nothing else explains the late start


@published
def test_an_event_that_the_profiler_recorded() -> None:
    """Stream 24 waits for an event of stream 20, though the work of stream 28 was launched and ended last."""
    path = PUBLISHED / "hta" / "cuda_event_sync_multi_stream.json.gz"
    attribution = attribute(read(path, details=False))
    traced = trace_graph(attribution)
    assert_gives_the_trace_back(traced)
    table = attribution.table
    (edge,) = edges(traced, Link.EVENT)
    names = [table.streams[table.stream[attribution.device.rows[traced.event[node]]]].stream for node in edge]
    assert names == ["20", "24"]


def test_a_short_kernel_launched_later_is_not_awaited(tmp_path: Path) -> None:
    """A collective begins 25 us after the kernel that it waits for. Meanwhile a kernel that was launched after it has ended."""
    events = [
        step(1, 0, 300),
        *launched(1, 10, 20, 200),
        *launched(2, 30, 225, 260, stream=9),
        *launched(3, 50, 202, 210),
    ]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    first, second, _ = nodes_of_kernels(traced)
    assert edges(traced, Link.EVENT) == [(first, second)]


def test_a_full_queue_is_the_time_of_the_device(tmp_path: Path) -> None:
    """Launches take 2 us. When 100 are queued, each waits for a kernel of 50 us."""
    events: list[Event] = [step(1, 0, 20_000)]
    launch_end, starts = 0.0, []
    for i in range(150):
        begin = launch_end + 2
        launch_end = max(begin + 2, starts[i - 100] + 1) if i >= 100 else begin + 2
        events.append(launch(i, begin, launch_end))
        starts.append(max(launch_end + 5, starts[-1] + 51 if starts else 0))
        events.append(kernel("gemm", starts[-1], starts[-1] + 50, i))
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    host = ~traced.graph.is_device
    assert len(edges(traced, Link.QUEUE)) == 48
    assert traced.graph.duration_ns[host][:-1].max() <= 4 * US
    assert launch_end < 20_000
    shorter = np.where(traced.graph.is_device, traced.graph.duration_ns // 2, traced.graph.duration_ns)
    assert simulate(replace(traced.graph, duration_ns=shorter)).end_ns[host][-2] < 0.6 * launch_end * US


def test_the_queue_holds_about_a_thousand_launches(tmp_path: Path) -> None:
    """A host that never blocked in the trace would block if it were further ahead."""
    events: list[Event] = [step(1, 0, 100_000)]
    for i in range(QUEUE_DEPTH + 10):
        events += [launch(i, 5 * i, 5 * i + 2), kernel("relu", 5 * i + 4, 5 * i + 6, i)]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    assert len(edges(traced, Link.QUEUE)) == 9


def test_a_graph_launch_has_many_kernels(tmp_path: Path) -> None:
    events = [step(1, 0, 100), launch(1, 10, 20, name="cudaGraphLaunch")]
    events += [kernel(f"kernel_{i}", 25 + 10 * i, 33 + 10 * i, 1) for i in range(5)]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    assert [source for source, _ in edges(traced, Link.LAUNCH)] == [0] * 5
    removed = simulate(remove(traced.graph, np.array(nodes_of_kernels(traced)[:4])))
    assert removed.end_ns[nodes_of_kernels(traced)[4]] < 35 * US
    assert removed.graph.duration_ns[0] == traced.graph.duration_ns[0]  # the launch has other work


def test_work_of_earlier_steps_holds_its_stream(tmp_path: Path) -> None:
    """A kernel that was launched before the first step runs until 50: the step's first kernel waits for it."""
    traced = graph_of(tmp_path, [step(1, 0, 100), kernel("old", -40, 50), *launched(1, 10, 51, 60)])
    replay = assert_gives_the_trace_back(traced)
    assert replay.start_ns[nodes_of_kernels(traced)[0]] == -40 * US
    assert traced.graph.step[nodes_of_kernels(traced)].tolist() == [NONE, 0]


def test_paused_and_empty_steps_are_left_out(tmp_path: Path) -> None:
    """Steps 1 and 2 are apart from steps 7 to 9, and step 10 is the empty mark of the last call of step()."""
    events = [step(number, start, start + 100) for number, start in ((1, 0), (2, 100), (7, 900), (8, 1000), (9, 1100))]
    for i, start in enumerate((0, 100, 900, 1000, 1100)):
        events += launched(i + 1, start + 10, start + 20, start + 30)
    events.append(step(10, 1200, 1205))
    traced = graph_of(tmp_path, events)
    assert traced.graph.steps == 3
    assert traced.begin_ns[0] == 0
    assert simulate(traced.graph).step_ns == 100 * US


def test_host_that_runs_ahead(tmp_path: Path) -> None:
    """Steps are marked every 20 us, and the device needs 100 us for each: that is the time of a step."""
    events = []
    for i in range(4):
        events += [step(i, 20 * i, 20 * i + 20), *launched(i + 1, 20 * i + 5, 20 + 100 * i, 118 + 100 * i)]
    traced = graph_of(tmp_path, events)
    assert_gives_the_trace_back(traced)
    assert simulate(traced.graph).step_ns == 100 * US


def test_without_host_events(tmp_path: Path) -> None:
    traced = graph_of(tmp_path, [kernel("gemm", 10 * i, 10 * i + 8) for i in range(5)])
    replay = assert_gives_the_trace_back(traced)
    assert replay.end_ns[traced.graph.is_device].max() - replay.start_ns[traced.graph.is_device].min() == 48 * US


# ---- changes of recorded programs, beside the same program recorded or timed with the change


def test_a_job_without_the_extra_work_of_one_rank() -> None:
    """Rank 1 multiplies matrices between two layers for 8 of 21 ms. Its clock also timed the steps without them."""
    folder = FIXTURES / "traces" / "ranks_cuda"
    attribution = attribute(read(folder / "rank1.json.gz", details=False))
    traced = trace_graph(attribution)
    work = np.flatnonzero(traced.graph.is_device)
    rows = attribution.host.rows[attribution.device.operator[traced.event[work]]]
    is_forward = attribution.device.phase[traced.event[work]] == PHASE_NUMBERS["forward"]
    extra = work[attribution.table.with_names(rows, lambda name: name == "aten::mm") & is_forward]
    (truth,) = (rank for rank in json.loads((folder / "truth.json").read_text())["ranks"] if rank["straggler"])
    assert simulate(traced.graph).step_ns == pytest.approx(1e6 * truth["step_ms"], rel=0.02)
    assert simulate(remove(traced.graph, extra)).step_ns == pytest.approx(1e6 * truth["plain_step_ms"], rel=0.03)


@published
def test_a_loop_that_does_not_wait_for_data() -> None:
    """The same loop was recorded with four workers of the DataLoader, and takes 126 instead of 176 ms."""
    graphs = {}
    for workers in (0, 4):
        (path,) = (PUBLISHED / "kineto" / f"resnet50_num_workers_{workers}").glob("*.json.gz")
        attribution = attribute(read(path, details=False))
        graphs[workers] = (attribution, trace_graph(attribution))
    attribution, traced = graphs[0]
    host = attribution.host
    data = host.phase == PHASE_NUMBERS["data"]
    waiting = union(host.start_ns[data] - traced.origin_ns, host.end_ns[data] - traced.origin_ns)
    at = np.flatnonzero(~traced.graph.is_device)
    shorter = traced.graph.duration_ns[at] - overlap(waiting, traced.begin_ns[at], traced.end_ns[at])
    step_ns = simulate(shorten(traced.graph, at, np.maximum(shorter, 0))).step_ns
    assert simulate(traced.graph).step_ns == pytest.approx(176.3e6, rel=0.01)
    assert step_ns == pytest.approx(simulate(graphs[4][1].graph).step_ns, rel=0.08)
