"""What a trace recorded: of the device's work, before and after it, and of each of several devices."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from inspection_traces import ENGINE, MAIN, Event, copy, kernel, launch, mark, node, op, span, write
from inspection_written import assert_sums_hold

from profiler_kit.attribution.engine import attribute
from profiler_kit.attribution.summary import summarize
from profiler_kit.comparison.traces import compare_traces
from profiler_kit.diagnosis.recorded import without_profiler
from profiler_kit.pipeline.inspect import inspect
from profiler_kit.records.claims import idle_claims
from profiler_kit.records.report import TraceReport
from profiler_kit.records.traces import IdleTime, TraceSummary
from profiler_kit.traces.reader import read

US = 1_000
STEP_US = 700
SERIOUS = ("high", "medium")


def summary(tmp_path: Path, events: Iterable[Event], **top: Any) -> TraceSummary:
    result = summarize(attribute(read(write(tmp_path / "trace.json", events, **top), details=False)))
    assert_sums_hold(result)
    if result.steps:
        in_steps = sum(step.kernel_ns for step in result.steps) + sum(part.kernel_ns for part in result.outside_steps)
        assert in_steps + result.unattributed_ns == result.busy_ns
    return result


def report(tmp_path: Path, events: Iterable[Event], **top: Any) -> TraceReport:
    return inspect(write(tmp_path / "trace.json", events, **top)).report


def rules(result: TraceReport) -> list[str]:
    return [finding.rule for finding in result.findings]


def causes(parts: Iterable[IdleTime]) -> dict[str, int]:
    return {part.cause: part.ns for part in parts}


def training(
    *, steps: int = 3, begin: float = 0, kernels: bool = True, name: str = "aten::mm", start_us: float = 0.0
) -> list[Event]:
    """Steps of six products in forward, each with a kernel of 80 us. `start_us`: the duration of a cudaFree in the first."""
    events: list[Event] = []
    for step in range(steps):
        at = begin + step * STEP_US + (start_us if step else 0.0)
        extra = start_us if step == 0 else 0.0
        events.append(mark(f"ProfilerStep#{step}", at, at + STEP_US - 1 + extra))
        events.append(mark("forward", at + 1, at + STEP_US - 2 + extra))
        for i in range(6):
            number, begin_us = 1 + 6 * step + i, at + 5 + 110 * i + (extra if i else 0.0)
            first_us = extra if i == 0 else 0.0
            events.append(op(name, begin_us, begin_us + 30 + first_us))
            if first_us:
                events.append(launch(9000, begin_us + 2, begin_us + 2 + first_us, name="cudaFree"))
            events.append(launch(number, begin_us + 5 + first_us, begin_us + 10 + first_us))
            if kernels:
                events.append(kernel("sgemm_128x64_nn", begin_us + 15 + first_us, begin_us + 95 + first_us, number))
    return events


def host_only(*operators: str, step: bool = True) -> list[Event]:
    marks = [mark("ProfilerStep#1", 0, 100 * len(operators) + 10)] if step else []
    return [*marks, *(op(name, 5 + 100 * i, 95 + 100 * i) for i, name in enumerate(operators))]


# ---- a device that was not recorded


def test_launches_without_kernels_say_nothing_about_the_device(tmp_path: Path) -> None:
    result = report(tmp_path, training(kernels=False))
    (trace,) = result.traces
    assert trace.device_record is not None
    assert (trace.device_record.launches, trace.device_record.unrecorded_launches) == (18, 18)
    assert (trace.device_record.evidence, trace.is_unrecorded) == ("launches", True)
    assert rules(result) == ["device_not_recorded"]
    assert result.findings[0].severity == "high"
    verdict = result.verdict
    assert verdict is not None
    assert (verdict.bound, verdict.busy, verdict.idle, verdict.cause, verdict.remedies) == (None, None, None, None, ())
    assert any("ProfilerActivity.CUDA" in sentence for sentence in verdict.sentences)


@pytest.mark.parametrize(
    "name",
    [
        *("aten::cudnn_convolution", "aten::_cudnn_rnn", "aten::miopen_batch_norm", "aten::_mps_convolution"),
        *(
            "aten::mps_convolution_backward",
            "nccl:all_reduce",
            "triton_poi_fused_add_0",
            "aten::_flash_attention_forward",
        ),
        *(
            "aten::_scaled_dot_product_efficient_attention",
            "aten::_scaled_dot_product_flash_attention",
        ),
        *("aten::cudnn_convolution_backward", "aten::_cudnn_ctc_loss", "torch_xpu::xpu_add"),
    ],
)
def test_operators_of_a_device_recorded_on_the_host_alone(tmp_path: Path, name: str) -> None:
    result = report(tmp_path, host_only("aten::conv2d", name))
    (trace,) = result.traces
    assert trace.device_record is not None
    assert (trace.device_record.evidence, trace.device_record.example) == ("operators", name)
    assert rules(result) == ["device_not_recorded"]
    assert result.verdict is not None
    assert result.verdict.bound is None


@pytest.mark.parametrize(
    "name",
    [
        *("aten::addmm", "aten::_use_cudnn_ctc_loss", "aten::cudnn_is_acceptable", "aten::mkldnn_convolution"),
        *(
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_attention_math",
            "mylib::scuda",
        ),
        *("gloo:all_reduce", "aten::chip", "aten::relationship", "my cuda range", "aten::pin_memory"),
    ],
)
def test_operators_of_any_device_are_no_evidence(tmp_path: Path, name: str) -> None:
    result = report(tmp_path, host_only("aten::addmm", name))
    assert result.traces[0].device_record is not None
    assert result.traces[0].device_record.evidence == ""
    assert "device_not_recorded" not in rules(result)
    assert result.verdict is not None
    assert result.verdict.bound is not None


def test_other_evidence_of_a_device(tmp_path: Path) -> None:
    operators = host_only("aten::addmm", "aten::relu")
    memory = {
        "ph": "i",
        "name": "[memory]",
        "ts": 3,
        "pid": 1,
        "tid": MAIN,
        "args": {"Bytes": 8, "Device Type": 1, "Device Id": 0},
    }
    thread_name = {
        "ph": "M",
        "name": "thread_name",
        "pid": 1,
        "tid": ENGINE,
        "args": {"name": "thread 200 (pt_autograd_0)"},
    }
    backward = [op("aten::mul", 1, 4, sequence=1), node("MulBackward0", 50, 60, 1), thread_name]
    inputs = span("cpu_op", "aten::empty", 6, 7, Concrete_Inputs=["", "cuda:0"])
    cases = {
        "memory": [memory],
        "threads": backward,
        "inputs": [inputs],
        "copies": [launch(1, 5, name="cudaMemcpyAsync")],
    }
    for evidence, events in cases.items():
        record = summary(tmp_path, [*operators, *events]).device_record
        assert record is not None
        assert record.evidence == evidence
    on_host = {**memory, "args": {"Bytes": 8, "Device Type": 0, "Device Id": -1}}
    record = summary(
        tmp_path, [*operators, on_host, span("cpu_op", "aten::empty", 6, 7, Concrete_Inputs=["cpu"])]
    ).device_record
    assert record is not None
    assert record.evidence == ""


def test_captured_launches_and_calls_of_the_driver_are_no_missing_work(tmp_path: Path) -> None:
    events = [
        op("aten::mm", 0, 50),
        launch(1, 0, 1, name="cudaStreamBeginCapture"),
        launch(2, 2, 3),
        launch(3, 4, 5),
        launch(4, 6, 7, name="cudaStreamEndCapture"),
        launch(5, 10, 14, name="cudaGraphLaunch"),
        launch(6, 20, 26),
        {**launch(6, 21, 25, name="cuLaunchKernel"), "cat": "cuda_driver"},
        launch(7, 30, 32, name="cudaLaunchHostFunc"),
        *(kernel("k", 30 + 10 * i, 38 + 10 * i, 5 if i < 2 else 6) for i in range(3)),
    ]
    record = summary(tmp_path, events).device_record
    assert record is not None
    assert (record.launches, record.unrecorded_launches) == (2, 0)


@pytest.mark.parametrize(("missing", "severity"), [(0, None), (1, "low"), (4, "medium"), (10, "high")])
def test_a_device_that_was_recorded_in_part(tmp_path: Path, missing: int, severity: str | None) -> None:
    events = [e for e in training() if e["cat"] != "kernel" or e["args"]["correlation"] > missing]
    result = report(tmp_path, events)
    found = [finding for finding in result.findings if finding.rule == "device_not_recorded"]
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert result.verdict is not None
    assert (result.verdict.bound is None) == (severity == "high")
    assert [finding.rule for finding in result.findings if severity == "high"] == ["device_not_recorded"] * len(
        result.findings if severity == "high" else ()
    )


def test_missing_kernels_are_the_cause_of_the_idle_time_that_they_leave(tmp_path: Path) -> None:
    events = [e for e in training() if e["cat"] != "kernel" or e["args"]["correlation"] % 6 not in (3, 4)]
    first, *_ = report(tmp_path, events).findings
    assert (first.rule, first.severity, first.claims) == ("device_not_recorded", "medium", idle_claims("unknown"))
    assert first.share == pytest.approx(0.34, abs=0.01)


def test_one_of_two_traces_without_its_device(tmp_path: Path) -> None:
    good = write(tmp_path / "good.json", training())
    bad = write(tmp_path / "bad.json", training(kernels=False))
    result = inspect([good, bad]).report
    alone = inspect(good).report
    assert result.verdict is not None
    assert alone.verdict is not None
    assert result.verdict.bound == alone.verdict.bound
    assert result.verdict.busy == alone.verdict.busy
    assert rules(result)[-1:] == ["device_not_recorded"] or rules(result)[0] == "device_not_recorded"


def test_work_without_correlations_may_be_that_of_any_launch(tmp_path: Path) -> None:
    events = training()
    for event in events:
        event["args"].pop("correlation", None)
    trace = summary(tmp_path, events)
    assert trace.device_record is not None
    assert (trace.linked, trace.device_record.unrecorded_launches, trace.is_unrecorded) == (0, 0, False)


@pytest.mark.parametrize(
    ("name", "activity"), [("aten::cudnn_convolution", "CUDA"), ("torch_xpu::xpu_add", "XPU"), ("aten::_mps_add", "")]
)
def test_the_advice_records_the_device_of_the_program(tmp_path: Path, name: str, activity: str) -> None:
    (finding,) = report(tmp_path, host_only("aten::conv2d", name)).findings
    assert f"ProfilerActivity.{activity}]" in finding.advice or not activity
    assert ("torch.mps.profiler" in finding.advice) == (not activity)


# ---- device events that could not be read


def test_some_device_events_that_could_not_be_read(tmp_path: Path) -> None:
    events = training()
    for event in [e for e in events if e["cat"] == "kernel"][:3]:
        event["ts"] = None
    result = report(tmp_path, events)
    (trace,) = result.traces
    assert trace.device_record is not None
    assert (trace.device_events, trace.device_record.lost_events) == (15, 3)
    assert result.verdict is not None
    assert result.verdict.bound == "compute"
    assert any("3 of 18 device events" in sentence for sentence in result.verdict.sentences)
    assert "device_not_recorded" in rules(result)


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("ts", "soon", "'ts'"),
        ("dur", None, "'dur'"),
        ("dur", -1, "'dur'"),
        ("cat", 3, "'cat'"),
        ("name", None, "'name'"),
    ],
)
def test_events_that_could_not_be_read_are_counted_by_reason(tmp_path: Path, key: str, value: Any, reason: str) -> None:
    events = [{**event, key: value} for event in training()]
    result = report(tmp_path, [*events, {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "ts": 1}])
    (part,) = result.traces[0].unread
    assert (part.events, reason in part.reason) == (len(events), True)
    assert result.verdict is not None
    assert any(f"{len(events)} of {len(events) + 1} events" in sentence for sentence in result.verdict.sentences)
    assert result.verdict.bound is None


def test_arguments_that_could_not_be_read_are_counted(tmp_path: Path) -> None:
    events = [{**event, "args": [1]} if event["cat"] == "kernel" else event for event in training()]
    result = report(tmp_path, events)
    assert [part.events for part in result.traces[0].unread] == [18]
    assert result.verdict is not None
    assert "18 of 60 events could not be read" in result.verdict.sentences[0]


@pytest.mark.parametrize("number", [1, 9, 18])
@pytest.mark.parametrize(("key", "factor"), [("dur", 1000.0), ("ts", 1000.0), ("ts", -1000.0)])
def test_a_time_far_outside_the_recording_is_an_error_of_a_clock(
    tmp_path: Path, number: int, key: str, factor: float
) -> None:
    events, intact = training(), summary(tmp_path, training())
    for event in [e for e in events if e["cat"] == "kernel" and e["args"]["correlation"] == number]:
        event[key] += factor * intact.span_ns / US
    trace = summary(tmp_path, events)
    assert trace.device_record is not None
    assert (trace.device_events, trace.device_record.lost_events) == (17, 1)
    assert trace.span_ns <= intact.span_ns


def test_device_times_of_another_unit_say_nothing(tmp_path: Path) -> None:
    events = training(begin=1e6)
    for event in [e for e in events if e["cat"] == "kernel"]:
        event["ts"], event["dur"] = 1000 * event["ts"], 1000 * event["dur"]
    result = report(tmp_path, events)
    assert rules(result) == ["device_not_recorded"]
    assert result.verdict is not None
    assert result.verdict.bound is None


def test_device_events_without_a_duration_say_nothing(tmp_path: Path) -> None:
    events = [{**event, "dur": 0} if event["cat"] == "kernel" else event for event in training()]
    result = report(tmp_path, events)
    assert (result.traces[0].is_unrecorded, rules(result)) == (True, ["device_not_recorded"])


def test_steps_without_a_duration_are_not_steps(tmp_path: Path) -> None:
    events = [{**event, "dur": 0} if event["name"].startswith("ProfilerStep") else event for event in training()]
    trace = summary(tmp_path, events)
    assert (trace.steps, trace.host_step_ns) == ((), None)


@pytest.mark.parametrize("missing", [2, 5, 9])
def test_idle_time_after_a_launch_without_work_is_of_unknown_cause(tmp_path: Path, missing: int) -> None:
    """The host's time before the launch stays what it was: the missing work cannot have run in it."""
    intact = summary(tmp_path, training())
    events = [e for e in training() if e["cat"] != "kernel" or e["args"]["correlation"] != missing]
    trace = summary(tmp_path, events)
    before, after = causes(intact.idle), causes(trace.idle)
    assert (before.get("unknown", 0), after["unknown"] >= 80 * US) == (0, True)
    assert all(ns <= before[cause] for cause, ns in after.items() if cause != "unknown")


def test_a_trace_with_few_launches_without_work_says_so_first(tmp_path: Path) -> None:
    events = [e for e in training() if e["cat"] != "kernel" or e["args"]["correlation"] % 6]
    result = report(tmp_path, events)
    assert result.verdict is not None
    assert "3 of 18 launches have no kernel" in result.verdict.sentences[0]


def test_several_traces_say_what_they_lack(tmp_path: Path) -> None:
    lacking = [e for e in training() if e["cat"] != "kernel" or e["args"]["correlation"] % 6]
    paths = [write(tmp_path / f"{i}.json", events) for i, events in enumerate((training(), lacking, lacking))]
    paths.append(tmp_path / "cut.json")
    paths[-1].write_text(json.dumps({"traceEvents": training()})[:-10])
    result = inspect(paths).report
    assert result.verdict is not None
    assert all(f"In {share} of 4, " in result.verdict.sentences[0] for share in (1, 3))


def test_operators_without_a_duration_are_not_missing(tmp_path: Path) -> None:
    events = [{**event, "dur": 0} for event in host_only("aten::mm", step=False)]
    result = report(tmp_path, events)
    assert result.verdict is not None
    assert "with a duration" in result.verdict.sentences[0]


def test_a_file_that_is_cut_off_says_so_first(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": training()})
    path = tmp_path / "trace.json"
    path.write_text(text[: -len(text) // 3])
    result = inspect(path).report
    assert result.traces[0].cut_off
    assert result.verdict is not None
    assert "cut off" in result.verdict.sentences[0]


def test_a_trace_of_which_no_device_event_could_be_read(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": training()}).replace('"cat": "kernel", "name"', '"cat": "kernel" "name"')
    path = tmp_path / "trace.json"
    path.write_text(text)
    result = inspect(path).report
    assert result.traces[0].device_record is not None
    assert result.traces[0].device_record.lost_events == 18
    assert rules(result) == ["device_not_recorded"]
    assert result.verdict is not None
    assert result.verdict.bound is None
    assert any("18 of 18 device events" in sentence for sentence in result.verdict.sentences)


@pytest.mark.parametrize("value", ["inf", "-nan", "NaN"])
def test_a_value_that_json_does_not_have_leaves_the_kernels(tmp_path: Path, value: str) -> None:
    path = write(tmp_path / "trace.json", training())
    expected = inspect(path).report.verdict
    path.write_text(path.read_text().replace('"device": 0', f'"device": 0, "bandwidth": {value}'))
    result = inspect(path).report
    assert result.traces[0].device_events == 18
    assert result.verdict == expected


# ---- time before the first device work, and after the last


def late(*events: Event, begin: float = 399_000.0) -> list[Event]:
    """Five kernels in 330 us, after `events`."""
    result = list(events)
    for i in range(5):
        at = begin + 70 * i
        result += [op("aten::mm", at, at + 12), launch(i + 1, at + 3, at + 8), kernel("gemm", at + 10, at + 60, i + 1)]
    return result


def test_a_launch_that_takes_most_of_the_trace(tmp_path: Path) -> None:
    events = late(begin=400_000.0)
    events[0] = op("aten::mm", 1000, 400_012)
    events[1] = launch(1, 1003, 400_008)
    result = report(tmp_path, events)
    (trace,) = result.traces
    assert (trace.span_ns, trace.before_ns, trace.after_ns) == (330 * US, 399_010 * US, 2 * US - 2 * US)
    assert trace.recorded_ns == 399_340 * US
    assert causes(trace.before) == {"cold start": 399_007 * US, "op dispatch": 3 * US}
    verdict = result.verdict
    assert verdict is not None
    assert (verdict.bound, rules(result)[0], verdict.cause_is_bound) == ("cold start", "cold_start", True)
    assert verdict.busy == pytest.approx(250 / 399_340)
    assert (verdict.busy or 0.0) + (verdict.idle or 0.0) == pytest.approx(1.0)


def test_data_loading_before_the_first_device_work_of_one_step(tmp_path: Path) -> None:
    loading = mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 10, 398_000)
    result = report(tmp_path, late(mark("ProfilerStep#1", 0, 399_400), loading))
    assert causes(result.traces[0].before)["waiting for data"] == 397_990 * US
    assert result.verdict is not None
    assert result.verdict.bound == "data"
    assert rules(result)[0] == "data_bound"


def test_time_after_the_last_device_work(tmp_path: Path) -> None:
    result = report(tmp_path, late(op("aten::sort", 399_500, 800_000)))
    (trace,) = result.traces
    assert (trace.before_ns, trace.span_ns, trace.after_ns) == (10 * US, 330 * US, 400_660 * US)
    assert causes(trace.after) == {"op dispatch": 400_500 * US, "python": 160 * US}
    assert result.verdict is not None
    assert result.verdict.bound != "compute"


def test_calls_of_python_do_not_extend_the_recorded_time(tmp_path: Path) -> None:
    events = late(span("python_function", "torch/profiler/profiler.py(1): start", 0, 398_000))
    assert summary(tmp_path, events).before_ns == 10 * US


def test_steps_show_how_work_repeats_whatever_came_before(tmp_path: Path) -> None:
    events = [op("aten::randn", 0, 50_000), *training(begin=60_000)]
    result = report(tmp_path, events)
    (trace,) = result.traces
    assert trace.before_ns > 10 * trace.span_ns
    assert result.verdict is not None
    assert (result.verdict.bound, trace.step_ns) == ("compute", STEP_US * US)
    assert result.verdict.busy == pytest.approx(without_profiler(trace).busy_share)


# ---- start-up calls


@pytest.mark.parametrize("start_us", [4_990.0, 700_000.0])
def test_the_start_of_a_library_is_no_wait_for_kernels(tmp_path: Path, start_us: float) -> None:
    warm, cold = report(tmp_path, training()), report(tmp_path, training(start_us=start_us))
    (trace,) = cold.traces
    assert trace.syncs == ()
    assert sum(phase.wait_ns for phase in trace.phases) == 0
    assert causes(trace.before)["cold start"] == round(start_us * US)
    assert [finding.rule for finding in cold.findings] == [finding.rule for finding in warm.findings]
    assert cold.verdict is not None
    assert warm.verdict is not None
    assert (cold.verdict.bound, cold.traces[0].step_ns) == (warm.verdict.bound, warm.traces[0].step_ns)
    assert "wrong_phase" not in rules(cold)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "cudaGetDeviceProperties_v2_v12000",
            "cuModuleLoadDataEx",
            "cudaMalloc",
            "hipModuleLoad",
            "cuLibraryLoadData",
        ),
        *("cudaDeviceSynchronize", "hipFree", "cudaStreamSynchronize"),
    ],
)
def test_a_long_call_before_any_launch_starts_a_library(tmp_path: Path, name: str) -> None:
    trace = summary(tmp_path, late(launch(99, 0, 399_000, name=name)))
    assert causes(trace.before)["cold start"] == 399_000 * US
    assert trace.syncs == ()


def test_memory_that_is_freed_while_work_runs_waits_for_it(tmp_path: Path) -> None:
    def waits(*, begin: float, end: float) -> list[tuple[str, int]]:
        events = [
            op("aten::mm", 0, 12), launch(1, 3, 8), kernel("gemm", 10, 500, 1),
            launch(99, begin, end, name="cudaFree"), op("aten::mm", 900, 912), launch(2, 903, 908), kernel("gemm", 910, 960, 2),
        ]  # fmt: skip
        return [(wait.call, wait.wait_ns) for wait in summary(tmp_path, events).syncs]

    assert waits(begin=20, end=505) == [("cudaFree", 485 * US)]
    assert waits(begin=600, end=800) == []


# ---- several devices


def on_device(event: Event, device: int) -> Event:
    return {**event, "pid": device, "args": {**event["args"], "device": device}}


def several(*busy_us: float, steps: int = 3, rounds: int = 6) -> list[Event]:
    """Kernels that one thread launches on each device in turn, every 30 us; `busy_us`: of each, in a round of 90 us."""
    events: list[Event] = []
    period = 30.0 * len(busy_us)
    for step in range(steps):
        begin = step * rounds * period
        events.append(mark(f"ProfilerStep#{step}", begin, begin + rounds * period - 1))
        for i in range(rounds):
            for device, us in enumerate(busy_us):
                at = begin + period * i + 30 * device
                number = len(events) + 1
                events += [
                    op("aten::mm", at + 1, at + 13),
                    launch(number, at + 4, at + 9),
                    on_device(kernel("gemm", at + 11, at + 11 + us, number), device),
                ]
    return events


def test_three_devices_have_an_account_each(tmp_path: Path) -> None:
    result = report(tmp_path, several(20.0, 40.0, 60.0))
    (trace,) = result.traces
    span_us = trace.wall_ns / US
    assert [(account.device, account.busy_ns) for account in trace.accounts] == [
        ("0", 18 * 20 * US), ("1", 18 * 40 * US), ("2", 18 * 60 * US)
    ]  # fmt: skip
    assert all(account.busy_ns + account.idle_ns == trace.wall_ns for account in trace.accounts)
    assert (trace.span_ns, trace.busy_ns) == (3 * trace.wall_ns, 18 * 120 * US)
    assert result.verdict is not None
    assert trace.busy_share == pytest.approx(18 * 120 / 3 / span_us)
    assert result.verdict.busy == pytest.approx(without_profiler(trace).busy_share)
    assert result.verdict.bound not in ("communication", "other devices")
    assert [step.idle_ns for step in trace.steps][:2] == [310 * US, 300 * US]


def test_a_device_with_a_single_fill_takes_no_part(tmp_path: Path) -> None:
    fill = on_device(kernel("Memset (Device)", 20, 21, category="gpu_memset"), 1)
    alone, beside = summary(tmp_path, training()), summary(tmp_path, [*training(), fill])
    assert [account.device for account in beside.accounts] == ["0"]
    assert (beside.span_ns, beside.busy_share) == (alone.span_ns, alone.busy_share)
    assert beside.device_events == alone.device_events + 1


def test_devices_that_work_in_turn_wait_for_each_other(tmp_path: Path) -> None:
    events: list[Event] = []
    for step in range(4):
        begin = 1500.0 * step
        events.append(mark(f"ProfilerStep#{step}", 200.0 * step, 200.0 * step + 199))
        for device in range(3):
            number = len(events) + 1
            at = 200.0 * step + 40 * device
            events += [op("aten::mm", at + 1, at + 12), launch(number, at + 4, at + 9)]
            events.append(
                on_device(kernel("gemm", begin + 500 * device + 100, begin + 500 * device + 590, number), device)
            )
    result = report(tmp_path, events)
    (trace,) = result.traces
    assert [round(account.busy_ns / trace.wall_ns, 2) for account in trace.accounts] == [0.33, 0.33, 0.33]
    assert result.verdict is not None
    assert result.verdict.bound == "other devices"


def test_copies_between_devices_count_where_they_run(tmp_path: Path) -> None:
    peer = on_device(copy("Memcpy PtoP (Device -> Device)", 100, 150, None, stream=9), 1)
    trace = summary(tmp_path, [*training(), peer])
    assert [(account.device, account.events) for account in trace.accounts] == [("0", 18), ("1", 1)]


def test_a_comparison_of_traces_without_their_device_says_so(tmp_path: Path) -> None:
    recorded, unrecorded = summary(tmp_path, training()), summary(tmp_path, training(kernels=False))
    on_cpu = summary(tmp_path, host_only("aten::addmm"))

    def notes(trace: TraceSummary) -> list[str]:
        return [note for note in compare_traces(trace, trace).notes if "not recorded" in note]

    assert [len(notes(trace)) for trace in (recorded, unrecorded, on_cpu)] == [0, 1, 0]
