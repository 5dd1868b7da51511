"""Rules on traces: what each fires on, on which side of its limits, and what holds for all of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import examples
import pytest
from diagnose_laws import sound_finding, sound_order, thinned
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_reports import (
    CASES,
    MS,
    US,
    convnet,
    full_queue,
    host_only,
    kernel,
    ms,
    nested,
    steps,
    trace,
    traces,
    two_ranks,
    waits_for_data,
)

import profiler_kit.diagnosis.rules as family
from profiler_kit.diagnosis import all_rules, diagnose_traces, step_work
from profiler_kit.diagnosis.convolution import operator_text
from profiler_kit.diagnosis.rules.data import loader_advice
from profiler_kit.records.report import Finding, TraceReport
from profiler_kit.records.traces import (
    Communication,
    IdleTime,
    ShapedOperator,
    SyncWait,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceSummary,
)

RULES = [rule for rule in all_rules() if rule.reads != "reports"]
ABOUT_TRACES_ALONE = {"sync_waits", "communication_exposed", "stragglers"}


def found(report: TraceReport | TraceSummary, rule: str) -> list[Finding]:
    whole = traces(report) if isinstance(report, TraceSummary) else report
    return [finding for finding in diagnose_traces(whole) if finding.rule == rule]


def severity(report: TraceReport | TraceSummary, rule: str) -> str | None:
    return next((finding.severity for finding in found(report, rule)), None)


def test_rules_about_traces_look_at_traces() -> None:
    assert {rule.name for rule in RULES} >= ABOUT_TRACES_ALONE
    assert all("trace" in rule.doc.lower() for rule in RULES), "a rule that looks at traces says what it looks for"


def sound(report: TraceReport) -> None:
    findings = diagnose_traces(report)
    sound_order(findings)
    for finding in findings:
        sound_finding(finding)


@pytest.mark.parametrize("name", CASES)
def test_findings_are_sound(name: str) -> None:
    sound(CASES[name])


@settings(max_examples=examples.count(80), suppress_health_check=[HealthCheck.too_slow])
@given(
    name=st.sampled_from(sorted(CASES)),
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([0.02, 0.1, 0.3, 0.6]),
)
def test_no_missing_or_absurd_number_breaks_a_rule(name: str, seed: int, rate: float) -> None:
    sound(thinned(CASES[name], random.Random(seed), rate))


def test_an_empty_trace_has_no_findings() -> None:
    assert diagnose_traces(CASES["empty"]) == ()
    assert diagnose_traces(traces()) == ()


def test_the_case_study_is_one_layer_and_not_the_loss() -> None:
    findings = diagnose_traces(traces(convnet()))
    layer, loss = findings[0], next(finding for finding in findings if not finding.claims)
    assert (layer.rule, loss.rule) == ("dominant_layer", "wrong_phase")
    assert "convolution layer" in layer.title
    assert layer.evidence[0].value == pytest.approx(100 * (27.39 + 26.38 + 17.54) / 80.21, rel=1e-4)
    assert loss.evidence[0].name == "loss by host time"
    assert "the backward pass (61.5 %) and the forward pass (38.5 %)" in loss.explanation


def shaped(
    ms_: float, *shapes: tuple[int, ...], name: str = "aten::conv2d", family: str = "conv", calls: int = 3
) -> ShapedOperator:
    return ShapedOperator(
        name=name,
        family=family,
        shapes=shapes,
        calls=calls,
        kernel_ns=ms(ms_),
        forward_ns=ms(ms_ / 4),
        backward_ns=ms(ms_) - ms(ms_ / 4),
        recompute_ns=0,
    )


SMALL = shaped(3.0, (8, 3, 256, 256), (30, 3, 4, 4))
LARGE = shaped(70.0, (8, 30, 257, 257), (50, 30, 16, 16), (50,))


def test_a_layer_without_a_name_is_identified_by_its_shape() -> None:
    (finding,) = found(replace(convnet(), shapes=(LARGE, SMALL)), "dominant_layer")
    assert "87.3 %" in finding.title
    assert "a 16x16 convolution of 30 to 50 channels at 257x257" in finding.title
    parts = ("3 calls", "aten::conv2d", "3 steps", "70 ms", "forward 17.5 ms", "backward 52.5 ms")
    assert all(part in finding.explanation for part in parts)
    assert finding.evidence[0].value == pytest.approx(100 * 70.0 / 80.21, rel=1e-3)
    assert finding.severity == "high"


def test_many_calls_of_one_shape_may_be_several_layers() -> None:
    (finding,) = found(replace(convnet(), shapes=(replace(LARGE, calls=12), SMALL)), "dominant_layer")
    assert finding.title.startswith("Calls with the same shapes")
    assert "12 calls" in finding.explanation
    assert "several layers" in finding.explanation


def test_shapes_are_ignored_with_modules_and_for_single_or_small_layers() -> None:
    without = replace(convnet(), kernels=())
    assert found(replace(without, shapes=(LARGE,)), "dominant_layer") == []
    assert found(replace(without, shapes=(replace(LARGE, kernel_ns=ms(40.0)), SMALL)), "dominant_layer") == []
    assert found(replace(without, shapes=(replace(LARGE, family="norm"), SMALL)), "dominant_layer") == []
    modules = tuple(
        TraceModule(path=path, class_name="Conv2d", phase="forward", kernel_ns=ms(20.0), events=3) for path in "ab"
    )
    assert found(replace(without, shapes=(LARGE, SMALL), modules=modules), "dominant_layer") == []


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        (shaped(1.0, (8, 64, 28, 28), (64, 1, 3, 3)), "a 3x3 convolution of 64 to 64 channels in 64 groups at 28x28"),
        (shaped(1.0, (8, 4, 100), (6, 4, 5), name="aten::conv1d"), "a 5-wide convolution of 4 to 6 channels at 100"),
        (shaped(1.0, (8, 4, 100), (6, 0, 5), name="aten::conv1d"), "aten::conv1d of 8x4x100 and 6x0x5"),
        (
            shaped(1.0, (4, 197, 768), (3072, 768), (3072,), name="aten::linear"),
            "a linear layer of 768 to 3072 features for 4x197 rows",
        ),
        (shaped(1.0, (768,), (3, 768), name="aten::linear"), "a linear layer of 768 to 3 features"),
        (shaped(1.0, (4, 8), (8, 2), name="aten::mm"), "aten::mm of 4x8 and 8x2"),
        (shaped(1.0, (4, 8)), "aten::conv2d of 4x8"),
    ],
)
def test_operators_in_words_with_their_sizes(operator: ShapedOperator, expected: str) -> None:
    assert operator_text(operator) == expected


@pytest.mark.parametrize(
    ("loaders", "explanation", "advice"),
    [
        ((), "", loader_advice("", pins=True).text),
        (("_SingleProcessDataLoaderIter",), "num_workers=0", "num_workers=4"),
        (("_MultiProcessingDataLoaderIter",), "workers", "more workers"),
        (("_MultiProcessingDataLoaderIter", "_SingleProcessDataLoaderIter"), "workers", "prefetch_factor"),
        (("MyIter",), "", loader_advice("", pins=True).text),
    ],
)
def test_the_kind_of_loader_decides_what_to_do_about_waiting(
    loaders: tuple[str, ...], explanation: str, advice: str
) -> None:
    (finding,) = found(replace(waits_for_data(), loaders=loaders), "data_bound")
    assert explanation in finding.explanation
    assert advice in finding.advice


def test_communication_is_no_module() -> None:
    shared = TraceModule(path="(communication)", class_name="", phase="communication", kernel_ns=ms(70.0), events=3)
    other = replace(shared, path="conv1", phase="forward", kernel_ns=ms(2.0))
    assert found(replace(convnet(), modules=(shared, other), kernels=()), "dominant_layer") == []


def test_a_named_module_is_the_dominant_layer() -> None:
    parts = (("conv2", "forward", 26.0), ("conv2", "backward", 44.0), ("conv1", "forward", 3.0))
    modules = tuple(
        TraceModule(path=path, class_name="Conv2d", phase=phase, kernel_ns=ms(time), events=3)  # type: ignore[arg-type]
        for path, phase, time in parts
    )
    (finding,) = found(replace(convnet(), modules=modules), "dominant_layer")
    assert finding.title == "conv2 takes 87.3 % of the device time"
    assert finding.paths == ("conv2",)
    spread = replace(convnet(), modules=tuple(replace(module, kernel_ns=ms(10.0)) for module in modules))
    assert found(spread, "dominant_layer") == []
    alone = replace(convnet(), modules=modules[:2])
    assert found(alone, "dominant_layer") == []


def test_kernels_of_many_calls_are_not_a_single_layer() -> None:
    several = [replace(one, calls=12) for one in convnet().kernels]
    assert found(replace(convnet(), kernels=tuple(several)), "dominant_layer") == []
    assert found(replace(convnet(), steps=()), "dominant_layer") == []


@pytest.mark.parametrize(("waited_ms", "fires"), [(39.0, True), (38.0, False)])
def test_a_phase_is_wrong_where_its_time_is_waiting(waited_ms: float, fires: bool) -> None:
    case = trace(phases={"loss": (77.0, 0.05, waited_ms), "forward": (2.0, 30.0, 0.0), "backward": (2.0, 50.0, 0.0)})
    assert bool(found(case, "wrong_phase")) is fires


def test_a_full_queue_hides_where_the_host_waits() -> None:
    assert found(replace(convnet(), queue=full_queue().queue), "wrong_phase") == []
    assert found(convnet(), "wrong_phase") != []


def test_waiting_for_data_is_the_first_finding_of_a_starved_device() -> None:
    first = diagnose_traces(traces(waits_for_data()))[0]
    assert first.rule == "data_bound"
    assert first.title == "The device waits for data for 28.5 % of the time"
    assert "num_workers" in first.advice
    assert "284 ms of 996.4 ms" in first.explanation


@pytest.mark.parametrize(("waited_ms", "said"), [(4.9, None), (5.1, "medium"), (49.0, "medium"), (51.0, "high")])
def test_limits_of_waiting_for_data(waited_ms: float, said: str | None) -> None:
    case = trace(phases={"forward": (1.0, 100.0 - waited_ms, 0.0)}, idle={("waiting for data", "forward"): waited_ms})
    assert severity(case, "data_bound") == said


@pytest.mark.parametrize(
    ("busy_ms", "mean_us", "events", "expected"),
    [
        (59.0, 5, 1000, "high"),
        (61.0, 5, 1000, "medium"),
        (81.0, 5, 1000, "low"),
        (91.0, 5, 1000, None),
        (59.0, 11, 1000, "high"),
        (59.0, 5, 10, "high"),
        (59.0, 5, 9, None),
    ],
)
def test_limits_of_launch_bound(busy_ms: float, mean_us: int, events: int, expected: str | None) -> None:
    calls = round(busy_ms * MS / (mean_us * US))
    case = trace(
        phases={"forward": (100.0, busy_ms, 0.0)},
        idle={("op dispatch", "forward"): 100.0 - busy_ms},
        kernels=[kernel("pointwise", busy_ms, calls)],
        events=events,
    )
    assert severity(case, "launch_bound") == expected


def test_a_device_that_waits_for_data_is_at_most_partly_launch_bound() -> None:
    gaps: dict[object, float] = {("waiting for data", "forward"): 30.0, ("op dispatch", "forward"): 11.0}
    case = trace(
        phases={"forward": (100.0, 59.0, 0.0)},
        idle=gaps,  # type: ignore[arg-type]
        kernels=[kernel("pointwise", 59.0, 10_000)],
    )
    assert severity(case, "launch_bound") == "low"
    assert severity(case, "data_bound") == "medium"


@pytest.mark.parametrize(("gap_ms", "expected"), [(4.9, None), (5.1, "medium"), (26.0, "high")])
def test_limits_of_waiting_for_the_device(gap_ms: float, expected: str | None) -> None:
    wait = SyncWait(
        name="aten::item", call="cudaStreamSynchronize", phase="loss", calls=7, wait_ns=ms(60.0), waited_for=()
    )
    case = trace(
        phases={"forward": (1.0, 100.0 - gap_ms, 0.0)}, idle={("synchronization", "forward"): gap_ms}, syncs=(wait,)
    )
    assert severity(case, "sync_waits") == expected
    if expected:
        parts = ("aten::item (cudaStreamSynchronize)", "the loss", "7 calls", "60 ms")
        assert all(part in found(case, "sync_waits")[0].explanation for part in parts)


@pytest.mark.parametrize(("exposed_ms", "said"), [(9.9, None), (10.1, "medium"), (34.0, "high")])
def test_limits_of_exposed_communication(exposed_ms: float, said: str | None) -> None:
    sent = Communication(events=10, sum_ns=ms(50.0), union_ns=ms(40.0), exposed_ns=ms(exposed_ms))
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, communication=sent)
    assert severity(case, "communication_exposed") == said


def test_a_straggler_is_named_with_the_cause() -> None:
    (finding,) = found(two_ranks(), "stragglers")
    assert finding.severity == "high"
    assert all(part in finding.title for part in ("Rank 1", "6.5 ms", "21.0 %"))
    parts = ("5.9 ms more on the backward pass", "270 of 300 collectives", "6.1 ms (19.7 %)")
    assert all(part in finding.explanation for part in parts)
    ranks = two_ranks().ranks
    assert ranks is not None
    early = replace(ranks, stragglers=tuple(replace(one, cost_ns=ms(0.6)) for one in ranks.stragglers))
    assert found(replace(two_ranks(), ranks=early), "stragglers") == []


@pytest.mark.parametrize(("again_ms", "expected"), [(4.9, None), (5.0, "low"), (20.0, "medium")])
def test_limits_of_recomputing(again_ms: float, expected: str | None) -> None:
    case = trace(phases={"forward": (1.0, 100.0 - again_ms, 0.0), "recompute": (None, again_ms, 0.0)})
    assert severity(case, "recompute_share") == expected


@pytest.mark.parametrize(
    ("copies", "spent_ms", "marked", "said"),
    [(499, 1.0, 10, None), (501, 1.0, 10, "low"), (501, 1.0, 0, None), (10, 5.1, 10, "medium"), (10, 4.9, 10, None)],
)
def test_limits_of_copies(copies: int, spent_ms: float, marked: int, said: str | None) -> None:
    copied = kernel("memcpy/memset", spent_ms, copies, name="Memcpy HtoD (Pageable -> Device)")
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=[copied], **steps(marked, 10.0, 10.0))
    assert severity(case, "host_copies") == said
    (to_device,), (to_host,) = (
        found(replace(case, kernels=(replace(copied, name=name),)), "host_copies") if said else [None]
        for name in (copied.name, "Memcpy DtoH (Device -> Pageable)")
    )
    assert to_device is None or to_host is None or to_device.remedy != to_host.remedy
    within = replace(copied, name="Memcpy DtoD (Device -> Device)")
    assert found(replace(case, kernels=(within,)), "host_copies") == []


@pytest.mark.parametrize(("spent_ms", "expected"), [(4.9, None), (5.1, "low"), (10.1, "medium")])
def test_limits_of_layouts(spent_ms: float, expected: str | None) -> None:
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=[kernel("conv:layout", spent_ms, 10)])
    assert severity(case, "layout_overhead") == expected


@pytest.mark.parametrize(("to_nchw", "expected"), [(9, "medium"), (21, "low")])
def test_conversions_of_tensors_that_are_channels_last_already(to_nchw: int, expected: str) -> None:
    kernels = [
        kernel("conv:layout", 10.0, 10, name="void cudnn::engines_precompiled::nchwToNhwcKernel<float>"),
        kernel("conv:layout", 10.0, to_nchw, name="void cudnn::engines_precompiled::nhwcToNchwKernel<float>"),
    ]
    assert severity(trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=kernels), "layout_overhead") == expected


@pytest.mark.parametrize(
    ("spent_ms", "device", "expected"),
    [
        (9.0, "NVIDIA H100 80GB HBM3", None),
        (11.0, "NVIDIA H100 80GB HBM3", "low"),
        (21.0, "NVIDIA H100 80GB HBM3", "medium"),
        (34.0, "NVIDIA H100 80GB HBM3", "high"),
        (34.0, "Tesla V100-SXM2-16GB", None),
        (34.0, "AMD Instinct MI300X", None),
    ],
)
def test_limits_of_products_outside_tensor_cores(spent_ms: float, device: str, expected: str | None) -> None:
    case = trace(
        phases={"forward": (1.0, 100.0, 0.0)}, kernels=[kernel("gemm", spent_ms, 10, math="fp32")], devices=(device,)
    )
    assert severity(case, "no_tensor_cores") == expected


@pytest.mark.parametrize(
    ("kernels", "expected"),
    [
        ([kernel("gemm", 40.0, 10_000, math="fp32")], None),
        ([kernel("gemm", 40.0, 10, math="fp32", name="gemv2T_kernel_val<float>")], None),
        ([kernel("conv:legacy_direct", 40.0, 10, math="fp32")], "high"),
        ([kernel("conv:legacy_direct", 40.0, 10, math="fp32"), kernel("conv:xmma_igemm", 40.0, 9, math="tf32")], None),
        ([kernel("gemm", 40.0, 10, math="fp32"), kernel("conv:xmma_igemm", 40.0, 9, math="tf32")], "high"),
        ([kernel("attention", 40.0, 10, math="fp32"), kernel("gemm", 40.0, 9, math="tf32")], None),
        ([kernel("attention", 40.0, 10, math="fp32"), kernel("gemm", 40.0, 9, math="bf16")], "high"),
    ],
    ids=[
        "short",
        "matrix and vector",
        "convolution",
        "cuDNN chose float32",
        "the other setting",
        "attention",
        "beside 16 bits",
    ],
)
def test_float32_products_that_tensor_cores_cannot_help_do_not_count(
    kernels: list[TraceKernel], expected: str | None
) -> None:
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=kernels)
    assert severity(case, "no_tensor_cores") == expected


def test_copies_over_the_bus_are_not_memory_bound() -> None:
    kernels = [
        kernel("memcpy/memset", 90.0, 10, name="Memcpy HtoD (Pageable -> Device)"), kernel("pointwise", 10.0, 10),
    ]  # fmt: skip
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=kernels)
    assert severity(case, "memory_bound") is None
    on_device = replace(kernels[0], name="Memcpy DtoD (Device -> Device)")
    assert severity(replace(case, kernels=(on_device, kernels[1])), "memory_bound") == "low"


@pytest.mark.parametrize(("spent_ms", "expected"), [(4.9, None), (5.1, "medium"), (20.1, "high")])
@pytest.mark.parametrize("name", ["aten::_slow_conv2d_forward", "aten::slow_conv_dilated2d", "aten::thnn_conv2d"])
def test_limits_of_fallback_convolutions(spent_ms: float, expected: str | None, name: str) -> None:
    own = TraceOperator(name=name, family="conv", calls=3, kernel_ns=ms(spent_ms), host_self_ns=0)
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, operators=(own,))
    assert severity(case, "not_on_cudnn") == expected


def test_fallback_convolutions_explain_the_idle_time_before_their_launches() -> None:
    own = TraceOperator(name="aten::_slow_conv2d_forward", family="conv", calls=3, kernel_ns=ms(40.0), host_self_ns=0)
    case = trace(
        phases={"forward": (100.0, 45.0, 0.0)},
        idle={("launch latency", "forward"): 55.0},
        operators=(own,),
        kernels=[kernel("conv:im2col(aten)", 30.0, 600), kernel("gemm", 10.0, 300), kernel("norm", 5.0, 100)],
    )
    findings = diagnose_traces(traces(case))
    assert findings[0].rule == "not_on_cudnn"
    assert findings[0].share == pytest.approx(0.40 + 0.9 * 0.55)
    assert "waits about 49.5 ms for the launches" in findings[0].explanation
    assert {finding.rule: finding.severity for finding in findings}["launch_bound"] == "low"


@pytest.mark.parametrize(("spent_ms", "expected"), [(9.0, None), (11.0, "medium"), (34.0, "high")])
@pytest.mark.parametrize(
    ("name", "math", "is_slow"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", "bf16", True),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x64_32x6_nn_align4", "f16", True),
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x64_32x6_nn_align8", "f16", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4", "tf32", False),
        ("cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align2", "tf32", True),
        ("cutlass_80_simt_sgemm_128x64_8x5_nn_align1", "fp32", False),
    ],
)
def test_limits_of_unaligned_products(
    name: str, math: str, is_slow: bool, spent_ms: float, expected: str | None
) -> None:
    case = trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=[kernel("gemm", spent_ms, 30, math=math, name=name)])
    assert severity(case, "unaligned_products") == (expected if is_slow else None)


@pytest.mark.parametrize(("spent_ms", "expected"), [(49.0, None), (51.0, "low"), (99.0, "low")])
def test_limits_of_moving_bytes(spent_ms: float, expected: str | None) -> None:
    moving = [kernel("norm", spent_ms - 10.0, 10), kernel("pointwise", 10.0, 10)]
    assert severity(trace(phases={"forward": (1.0, 100.0, 0.0)}, kernels=moving), "memory_bound") == expected


@pytest.mark.parametrize(("span_ms", "expected"), [(100.0, None), (115.0, "low"), (130.0, "medium"), (190.0, "high")])
def test_limits_of_a_host_outside_operators(span_ms: float, expected: str | None) -> None:
    python_ns = ms(span_ms) - host_only().busy_ns
    case = replace(
        host_only(), span_ns=ms(span_ms), idle_ns=python_ns, idle=(IdleTime(cause="python", ns=python_ns, gaps=9),)
    )
    assert severity(case, "host_overhead") == expected
    assert found(replace(convnet(), span_ns=ms(500.0)), "host_overhead") == []


def test_one_finding_covers_all_traces() -> None:
    four = traces(*(replace(nested(), file=f"rank{rank}.json") for rank in range(4)))
    (finding,) = found(four, "communication_exposed")
    assert "rank0" in finding.explanation
    assert "rank1, rank2 and rank3" in finding.explanation
    assert finding.evidence[0].where == "rank0"
    six = traces(*(replace(nested(), file=f"rank{rank}.json") for rank in range(6)))
    assert "5 other traces" in found(six, "communication_exposed")[0].explanation


@pytest.mark.parametrize("make", [convnet, full_queue, waits_for_data, nested, host_only])
def test_order_of_traces_changes_no_finding(make: Callable[[], TraceSummary]) -> None:
    case = replace(make(), file="a.json")
    other = replace(trace(), file="b.json")
    there = {(f.rule, f.title) for f in diagnose_traces(traces(case, other))}
    assert there == {(f.rule, f.title) for f in diagnose_traces(traces(other, case))}


def test_rules_share_the_work_of_a_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    step_class = step_work.StepWork

    def counted_step(*, trace: TraceSummary, **more: Any) -> step_work.StepWork:
        calls.append(trace.file)
        return step_class(trace=trace, **more)

    monkeypatch.setattr(step_work, "StepWork", counted_step)
    for report in (traces(convnet()), traces(convnet())):  # equal reports: each gets its own
        diagnose_traces(report)
    assert len(calls) == 2


def test_a_new_rule_on_traces_is_one_new_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "long_trace.py").write_text(
        "from profiler_kit.diagnosis.rule import Rule\n"
        "from profiler_kit.records.report import Evidence, Finding\n"
        "def check(report):\n"
        "    yield Finding(rule='long_trace', severity='high', title='1 trace', explanation='There is 1.', advice='Go on.',\n"
        "                  evidence=(Evidence(name='traces', value=len(report.traces), unit='count'),))\n"
        "RULE = Rule('long_trace', 'Fires always.', check, reads='traces')\n"
    )
    monkeypatch.setattr(family, "__path__", [*family.__path__, str(tmp_path)])
    assert "long_trace" in [finding.rule for finding in diagnose_traces(traces(trace()))]
