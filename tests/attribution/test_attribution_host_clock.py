"""The host's clock: phases as a stopwatch would show them, and traces without device work."""

from __future__ import annotations

from dataclasses import replace

from inspection_written import Written

from profiler_kit.attribution.host_time import phase_intervals
from profiler_kit.attribution.summary import summarize
from profiler_kit.records.counts import TRACE_PHASES
from profiler_kit.records.traces import idle_by_cause
from profiler_kit.traces.intervals import length
from profiler_kit.traces.table import Kind


def host_ns(trace: Written) -> dict[str, int]:
    return {TRACE_PHASES[number]: length(times) for number, times in phase_intervals(trace.attribution()).items()}


def test_python_between_calls_of_one_phase_belongs_to_it() -> None:
    trace = Written()
    trace.step(1, 0, 1000)
    trace.op("aten::conv2d", 10, 20, phase="forward")
    trace.op("aten::relu", 50, 60, phase="forward")
    trace.op("aten::nll_loss", 70, 90, phase="loss")
    trace.op("aten::add", 200, 230, phase="forward")
    assert host_ns(trace) == {"forward": 50 + 30, "loss": 20}


def test_a_step_ends_a_phases_stretch() -> None:
    trace = Written()
    trace.step(1, 0, 100)
    trace.step(2, 100, 200)
    trace.op("aten::mm", 10, 90, phase="forward")
    trace.op("aten::mm", 110, 190, phase="forward")
    assert host_ns(trace) == {"forward": 160}


def test_calls_of_no_phase_between_do_not_end_a_stretch() -> None:
    trace = Written()
    trace.op("aten::mm", 0, 10, phase="forward")
    trace.op("aten::size", 20, 30)
    trace.op("aten::mm", 40, 50, phase="forward")
    assert host_ns(trace) == {"forward": 50}


def test_a_phase_within_another_is_taken_out_of_it() -> None:
    trace = Written()
    trace.host("DistributedDataParallel.forward", 0, 100, Kind.ANNOTATION, phase="forward")
    trace.op("aten::cross_entropy_loss", 40, 60, phase="loss")
    trace.op("autograd::engine::evaluate_function: C", 200, 300, thread=1, phase="backward")
    trace.host("nn.Module: Block_0", 220, 250, Kind.PYTHON, thread=1, phase="recompute")
    assert host_ns(trace) == {"forward": 80, "loss": 20, "backward": 70, "recompute": 30}


def test_autograds_threads_at_the_same_time_count_once_and_workers_not_at_all() -> None:
    trace = Written()
    for index in range(4):
        trace.op("aten::mm", 10 * index, 10 * index + 10, phase="forward")
    trace.op("autograd::engine::evaluate_function: A", 100, 200, thread=1, phase="backward")
    trace.op("autograd::engine::evaluate_function: B", 150, 250, thread=2, phase="backward")
    trace.host("enumerate(DataLoader)#pin", 0, 5000, Kind.ANNOTATION, thread=3, phase="data")
    assert host_ns(trace) == {"forward": 40, "backward": 150}


def test_without_device_work_the_innermost_operators_time_stands_for_the_kernels() -> None:
    trace = Written()
    trace.op("aten::linear", 0, 100, phase="forward")
    trace.op("aten::t", 10, 30)
    trace.op("aten::addmm", 30, 90)
    trace.op("aten::nll_loss", 120, 140, phase="loss")
    trace.op("aten::empty", 150, 160)
    summary = summarize(trace.attribution())
    assert (summary.clock, summary.span_ns, summary.busy_ns, summary.idle_ns) == ("host", 160, 130, 30)
    assert {phase.phase: (phase.kernel_ns, phase.events, phase.idle_ns) for phase in summary.phases} == {
        "forward": (100, 3, 0),
        "loss": (20, 1, 20),
    }
    assert summary.unattributed_ns == 10
    assert {op.name: (op.kernel_ns, op.host_self_ns) for op in summary.operators} == {
        "aten::linear": (20, 20),
        "aten::t": (20, 20),
        "aten::addmm": (60, 60),
        "aten::nll_loss": (20, 20),
        "aten::empty": (10, 10),
    }


def test_operators_of_two_threads_at_once_count_once() -> None:
    trace = Written()
    trace.op("aten::mm", 0, 100, phase="forward")
    trace.op("aten::copy_", 60, 130, thread=1, phase="transfer")
    summary = summarize(trace.attribution())
    assert (summary.busy_ns, summary.sum_ns, summary.overlap_ns) == (130, 170, 40)
    assert {phase.phase: (phase.kernel_ns, phase.sum_ns) for phase in summary.phases} == {
        "forward": (100, 100),
        "transfer": (30, 70),
    }


def test_between_operators_the_host_waits_for_data_or_ranks_or_runs_python() -> None:
    trace = Written()
    trace.op("aten::mm", 0, 100)
    trace.host("enumerate(DataLoader)#_Iter.__next__", 110, 150, Kind.ANNOTATION, phase="data")
    trace.host("gloo:all_reduce", 140, 190, Kind.ANNOTATION, thread=1)
    trace.op("aten::mm", 200, 210, phase="forward")
    summary = summarize(trace.attribution())
    assert {entry.cause: entry.ns for entry in summary.idle} == {
        "waiting for data": 40,
        "communication": 40,
        "python": 20,
    }
    assert {entry.phase for entry in summary.idle} == {"forward"}


def test_an_empty_trace_is_a_summary_of_nothing() -> None:
    summary = summarize(Written().attribution())
    assert (summary.span_ns, summary.busy_ns, summary.idle_ns, summary.device_events) == (0, 0, 0, 0)
    assert len(summary.notes) == 1


def test_steps_without_device_work_have_the_hosts_duration_alone() -> None:
    trace = Written()
    trace.step(7, 0, 100)
    trace.step(8, 100, 220)
    trace.op("aten::mm", 10, 60)
    trace.op("aten::mm", 110, 190)
    summary = summarize(trace.attribution())
    assert [(step.number, step.host_ns, step.device_ns, step.kernel_ns) for step in summary.steps] == [
        (7, 100, None, 50),
        (8, 120, None, 80),
    ]
    assert (summary.step_ns, summary.host_step_ns) == (None, 110)


def test_a_backward_pass_without_its_nodes_runs_in_threads_that_the_trace_lacks() -> None:
    ms = 1_000_000
    trace = Written()
    trace.op("aten::mm", 0, ms, phase="forward")
    trace.host("## backward ##", 2 * ms, 32 * ms, Kind.ANNOTATION, phase="backward")
    trace.op("aten::ones_like", 2 * ms, 3 * ms, phase="backward")
    trace.op("aten::add_", 33 * ms, 34 * ms, phase="optimizer")
    assert idle_by_cause(summarize(trace.attribution()).idle) == {"python": ms + ms, "unknown": 29 * ms}


def test_a_trace_of_a_machine_with_a_device_says_how_to_record_it() -> None:
    trace = Written()
    trace.op("aten::mm", 0, 100, phase="forward")
    attribution = trace.attribution()
    advice = "If the program uses the device, record with ProfilerActivity.CUDA, too."
    assert not any(advice in note for note in summarize(attribution).notes)
    table = replace(attribution.table, info=replace(attribution.table.info, devices=("NVIDIA A100-SXM4-40GB",)))
    assert any(advice in note for note in summarize(replace(attribution, table=table)).notes)
