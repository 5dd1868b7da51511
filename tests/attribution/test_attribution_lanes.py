from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from inspection_traces import Event, call, copy, kernel, launch, mark, node, op, table

from profiler_kit.attribution.annotation_lanes import MAX_MERGED_GAP_NS, build_annotation
from profiler_kit.attribution.cutting import Period, clip_annotation
from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Attribution
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.lanes import Annotation
from profiler_kit.records.runs import Span
from profiler_kit.traces.table import DEVICE_KINDS


def step(number: int, at: float) -> list[Event]:
    """A step with modules in each other; the device runs 50 us behind the host."""
    first = number * 10
    return [
        mark(f"ProfilerStep#{number}", at, at + 100),
        call("nn.Module: Net_0", at + 1, at + 40),
        call("nn.Module: Linear_0", at + 2, at + 20),
        {**op("aten::addmm", at + 3, at + 10, sequence=number),
         "args": {"Sequence number": number, "Input Dims": [[4], [2, 3], [3, 4]], "Concrete Inputs": ["", "", ""]}},
        launch(first, at + 4),
        op("aten::relu", at + 25, at + 30, sequence=number + 500),
        launch(first + 1, at + 26),
        node("AddmmBackward0", at + 50, at + 60, number),
        launch(first + 2, at + 52, thread=200),
        kernel("sm90_xmma_gemm_f32f32_tf32f32", at + 54, at + 58, first),
        kernel("void at::native::vectorized_elementwise_kernel<4>", at + 60, at + 62, first + 1),
        kernel("sm90_xmma_gemm_f32f32_tf32f32", at + 70, at + 80, first + 2),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at + 72, at + 90, first + 2, stream=20),
    ]  # fmt: skip


@pytest.fixture
def attribution(tmp_path: Path) -> Attribution:
    return attribute(table(tmp_path, [*step(3, 1000), *step(4, 1200)]))


def lane(found: Annotation, name: str) -> list[tuple[str, float, float]]:
    return [(s.name, s.start_ns / 1000, s.end_ns / 1000) for s in found.spans if s.lane == name]


def counter(found: Annotation, name: str) -> list[tuple[float, int | float]]:
    return [(at / 1000, value) for c in found.counters if c.name == name for at, value in c.points]


def test_phases_on_the_device(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    assert lane(result, "device: phase") == [
        ("forward", 1054, 1062), ("backward", 1070, 1080), ("forward", 1254, 1262), ("backward", 1270, 1280),
    ]  # fmt: skip


def test_communication_hides_no_other_work(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    assert lane(result, "device: communication") == [("all_reduce", 1072, 1090), ("all_reduce", 1272, 1290)]
    families = [name for name, *_ in lane(result, "device: kernels")]
    assert families[:3] == ["matrix product", "pointwise operations", "matrix product"]
    spent = {timing.phase: timing.kernel_ns for timing in summarize(attribution).phases}
    assert (spent["backward"], spent["communication"]) == (
        20_000,
        20_000,
    )  # as the boxes, and what they leave uncovered


def test_modules_by_level_the_outer_one_above(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    lanes = [name for name in dict.fromkeys(span.lane for span in result.spans) if "module" in name]
    assert lanes == ["device: module", "device: module, level 2"]
    outer, inner = (lane(result, name)[:2] for name in lanes)
    assert outer == [("Net_0", 1054, 1062), ("Net_0", 1070, 1080)]  # forward, backward
    assert inner == [("Linear_0", 1054, 1058), ("Linear_0", 1070, 1080)]
    assert {span.family for span in result.spans if span.lane == lanes[1]} == {"forward", "backward"}


def test_idle_stretches_are_what_no_event_covers(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    idle = [(start, end) for _, start, end in lane(result, "device: idle")]
    assert idle == [(1058, 1060), (1062, 1070), (1090, 1254), (1258, 1260), (1262, 1270)]


def test_host_threads_have_a_lane_of_phases_each(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    assert [name for name, *_ in lane(result, "host thread 200: phase")] == ["backward", "backward"]
    assert ("forward", 1001, 1040) in lane(result, "host thread 100: phase")


def test_the_thread_of_the_loop_comes_first_even_if_autograd_has_more_events(tmp_path: Path) -> None:
    nodes = [node("ReluBackward0", 1060 + i, 1060.5 + i, 900 + i, thread=200) for i in range(20)]
    result = build_annotation(attribute(table(tmp_path, [*step(3, 1000), *nodes])))
    lanes = list(dict.fromkeys(s.lane for s in result.spans))
    assert lanes[:3] == ["host thread 100: phase", "host thread 200: phase", "device: phase"]


def test_how_much_runs_and_how_much_waits(attribution: Attribution) -> None:
    result = build_annotation(attribution)
    busy = counter(result, "busy (events running)")
    assert busy[:8] == [(1054, 1), (1058, 0), (1060, 1), (1062, 0), (1070, 1), (1072, 2), (1080, 1), (1090, 0)]
    depth = counter(result, "queue depth (launches)")
    assert depth[:7] == [(1005, 1), (1027, 2), (1053, 4), (1054, 3), (1060, 2), (1070, 1), (1072, 0)]
    assert busy[-1][1] == depth[-1][1] == 0


def test_memory_is_told_by_device(tmp_path: Path) -> None:
    def memory(at: float, allocated: int, number: int, kind: int = 1) -> Event:
        args = {"Total Allocated": allocated << 20, "Bytes": 1, "Device Type": kind, "Device Id": number}
        return {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 100, "ts": at, "args": args}

    events = [memory(1, 10, 0), memory(3, 12, 0), memory(2, 11, 0), memory(3, 14, 0)]
    result = build_annotation(attribute(table(tmp_path, [*step(3, 1000), *events, memory(5, 0, -1, 0)])))
    assert counter(result, "memory allocated (MiB)") == [(1, 10), (2, 11), (3, 14)]
    result = build_annotation(
        attribute(table(tmp_path, [*step(3, 1000), *events, memory(4, 20, 1), memory(5, 3, -1, 0)]))
    )
    assert counter(result, "device 1 memory allocated (MiB)") == [(4, 20)]
    assert counter(result, "host memory allocated (MiB)") == [(5, 3)]


def test_constant_memory_has_an_end(tmp_path: Path) -> None:
    """Viewers draw nothing after the last point."""
    constant = [
        {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 1, "tid": 100, "ts": at,
         "args": {"Total Allocated": 7 << 20, "Bytes": 1, "Device Type": 1, "Device Id": 0}}
        for at in (1, 4, 1300)
    ]  # fmt: skip
    result = build_annotation(attribute(table(tmp_path, [*step(3, 1000), *constant])))
    assert counter(result, "memory allocated (MiB)") == [(1, 7), (1300, 7)]


def test_long_gaps_part_boxes_and_short_ones_do_not(tmp_path: Path) -> None:
    def run(gap_ns: int) -> list[tuple[str, float, float]]:
        events = [op("aten::add", 0, 10), launch(1, 1), launch(2, 3), kernel("a", 20, 30, 1)]
        result = build_annotation(attribute(table(tmp_path, [*events, kernel("b", 30 + gap_ns / 1000, 1000, 2)])))
        return lane(result, "device: phase")

    assert len(run(MAX_MERGED_GAP_NS)) == 1
    assert len(run(MAX_MERGED_GAP_NS + 1)) == 2


def test_devices_have_lanes_of_their_own(tmp_path: Path) -> None:
    events = [op("aten::add", 0, 10), launch(1, 1), launch(2, 3), kernel("a", 20, 30, 1), kernel("b", 22, 32, 2)]
    events[-1]["args"]["device"] = 1
    result = build_annotation(attribute(table(tmp_path, events)))
    assert lane(result, "device 0: phase")[0][1:] == (20, 30)
    assert lane(result, "device 1: phase")[0][1:] == (22, 32)  # what runs elsewhere hides nothing of it


def test_a_trace_without_a_device_shows_phases_and_modules_on_the_host(tmp_path: Path) -> None:
    events = [e for e in step(3, 1000) if e["cat"] not in ("kernel", "cuda_runtime")]
    result = build_annotation(attribute(table(tmp_path, events)))
    assert ("Linear_0", 1002, 1020) in lane(result, "host thread 100: module, level 2")
    assert {span.lane.partition(" ")[0] for span in result.spans} == {"host"}
    assert [name for name, _, _ in lane(result, "host operators")]
    assert result.counters == ()


def test_no_event_of_the_device_is_missing_from_its_lanes(attribution: Attribution) -> None:
    spans = build_annotation(attribution).spans
    covered = sum(s.end_ns - s.start_ns for s in spans if s.lane in ("device: kernels", "device: communication"))
    work = attribution.table.of(*DEVICE_KINDS)
    assert covered == int(attribution.table.duration_ns[work].sum())  # families differ on both sides of every gap


def test_a_part_of_an_annotation(attribution: Attribution) -> None:
    full = build_annotation(attribution)
    period = Period(1056_000, 1060_000, 1054_500, 1075_000)
    part = clip_annotation(full, period)
    assert lane(part, "device: phase") == [("forward", 1054.5, 1062), ("backward", 1070, 1075)]
    assert counter(part, "queue depth (launches)") == [(1054.5, 3), (1060, 2), (1070, 1), (1072, 0)]
    assert clip_annotation(full, None) is full
    assert_in(part.spans, period)


def assert_in(spans: Iterable[Span], period: Period) -> None:
    for span in spans:
        assert period.start_ns <= span.start_ns < span.end_ns <= period.end_ns


def test_boxes_of_a_lane_stand_in_order_and_do_not_overlap(attribution: Attribution) -> None:
    lanes: dict[str, list[Span]] = {}
    for span in build_annotation(attribution).spans:
        lanes.setdefault(span.lane, []).append(span)
    for spans in lanes.values():
        assert all(events.end_ns <= other.start_ns for events, other in pairwise(spans))


def test_an_empty_device_and_an_empty_host(tmp_path: Path) -> None:
    for events in ([kernel("a", 1, 2), copy("Memcpy HtoD", 2, 3)], [op("aten::add", 1, 2)]):
        result = build_annotation(attribute(table(tmp_path, events)))
        json.dumps([(s.name, s.start_ns, s.end_ns) for s in result.spans])  # plain numbers, no numpy's
