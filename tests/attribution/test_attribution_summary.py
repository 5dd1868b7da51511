"""The parts of a summary sum to the whole, and each part is attributed."""

from __future__ import annotations

from dataclasses import replace

import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from inspection_written import Written, assert_sums_hold, written

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.result import Evidence, Module
from profiler_kit.attribution.summary import summarize
from profiler_kit.traces.table import Stream


@settings(max_examples=examples.count(100))
@given(written())
def test_the_parts_sum_to_the_whole(trace: Written) -> None:
    assert_sums_hold(summarize(trace.attribution()))


@settings(max_examples=examples.count(60))
@given(written(), st.lists(st.tuples(st.integers(0, 40), st.integers(-(2**63), 2**63 - 1)), max_size=3), st.booleans())
def test_the_parts_sum_to_the_whole_whatever_the_times_say(
    trace: Written, absurd: list[tuple[int, int]], durations: bool
) -> None:
    table = trace.attribution().table
    column = table.duration_ns if durations else table.start_ns
    for row, value in absurd:
        if row < len(table):
            column[row] = value
    assert_sums_hold(summarize(attribute(table)))


def test_an_instant_that_two_kernels_cover_is_the_first_ones() -> None:
    trace = Written()
    trace.modules = (Module("a", "Linear"), Module("b", "Linear"))
    trace.work(0, 100, name="long", stream=0, phase="forward", module=0)
    trace.work(20, 60, name="hidden", stream=1, phase="backward", module=1)
    trace.work(90, 130, name="longer", stream=1, phase="backward", module=1)
    summary = summarize(trace.attribution())
    assert (summary.busy_ns, summary.sum_ns, summary.overlap_ns, summary.idle_ns) == (130, 180, 50, 0)
    assert {phase.phase: (phase.kernel_ns, phase.sum_ns, phase.events) for phase in summary.phases} == {
        "forward": (100, 100, 1),
        "backward": (30, 80, 2),
    }
    assert {kernel.name: (kernel.kernel_ns, kernel.sum_ns) for kernel in summary.kernels} == {
        "long": (100, 100), "longer": (30, 40), "hidden": (0, 40),
    }  # fmt: skip
    assert [(module.path, module.class_name, module.phase, module.kernel_ns) for module in summary.modules] == [
        ("a", "Linear", "forward", 100),
        ("b", "Linear", "backward", 30),
    ]
    assert {stream.stream: stream.busy_ns for stream in summary.streams} == {"0": 100, "1": 80}


def test_work_without_a_phase_a_launch_or_a_module_is_told_apart() -> None:
    trace = Written()
    trace.modules = (Module("a", "Linear"),)
    launch = trace.launch(-10, -5)
    trace.work(0, 10, launch, phase="forward", module=0)
    trace.work(10, 30, launch, phase="forward")
    trace.work(30, 70)
    trace.work(70, 150, phase="backward", evidence=Evidence.ALIGNED)
    trace.work(150, 310, launch, phase="communication", name="ncclDevKernel_AllReduce")
    summary = summarize(trace.attribution())
    assert (summary.linked, summary.device_events) == (3, 5)
    assert summary.unattributed_ns == 40
    assert summary.unlinked_ns == 40 + 80
    assert summary.aligned_ns == 80
    assert summary.moduleless_ns == 20


def test_operators_have_their_own_kernels_calls_and_host_time() -> None:
    trace = Written()
    trace.op("aten::conv2d", 0, 100)
    trace.op("aten::cudnn_convolution", 10, 90)
    trace.work(200, 260, trace.launch(20, 40), name="volta_scudnn_128x64_relu_small_nn_v1")
    trace.op("aten::conv2d", 100, 110)
    summary = summarize(trace.attribution())
    assert {op.name: (op.calls, op.kernel_ns, op.host_self_ns, op.family) for op in summary.operators} == {
        "aten::cudnn_convolution": (1, 60, 80, "conv"),
        "aten::conv2d": (2, 0, 30, "conv"),
    }
    (kernel,) = summary.kernels
    assert (kernel.family, kernel.op, kernel.math) == ("conv:legacy_cask", "fprop", "fp32")


def test_the_peak_is_of_the_devices_memory() -> None:
    trace = Written()
    for start in range(3):
        trace.op("aten::empty", start, start + 1)
    trace.memory = [(1, 4096), (0, 1 << 40), (1, 2048)]
    assert summarize(trace.attribution()).peak_allocated_bytes == 4096
    trace.memory = []
    assert summarize(trace.attribution()).peak_allocated_bytes is None


def test_devices_that_share_a_trace_share_its_span_and_it_says_so() -> None:
    trace = Written()
    trace.streams = (Stream("0", "7"), Stream("1", "7"))
    trace.work(0, 10, stream=0)
    trace.work(5, 20, stream=1)
    summary = summarize(trace.attribution())
    assert_sums_hold(summary)
    assert (summary.span_ns, summary.busy_ns) == (2 * 20, 10 + 15)
    assert [(device.device, device.busy_ns, device.idle_ns) for device in summary.accounts] == [
        ("0", 10, 10),
        ("1", 15, 5),
    ]
    assert any("2 devices" in note for note in summary.notes)


def test_clocks_that_differ_are_noted() -> None:
    trace = Written()
    trace.work(0, 10, trace.launch(1_000_000, 1_000_100))
    assert any("before their launch" in note for note in summarize(trace.attribution()).notes)


def test_work_that_waits_for_the_host_is_noted_to_be_slowed_by_the_profiler() -> None:
    trace = Written()
    trace.op("aten::empty", -20, -10)
    for start in range(0, 1000, 100):
        trace.work(start + 70, start + 90, trace.launch(start + 50, start + 60))
    assert any("profiler slows the host" in note for note in summarize(trace.attribution()).notes)
    busy = Written()
    for start in range(0, 1000, 100):
        busy.work(start, start + 99, busy.launch(start - 50, start - 40))
    assert not any("slows" in note for note in summarize(busy.attribution()).notes)


def test_entries_left_out_are_counted_in_the_notes() -> None:
    attribution = Written().attribution()
    attribution = replace(
        attribution, table=replace(attribution.table, malformed=1200, unpaired=3, notes=("read so far",))
    )
    first, malformed, unpaired, _ = summarize(attribution).notes
    assert first == "read so far"
    assert "1,200 malformed" in malformed
    assert "3 begin or end" in unpaired


def test_the_empty_mark_after_the_last_step_counts_for_no_step() -> None:
    trace = Written()
    trace.step(1, 0, 100)
    trace.step(2, 100, 104)
    trace.work(20, 60, trace.launch(10, 15), phase="forward")
    summary = summarize(trace.attribution())
    assert [step.number for step in summary.working_steps] == [1]
    assert summary.host_step_ns == 100
