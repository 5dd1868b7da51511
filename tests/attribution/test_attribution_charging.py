"""Every busy instant counts for one event: computation before communication, then the event that started first."""

from __future__ import annotations

from pathlib import Path

import examples
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inspection_traces import kernel, launch, node, op, table
from inspection_traces import mark as ranged
from inspection_written import Written, assert_sums_hold

from profiler_kit.attribution.device_time import device_timeline
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import TraceSummary
from profiler_kit.traces.intervals import length

NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL"
Work = tuple[int, int, bool, int]  # start, length, whether it is a collective, stream
WORK = st.tuples(st.integers(0, 60), st.integers(0, 20), st.booleans(), st.integers(0, 2))


def written(works: list[Work]) -> Written:
    trace = Written()
    for start, duration, collective, stream in works:
        trace.work(
            start,
            start + duration,
            trace.launch(start - 50, start - 49),
            name=NCCL if collective else f"kernel {start}",
            stream=stream,
            phase="communication" if collective else "forward",
        )
    return trace


def instant_by_instant(start: np.ndarray, end: np.ndarray, collective: np.ndarray) -> list[int]:
    """The ns of each event, every ns looked at by itself."""
    own = [0] * len(start)
    for at in range(int(start.min()), int(end.max()) + 1):
        running = [i for i in range(len(start)) if start[i] <= at < end[i]]
        if running:
            own[min(running, key=lambda i: (collective[i], start[i], i))] += 1
    return own


@settings(max_examples=examples.count(80))
@given(st.lists(WORK, min_size=1, max_size=12))
def test_every_instant_is_charged_to_computation_first(works: list[Work]) -> None:
    line = device_timeline(written(works).attribution().device)
    collective = line.device.collective
    assert line.event_busy_ns.tolist() == instant_by_instant(line.device.start_ns, line.device.end_ns, collective)
    for mask in (collective, ~collective, np.arange(len(collective)) % 2 == 0):
        assert length(line.intervals_of(mask)) == line.event_busy_ns[mask].sum()


@settings(max_examples=examples.count(80))
@given(st.lists(WORK, min_size=1, max_size=12))
def test_communication_is_charged_what_it_exposes(works: list[Work]) -> None:
    summary = summarize(written(works).attribution())
    assert_sums_hold(summary)
    if summary.communication is not None:
        timing = summary.phase("communication")
        assert timing is not None
        assert timing.kernel_ns == summary.communication.exposed_ns


def test_a_collective_that_spins_hides_no_backward_pass(tmp_path: Path) -> None:
    """It is launched by a node, so that it began in its module's work and is not of it."""
    events = [
        ranged("ProfilerStep#1", 0, 100),
        op("aten::linear", 5, 10, sequence=1),
        launch(1, 6),
        kernel("gemm", 8, 18, 1),
        node("AddmmBackward0", 20, 40, 1, thread=100),
        launch(2, 22),
        kernel(NCCL, 24, 94, 2, stream=20),
        launch(3, 30),
        kernel("gemm", 34, 64, 3),
    ]
    summary = summarize(attribute(table(tmp_path, events)))
    assert_sums_hold(summary)
    assert spent(summary) == {"forward": 10_000, "backward": 30_000, "communication": 40_000}
    owners = {(module.path, module.phase): module.kernel_ns for module in summary.modules}
    assert owners[("(communication)", "communication")] == 40_000
    assert not summary.has_modules


def spent(summary: TraceSummary) -> dict[str, int]:
    return {timing.phase: timing.kernel_ns for timing in summary.phases if timing.kernel_ns}


@pytest.mark.parametrize("phase", TRACE_PHASES)
def test_copies_come_before_collectives_too(phase: str) -> None:
    trace = Written()
    trace.work(0, 100, trace.launch(-9, -4), name=NCCL, stream=1, phase="communication")
    trace.work(30, 50, trace.launch(-3, -2), name="a", phase=phase)
    result = spent(summarize(trace.attribution()))
    if phase == "communication":
        assert result == {"communication": 100}
    else:
        assert result == {"communication": 80, phase: 20}
