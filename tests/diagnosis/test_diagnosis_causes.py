"""Rules about device and operator time: the cause that each one names, its limits, and what it must not say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from diagnose_cases import CPU, MS, report, static, texts
from diagnose_laws import sound_finding
from trace_reports import kernel, ms, steps, trace, traces
from traced_runs import traced_run

from profiler_kit.diagnosis import all_rules, diagnose, diagnose_traces
from profiler_kit.records.configs import RunConfig
from profiler_kit.records.counts import Cost, ModuleNode
from profiler_kit.records.report import Finding, Report, Trial, severity_after
from profiler_kit.records.samples import Interval
from profiler_kit.records.traces import (
    IdleTime,
    PhaseTime,
    Saving,
    ShapedOperator,
    TraceKernel,
    TraceModule,
    TraceOperator,
    TraceSummary,
    WorkSite,
)

# The rules about device and operator time. None of them may fire on a step without such a cause.
CAUSES = {
    "attention_by_hand", "autocast_useless", "depthwise", "dominant_layer", "dominant_operator", "embedding_gradients", "float64",
    "loss_bound", "memory_bound", "not_on_onednn", "optimizer_bound",
    "pointwise_chain", "recompute_share",
    "tensor_copies",
}  # fmt: skip


def operator(name: str, family: str, total_ms: float, calls: int) -> TraceOperator:
    return TraceOperator(
        name=f"aten::{name}", family=family, calls=calls, kernel_ns=ms(total_ms), host_self_ns=ms(total_ms)
    )


def cpu_trace(*operators: TraceOperator, optimizer_ms: float = 0.0, idle: Any = None, **more: Any) -> TraceSummary:
    """A trace of three steps without a device, whose operators take all of the busy time."""
    total_ms = sum(item.kernel_ns for item in operators) / MS
    optimizer: Any = {"optimizer": (None, optimizer_ms, 0.0)} if optimizer_ms else {}
    return trace(
        "cpu.json",
        phases={"forward": (None, total_ms - optimizer_ms, 0.0), **optimizer},
        idle=idle,
        events=sum(item.calls for item in operators if item.family == "pointwise"),
        clock="host",
        devices=(),
        device_events=0,
        linked=0,
        streams=(),
        kernels=(),
        operators=operators,
        **steps(3, total_ms / 3, total_ms / 3),
        **more,
    )


def gpu_trace(*kernels: TraceKernel, operators: tuple[TraceOperator, ...] = (), **more: Any) -> TraceSummary:
    """A trace of three busy steps, all of whose time is in `kernels`."""
    total_ms = sum(item.kernel_ns for item in kernels) / MS
    phases = more.pop("phases", {"forward": (None, total_ms, 0.0)})
    events = sum(item.calls for item in kernels)
    return trace(
        phases=phases, kernels=kernels, operators=operators, events=events, **steps(3, total_ms / 3, 1.0), **more
    )


def causes(source: TraceSummary | Report) -> list[Finding]:
    findings = diagnose(source) if isinstance(source, Report) else diagnose_traces(traces(source))
    for finding in findings:
        sound_finding(finding)
    return [finding for finding in findings if finding.rule in CAUSES]


def single(source: TraceSummary | Report, rule: str) -> Finding:
    (finding,) = [finding for finding in causes(source) if finding.rule == rule]
    assert finding.claims, "a cause names the parts of the step that it explains"
    return finding


def rules(source: TraceSummary | Report) -> set[str]:
    return {finding.rule for finding in causes(source)}


PRODUCTS = (operator("mm", "gemm", 60.0, 60), operator("addmm", "gemm", 30.0, 30))
RELU = operator("clamp_min", "pointwise", 10.0, 30)
GEMM = kernel("gemm", 80.0, 90, math="bf16", name="nvjet_tst_128x256")


def test_a_well_used_step_has_no_cause() -> None:
    assert rules(cpu_trace(*PRODUCTS, RELU)) == set()
    assert rules(gpu_trace(GEMM, kernel("pointwise", 15.0, 60), kernel("optimizer", 5.0, 3))) == set()


def test_one_short_kernel_is_not_a_step() -> None:
    lone = gpu_trace(kernel("pointwise", 0.00176, 1))
    assert rules(lone) == set()
    assert rules(gpu_trace(kernel("pointwise", 17.6, 3))) == {"memory_bound"}


@pytest.mark.parametrize(
    ("optimizer_ms", "severity"), [(24.0, None), (26.0, "medium"), (49.0, "medium"), (51.0, "high")]
)
def test_optimizer_by_share(optimizer_ms: float, severity: str | None) -> None:
    products = operator("mm", "gemm", 100.0 - optimizer_ms, 60)
    source = cpu_trace(products, operator("add_", "pointwise", optimizer_ms, 900), optimizer_ms=optimizer_ms)
    fired = [finding for finding in causes(source) if finding.rule == "optimizer_bound"]
    assert [finding.severity for finding in fired] == ([severity] if severity is not None else [])


@pytest.mark.parametrize(
    ("name", "family", "words"),
    [
        ("void multi_tensor_apply_kernel<FusedAdamMathFunctor<float, 4>>", "optimizer", "fused already"),
        ("void multi_tensor_apply_kernel<BinaryOpScalarFunctor<float>>", "optimizer", "several passes"),
        ("vectorized_elementwise_kernel<4, AddFunctor<float>>", "pointwise", "one tensor after the other"),
    ],
)
def test_the_optimizer_is_named_by_its_kernels(name: str, family: str, words: str) -> None:
    phases = {"forward": (None, 50.0, 0.0), "optimizer": (None, 50.0, 0.0)}
    finding = single(
        gpu_trace(replace(GEMM, kernel_ns=ms(50.0)), kernel(family, 50.0, 600, name=name), phases=phases),
        "optimizer_bound",
    )
    assert words in finding.explanation
    assert ("fused=True" in finding.advice) is (words != "fused already")


def test_idle_time_before_the_optimizer_counts() -> None:
    phases = {"forward": (None, 60.0, 0.0), "optimizer": (None, 5.0, 0.0)}
    idle = {("op dispatch", "optimizer"): 35.0}
    kernels = (replace(GEMM, kernel_ns=ms(60.0)), kernel("pointwise", 5.0, 600))
    finding = single(gpu_trace(*kernels, phases=phases, idle=idle), "optimizer_bound")
    assert finding.weight == pytest.approx(0.4)
    assert "idle:op dispatch" in texts(finding.claims)
    assert "waits 35 ms for its launches" in finding.explanation
    other = {("waiting for data", "optimizer"): 35.0}
    assert "optimizer_bound" not in rules(gpu_trace(*kernels, phases=phases, idle=other))


SOFTMAX = operator("_softmax", "loss/softmax", 20.0, 6)
BMM = operator("bmm", "gemm", 20.0, 36)


def test_attention_by_hand_is_named_with_the_line_to_paste() -> None:
    finding = single(cpu_trace(operator("mm", "gemm", 60.0, 60), SOFTMAX, BMM), "attention_by_hand")
    assert finding.severity == "high"
    assert finding.weight == pytest.approx(0.4)
    assert "scaled_dot_product_attention(q, k, v" in finding.advice
    assert "dropout" not in finding.advice, "no backward pass was recorded"
    loss = replace(SOFTMAX, name="aten::_log_softmax")
    assert "attention_by_hand" not in rules(cpu_trace(operator("mm", "gemm", 60.0, 60), loss, BMM)), (
        "a loss is not attention"
    )
    assert "attention_by_hand" not in rules(cpu_trace(*PRODUCTS, SOFTMAX)), "a softmax without products around it"


def test_a_fallback_of_fused_attention_gets_other_advice() -> None:
    fallback = operator("_scaled_dot_product_attention_math", "attention", 0.0, 6)
    finding = single(cpu_trace(operator("mm", "gemm", 60.0, 60), SOFTMAX, BMM, fallback), "attention_by_hand")
    assert "sdpa_kernel" in finding.advice


def test_pytorchs_inference_path_of_attention_gets_other_advice() -> None:
    fast_path = operator("_native_multi_head_attention", "attention", 0.0, 18)
    finding = single(cpu_trace(operator("mm", "gemm", 60.0, 60), SOFTMAX, BMM, fast_path), "attention_by_hand")
    assert "set_fastpath_enabled(False)" in finding.advice


def test_attention_with_a_short_softmax_is_low() -> None:
    """Fusion saves the softmax and the traffic around it. The products remain."""
    short = replace(SOFTMAX, kernel_ns=ms(6.0))
    finding = single(cpu_trace(operator("mm", "gemm", 60.0, 60), short, BMM), "attention_by_hand")
    assert finding.severity == "low"


def test_attention_by_hand_has_the_masks_and_the_conversions_between_its_products() -> None:
    """The replay saves a third of the step without the rows of two layers, although the softmax takes a twentieth."""
    row = WorkSite(
        source="", operator="", phase="forward", launches=60.0, launch_share=0.5, product_share=0.0, rounds=6.0,
        row="aten::mul, aten::masked_fill, aten::softmax, aten::to", saving=Saving(median=0.2, low=0.2, high=0.2),
    )  # fmt: skip
    rows = (
        row,
        replace(row, row="aten::mul, aten::softmax, aten::to"),
        replace(row, row="aten::gelu, aten::to, aten::mul"),
    )
    source = cpu_trace(operator("mm", "gemm", 75.0, 60), replace(SOFTMAX, kernel_ns=ms(5.0)), BMM)
    finding = single(replace(source, sites=rows), "attention_by_hand")
    assert (finding.weight, finding.severity) == (pytest.approx(0.4), "high")
    assert texts(finding.claims) == tuple(f"site:core:{item.row}" for item in rows[:2])


def test_attention_in_a_run_is_found_by_the_kernels_of_a_module() -> None:
    softmax = TraceKernel(
        name="softmax_warp_forward<float, float, float, 9, false, false>",
        family="loss/softmax",
        calls=1,
        kernel_ns=4 * MS,
    )
    products = TraceKernel(name="ampere_sgemm", family="gemm", calls=2, kernel_ns=4 * MS, math="fp32")
    source = device_report(
        ("attention", "forward", (softmax, products)), ("linear", "forward", (replace(products, kernel_ns=8 * MS),))
    )
    finding = single(source, "attention_by_hand")
    assert finding.paths == ("attention",)
    assert texts(finding.claims) == ("busy:module:attention",)
    log_softmax = replace(softmax, name="softmax_warp_forward<float, float, float, 9, true, false>")
    loss = device_report(("head", "forward", (log_softmax, products)), ("linear", "forward", (products,)))
    assert "attention_by_hand" not in rules(loss)


def test_a_chain_of_pointwise_operations() -> None:
    chain = (operator("mul", "pointwise", 50.0, 180), operator("tanh", "pointwise", 20.0, 60))
    finding = single(cpu_trace(operator("mm", "gemm", 30.0, 6), *chain), "pointwise_chain")
    assert finding.severity == "high"
    assert "torch.compile(model)" in finding.advice
    assert finding.evidence[2].value == 80
    assert "device" not in finding.title + finding.explanation
    one_for_each = cpu_trace(operator("mm", "gemm", 30.0, 100), *chain)
    assert "pointwise_chain" not in rules(one_for_each), "two activations for each product are no chain"
    loop = cpu_trace(operator("mm", "gemm", 30.0, 6), *chain, optimizer_ms=60.0)
    assert "pointwise_chain" not in rules(loop), "the operations of the optimizer are not a chain"


def test_fused_kernels_are_no_chain() -> None:
    eager = gpu_trace(replace(GEMM, kernel_ns=ms(30.0), calls=3), kernel("pointwise", 70.0, 90))
    serious = {finding.rule for finding in causes(eager) if finding.severity != "low"}
    assert serious == {"pointwise_chain"}, "the general finding about memory adds little to the cause"
    fused = kernel("pointwise", 70.0, 90, name="triton_poi_fused_add_mul_0")
    assert "pointwise_chain" not in rules(gpu_trace(replace(GEMM, kernel_ns=ms(30.0), calls=3), fused))


@pytest.mark.parametrize(("copies_ms", "severity"), [(9.0, None), (11.0, "low"), (21.0, "medium"), (41.0, "high")])
def test_copies_by_share(copies_ms: float, severity: str | None) -> None:
    source = cpu_trace(operator("mm", "gemm", 100.0 - copies_ms, 60), operator("copy_", "cat/copy", copies_ms, 36))
    fired = [finding for finding in causes(source) if finding.rule == "tensor_copies"]
    assert [finding.severity for finding in fired] == ([severity] if severity is not None else [])


def test_conversions_count_as_autocast_and_not_as_copies() -> None:
    cast = kernel("cat/copy", 45.0, 90, name="bfloat16_copy_kernel_cuda")
    source = gpu_trace(replace(GEMM, kernel_ns=ms(30.0)), cast, kernel("norm", 25.0, 30))
    assert "tensor_copies" not in rules(source)
    finding = single(source, "autocast_useless")
    assert finding.severity == "medium"
    assert "1.5x as long" in finding.explanation
    pays = gpu_trace(replace(GEMM, kernel_ns=ms(60.0)), replace(cast, kernel_ns=ms(20.0)), kernel("norm", 20.0, 30))
    assert "autocast_useless" not in rules(pays), "conversions that take less than the products may pay"
    images = replace(cast, name="unrolled_elementwise_kernel<LoadWithCast<1>>")
    float32 = replace(GEMM, kernel_ns=ms(30.0), math="tf32", name="sm80_xmma_gemm_tf32")
    assert "autocast_useless" not in rules(gpu_trace(float32, images, kernel("norm", 25.0, 30))), (
        "no product in 16 bits"
    )
    launching = replace(
        source,
        span_ns=ms(200.0),
        idle_ns=ms(100.0),
        idle=(IdleTime(cause="launch latency", phase="forward", ns=ms(100.0), gaps=9),),
    )
    first, *others = diagnose_traces(traces(launching))
    assert first.rule == "autocast_useless"
    assert first.share == pytest.approx(45 / 200 + 90 / (90 + 60) / 2, abs=0.1), "conversions are launched too"
    assert [finding.severity for finding in others if finding.rule == "launch_bound"] == ["low"]
    few = operator("_to_copy", "cat/copy", 20.0, 6)
    assert "autocast_useless" not in rules(
        cpu_trace(operator("mm", "gemm", 10.0, 60), few, operator("sum", "reduce", 20.0, 6))
    )


@pytest.mark.parametrize(("calls", "fires"), [(60, True), (900, False)])
def test_conversions_of_step_counters_are_not_those_of_autocast(calls: int, fires: bool) -> None:
    products, sums = operator("mm", "gemm", 10.0, 60), operator("sum", "reduce", 20.0, 6)
    source = cpu_trace(products, operator("_to_copy", "cat/copy", 20.0, calls), sums)
    assert ("autocast_useless" in rules(source)) is fires


def test_embedding_gradients_include_the_fill_and_the_optimizer_of_the_table() -> None:
    backward = operator("embedding_dense_backward", "index", 5.0, 3)
    fill = operator("fill_", "pointwise", 25.0, 9)
    update = operator("add_", "pointwise", 40.0, 9)
    finding = single(
        cpu_trace(operator("mm", "gemm", 30.0, 9), backward, fill, update, optimizer_ms=40.0), "embedding_gradients"
    )
    assert finding.weight == pytest.approx(0.7)
    assert "sparse=True" in finding.advice
    assert "busy:phase:optimizer" in texts(finding.claims)
    many_fills = replace(fill, calls=600)  # of other gradients: slices, or zero_grad(set_to_none=False)
    source = cpu_trace(operator("mm", "gemm", 30.0, 9), backward, many_fills, update, optimizer_ms=40.0)
    assert rules(source) == {"optimizer_bound"}
    other_fills = replace(fill, name="Memset", kernel_ns=ms(1.0), calls=600)
    source = cpu_trace(operator("mm", "gemm", 30.0, 9), backward, fill, other_fills, update, optimizer_ms=40.0)
    assert single(source, "embedding_gradients").weight == pytest.approx(0.69, abs=0.01)


def test_the_loss_counts_where_it_computes() -> None:
    softmax = operator("_log_softmax", "loss/softmax", 30.0, 3)
    finding = single(cpu_trace(operator("mm", "gemm", 70.0, 9), softmax), "loss_bound")
    assert finding.severity == "medium"
    assert "loss_bound" not in rules(cpu_trace(operator("mm", "gemm", 85.0, 9), replace(softmax, kernel_ns=ms(15.0))))


def test_the_loss_of_a_trace_with_shapes_counts_with_its_backward_pass_and_the_layer_of_its_outputs() -> None:
    def shaped(name: str, family: str, shapes: tuple[tuple[int, ...], ...], total_ms: float) -> ShapedOperator:
        return ShapedOperator(
            name=name, family=family, shapes=shapes, calls=3, kernel_ns=ms(total_ms),
            forward_ns=0, backward_ns=ms(total_ms), recompute_ns=0,
        )  # fmt: skip

    kernels = (kernel("gemm", 80.0, 9), kernel("loss/softmax", 20.0, 3, name="cunn_SoftMax"))
    shapes = (
        shaped("aten::cross_entropy_loss", "loss/softmax", ((512, 30000), (512,)), 30.0),
        shaped("aten::linear", "gemm", ((512, 64), (30000, 64)), 12.0),
        shaped("aten::linear", "gemm", ((512, 64), (64, 64)), 9.0),
    )
    finding = single(gpu_trace(*kernels, shapes=shapes), "loss_bound")
    times = {item.name: item.value for item in finding.evidence}
    assert (times["time of the loss"], times["time of the output layer"]) == (ms(30.0), ms(12.0))


def test_one_kind_of_operators_dominates() -> None:
    assert not rules(cpu_trace(operator("mm", "gemm", 30.0, 9), operator("pool", "pool", 70.0, 6))), (
        "pooling is a layer"
    )
    finding = single(
        cpu_trace(operator("mm", "gemm", 30.0, 9), operator("sort", "sort/scan", 70.0, 6)), "dominant_operator"
    )
    assert finding.title == "Sorting and scans (aten::sort) take 70.0 % of the step"
    assert "topk" in finding.advice
    assert rules(cpu_trace(operator("mm", "gemm", 80.0, 9), operator("sort", "sort/scan", 20.0, 6))) == set()


@pytest.mark.parametrize(
    ("work", "rule"),
    [
        (operator("upsample", "interpolate", 70.0, 576), "dominant_operator"),
        (operator("mul", "pointwise", 70.0, 576), "pointwise_chain"),
        (operator("cat", "cat/copy", 70.0, 576), "tensor_copies"),
    ],
)
def test_operators_that_make_batches_are_data_loading(work: TraceOperator, rule: str) -> None:
    step = cpu_trace(operator("mm", "gemm", 30.0, 9), work)
    assert rule in rules(step)
    loading = PhaseTime(
        phase="data", host_ns=ms(70.0), kernel_ns=ms(70.0), sum_ns=ms(70.0), idle_ns=0, wait_ns=0, events=576
    )
    forward = replace(step.phases[0], kernel_ns=ms(30.0), sum_ns=ms(30.0))
    assert rules(replace(step, phases=(loading, forward))) == set()


def test_float64_by_names_of_kernels() -> None:
    double = kernel("gemm", 40.0, 30, name="cutlass_80_tensorop_d884gemm_64x64_f64", math="f64")
    finding = single(gpu_trace(GEMM, double), "float64")
    assert finding.weight == pytest.approx(40 / 120)
    assert "model.float()" in finding.advice
    scalars = kernel(
        "optimizer", 40.0, 30, name="multi_tensor_apply_kernel<FusedAdam<float>>(double, double)", math="f64"
    )
    solver = kernel("conv:legacy_direct", 50.0, 30, math="f64", name="void cudnn::detail::dgrad_engine<256, 6, 5>")
    assert single(gpu_trace(GEMM, solver), "float64").severity == "high", (
        "the kernels of cuDNN name the type in arguments"
    )
    assert "float64" not in rules(gpu_trace(GEMM, scalars)), "scalar arguments are not the type of the tensors"


def test_float64_by_types_of_inputs_on_a_cpu() -> None:
    typed = replace(operator("mm", "gemm", 90.0, 9), float64_ns=ms(60.0))
    finding = single(cpu_trace(typed, operator("relu", "pointwise", 10.0, 9)), "float64")
    assert finding.severity == "high"
    assert finding.weight == pytest.approx(0.6)
    statistics = replace(operator("sum", "reduce", 5.0, 9), float64_ns=ms(5.0))
    assert "float64" not in rules(cpu_trace(operator("mm", "gemm", 95.0, 9), statistics)), "a sum of metrics"


def test_one_large_layer_of_a_cpu_trace_without_modules() -> None:
    forward = replace(operator("mkldnn_convolution", "conv", 30.0, 18), longest_ns=ms(25.0))
    backward = replace(operator("convolution_backward", "conv", 60.0, 18), longest_ns=ms(55.0))
    finding = single(cpu_trace(forward, backward, operator("relu", "pointwise", 10.0, 9)), "dominant_layer")
    assert finding.title == "2 operator calls per step take 80.0 % of the operator time: probably one layer"
    alone = [replace(item, calls=3) for item in (forward, backward)]
    assert "dominant_layer" not in rules(cpu_trace(*alone)), "the only layer is the network"
    equal = [replace(item, longest_ns=item.kernel_ns // 6) for item in (forward, backward)]
    assert "dominant_layer" not in rules(cpu_trace(*equal)), "six equal layers"


def test_views_of_the_optimizer_do_not_hide_a_chain_on_a_cpu() -> None:
    chain = operator("mul", "pointwise", 60.0, 90)
    views = operator("detach", "view", 0.1, 900)
    trace = cpu_trace(chain, operator("mm", "gemm", 40.0, 24), views, optimizer_ms=5.0)
    optimizer = next(part for part in trace.phases if part.phase == "optimizer")
    phases = tuple(replace(part, events=75) if part is optimizer else part for part in trace.phases)
    assert "pointwise_chain" in rules(replace(trace, phases=phases))


def test_float64_parameters_on_a_cpu() -> None:
    node = ModuleNode(
        path="a", class_name="Linear", calls=1, params=10, param_bytes=80, forward=Cost(macs=100, flops=200)
    )
    work = TraceKernel(name="aten::mm", family="gemm", calls=3, kernel_ns=9 * MS)
    source = device_report(("a", "forward", (work,)), ("b", "forward", (work,)), clock="operator")
    counts = replace(static(node), params=10, param_bytes=80)
    assert "the parameters" in single(replace(source, static=counts), "float64").explanation
    assert "float64" not in rules(replace(source, static=replace(counts, param_bytes=40)))


def test_large_convolutions_without_onednn_on_a_cpu() -> None:
    fallback = operator("_slow_conv2d_forward", "conv", 60.0, 12)
    product = operator("mm", "gemm", 40.0, 9)
    finding = single(cpu_trace(product, fallback), "not_on_onednn")
    assert finding.severity == "medium", "oneDNN may be off"
    assert "record_shapes=True" in finding.advice, "the types are not recorded"
    assert not {"not_on_onednn", "float64"} & rules(cpu_trace(product, replace(fallback, calls=600))), (
        "small ones never use it"
    )
    single_thread = replace(fallback, dtypes=("float32",))
    assert not {"not_on_onednn", "float64"} & rules(cpu_trace(product, single_thread)), "PyTorch's own choice"
    half = single(cpu_trace(product, replace(fallback, dtypes=("bfloat16",))), "not_on_onednn")
    assert "bfloat16" in half.title
    double = replace(fallback, dtypes=("float64",), float64_ns=fallback.kernel_ns)
    assert {"not_on_onednn", "float64"} & rules(cpu_trace(product, double)) == {"float64"}


def test_kernels_named_double_are_not_float64_where_the_recorded_types_have_none() -> None:
    named = kernel("pointwise", 60.0, 60, name="reduce_kernel<double>")
    assert "float64" in rules(gpu_trace(GEMM, named))
    inputs = replace(operator("sum", "reduce", 60.0, 60), dtypes=("float32",))
    assert "float64" not in rules(replace(gpu_trace(GEMM, named), operators=(inputs,)))


def convolution(ns_ms: float, weight: tuple[int, ...], channels: int) -> ShapedOperator:
    return ShapedOperator(
        name="aten::conv2d", family="conv", shapes=((8, channels, 64, 64), weight), calls=3, kernel_ns=ms(ns_ms),
        forward_ns=ms(ns_ms / 3), backward_ns=ms(ns_ms) - ms(ns_ms / 3), recompute_ns=0,
    )  # fmt: skip


CONVS = kernel("conv:xmma_igemm", 100.0, 60, math="tf32")


def test_depthwise_by_shapes_and_by_names() -> None:
    shapes = (convolution(50.0, (32, 1, 3, 3), 32), convolution(30.0, (64, 32, 1, 1), 32))
    assert single(gpu_trace(CONVS, shapes=shapes), "depthwise").weight == pytest.approx(0.5)
    dense = (convolution(50.0, (32, 32, 3, 3), 32), convolution(30.0, (64, 32, 1, 1), 32))
    assert "depthwise" not in rules(gpu_trace(CONVS, shapes=dense))
    named = kernel("conv:depthwise", 40.0, 30, name="conv_depthwise2d_forward_kernel<3>")
    finding = single(gpu_trace(replace(CONVS, kernel_ns=ms(60.0)), named), "depthwise")
    assert texts(finding.claims) == (f"busy:kernel:{named.name}",)


def test_padding_by_the_shapes_of_a_trace() -> None:
    def traced(channels: int) -> TraceSummary:
        return gpu_trace(
            CONVS, shapes=(convolution(50.0, (64, channels, 3, 3), channels), convolution(40.0, (64, 64, 3, 3), 64))
        )

    (finding,) = [finding for finding in diagnose_traces(traces(traced(50))) if finding.rule == "channels_multiple"]
    sound_finding(finding)
    assert finding.weight == pytest.approx(0.5 * (1 - 50 / 56))
    assert "56 -> 64" in finding.advice
    assert "48 -> 64" in finding.advice, "fewer channels save the padding, more channels save nothing"
    for channels in (3, 64):  # the channels of an image, and a multiple of 8
        assert not [f for f in diagnose_traces(traces(traced(channels))) if f.rule == "channels_multiple"]


def test_half_precision_in_a_trace() -> None:
    (finding,) = [f for f in diagnose_traces(traces(gpu_trace(CONVS))) if f.rule == "half_precision"]
    sound_finding(finding)
    assert finding.severity == "low"
    assert finding.weight == pytest.approx(0.5), "the peak of an H100 in bfloat16 is twice that in TF32"
    bf16 = gpu_trace(replace(CONVS, math="bf16"))
    assert not [f for f in diagnose_traces(traces(bf16)) if f.rule == "half_precision"]


def module(path: str, ns_ms: float, class_name: str = "Linear") -> TraceModule:
    return TraceModule(path=path, class_name=class_name, phase="forward", kernel_ns=ms(ns_ms), events=3)


def test_a_compiled_region_is_never_the_layer_to_change() -> None:
    region = module("OptimizedModule_0.Net_0.Torch-Compiled Region: 0/0", 95.0, "torch.compile")
    source = gpu_trace(
        GEMM, kernel("norm", 20.0, 9), modules=(region, module("CrossEntropyLoss_0", 5.0)), compiled=True
    )
    assert "dominant_layer" not in rules(source)
    graph = module("GraphModule_0", 95.0)
    assert "dominant_layer" not in rules(replace(source, modules=(graph, module("CrossEntropyLoss_0", 5.0))))
    shapes = (convolution(70.0, (32, 32, 3, 3), 32), convolution(10.0, (64, 32, 1, 1), 32))
    finding = single(replace(source, kernels=(CONVS,), shapes=shapes), "dominant_layer")
    assert "compiled region of Net_0" in finding.explanation
    assert "Region: 0/0" not in finding.title + finding.explanation + finding.advice


def test_a_dominant_layer_must_multiply() -> None:
    modules = (module("net", 70.0), module("head", 20.0))
    multiplies = cpu_trace(operator("mm", "gemm", 90.0, 9), RELU, modules=modules)
    assert single(multiplies, "dominant_layer").title == "net takes 70.0 % of the operator time"
    sorts = cpu_trace(operator("mm", "gemm", 20.0, 9), operator("sort", "sort/scan", 80.0, 6), modules=modules)
    assert rules(sorts) == {"dominant_operator"}


def test_a_layer_is_not_the_cause_of_a_step_that_waits_for_data() -> None:
    modules = (module("Linear_0", 6.4), module("Linear_1", 3.0))
    idle = {("waiting for data", "forward"): 90.0}
    assert rules(cpu_trace(operator("mm", "gemm", 10.0, 9), idle=idle, modules=modules)) == set()


def test_recomputation_in_a_report() -> None:
    work = TraceKernel(name="gemm", family="gemm", calls=3, kernel_ns=8 * MS, math="bf16")
    source = device_report(
        ("a", "forward", (work,)), ("b", "forward", (work,)), ("a", "recompute", (replace(work, kernel_ns=4 * MS),))
    )
    finding = single(source, "recompute_share")
    assert finding.severity == "medium"
    assert texts(finding.claims) == ("busy:phase:recompute",)


def test_advice_that_was_tried_without_gain_is_low() -> None:
    same = Trial(config="compile", before_ns=INTERVAL, after_ns=INTERVAL, verdict="same")
    assert severity_after("high", same) == "low"
    assert severity_after("info", same) == "info"
    assert severity_after("high", replace(same, verdict="better")) == "high"
    assert severity_after("high", replace(same, verdict="failed")) == "high"
    assert severity_after("medium", None) == "medium"


def test_every_cause_reads_reports_and_traces() -> None:
    by_name = {rule.name: rule for rule in all_rules()}
    assert by_name.keys() >= CAUSES
    assert all(by_name[name].reads == "both" for name in CAUSES)


INTERVAL = Interval(median=20 * MS, low=19 * MS, high=21 * MS)


def device_report(*layers: Any, clock: Any = "kernel") -> Report:
    """A report whose baseline has `layers` (path, phase, kernels), in a step without idle time."""
    modules = tuple(
        TraceModule(path=path, phase=phase, kernel_ns=sum(k.kernel_ns for k in kernels), kernels=kernels)
        for path, phase, kernels in layers
    )
    total = sum(item.kernel_ns for item in modules)
    run = traced_run(
        config=RunConfig(name="default"), environment=CPU, clock=clock, modules=modules, unattributed_ns=0, span_ns=total,
        step_ns=Interval(median=total, low=total, high=total), steps_ns=(total,) * 5, traced_steps=3,
    )  # fmt: skip
    return report(run)
