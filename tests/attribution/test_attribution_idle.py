"""Each cause of idle time, with traces whose answer is evident."""

from __future__ import annotations

import pytest
from inspection_written import Written

from profiler_kit.attribution.summary import summarize
from profiler_kit.traces.table import Kind

US = 1000


def causes(trace: Written) -> dict[tuple[str, str], int]:
    """Idle ns by cause and phase."""
    summary = summarize(trace.attribution())
    assert sum(entry.ns for entry in summary.idle) == summary.idle_ns == summary.span_ns - summary.busy_ns
    return {(entry.cause, entry.phase): entry.ns for entry in summary.idle}


def first_work(trace: Written) -> None:
    """Work from 0 to 100 us that gaps can follow, and an operator, so that the host is known to be recorded."""
    trace.op("aten::empty", -20 * US, -19 * US)
    trace.work(0, 100 * US, trace.launch(-9 * US, -4 * US))


def test_a_gap_is_split_over_what_the_host_did_until_the_launch_and_latency_from_then_on() -> None:
    trace = Written()
    first_work(trace)
    item = trace.op("aten::item", 50 * US, 112 * US, phase="loss")
    trace.call("cudaStreamSynchronize", 60 * US, 107 * US)
    trace.host("enumerate(DataLoader)#_Iter.__next__", 120 * US, 150 * US, Kind.ANNOTATION, phase="data")
    trace.op("aten::conv2d", 155 * US, 180 * US, phase="forward")
    trace.work(177 * US, 200 * US, trace.launch(170 * US, 174 * US))
    assert item.end == 112 * US
    assert causes(trace) == {
        ("synchronization", "forward"): 7 * US,  # the tail of the wait, from 100 to 107
        ("op dispatch", "forward"): (5 + 15) * US,  # what is left of item, and conv2d up to its launch
        ("waiting for data", "forward"): 30 * US,
        ("python", "forward"): (8 + 5) * US,  # 112 to 120, 150 to 155
        ("launch latency", "forward"): 7 * US,  # from the launch's begin at 170
    }


def test_waiting_for_data_counts_before_the_operators_within_and_synchronization_before_both() -> None:
    trace = Written()
    first_work(trace)
    trace.host("enumerate(DataLoader)#_Iter.__next__", 90 * US, 150 * US, Kind.ANNOTATION, phase="data")
    trace.op("aten::stack", 100 * US, 130 * US)
    trace.call("cudaStreamSynchronize", 140 * US, 145 * US)
    trace.work(160 * US, 170 * US, trace.launch(150 * US, 155 * US))
    assert causes(trace) == {
        ("waiting for data", ""): 45 * US,
        ("synchronization", ""): 5 * US,
        ("launch latency", ""): 10 * US,
    }


def test_what_the_main_thread_did_explains_an_idle_launching_thread() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::nll_loss", 0, 90 * US)
    trace.op("aten::item", 90 * US, 120 * US)
    trace.call("cudaStreamSynchronize", 95 * US, 115 * US)
    trace.op("aten::ones_like", 125 * US, 130 * US)
    trace.op("autograd::engine::evaluate_function: NllLossBackward0", 140 * US, 180 * US, thread=1, phase="backward")
    trace.work(168 * US, 170 * US, trace.launch(160 * US, 166 * US, thread=1))
    assert causes(trace) == {
        ("synchronization", "backward"): 15 * US,
        ("op dispatch", "backward"): (5 + 5 + 20) * US,  # main's two, then the node's
        ("python", "backward"): (5 + 10) * US,
        ("launch latency", "backward"): 8 * US,
    }


def test_a_third_thread_explains_nothing() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::relu", 0, 10 * US)
    trace.op("aten::add", 10 * US, 20 * US)
    trace.host("enumerate(DataLoader)#worker", 100 * US, 200 * US, Kind.ANNOTATION, thread=5, phase="data")
    trace.work(200 * US, 210 * US, trace.launch(198 * US, 199 * US))
    assert causes(trace) == {("python", ""): 98 * US, ("launch latency", ""): 2 * US}


def test_a_copy_that_the_host_waits_for_is_synchronization_from_its_call_on() -> None:
    trace = Written()
    first_work(trace)
    call = trace.call("cudaMemcpyAsync", 130 * US, 160 * US)
    trace.work(150 * US, 155 * US, call, kind=Kind.MEMCPY, name="Memcpy DtoH (Device -> Pageable)")
    assert causes(trace) == {("python", ""): 30 * US, ("synchronization", ""): 20 * US}


def test_an_asynchronous_copy_that_returns_before_its_copy_is_done_is_a_launch() -> None:
    trace = Written()
    first_work(trace)
    call = trace.call("cudaMemcpyAsync", 130 * US, 140 * US)
    trace.work(150 * US, 155 * US, call, kind=Kind.MEMCPY, name="Memcpy HtoD (Pageable -> Device)")
    assert causes(trace) == {("python", ""): 30 * US, ("launch latency", ""): 20 * US}


def queued(trace: Written, start: int, stream: int, name: str = "a_kernel", phase: str | None = None) -> None:
    """Work launched long before it starts."""
    trace.work(start, start + US, trace.launch(20 * US, 25 * US), stream=stream, name=name, phase=phase)


def test_between_launched_work_of_one_stream_a_short_gap_is_latency_and_a_long_one_unknown() -> None:
    trace = Written()
    first_work(trace)
    queued(trace, 102 * US, stream=0)
    assert causes(trace) == {("launch latency", ""): 2 * US}
    trace = Written()
    first_work(trace)
    queued(trace, 150 * US, stream=0)
    assert causes(trace) == {("unknown", ""): 50 * US}


def test_launched_work_of_another_stream_waited_for_the_stream_that_ended() -> None:
    trace = Written()
    first_work(trace)
    queued(trace, 110 * US, stream=1)
    assert causes(trace) == {("another stream", ""): 10 * US}


def test_launched_work_after_another_streams_collective_waited_for_communication() -> None:
    trace = Written()
    trace.work(
        0, 100 * US, trace.launch(-9 * US, -4 * US), stream=3, name="ncclDevKernel_AllReduce", phase="communication"
    )
    queued(trace, 104 * US, stream=0, phase="optimizer")
    assert causes(trace) == {("communication", "optimizer"): 4 * US}


@pytest.mark.parametrize(("gap", "cause"), [(3, "launch latency"), (18, "another stream"), (800, "unknown")])
def test_a_stream_told_to_wait_explains_a_gap_as_long_as_a_handover_takes(gap: int, cause: str) -> None:
    """A longer one explains nothing: no stream has any work in it, so that what is waited for is not in the trace."""
    trace = Written()
    first_work(trace)
    trace.call("cudaStreamWaitEvent", 15 * US, 16 * US)
    queued(trace, (100 + gap) * US, stream=0)
    assert causes(trace) == {(cause, ""): gap * US}


def test_idle_time_although_work_was_launched_is_noted() -> None:
    trace = Written()
    first_work(trace)
    queued(trace, 900 * US, stream=0)
    assert any("although work was launched" in note for note in summarize(trace.attribution()).notes)
    trace = Written()
    first_work(trace)
    queued(trace, 101 * US, stream=0)
    assert not any("although work was launched" in note for note in summarize(trace.attribution()).notes)


def test_work_that_begins_long_after_its_launch_on_an_idle_device_waited_there() -> None:
    trace = Written()
    first_work(trace)
    trace.work(400 * US, 401 * US, trace.launch(110 * US, 120 * US))
    assert causes(trace) == {("python", ""): 10 * US, ("launch latency", ""): 10 * US, ("unknown", ""): 280 * US}


def test_a_launch_that_the_gap_cuts_is_latency() -> None:
    trace = Written()
    first_work(trace)
    trace.work(108 * US, 110 * US, trace.launch(95 * US, 105 * US))
    assert causes(trace) == {("launch latency", ""): 8 * US}


def test_work_that_begins_before_its_launch_by_the_hosts_clock_leaves_the_gap_to_the_host() -> None:
    trace = Written()
    first_work(trace)
    trace.work(130 * US, 140 * US, trace.launch(135 * US, 150 * US))
    assert causes(trace) == {("python", ""): 30 * US}


def test_without_launches_every_gap_is_unknown() -> None:
    trace = Written()
    trace.work(0, 10)
    trace.work(12, 20)
    trace.work(900_000, 900_001)
    assert causes(trace) == {("unknown", ""): 2 + 899_980}


def test_where_nothing_but_launches_was_recorded_what_the_host_did_is_unknown() -> None:
    trace = Written()
    trace.work(0, 100 * US, trace.launch(-9 * US, -4 * US))
    trace.work(150 * US, 160 * US, trace.launch(140 * US, 145 * US))
    assert causes(trace) == {("unknown", ""): 40 * US, ("launch latency", ""): 10 * US}


def test_work_without_a_launch_is_queued_work_only_before_the_first_that_has_one() -> None:
    trace = Written()
    trace.work(0, 10 * US)
    trace.work(12 * US, 20 * US)  # launched before the trace began, right behind the work before
    trace.work(20 * US, 30 * US, trace.launch(15 * US, 16 * US))
    trace.work(32 * US, 40 * US)
    assert causes(trace) == {("launch latency", ""): 2 * US, ("unknown", ""): 2 * US}


def test_gaps_belong_to_the_phase_of_the_work_that_ended_them() -> None:
    trace = Written()
    first_work(trace)
    trace.op("aten::add", 100 * US, 160 * US, phase="optimizer")
    trace.work(150 * US, 151 * US, trace.launch(140 * US, 149 * US))
    trace.work(200 * US, 210 * US)
    summary = summarize(trace.attribution())
    assert {phase.phase: phase.idle_ns for phase in summary.phases} == {"optimizer": 50 * US}
    assert [(entry.cause, entry.gaps, entry.ns) for entry in summary.idle if not entry.phase] == [
        ("unknown", 1, 49 * US)
    ]
