"""The step without the profiler: what is taken out of the host's work, and how far recorded programs agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspection_traces import Event, call, kernel, launch, mark, op, table

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.samples import Interval
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.graph import Graph, Link, Node, graph_of
from profiler_kit.simulation.profiler_cost import (
    NOISE_SHARE,
    ON_DEVICE,
    ON_HOST,
    ProfilerCost,
    calibrated_scale,
    cost_of,
    host_slowness,
    untraced_interval,
    without_profiler,
)
from profiler_kit.simulation.replay import simulate
from profiler_kit.simulation.replayed_trace import replayed
from profiler_kit.traces.reader import read

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures"
COST = ProfilerCost(operator_ns=10, frame_ns=1, range_ns=100, call_ns=5, shapes_ns=7, kept_share=0.25)


def steps(host_ns: int, kernel_ns: int, items: tuple[int, int, int, int], waiting_ns: int = 0, count: int = 3) -> Graph:
    """Steps of one launch and one kernel."""
    nodes: list[Node] = []
    for i in range(count):
        after = ((2 * i - 2, 0, Link.SEQUENCE),) if i else ()
        before = ((2 * i - 1, 0, Link.STREAM),) if i else ()
        nodes.append(Node(lane=0, duration_ns=host_ns, after=after, step=i, items=items))
        edges = ((2 * i, 0, Link.LAUNCH), *before)
        nodes.append(
            Node(
                lane=1, duration_ns=kernel_ns, is_device=True, after=edges, launch=2 * i, step=i, waiting_ns=waiting_ns
            )
        )
    return graph_of(nodes)


def test_each_item_has_its_cost() -> None:
    graph = without_profiler(steps(1000, 10, (3, 20, 1, 4)), COST)
    assert graph.duration_ns[0] == 1000 - 30 - 20 - 100 - 20
    assert simulate(graph).step_ns == graph.duration_ns[0]


def test_a_part_of_the_host_work_is_always_the_program() -> None:
    """The operators are so dense that their cost exceeds the time."""
    assert without_profiler(steps(1000, 10, (500, 0, 0, 0)), COST).duration_ns[0] == 250


def test_the_device_decides_a_device_bound_step() -> None:
    graph = steps(1000, 5000, (50, 0, 0, 0))
    assert simulate(without_profiler(graph, COST)).step_ns == simulate(graph).step_ns == 5000
    interval = untraced_interval(graph, COST)
    assert (interval.low, interval.high) == (round((1 - NOISE_SHARE) * 5000), round((1 + NOISE_SHARE) * 5000))


def test_waits_for_other_ranks_shrink_with_the_host() -> None:
    """Half of the host's time is the profiler's: a collective that waits for 4000 of 5000 ns waits for 2000 then."""
    graph = steps(1000, 5000, (50, 0, 0, 0), waiting_ns=4000)
    assert without_profiler(graph, COST).duration_ns[:2].tolist() == [500, 3000]
    assert untraced_interval(graph, COST).high >= 5000


@given(st.integers(1, 2000), st.integers(1, 2000), st.tuples(*[st.integers(0, 20)] * 4), st.integers(0, 100))
def test_the_estimate_is_in_its_range_and_below_the_traced_step(
    host_ns: int, kernel_ns: int, items: tuple[int, int, int, int], share: int
) -> None:
    graph = steps(host_ns, kernel_ns, items, waiting_ns=kernel_ns * share // 100)
    interval = untraced_interval(graph, COST)
    assert interval.low <= interval.median <= interval.high
    assert interval.median <= simulate(graph).step_ns


@pytest.mark.parametrize(("step_us", "scale"), [(900, 0.5), (800, 1.0), (600, 2.0), (1200, 0.0), (10, 4.95)])
def test_the_cost_that_a_timed_step_shows(step_us: int, scale: float) -> None:
    """Twenty operators cost 200 of 1000 us."""
    cost = ProfilerCost(operator_ns=10_000, frame_ns=0, range_ns=0, call_ns=0, shapes_ns=0, kept_share=0.0)
    graph = steps(1_000_000, 10, (20, 0, 0, 0))
    assert calibrated_scale(graph, cost, 1000 * step_us) == pytest.approx(scale, abs=0.01)


# ---- traces


def estimate(attribution: Attribution, **changes: Any) -> Interval | str:
    summary, *_ = replayed(attribution, replace(summarize(attribution), **changes))
    return summary.untraced_step_ns or summary.untraced_reason


def trace(tmp_path: Path, events: list[Event]) -> Interval | str:
    attribution = attribute(table(tmp_path, events))
    return estimate(attribution)


def host_steps(extra: int = 0) -> list[Event]:
    """Three steps of 1 ms with 100 operators each, and `extra` Python calls."""
    events = []
    for i in range(3):
        begin = 1000 * i
        events.append(mark(f"ProfilerStep#{i}", begin, begin + 1000))
        events += [op("aten::add", begin + 9 * j, begin + 9 * j + 5) for j in range(100)]
        events += [call(f"train.py({j}): f", begin + 9 * j + 6, begin + 9 * j + 7) for j in range(extra)]
    return events


def test_a_step_on_the_host(tmp_path: Path) -> None:
    plain, stacks = trace(tmp_path, host_steps()), trace(tmp_path, host_steps(extra=50))
    assert isinstance(plain, Interval)
    assert isinstance(stacks, Interval)
    assert plain.median == 1_000_000 - 100 * ON_HOST.operator_ns - ON_HOST.range_ns
    assert plain.median - stacks.median == 50 * ON_HOST.frame_ns


def test_a_step_on_the_device(tmp_path: Path) -> None:
    events = host_steps()
    for i in range(3):
        events += [launch(i, 1000 * i + 500, 1000 * i + 504), kernel("relu", 1000 * i + 506, 1000 * i + 510, i)]
    result = trace(tmp_path, events)
    assert isinstance(result, Interval)
    cost = 101 * ON_DEVICE.operator_ns + ON_DEVICE.call_ns
    assert result.median == 1_000_000 - cost


def test_events_that_the_file_lacks_had_a_cost(tmp_path: Path) -> None:
    attribution = attribute(table(tmp_path, host_steps()))
    assert cost_of(attribution, 0.5).operator_ns == 2 * cost_of(attribution, 0).operator_ns


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([op("aten::add", 0, 5)], "no steps"),
        ([mark("ProfilerStep#1", 0, 100), kernel("relu", 5, 10)], "no operators"),
        ([mark("ProfilerStep#1", 0, 100), op("aten::add", 0, 5), launch(1, 1, 2)], "device work is missing"),
    ],
)
def test_why_it_cannot_be_estimated(tmp_path: Path, events: list[Event], reason: str) -> None:
    assert trace(tmp_path, events) == reason


def test_hardware_counters_are_no_times(tmp_path: Path) -> None:
    attribution = attribute(table(tmp_path, host_steps()))
    assert estimate(attribution, hardware_counters=True) == "hardware counters"


def test_stacks_do_not_change_the_estimate() -> None:
    """The same program with and without stacks: 21 % apart as traced, 1 % as estimated."""
    medians, traced = [], []
    for form in ("plain", "stacks"):
        path = FIXTURES / "diagnosis" / f"useless_autocast.cuda.{form}.json.gz"
        attribution = attribute(read(path, details=False))
        result = estimate(attribution)
        assert isinstance(result, Interval)
        medians.append(result.median)
        traced.append(simulate(trace_graph(attribution).graph).step_ns)
    assert traced[1] / traced[0] > 1.15
    assert np.isclose(medians[0], medians[1], rtol=0.03)


@pytest.mark.parametrize(
    ("launches", "launch_us", "factor"), [(60, 7.0, 1.0), (60, 10.0, 1.7075), (60, 40.0, 2.0), (20, 40.0, 1.0)]
)
def test_a_host_whose_launches_take_longer_pays_more_for_the_profiler(
    tmp_path: Path, launches: int, launch_us: float, factor: float
) -> None:
    events = [mark("ProfilerStep#1", 0, 60 * launches)]
    for number in range(1, launches + 1):
        begin = 60.0 * (number - 1)
        events += [op("aten::mm", begin, begin + 50), launch(number, begin, begin + launch_us)]
        events.append(kernel("gemm", begin + 50, begin + 55, number))
    attribution = attribute(table(tmp_path, events))
    assert host_slowness(attribution) == pytest.approx(factor, rel=1e-3)
    assert cost_of(attribution, 0.0).operator_ns == pytest.approx(factor * ON_DEVICE.operator_ns, rel=1e-3)
