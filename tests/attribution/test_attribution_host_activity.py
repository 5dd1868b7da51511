"""What the host did in idle time: compilation, slow first calls, allocation, waits, and the calls in which time passes."""

from __future__ import annotations

import pytest
from inspection_written import Written

from profiler_kit.attribution.host_activity import is_user_code
from profiler_kit.attribution.summary import summarize
from profiler_kit.traces.table import Kind

US = 1000
MS = 1_000_000


def first_work(trace: Written) -> None:
    """Work from 0 to 100 us that gaps can follow, and an operator, so that the host is known to be recorded."""
    trace.op("aten::empty", -20 * US, -19 * US)
    trace.work(0, 100 * US, trace.launch(-9 * US, -4 * US))


def causes(trace: Written) -> dict[str, int]:
    summary = summarize(trace.attribution())
    assert sum(entry.ns for entry in summary.idle) == summary.idle_ns
    return {entry.cause: entry.ns for entry in summary.idle}


def test_a_launch_of_milliseconds_on_an_idle_device_is_a_cold_start() -> None:
    trace = Written()
    first_work(trace)
    trace.work(5 * MS, 6 * MS, trace.launch(1 * MS, 5 * MS - 5 * US))
    assert causes(trace) == {"python": 1 * MS - 100 * US, "cold start": 4 * MS}


def test_another_slow_call_is_a_cold_start_and_a_short_allocation_is_not() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::conv2d", 100 * US, 40 * MS)
    trace.call("cuLibraryLoadData", 200 * US, 3200 * US)
    trace.call("cudaMalloc", 4 * MS, 6 * MS)
    trace.call("cudaFree", 10 * MS, 30 * MS)
    trace.work(40 * MS, 41 * MS, trace.launch(40 * MS - 10 * US, 40 * MS - 5 * US))
    found = causes(trace)
    assert found["cold start"] == 3 * MS + 20 * MS
    assert found["memory allocation"] == 2 * MS


def test_compilation_counts_before_the_operators_in_it() -> None:
    trace = Written()
    first_work(trace)
    trace.op("_compile.compile_inner (dynamo_timed)", 200 * US, 9 * MS)
    trace.op("aten::empty", 1 * MS, 2 * MS)
    trace.work(10 * MS, 11 * MS, trace.launch(10 * MS - 10 * US, 10 * MS - 5 * US))
    assert causes(trace)["compilation"] == 9 * MS - 200 * US
    summary = summarize(trace.attribution())
    assert summary.compile_ns == 9 * MS - 200 * US
    assert summary.compiled_frames == 1
    assert all("dynamo" not in activity.name for activity in summary.activities)


def test_idle_time_after_a_wait_is_at_most_as_long_as_the_wait() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::item", 50 * US, 105 * US)
    trace.call("cudaStreamSynchronize", 60 * US, 102 * US)
    trace.work(200 * US, 300 * US, trace.launch(190 * US, 195 * US))
    (wait,) = summarize(trace.attribution()).syncs
    assert wait.idle_ns == 42 * US, "the gap lasts 100 us, the wait 42 us"
    trace = Written()
    first_work(trace)
    trace.op("aten::item", 10 * US, 105 * US)
    trace.call("cudaStreamSynchronize", 12 * US, 102 * US)
    trace.work(130 * US, 300 * US, trace.launch(120 * US, 125 * US))
    (wait,) = summarize(trace.attribution()).syncs
    assert wait.idle_ns == 30 * US, "the gap lasts 30 us"


def test_activities_name_the_innermost_call_and_the_code_of_the_user() -> None:
    trace = Written()
    first_work(trace)
    trace.host("train.py(12): augment", 150 * US, 5 * MS, Kind.PYTHON)
    trace.host("<built-in function sleep>", 200 * US, 4 * MS, Kind.PYTHON)
    trace.work(6 * MS, 7 * MS, trace.launch(6 * MS - 10 * US, 6 * MS - 5 * US))
    activities = summarize(trace.attribution()).activities
    assert activities[0].name == "<built-in function sleep>"
    assert activities[0].source == "train.py(12): augment"
    assert activities[0].ns == activities[0].long_ns == 4 * MS - 200 * US
    assert not activities[0].launched
    assert sum(activity.ns for activity in activities) == summarize(trace.attribution()).idle_ns


def test_time_without_an_event_has_the_nearest_long_events_as_neighbors() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::to", 150 * US, 400 * US)
    trace.op("aten::detach", 410 * US, 411 * US)
    trace.op("aten::empty", 4 * MS, 4 * MS + US)
    trace.op("aten::rand", 4 * MS + 2 * US, 4 * MS + 50 * US)
    trace.work(6 * MS, 7 * MS, trace.launch(4 * MS + 60 * US, 4 * MS + 65 * US))
    gap = next(item for item in summarize(trace.attribution()).activities if not item.name)
    assert (gap.after, gap.before) == ("aten::to", "aten::rand")


def test_a_longer_event_farther_away_is_no_neighbor() -> None:
    trace = Written()
    first_work(trace)
    trace.op("Optimizer.zero_grad#SGD.zero_grad", 150 * US, 600 * US)
    trace.op("aten::detach", 610 * US, 611 * US)
    trace.op("aten::hann_window", 620 * US, 820 * US)
    trace.op("aten::view", 830 * US, 831 * US)
    trace.op("aten::empty", 4 * MS, 4 * MS + US)
    trace.op("aten::rand", 4 * MS + 2 * US, 4 * MS + 50 * US)
    trace.op("aten::sort", 4 * MS + 60 * US, 4 * MS + 900 * US)
    trace.work(6 * MS, 7 * MS, trace.launch(5 * MS, 5 * MS + 5 * US))
    gap = next(item for item in summarize(trace.attribution()).activities if not item.name)
    assert (gap.after, gap.before) == ("aten::hann_window", "aten::rand")


def test_time_at_the_ends_of_a_trace_has_no_neighbors_there() -> None:
    trace = Written()
    trace.work(0, 100 * US)
    trace.op("aten::rand", 3 * MS, 4 * MS)
    trace.work(6 * MS, 7 * MS, trace.launch(4 * MS + 60 * US, 4 * MS + 65 * US))
    gaps = [item for item in summarize(trace.attribution()).activities if not item.name]
    assert {(item.after, item.before) for item in gaps} <= {
        ("", "aten::rand"),
        ("aten::rand", ""),
        ("aten::rand", "aten::rand"),
    }


def test_time_before_launched_work_is_not_caused_by_the_host() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::sort", 200 * US, 5 * MS)
    trace.work(6 * MS, 7 * MS, trace.launch(10 * US, 15 * US))
    assert all(activity.launched for activity in summarize(trace.attribution()).activities)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("train.py(12): main", True),
        ("/home/user/project/train.py(12): main", True),
        ("torch/nn/modules/linear.py(1): forward", False),
        ("threading.py(1014): _bootstrap", False),
        ("json/encoder.py(5): encode", False),
        ("/usr/lib/python3.11/site-packages/tqdm/std.py(3): update", False),
        ("<built-in function sleep>", False),
        ("nn.Module: Linear_0", False),
    ],
)
def test_user_code(name: str, expected: bool) -> None:
    assert is_user_code(name) is expected


def test_median_kernel_counts_each_kernel() -> None:
    trace = Written()
    first_work(trace)
    for i in range(1, 6):
        trace.work(i * MS, i * MS + i * US, trace.launch(i * MS - 10 * US, i * MS - 5 * US))
    assert summarize(trace.attribution()).median_kernel_ns == 3500
