"""Any trace has a graph, however little sense its times make, and its laws hold."""

from __future__ import annotations

import examples
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from inspection_written import Written, written

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.simulation.changes import remove
from profiler_kit.simulation.from_trace import trace_graph
from profiler_kit.simulation.replay import simulate
from profiler_kit.simulation.replayed_trace import replayed


def assert_laws_hold(attribution: Attribution) -> None:
    traced = trace_graph(attribution)
    graph, replay = traced.graph, simulate(traced.graph)
    assert (graph.duration_ns >= 0).all()
    assert (replay.start_ns[graph.target] >= replay.end_ns[graph.source] + graph.delay_ns).all()
    removed = simulate(remove(graph, np.flatnonzero(graph.is_device)))
    assert (removed.end_ns <= replay.end_ns).all()
    summary = replayed(attribution, summarize(attribution))[0]
    assert (summary.untraced_step_ns is None) == (summary.untraced_reason != "")
    if summary.untraced_step_ns is not None:
        interval = summary.untraced_step_ns
        assert 0 <= interval.low <= interval.median <= interval.high


@settings(max_examples=examples.count(100))
@given(written())
def test_the_laws_hold(trace: Written) -> None:
    assert_laws_hold(trace.attribution())


@settings(max_examples=examples.count(60))
@given(written(), st.lists(st.tuples(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1)), max_size=3), st.booleans())
def test_the_laws_hold_whatever_the_times_say(trace: Written, absurd: list[tuple[int, int]], durations: bool) -> None:
    table = trace.attribution().table
    column = table.duration_ns if durations else table.start_ns
    for row, value in absurd:
        if row < len(table):
            column[row] = value
    assert_laws_hold(attribute(table))
