"""Advice applies to the trace: it asks for nothing that the program does, and for no recording that exists."""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Any

import pytest
from diagnose_cases import texts
from trace_reports import kernel, ms, nested, steps, trace, traces, two_ranks

from profiler_kit.attribution.host_activity import is_user_code
from profiler_kit.diagnosis import diagnose_traces
from profiler_kit.diagnosis.rules import data
from profiler_kit.diagnosis.verdict import verdict
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.ranks import Straggler
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import (
    CollectiveTime,
    HostActivity,
    PhaseTime,
    ShapedOperator,
    TraceOperator,
    TraceSummary,
)


def finding(case: TraceSummary | TraceReport, rule: str) -> Finding:
    """Return the one finding of `rule`."""
    report = traces(case) if isinstance(case, TraceSummary) else case
    (match,) = [item for item in diagnose_traces(report) if item.rule == rule]
    return match


def launching(**more: Any) -> TraceSummary:
    """Return a trace whose device waits for launches for 60 of 100 ms."""
    case = trace(phases={"forward": (100.0, 40.0, 0.0)}, idle={("op dispatch", "forward"): 60.0}, events=1000)
    return replace(case, **more)


def reading_memory(math: str, **more: Any) -> TraceSummary:
    """Return a busy trace of normalization, in the arithmetic `math`."""
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, kernels=[kernel("norm", 80.0, 10), kernel("gemm", 20.0, 10)])
    return replace(case, kernels=tuple(replace(item, math=math) for item in case.kernels), **more)


def shaped(name: str, shapes: tuple[tuple[int, ...], ...], total_ms: float) -> ShapedOperator:
    return ShapedOperator(
        name=name,
        family="conv",
        shapes=shapes,
        calls=3,
        kernel_ns=ms(total_ms),
        forward_ns=ms(total_ms),
        backward_ns=0,
        recompute_ns=0,
    )


def with_outside_work(case: TraceSummary, phase: str, outside_ms: float) -> TraceSummary:
    """Return `case` with a part of `phase` outside its steps."""
    outside = PhaseTime(phase=phase, host_ns=0, kernel_ns=ms(outside_ms), sum_ns=0, idle_ns=0, wait_ns=0, events=0)  # type: ignore[arg-type]
    return replace(case, outside_steps=(outside,))


def test_a_compiled_model_is_not_to_be_compiled_again() -> None:
    assert "model = torch.compile(model)," in finding(launching(), "launch_bound").advice
    advice = finding(launching(compiled=True), "launch_bound").advice
    assert "torch.compile(model)" not in advice
    assert "mode='reduce-overhead'" in advice


def test_inference_gets_no_advice_about_the_optimizer() -> None:
    assert "fused=True" not in finding(launching(), "launch_bound").advice
    trained = PhaseTime(phase="optimizer", host_ns=1, kernel_ns=0, sum_ns=0, idle_ns=0, wait_ns=0, events=0)
    case = launching()
    assert "fused=True" in finding(replace(case, phases=(*case.phases, trained)), "launch_bound").advice


def test_work_in_16_bits_is_not_to_be_autocast() -> None:
    assert "torch.autocast" in finding(reading_memory("fp32"), "memory_bound").advice
    assert "torch.autocast" not in finding(reading_memory("bf16"), "memory_bound").advice
    assert "torch.compile" not in finding(reading_memory("fp32", compiled=True), "memory_bound").advice


@pytest.mark.parametrize(("device", "library"), [("AMD Instinct MI210", "MIOpen"), ("NVIDIA H100 80GB HBM3", "cuDNN")])
def test_layout_advice_names_the_library_of_the_device(device: str, library: str) -> None:
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, kernels=[kernel(LAYOUT, 20.0, 10), kernel("gemm", 80.0, 10)])
    layout = finding(replace(case, devices=(device,)), "layout_overhead")
    assert f"{library}'s fast convolutions" in layout.explanation
    assert ("PYTORCH_MIOPEN_SUGGEST_NHWC" in layout.advice) is (library == "MIOpen")


def test_times_with_work_outside_the_steps_are_those_of_the_whole_trace() -> None:
    case = trace(phases={"forward": (1.0, 80.0, 0.0), "recompute": (None, 20.0, 0.0)})
    case = replace(case, **steps(3, 25.0, 25.0))
    assert "20 ms of forward work in 3 steps" in finding(case, "recompute_share").explanation
    outside = finding(with_outside_work(case, "forward", 10.0), "recompute_share")
    assert "20 ms of forward work in the whole trace" in outside.explanation
    unmarked = finding(replace(case, steps=()), "recompute_share")
    assert "in the whole trace" in unmarked.explanation


def test_stacks_are_asked_for_only_where_they_are_missing() -> None:
    case = trace(
        phases={"forward": (100.0, 100.0, 0.0)},
        kernels=[replace(kernel("conv: implicit gemm", 90.0, 3), op="fprop"), kernel("pointwise", 10.0, 300)],
    )
    case = replace(case, **steps(3, 33.0, 33.0))
    assert "with_stack=True" in finding(case, "dominant_layer").advice
    assert "with_stack" not in finding(replace(case, with_stack=True), "dominant_layer").advice


def test_one_rank_states_the_rate_and_asks_for_the_other_ranks() -> None:
    case = nested()
    assert case.communication is not None
    slow = CollectiveTime(kind="all_reduce", events=9, sum_ns=ms(18.0), bytes=None, bytes_per_s=1.5e9)
    one = finding(replace(case, communication=replace(case.communication, by_kind=(slow,))), "communication_exposed")
    assert "All-reduces move 1.5 GB/s" in one.explanation
    assert "mostly wait for other ranks" in one.explanation
    assert one.advice.startswith("Inspect the traces of all ranks together")
    fast = replace(case.communication, by_kind=(replace(slow, bytes_per_s=40e9),))
    assert "wait for other ranks" not in finding(replace(case, communication=fast), "communication_exposed").explanation


def test_the_rank_that_others_wait_for_decides_the_bound() -> None:
    report = two_ranks()
    assert report.ranks is not None
    late = report.ranks.ranks[0]
    straggler = Straggler(
        rank=late.rank,
        last=9,
        collectives=9,
        late_ns=ms(9.0),
        cost_ns=report.ranks.step_ns or 1,
        doing="",
        doing_excess_ns=0,
    )
    sentences = verdict(replace(report, ranks=replace(report.ranks, stragglers=(straggler,)))).sentences
    assert any(line.startswith(f"Rank {late.rank}, which the others wait for") for line in sentences)


def test_the_setting_for_the_larger_part_of_float32_work_comes_first() -> None:
    conv, gemm = kernel("conv:implicit", 10.0, 3, math="fp32"), kernel("gemm", 60.0, 3, math="fp32")
    case = trace(phases={"forward": (100.0, 100.0, 0.0)}, kernels=[conv, gemm])
    advice = finding(case, "no_tensor_cores").advice
    assert advice.index("set_float32_matmul_precision") < advice.index("allow_tf32")
    in_tf32 = trace(
        phases={"forward": (100.0, 100.0, 0.0)}, kernels=[conv, gemm, kernel("conv:xmma_igemm", 9.0, 3, math="tf32")]
    )
    assert "allow_tf32" not in finding(in_tf32, "no_tensor_cores").advice


@pytest.mark.parametrize(
    ("name", "family", "setting"),
    [
        ("aten::cudnn_convolution", "conv", "torch.backends.cudnn.allow_tf32 = True"),
        ("aten::mm", "gemm", "torch.set_float32_matmul_precision('high')"),
    ],
)
def test_products_that_a_convolution_launches_need_the_setting_of_convolutions(
    name: str, family: str, setting: str
) -> None:
    launched = TraceOperator(name=name, family=family, calls=3, kernel_ns=ms(60.0), host_self_ns=0)
    phases = {"forward": (100.0, 100.0, 0.0)}
    case = replace(trace(phases=phases, kernels=[kernel("gemm", 60.0, 3, math="fp32")]), operators=(launched,))
    found = finding(case, "no_tensor_cores")
    assert found.remedy is not None
    assert found.remedy.code == setting


def test_a_large_convolution_gets_the_line_of_half_its_kernel() -> None:
    shapes = ((8, 30, 257, 257), (50, 30, 16, 16))
    wide = shaped("aten::conv2d", shapes, 90.0)
    case = trace(kernels=[kernel("conv:xmma_igemm", 90.0, 3)])
    case = replace(
        case, shapes=(wide, shaped("aten::conv2d", ((8, 3, 9, 9), (4, 3, 3, 3)), 1.0)), **steps(3, 30.0, 30.0)
    )
    half = "`torch.nn.Conv2d(30, 50, kernel_size=8)`, does 25.0 % of its work"
    assert half in finding(case, "dominant_layer").advice
    small = replace(wide, shapes=((8, 30, 257, 257), (50, 30, 3, 3)))
    assert "kernel_size" not in finding(replace(case, shapes=(small, *case.shapes[1:])), "dominant_layer").advice
    assert "in 3 steps" in finding(case, "dominant_layer").explanation
    outside = with_outside_work(case, "backward", 6.0)
    assert "in the whole trace" in finding(outside, "dominant_layer").explanation


def test_the_lines_about_data_loaders_can_be_pasted() -> None:
    for iterator in ("", data.SINGLE_PROCESS_ITERATOR, data.WORKER_ITERATOR):
        assert ast.parse(data.loader_advice(iterator, pins=True).code)


def test_a_straggler_gets_the_command_that_compares_it() -> None:
    report = two_ranks()
    assert report.ranks is not None
    late, waiting = report.ranks.ranks[:2]
    straggler = Straggler(
        rank=late.rank, last=9, collectives=9, late_ns=ms(9.0), cost_ns=ms(9.0), doing="", doing_excess_ns=0
    )
    advice = finding(replace(report, ranks=replace(report.ranks, stragglers=(straggler,))), "stragglers").advice
    assert f"`profiler-kit compare {waiting.file} {late.file}`" in advice


@pytest.mark.parametrize(
    ("doing", "claim"), [("forward (aten::mm)", "busy:phase:forward"), ("python (idle)", "idle:python")]
)
def test_a_straggler_explains_its_delay_and_not_only_the_waits_of_others(doing: str, claim: str) -> None:
    report = two_ranks()
    assert report.ranks is not None
    straggler = Straggler(
        rank=report.ranks.ranks[0].rank,
        last=9,
        collectives=9,
        late_ns=ms(9.0),
        cost_ns=ms(3.0),
        doing=doing,
        doing_excess_ns=ms(8.0),
    )
    ranks = replace(report.ranks, stragglers=(straggler,), step_ns=ms(30.0))
    late = finding(replace(report, ranks=ranks), "stragglers")
    assert late.weight == pytest.approx(0.3)
    assert set(texts(late.claims)) == {"busy:phase:communication", "idle:communication", claim}


def test_long_calls_are_listed_with_their_time_in_long_gaps() -> None:
    case = trace(phases={"other": (None, 60.0, 0.0)}, idle={("python", "other"): 40.0}, events=1000)
    calls = [
        HostActivity(
            name=name,
            phase="",
            source=f"train.py({line}): {name}",
            calls=3,
            ns=ms(18.0),
            longest_ns=ms(9.0),
            long_ns=ms(long_ms),
        )
        for line, name, long_ms in ((3, "save", 7.0), (9, "log", 4.0))
    ]
    explanation = finding(replace(case, activities=tuple(calls)), "host_overhead").explanation
    assert "for 11 ms" in explanation
    assert "train.py(3): save (7 ms) and train.py(9): log (4 ms)" in explanation


def test_code_that_the_compiler_writes_is_not_the_users() -> None:
    name = f"2b/c2bb{'k' * 47}.py(621): call"
    assert not is_user_code(name)
    assert not is_user_code(f"torchinductor_me/{name}")
    assert is_user_code("2b/call.py(621): call")


@pytest.mark.parametrize(("mebibytes", "smaller"), [(25, False), (100, True)])
def test_buckets_are_to_be_smaller_only_where_they_are_large(mebibytes: int, smaller: bool) -> None:
    case = nested()
    assert case.communication is not None
    kind = CollectiveTime(kind="all_reduce", events=3, sum_ns=ms(18.0), bytes=3 * mebibytes << 20)
    advice = finding(
        replace(case, communication=replace(case.communication, by_kind=(kind,))), "communication_exposed"
    ).advice
    assert ("bucket_cap_mb=25" in advice) is smaller
