"""The lanes of one step: events of threads and streams, and what ends idle time."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from inspection_traces import Event, call, kernel, launch, mark, node, op, table

from profiler_kit.attribution.annotation_lanes import build_annotation
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.step_lanes import (
    MAX_CALLS,
    MAX_PYTHON_LANES,
    MAX_TIMELINE_SPANS,
    middle_step,
    step_timeline,
)
from profiler_kit.records.lanes import EventSpan, StepTimeline


def step(number: int, at: float) -> list[Event]:
    """A step of 100 us: a convolution in forward, its backward on another thread, a collective on another stream."""
    first = number * 10
    return [
        mark(f"ProfilerStep#{number}", at, at + 100),
        call("train.py(30): main", at - 1, at + 101),
        call("train.py(12): step", at + 1, at + 95),
        call("model.py(7): forward", at + 2, at + 40),
        call("nn.Module: Conv2d_0", at + 3, at + 30),
        {**op("aten::conv2d", at + 4, at + 20, sequence=number), "args": {"Sequence number": number}},
        op("aten::cudnn_convolution", at + 5, at + 19),
        launch(first, at + 6),
        node("ConvolutionBackward0", at + 50, at + 60, number),
        launch(first + 1, at + 52, thread=200),
        kernel("cudnn::conv_forward", at + 15, at + 25, first),
        kernel("cudnn::conv_backward", at + 60, at + 80, first + 1),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 70, at + 85, first + 1, stream=20),
    ]  # fmt: skip


def timeline_of(tmp_path: Path, events: list[Event]) -> StepTimeline:
    attribution = attribute(table(tmp_path, events))
    timeline = step_timeline(attribution, build_annotation(attribution).spans)
    assert timeline is not None
    return timeline


@pytest.fixture
def timeline(tmp_path: Path) -> StepTimeline:
    return timeline_of(tmp_path, [event for number in range(3) for event in step(number, 1000 + 200 * number)])


def lane(timeline: StepTimeline, name: str) -> list[EventSpan]:
    return [span for span in timeline.spans if span.lane == name and isinstance(span, EventSpan)]


def test_the_lanes_of_a_thread_and_of_a_device_are_beside_each_other(timeline: StepTimeline) -> None:
    assert timeline.step == 1
    titles = [name.partition(":")[0] for name in dict.fromkeys(span.lane for span in timeline.spans)]
    assert len(set(titles)) == 1 + sum(a != b for a, b in pairwise(titles))
    assert {title.split()[0] for title in titles} == {"host", "autograd", "device"}


def test_threads_have_functions_operators_and_launches(timeline: StepTimeline) -> None:
    main = next(span.lane for span in timeline.spans if span.lane.startswith("host")).partition(":")[0]
    assert [span.name for span in lane(timeline, f"{main}: Python")] == ["train.py(12): step"]
    assert [span.name for span in lane(timeline, f"{main}: Python, level 2")] == ["model.py(7): forward"]
    (convolution,) = lane(timeline, f"{main}: operators")
    assert (convolution.name, convolution.family) == ("aten::conv2d", "forward")
    assert convolution.source == "model.py(7): forward"
    assert [span.operator for span in lane(timeline, f"{main}: launches")] == ["aten::cudnn_convolution"]
    backward = next(span.lane for span in timeline.spans if span.lane.startswith("autograd")).partition(":")[0]
    assert [span.name for span in lane(timeline, f"{backward}: operators")] == ["ConvolutionBackward0"]


def test_work_has_its_operator_module_launch_and_line(timeline: StepTimeline) -> None:
    streams = sorted({span.lane for span in timeline.spans if ": stream " in span.lane})
    assert [len(lane(timeline, name)) for name in streams] == [1, 2]
    collective, (forward, backward) = lane(timeline, streams[0])[0], lane(timeline, streams[1])
    assert (collective.kind, collective.family) == ("phase", "communication")
    assert (forward.kind, forward.name) == ("work", "cudnn::conv_forward")
    assert (forward.operator, forward.module) == ("aten::cudnn_convolution", "Conv2d_0")
    assert forward.launch_ns == timeline.start_ns + 6_000
    assert forward.source == "model.py(7): forward"
    assert backward.source == forward.source, "the line of the forward operator"


def test_idle_time_has_the_work_that_ends_it(timeline: StepTimeline) -> None:
    idle = [span for span in timeline.spans if span.kind == "idle"]
    ended = {span.end_ns - timeline.start_ns: span for span in idle if isinstance(span, EventSpan)}
    assert ended[60_000].start_ns == timeline.start_ns + 25_000
    assert ended[60_000].launch_ns == timeline.start_ns + 52_000
    assert ended[60_000].source == "model.py(7): forward"


def test_calls_are_trees_of_the_time_in_the_step(timeline: StepTimeline) -> None:
    calls = timeline.calls

    def path(index: int) -> tuple[str, ...]:
        return (*path(calls[index].parent), calls[index].name) if index >= 0 else ()

    ns = {path(i)[1:]: one.ns for i, one in enumerate(calls) if one.parent >= 0}
    step_ns = timeline.host_end_ns - timeline.start_ns
    main = ("train.py(30): main",)
    inner = (*main, "train.py(12): step")
    launch_of = (*inner, "model.py(7): forward", "aten::conv2d", "aten::cudnn_convolution", "cudaLaunchKernel")
    assert ns[main] == step_ns, "cut to the step"
    assert ns[inner] == 94_000
    assert ns[launch_of] == 1_000
    assert ns["ConvolutionBackward0",] == 10_000
    threads = {one.name.split()[0]: one.ns for one in calls if one.parent < 0}
    assert threads["host"] == step_ns
    for index, parent in enumerate(calls):
        assert parent.parent < index
        assert sum(child.ns for child in calls if child.parent == index) <= parent.ns


def test_calls_of_one_name_at_one_place_are_together_and_the_shortest_are_left_out(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 0, 100_000), *(op("aten::relu", 10 * i, 10 * i + 2) for i in range(50))]
    events += [op(f"aten::op{i}", 1000 + 10 * i, 1003 + 10 * i + i / 1000) for i in range(MAX_CALLS)]
    calls = timeline_of(tmp_path, events).calls
    assert next(one.ns for one in calls if one.name == "aten::relu") == 100_000
    assert len(calls) <= MAX_CALLS
    assert "aten::op0" not in {one.name for one in calls}


def test_deep_functions_are_part_of_their_callers(tmp_path: Path) -> None:
    events = [
        mark("ProfilerStep#1", 1000, 1100),
        *(call(f"deep.py({i}): f{i}", 1001 + i, 1090 - i) for i in range(2 * MAX_PYTHON_LANES)),
        op("aten::relu", 1040, 1045),
        launch(1, 1041),
        kernel("relu", 1050, 1060, 1),
    ]
    found = timeline_of(tmp_path, events)
    assert sum(": Python" in span.lane for span in found.spans) == MAX_PYTHON_LANES


def test_the_longest_spans_are_shown(tmp_path: Path) -> None:
    count = MAX_TIMELINE_SPANS
    events = [mark("ProfilerStep#1", 0, 4 * count)]
    events += [op("aten::relu", 4 * i, 4 * i + (1 if i % 2 else 2)) for i in range(count)]
    found = timeline_of(tmp_path, [*events, launch(1, 1), kernel("relu", 3, 4, 1)])
    assert len(found.spans) == count
    assert found.omitted > 0
    assert sum(span.end_ns - span.start_ns == 2000 for span in found.spans) >= count // 2


def test_a_step_without_events_has_no_timeline(tmp_path: Path) -> None:
    events = [mark("ProfilerStep#1", 1000, 2000), op("aten::empty", 10, 20), op("aten::empty", 5000, 5010)]
    attribution = attribute(table(tmp_path, events))
    spans = [span for span in build_annotation(attribution).spans if span.end_ns < 1_000_000]
    assert spans
    assert step_timeline(attribution, spans) is None


def test_a_thread_that_waits_for_longer_than_the_step_is_not_among_the_calls(tmp_path: Path) -> None:
    waiting = call("tqdm/_monitor.py(60): run", 900, 1700, thread=300)
    calls = timeline_of(tmp_path, [*(event for i in range(3) for event in step(i, 1000 + 200 * i)), waiting]).calls
    assert not [one for one in calls if "tqdm" in one.name]
    assert [one.name.split()[0] for one in calls if one.parent < 0] == ["host", "autograd"]


@pytest.mark.parametrize("late_us", [0, 250])
def test_the_middle_of_a_long_trace_has_the_lanes_that_it_has_in_the_whole(tmp_path: Path, late_us: int) -> None:
    """The device runs late by more than two steps, so the time of a step has work of others."""
    events = [event for number in range(20) for event in step(number, 200 + 110 * number)]
    for event in events:
        event["ts"] += late_us if event["cat"] == "kernel" else 0
    attribution = attribute(table(tmp_path, events))
    lanes = middle_step(attribution)
    assert lanes is not None
    assert lanes == step_timeline(attribution, build_annotation(attribution).spans)
    assert len({span.step for span in lanes.spans}) >= (1 if not late_us else 3)
