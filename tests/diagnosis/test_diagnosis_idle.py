"""Rules about the host and idle time: each cause is named, and nothing else of `medium` or more."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnose_cases import cpu, report, texts
from trace_reports import MS, kernel, ms, nested, steps, trace, traces, two_ranks

from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.diagnosis.rules.threads import THREAD_OVERSUBSCRIPTION
from profiler_kit.records.ranks import Straggler
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import (
    CollectiveTime,
    Communication,
    HostActivity,
    IdleTime,
    PhaseTime,
    SyncWait,
    TraceOperator,
    TraceSummary,
)


def found(case: TraceReport | TraceSummary) -> dict[str, Finding]:
    """Return the findings of at least medium severity by rule."""
    whole = traces(case) if isinstance(case, TraceSummary) else case
    return {finding.rule: finding for finding in diagnose_traces(whole) if finding.severity in ("high", "medium")}


def on_host(**more: Any) -> TraceSummary:
    """Return a trace of 100 ms on the host with 10 ms of operators in forward, without idle entries."""
    case = trace(phases={"forward": (10.0, 10.0, 0.0)}, clock="host", devices=(), device_events=0, linked=0)
    return replace(case, kernels=(), span_ns=ms(100.0), idle_ns=ms(90.0), **more)


def activity(
    name: str, ms_: float, *, source: str = "", phase: Any = "", calls: int = 5, launched: bool = False
) -> HostActivity:
    return HostActivity(
        name=name,
        phase=phase,
        source=source,
        calls=calls,
        ns=ms(ms_),
        longest_ns=ms(ms_) // calls,
        long_ns=ms(ms_),
        launched=launched,
    )


def test_a_loader_in_the_training_process_is_named_on_a_cpu() -> None:
    fetching = PhaseTime(phase="data", host_ns=ms(88.0), kernel_ns=0, sum_ns=0, idle_ns=0, wait_ns=0, events=0)
    case = on_host(
        idle=(IdleTime(cause="waiting for data", ns=ms(85.0), gaps=5), IdleTime(cause="python", ns=ms(5.0), gaps=9)),
        loaders=("_SingleProcessDataLoaderIter",),
        activities=(activity("<built-in function sleep>", 80.0, source="train.py(9): augment", phase="data"),),
    )
    case = replace(case, phases=(*case.phases, fetching))
    findings = found(case)
    assert list(findings) == ["data_bound"]
    finding = findings["data_bound"]
    assert "85.0 %" in finding.title
    assert "num_workers=0" in finding.explanation
    assert "sleep() in train.py(9): augment" in finding.explanation
    assert texts(finding.claims) == ("idle:waiting for data", "busy:phase:data")
    assert finding.weight == pytest.approx(0.85)


def test_fetching_before_the_first_operator_counts_by_step_marks() -> None:
    fetching = PhaseTime(phase="data", host_ns=ms(90.0), kernel_ns=0, sum_ns=0, idle_ns=0, wait_ns=0, events=0)
    case = replace(on_host(idle=(IdleTime(cause="waiting for data", ns=ms(1.0), gaps=1),)), **steps(4, 0.0, 30.0))
    case = replace(case, phases=(*case.phases, fetching))
    assert found(case)["data_bound"].weight == pytest.approx(90.0 / 120.0)


def test_python_between_operators_names_the_call_of_the_user() -> None:
    case = on_host(
        idle=(IdleTime(cause="python", ns=ms(90.0), gaps=9),),
        activities=(activity("<built-in function sleep>", 80.0, source="train.py(31): metric"),),
    )
    finding = found(case)["host_overhead"]
    assert finding.severity == "high"
    assert "train.py(31): metric" in finding.explanation
    assert "out of the loop" in finding.advice
    inside_torch = replace(
        case, activities=(activity("torch/optim/sgd.py(84): _init_group", 80.0, source="train.py(8): step"),)
    )
    assert "Most of it" not in found(inside_torch)["host_overhead"].explanation


def test_idle_time_before_launches_without_short_kernels_is_launch_bound() -> None:
    case = trace(
        phases={"forward": (100.0, 40.0, 0.0)},
        idle={("op dispatch", "forward"): 40.0, ("python", "forward"): 20.0},
        kernels=[kernel("pointwise", 40.0, 2_000)],
        median_kernel_ns=12_600,
    )
    finding = found(case)["launch_bound"]
    assert "12.6 us" in finding.explanation
    assert finding.weight == pytest.approx(0.6)
    assert texts(finding.claims) == ("idle:op dispatch", "idle:python", "idle:launch latency")


def test_long_gaps_are_python_or_operators_on_the_cpu_and_not_launches() -> None:
    base = trace(
        phases={"forward": (100.0, 40.0, 0.0)}, idle={("python", "forward"): 30.0, ("op dispatch", "forward"): 30.0}
    )
    python = replace(
        base, activities=(activity("metrics.py(3): f1", 30.0, source="metrics.py(3): f1"), activity("aten::sort", 28.0))
    )
    findings = found(python)
    assert set(findings) == {"host_overhead", "cpu_fallback"}
    assert "metrics.py(3): f1 (30 ms)" in findings["host_overhead"].explanation
    assert "aten::sort (28 ms)" in findings["cpu_fallback"].explanation
    queued = replace(base, activities=(activity("metrics.py(3): f1", 60.0, launched=True),))
    assert list(found(queued)) == ["launch_bound"], "work that was launched before the gap did not wait for the host"


def test_operators_that_prepare_in_each_step_are_a_cause_of_their_own() -> None:
    base = trace(
        phases={"forward": (100.0, 10.0, 0.0)},
        idle={("op dispatch", "forward"): 90.0},
        operators=(
            TraceOperator(
                name="aten::_cudnn_attention_forward",
                family="attention",
                calls=36,
                kernel_ns=ms(2.0),
                host_self_ns=ms(80.0),
            ),
        ),
        activities=(activity("aten::_cudnn_attention_forward", 80.0),),
        **steps(3, 30.0, 33.0),
    )
    finding = found(base)["slow_preparation"]
    assert (finding.severity, finding.weight) == ("high", pytest.approx(0.8))
    assert "enable_cudnn_sdp(False)" in finding.advice
    once = replace(base, activities=(activity("aten::_cudnn_attention_forward", 80.0, calls=1),))
    assert "slow_preparation" not in found(once), "one long call is a cold start"
    assert "slow_preparation" not in found(replace(base, operators=())), "an operator on the CPU launches nothing"


def first_step(idle_ms: float) -> dict[str, Any]:
    """Return the fields of a trace with three steps, of which the first is idle for `idle_ms` and the others for 1 ms."""
    fields = steps(3, 30.0, 33.0)
    first, second, third = fields["steps"]
    return {
        **fields,
        "steps": (replace(first, idle_ns=ms(idle_ms), host_ns=ms(130.0)), replace(second, idle_ns=ms(1.0)), third),
    }


@pytest.mark.parametrize("name", ["aten::cudnn_convolution", "metrics.py(3): f1"])
def test_long_calls_of_the_first_step_only_are_a_cold_start(name: str) -> None:
    searching = TraceOperator(
        name="aten::cudnn_convolution", family="conv", calls=15, kernel_ns=ms(2.0), host_self_ns=ms(80.0)
    )
    base = trace(
        phases={"forward": (100.0, 10.0, 0.0)},
        idle={("op dispatch", "forward"): 90.0},
        operators=(searching,),
        activities=(activity(name, 85.0),),
        **steps(3, 30.0, 33.0),
    )
    assert list(found(base)) != ["cold_start"]
    assert list(found(replace(base, **first_step(88.0)))) == ["cold_start"]
    waits = replace(base, **first_step(88.0), idle=(IdleTime(cause="waiting for data", ns=ms(90.0), gaps=3),))
    assert "cold_start" not in found(waits), "the first batch is not a cold start of the device"


def test_a_cold_start_besides_a_longer_compilation_has_the_same_remedy() -> None:
    base = trace(
        phases={"forward": (100.0, 10.0, 0.0)},
        idle={("compilation", "forward"): 100.0, ("python", "forward"): 90.0},
        **first_step(188.0),
    )
    assert list(found(base)) == ["compile_time"]


def test_a_gap_without_a_recorded_call_is_to_be_looked_at_and_may_happen_once() -> None:
    base = trace(phases={"forward": (100.0, 20.0, 0.0)}, idle={("python", "forward"): 80.0})
    once = replace(base, activities=(activity("", 80.0, calls=1),))
    finding = found(once)["host_overhead"]
    assert finding.severity == "medium"
    assert "80 ms in the whole trace" in finding.explanation
    assert "with_stack=True" in finding.advice
    assert found(replace(once, **steps(4, 25.0, 25.0)))["host_overhead"].severity == "high"
    marked = replace(base, activities=(activity("## backward ##", 80.0, phase="backward"),))
    assert "with_stack=True" in found(marked)["host_overhead"].advice
    metrics = replace(base, activities=(activity("metrics", 80.0),))
    assert "out of the loop: before the loop, in another process" in found(metrics)["host_overhead"].advice


def test_a_wait_explains_the_idle_time_until_new_work_and_names_its_source() -> None:
    wait = SyncWait(
        name="aten::nonzero",
        call="cudaMemcpyAsync",
        phase="forward",
        calls=5,
        wait_ns=ms(50.0),
        waited_for=(),
        idle_ns=ms(30.0),
        source="model.py(44): forward",
    )
    case = trace(
        phases={"forward": (100.0, 70.0, 0.0)},
        idle={("python", "forward"): 28.0, ("synchronization", "forward"): 2.0},
        syncs=(wait,),
    )
    findings = found(case)
    assert list(findings) == ["sync_waits"]
    finding = findings["sync_waits"]
    assert finding.weight == pytest.approx(0.3)
    assert "boolean indexing" in finding.explanation
    assert "model.py(44): forward" in finding.explanation
    assert "torch.where" in finding.advice
    short = replace(case, syncs=(replace(wait, wait_ns=ms(0.1), idle_ns=ms(0.1)),))
    assert "sync_waits" not in found(short)


def waiting(wait_ms: float, gap_ms: float, *activities: HostActivity) -> TraceSummary:
    """Return a step of 100 ms that is idle for 40 ms before launches, with one kind of waits."""
    wait = SyncWait(
        name="aten::item", call="cudaStreamSynchronize", phase="forward", calls=5, wait_ns=ms(wait_ms), waited_for=(),
        idle_ns=ms(gap_ms),
    )  # fmt: skip
    return trace(
        phases={"forward": (100.0, 60.0, 0.0)},
        idle={("op dispatch", "forward"): 40.0},
        syncs=(wait,),
        activities=activities,
    )


def test_long_waits_cause_later_gaps_too_because_the_host_would_be_ahead() -> None:
    """Without waits of 50 ms the host needs 50 ms for a step and the device 60: no idle time is left."""
    findings = found(waiting(50.0, 2.0))
    assert list(findings) == ["sync_waits"]
    assert findings["sync_waits"].weight == pytest.approx(0.4)


def test_short_waits_of_a_host_that_never_catches_up_leave_it_launch_bound() -> None:
    """Without waits of 4 ms the host still needs 96 ms for a step."""
    findings = found(waiting(4.0, 1.0))
    assert list(findings) == ["launch_bound"]
    assert findings["launch_bound"].weight == pytest.approx(0.36)


@pytest.mark.parametrize(("calls", "severity"), [(80, "low"), (79, None)])
def test_many_short_waits_of_a_slow_host_are_mentioned(calls: int, severity: str | None) -> None:
    case = waiting(0.4, 0.4)
    case = replace(case, syncs=tuple(replace(wait, calls=calls) for wait in case.syncs), **steps(10, 9.0, 10.0))
    findings = {finding.rule: finding for finding in diagnose_traces(traces(case))}
    finding = findings.get("sync_waits")
    assert (finding and finding.severity) == severity
    if finding is not None:
        assert "waits for the device 8 times per step" in finding.title
        assert "launches more slowly than the device works" in finding.explanation
    assert findings["launch_bound"].severity in ("high", "medium")


def test_a_wait_that_no_work_follows_causes_no_idle_time() -> None:
    assert list(found(waiting(50.0, 0.0))) == ["launch_bound"]


def test_launches_inside_reads_belong_to_the_reads() -> None:
    read = replace(activity("aten::_local_scalar_dense", 30.0, calls=5000), long_ns=0)
    findings = found(waiting(4.0, 4.0, read))
    assert next(iter(findings)) == "sync_waits"
    assert findings["sync_waits"].weight == pytest.approx(0.3)


def test_idle_time_in_a_long_call_is_not_that_of_a_wait_elsewhere() -> None:
    findings = found(waiting(50.0, 1.0, activity("metrics.py(3): f1", 40.0, source="metrics.py(3): f1")))
    assert list(findings) == ["host_overhead"]


def test_waits_for_copies_to_the_device_are_host_copies() -> None:
    wait = SyncWait(
        name="aten::to",
        call="cudaMemcpyAsync",
        phase="transfer",
        calls=5,
        wait_ns=ms(20.0),
        waited_for=(),
        idle_ns=ms(20.0),
    )
    copy = kernel("memcpy/memset", 4.0, 10, name="Memcpy HtoD (Pageable -> Device)")
    case = trace(
        phases={"forward": (100.0, 80.0, 0.0)},
        idle={("synchronization", "transfer"): 20.0},
        syncs=(wait,),
        kernels=[copy],
    )
    findings = found(case)
    assert list(findings) == ["host_copies"]
    assert "batch.pin_memory()" in findings["host_copies"].advice
    with_loader = found(replace(case, loaders=("_SingleProcessDataLoaderIter",)))
    assert "DataLoader(..., pin_memory=True)" in with_loader["host_copies"].advice
    assert findings["host_copies"].weight == pytest.approx(0.24)


@pytest.mark.parametrize(
    ("other_ms", "overlap_ms", "severity"), [(60.0, 0.0, "high"), (90.0, 30.0, "medium"), (100.0, 40.0, None)]
)
def test_copies_that_overlap_with_computation_cost_nothing(
    other_ms: float, overlap_ms: float, severity: str | None
) -> None:
    """40 ms of copies on their own stream, of which computation hides a part."""
    copy = kernel("memcpy/memset", 40.0, 10, name="Memcpy HtoD (Pinned -> Device)")
    other = kernel("gemm", other_ms, 9, math="bf16")
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, overlap_ms=overlap_ms, kernels=[copy, other])
    finding = found(case).get("host_copies")
    assert (finding.severity if finding is not None else None) == severity


def test_collectives_that_overlap_do_not_hide_copies() -> None:
    copy = kernel("memcpy/memset", 40.0, 10, name="Memcpy HtoD (Pinned -> Device)")
    collectives = Communication(events=9, sum_ns=ms(50.0), union_ns=ms(50.0), exposed_ns=0)
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, overlap_ms=50.0, kernels=[copy], communication=collectives)
    assert found(case)["host_copies"].weight == pytest.approx(0.4)


@pytest.mark.parametrize(
    ("more", "absent"),
    [
        ({}, ()),
        ({"compiled": True}, ("torch.compile(model),",)),
        ({"graph_launches": 4}, ("torch.compile", "reduce-overhead")),
    ],
)
def test_launch_advice_leaves_out_what_is_in_use(more: dict[str, Any], absent: tuple[str, ...]) -> None:
    case = trace(phases={"forward": (100.0, 40.0, 0.0)}, idle={("op dispatch", "forward"): 60.0}, **more)
    advice = found(case)["launch_bound"].advice
    assert "larger batch" in advice
    assert not any(words in advice for words in absent)
    assert more or "model = torch.compile(model)" in advice


def test_steps_of_few_kernels_are_a_loop() -> None:
    case = trace(phases={"forward": (10.0, 1.0, 0.0)}, idle={("python", "forward"): 9.0}, events=9)
    assert "launch_bound" not in found(case)
    assert "launch_bound" in found(replace(case, **steps(1, 0.5, 5.0)))


def test_slow_first_calls_are_a_cold_start_and_not_launch_bound() -> None:
    call = replace(activity("hipLaunchKernel", 680.0, calls=3), ns=ms(690.0))  # with usual launches
    case = trace(
        phases={"forward": (100.0, 100.0, 0.0)},
        idle={("cold start", "forward"): 680.0, ("launch latency", "forward"): 20.0},
        activities=(call,),
    )
    findings = found(case)
    assert list(findings) == ["cold_start"]
    assert "hipLaunchKernel (680 ms)" in findings["cold_start"].explanation
    assert texts(findings["cold_start"].claims) == ("idle:cold start",)


@pytest.mark.parametrize(("first_ms", "expected"), [(80.0, True), (40.0, False)])
def test_a_long_first_step_is_a_cold_start(first_ms: float, expected: bool) -> None:
    case = replace(on_host(idle=(IdleTime(cause="python", ns=ms(10.0), gaps=9),)), **steps(4, 0.0, 5.0))
    first, *others = case.steps
    case = replace(case, span_ns=ms(150.0), steps=(replace(first, host_ns=ms(first_ms)), *others))
    assert ("cold_start" in found(case)) is expected


def test_compilation_and_recompilation() -> None:
    once = on_host(compile_ns=ms(93.0), compiled_frames=1)
    assert list(found(once)) == ["compile_time"]
    assert "93.0 %" in found(once)["compile_time"].title
    regions = tuple(
        TraceOperator(name=f"Torch-Compiled Region: 0/{i}", family="other", calls=1, kernel_ns=0, host_self_ns=0)
        for i in (0, 1, 2)
    )
    again = replace(once, operators=regions, compiled_frames=3)
    assert list(found(again)) == ["recompilation"]
    assert "2 recompilations" in found(again)["recompilation"].title
    silent = traces(replace(again, compile_ns=0))
    assert [(f.rule, f.severity) for f in diagnose_traces(silent) if f.rule == "recompilation"] == [
        ("recompilation", "low")
    ]
    dynamic = replace(again, compile_ns=0, operators=regions[:2])
    assert "recompilation" not in {finding.rule for finding in diagnose_traces(traces(dynamic))}


def test_allocation_in_the_loop() -> None:
    case = trace(
        phases={"forward": (100.0, 80.0, 0.0)},
        idle={("memory allocation", "forward"): 20.0},
        activities=(activity("cudaMalloc", 12.0), activity("cudaFree", 8.0)),
    )
    findings = found(case)
    assert list(findings) == ["memory_allocation"]
    finding = findings["memory_allocation"]
    assert "cudaFree, cudaMalloc (10 calls)" in finding.explanation
    assert finding.advice.startswith("Remove torch.cuda.empty_cache()")
    assert "num_alloc_retries" in finding.advice


@pytest.mark.parametrize(
    ("calls", "freeing_operator", "words", "absent"),
    [
        (("cudaMalloc",), "aten::empty", "expandable_segments:True", "empty_cache"),
        (("cudaMalloc",), "aten::cudnn_convolution", "Remove torch.cuda.empty_cache()", "counts"),
        (("cudaMalloc",), None, "pad inputs", "empty_cache"),
        (("cudaHostAlloc",), None, "Pin buffers once", "PYTORCH_CUDA_ALLOC_CONF"),
    ],
)  # fmt: skip
def test_advice_on_allocation_follows_the_calls(
    calls: tuple[str, ...], freeing_operator: str | None, words: str, absent: str
) -> None:
    free = SyncWait(
        name=freeing_operator or "", call="cudaFree", phase="forward", calls=3, wait_ns=ms(1.0), waited_for=()
    )
    case = replace(
        trace(
            phases={"forward": (100.0, 80.0, 0.0)},
            idle={("memory allocation", "forward"): 20.0},
            activities=tuple(activity(name, 9.0) for name in calls),
        ),
        syncs=(free,) if freeing_operator else (),
    )
    advice = found(case)["memory_allocation"].advice
    assert words in advice
    assert absent not in advice


def test_anomaly_detection_is_recognized_by_its_checks() -> None:
    def operator(name: str, family: str, calls: int, ms_: float) -> TraceOperator:
        return TraceOperator(name=name, family=family, calls=calls, kernel_ns=ms(ms_), host_self_ns=ms(ms_))

    operators = (
        operator("autograd::engine::evaluate_function: AddmmBackward0", "autograd", 40, 1.0),
        operator("aten::isnan", "pointwise", 50, 2.0),
        operator("aten::t", "view", 20, 5.0),
    )
    case = replace(on_host(operators=operators), span_ns=ms(20.0), idle_ns=ms(0.0))
    finding = found(case)["anomaly_mode"]
    assert finding.weight == pytest.approx((2.0 + 40 * 0.25) / 20.0)
    assert "set_detect_anomaly(False)" in finding.advice
    assert "anomaly_mode" not in found(replace(case, operators=operators[:1] + operators[2:]))


def exposed(kind: str, events: int, size: int | None, *, operators: tuple[str, ...] = ()) -> TraceSummary:
    sent = CollectiveTime(kind=kind, events=events, sum_ns=ms(30.0), bytes=size)
    return trace(
        phases={"forward": (1.0, 100.0, 0.0)},
        communication=Communication(
            events=events, sum_ns=ms(30.0), union_ns=ms(30.0), exposed_ns=ms(30.0), by_kind=(sent,)
        ),
        operators=tuple(
            TraceOperator(name=name, family="other", calls=9, kernel_ns=0, host_self_ns=0) for name in operators
        ),
    )


def test_communication_has_one_finding_by_its_kind() -> None:
    assert list(found(exposed("all_reduce", 15, 15 * 25_000_000))) == ["communication_exposed"]
    assert list(found(exposed("all_reduce", 300, 300 * 100_000))) == ["small_buckets"]
    assert list(found(exposed("send_recv", 15, None, operators=("c10d::send",)))) == ["pipeline_bubbles"]
    assert list(found(exposed("send_recv", 15, None))) == ["communication_exposed"], (
        "an all-to-all has the same kernels"
    )
    assert "set_modules_to_forward_prefetch" in found(exposed("all_gather", 15, None))["communication_exposed"].advice


def test_advice_about_collectives_names_the_call_that_starts_them() -> None:
    advice = found(exposed("all_to_all", 15, None))["communication_exposed"].advice
    assert "all_to_all_single(output, input, async_op=True)" in advice
    assert "DistributedDataParallel" not in advice
    case = on_host(idle=(IdleTime(cause="communication", ns=ms(80.0), gaps=2),))
    finding = found(case)["communication_exposed"]
    assert "all_reduce(tensor, async_op=True)" in finding.advice
    assert "Collectives run for 80 ms of 100 ms while no operator runs." in finding.explanation
    reducer = TraceOperator(
        name="torch::distributed::reducer::mul_out", family="other", calls=9, kernel_ns=0, host_self_ns=0
    )
    ddp = found(replace(case, operators=(reducer,)))["communication_exposed"]
    assert "in DDP" in ddp.advice


def test_waiting_for_a_straggler_gets_no_advice_about_buckets() -> None:
    case = two_ranks()
    assert case.ranks is not None
    waiting = tuple(
        replace(trace, communication=replace(nested().communication, exposed_ns=ms(exposed_ms)))  # type: ignore[type-var]
        for trace, exposed_ms in zip(case.traces, (9.0, 2.0), strict=True)
    )
    findings = found(replace(case, traces=waiting))
    assert "stragglers" in findings
    assert "communication_exposed" not in findings
    other = Straggler(
        rank=1, last=3, collectives=9, late_ns=ms(5.0), cost_ns=ms(5.0), doing="other", doing_excess_ns=ms(5.0)
    )
    finding = found(replace(case, ranks=replace(case.ranks, stragglers=(other,))))["stragglers"]
    assert "more on the rest of the step than the median rank" in finding.explanation


def test_search_for_unused_parameters() -> None:
    search = TraceOperator(
        name="torch.distributed.ddp.reducer::search_unused_parameters",
        family="other",
        calls=3,
        kernel_ns=0,
        host_self_ns=ms(5.0),
    )
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, operators=(search,))
    assert found(case)["unused_parameters"].weight == pytest.approx(0.05)


@pytest.mark.parametrize(("threads", "severity"), [(4, None), (6, "medium"), (12, "high")])
def test_threads_beyond_the_cores(threads: int, severity: str | None) -> None:
    run = cpu().runs[0]
    assert run.environment is not None
    case = report(replace(run, environment=replace(run.environment, threads=threads, cores=4)))
    findings = list(THREAD_OVERSUBSCRIPTION.findings(case))
    assert [finding.severity for finding in findings] == ([] if severity is None else [severity])
    assert all("torch.set_num_threads(4)" in finding.advice for finding in findings)


def test_a_busy_device_has_no_finding_about_the_host() -> None:
    assert found(trace(phases={"forward": (100.0, 97.0, 0.0)}, idle={("launch latency", "forward"): 3.0})) == {}
    assert MS == 1_000_000


def test_removed_events_explain_the_idle_time_of_a_filtered_trace() -> None:
    case = trace(
        phases={"forward": (1.0, 40.0, 0.0)},
        idle={("unknown", "forward"): 40.0, ("python", "forward"): 20.0},
        host_events=50,
        missing_events=950,
    )
    findings = found(case)
    assert list(findings) == ["filtered_trace"]
    assert findings["filtered_trace"].share == pytest.approx(0.6)
    assert "at least 95.0 % of its host events" in findings["filtered_trace"].title
    assert "filtered_trace" not in found(replace(case, host_events=500))
    assert "filtered_trace" not in found(replace(case, host_events=1, missing_events=400))
