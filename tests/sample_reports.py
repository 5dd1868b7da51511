"""Sample reports for tests: V0 on CUDA and on a CPU, count only, failed, inference, hostile names, roofline, varying shapes.

Two reports are measured.

`python tests/sample_reports.py` writes them to tests/fixtures/reports. A test fails if the files differ.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from traced_runs import traced_run, with_traced

from profiler_kit.diagnosis.roofline import rooflines
from profiler_kit.records.configs import Environment, NamedValue, RunConfig
from profiler_kit.records.counts import (
    COUNT_PHASES,
    ZERO,
    Cost,
    MemoryCategories,
    MemoryEstimate,
    ModuleNode,
    StaticCount,
    UncountedOp,
)
from profiler_kit.records.experiments import ShapeSchedule, ShapeStep
from profiler_kit.records.machine import Ceilings, MathRate
from profiler_kit.records.notes import plain_notes
from profiler_kit.records.report import Evidence, Finding, Report, Tool, Trial
from profiler_kit.records.runs import ConfigRun, Failure, OpMemory, PeakMemory
from profiler_kit.records.samples import Interval
from profiler_kit.records.serde import dumps, read_report
from profiler_kit.records.target import InputInfo, TargetInfo
from profiler_kit.records.traces import IdleTime, PhaseTime, TraceKernel, TraceModule

FOLDER = Path(__file__).parent / "fixtures" / "reports"
MEASURED = Path(__file__).resolve().parent.parent / "docs" / "measured"
MS = 1_000_000
CONVENTION = "A MAC (multiply-add) is 2 FLOPs; an element that a pointwise op writes or a reduction reads is 1."

BATCH = 8
# name, in, out, kernel, stride, padding, input size, output size
V0_CONVS = (
    ("conv1", 3, 30, 4, 1, 2, 256, 257),
    ("conv2", 30, 50, 16, 1, 7, 257, 256),
    ("conv3", 50, 20, 2, 2, 0, 256, 128),
    ("conv4", 20, 2, 2, 2, 0, 128, 64),
)


def v0_target() -> TargetInfo:
    return TargetInfo(
        spec="models/convnet_v0.py",
        name="ConvNetV0",
        inputs=(InputInfo(name="x", shape=(BATCH, 3, 256, 256), dtype="float32"),),
        mode="train",
        loss="cross_entropy",
        optimizer="sgd",
        inputs_from="example_inputs",
        notes=plain_notes(("inputs from example_inputs in models/convnet_v0.py", "optimizer sgd taken by default")),
    )


def v0_static() -> StaticCount:
    """The modules of V0 in closed form. relu runs in the root's forward, so the root saves the activations."""
    nodes = []
    relu_bytes = relu_flops = 0
    for name, cin, cout, k, stride, padding, size_in, size_out in V0_CONVS:
        weights = cin * cout * k * k + cout
        positions = BATCH * cout * size_out**2
        macs = positions * cin * k * k
        in_bytes, out_bytes = 4 * BATCH * cin * size_in**2, 4 * positions
        forward = Cost(macs=macs, flops=2 * macs + positions, read_bytes=in_bytes + 4 * weights, write_bytes=out_bytes)
        sides = 1 if name == "conv1" else 2  # no gradient for the input
        backward = Cost(
            macs=sides * macs,
            flops=2 * sides * macs + positions,
            read_bytes=sides * out_bytes + in_bytes + 4 * weights,
            write_bytes=4 * weights + (in_bytes if sides == 2 else 0),
        )
        relu = name != "conv4"
        relu_bytes += out_bytes if relu else 0
        relu_flops += positions if relu else 0
        nodes.append(
            ModuleNode(
                path=name,
                class_name="Conv2d",
                config=f"{cin}->{cout}, k{k}"
                + (f" s{stride}" if stride > 1 else "")
                + (f" p{padding}" if padding else ""),
                calls=1,
                params=weights,
                trainable_params=weights,
                param_bytes=4 * weights,
                forward=forward,
                backward=backward,
                output_bytes=out_bytes,
                output_shape=(BATCH, cout, size_out, size_out),
                held_bytes=0 if name == "conv1" else in_bytes,
            )
        )
    logits = BATCH * 2 * 64 * 64
    root = ModuleNode(
        path="",
        class_name="ConvNetV0",
        calls=1,
        forward=Cost(flops=relu_flops, read_bytes=relu_bytes, write_bytes=relu_bytes),
        backward=Cost(flops=relu_flops, read_bytes=2 * relu_bytes, write_bytes=relu_bytes),
        output_bytes=4 * logits,
        output_shape=(BATCH, 2, 64, 64),
        saved_bytes=relu_bytes,
        held_bytes=relu_bytes,
    )
    loss = ModuleNode(
        path="(loss)",
        class_name="cross_entropy",
        loss=Cost(flops=4 * logits, read_bytes=12 * logits, write_bytes=4 * logits + 4),
        backward=Cost(flops=3 * logits, read_bytes=8 * logits, write_bytes=4 * logits),
        saved_bytes=4 * logits + 4,
        held_bytes=4 * logits + 4,
    )
    static = counted((root, *nodes, loss))
    saved, params, temporaries = static.saved_bytes, static.param_bytes, 204_910_592
    memory = MemoryEstimate(
        peak_bytes=saved + 2 * params + 6_291_456 + 262_144 + temporaries,
        peak_at="backward conv2 aten::convolution_backward",
        categories=MemoryCategories(
            parameters=params,
            gradients=params,
            optimizer_state=0,
            inputs=6_291_456 + 262_144,
            saved_activations=saved,
            temporaries=temporaries,
        ),
    )
    return replace(static, memory=memory)


def counted(modules: tuple[ModuleNode, ...], **fields: object) -> StaticCount:
    """Return a static count whose totals are the sums of `modules`."""
    totals = {phase: sum((node.cost(phase) for node in modules), start=ZERO) for phase in COUNT_PHASES}
    count = StaticCount(
        convention=CONVENTION,
        params=sum(node.params for node in modules),
        trainable_params=sum(node.trainable_params for node in modules),
        param_bytes=sum(node.param_bytes for node in modules),
        saved_bytes=sum(node.saved_bytes for node in modules),
        uncounted=(),
        modules=modules,
        forward=totals["forward"],
        loss=totals["loss"],
        backward=totals["backward"],
        recompute=totals["recompute"],
    )
    return replace(count, **fields)  # type: ignore[arg-type]


H100 = Environment(
    device="cuda",
    device_name="NVIDIA H100 80GB HBM3",
    torch="2.11.0+cu130",
    python="3.12.3",
    platform="Linux-6.8-x86_64",
    cuda="13.0",
    cudnn="9.19.0",
    device_memory_bytes=85_029_158_912,
    capability="9.0",
    flags=(
        NamedValue(name="cudnn.benchmark", value="False"),
        NamedValue(name="cudnn.conv.fp32_precision", value="tf32"),
    ),
    variables=(NamedValue(name="CUDA_VISIBLE_DEVICES", value="0"),),
)
CPU = Environment(
    device="cpu",
    device_name="AMD EPYC 7763",
    torch="2.13.0+cpu",
    python="3.11.9",
    platform="Linux-6.8-x86_64",
    threads=4,
)

FPROP = (
    "sm80_xmma_fprop_implicit_gemm_indexed_wo_smem_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x32x64_stage1_warpsize4x1x1"
    "_g1_tensor16x8x8_aligna8_alignc4_execute_kernel__5x_cudnn"
)
DGRAD = (
    "sm90_xmma_dgrad_implicit_gemm_indexed_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize256x64x32_warpgroupsize1x1x1"
    "_g1_strided_execute_kernel__5x_cudnn"
)
WGRAD = "void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688wgrad_optimized_tf32_64x128_16x6_nhwc_align4>(Params)"
LAYOUT = (
    "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>"
    "(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, float const*, float*)"
)
DIRECT_FPROP = (
    "void implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, float const*, int, "
    "float*, float const*, kernel_conv_params, unsigned long long, int, float, float, int, float const*, float const*, bool, "
    "int, int)"
)
DIRECT_DGRAD = (
    "void cudnn::detail::dgrad_engine<float, 512, 6, 5, 3, 3, 3, false>(int, int, int, float const*, int, float const*, int, "
    "float*, kernel_grad_params, unsigned long long, int, unsigned long long, int, float, int, int, int)"
)
DIRECT_WGRAD = (
    "void wgrad_alg0_engine<float, 128, 5, 5, 3, 3, 3, false, 512>(int, int, int, float const*, int, float*, float const*, "
    "kernel_grad_params, unsigned long long, int, float, int, int, int, int)"
)
RELU = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::launch_clamp_scalar, std::array<char*, 2ul> >(int)"
)
SGD = "void at::native::multi_tensor_apply_kernel<at::native::TensorListMetadata<2> >(int)"
NLL = "void at::native::nll_loss2d_forward_kernel<float, float, long>(float*, float*, float const*, long)"


def _kernel(
    name: str, family: str, ns: int, calls: int = 1, op: str | None = None, math: str | None = None
) -> TraceKernel:
    return TraceKernel(name=name, family=family, calls=calls, kernel_ns=ns, op=op, math=math)


def _layers(scale: float, *, tf32: bool) -> tuple[TraceModule, ...]:
    """Layer times of V0 on an H100, `scale` times those of the default. Without TF32, cuDNN uses its older kernels."""

    def ns(microseconds: float) -> int:
        return round(microseconds * 1000 * scale)

    def conv(path: str, forward: float, data: float, weight: float, layout: float) -> list[TraceModule]:
        if tf32:
            fprop = _kernel(FPROP, "conv:xmma_igemm", ns(forward), op="fprop", math="tf32")
            dgrad = _kernel(DGRAD, "conv:xmma_igemm", ns(data), op="dgrad", math="tf32")
            backward = [
                _kernel(WGRAD, "conv:cutlass_igemm", ns(weight), op="wgrad", math="tf32"),
                _kernel(LAYOUT, "conv:layout", ns(layout), 3),
            ]
        else:
            fprop = _kernel(DIRECT_FPROP, "conv:legacy_direct", ns(forward), op="fprop", math="fp32")
            dgrad = _kernel(DIRECT_DGRAD, "conv:legacy_direct", ns(data), op="dgrad", math="fp32")
            backward = [_kernel(DIRECT_WGRAD, "conv:legacy_direct", ns(weight + layout), op="wgrad", math="fp32")]
        if data:
            backward.append(dgrad)
        total = sum(kernel.kernel_ns for kernel in backward)
        return [
            TraceModule(path=path, phase="forward", kernel_ns=fprop.kernel_ns, kernels=(fprop,)),
            TraceModule(path=path, phase="backward", kernel_ns=total, kernels=tuple(backward)),
        ]

    def one(path: str, phase: str, microseconds: float, name: str, family: str) -> TraceModule:
        kernel = _kernel(name, family, ns(microseconds), 3)
        return TraceModule(path=path, phase=phase, kernel_ns=kernel.kernel_ns, kernels=(kernel,))  # type: ignore[arg-type]

    return (
        one("", "forward", 120.0, RELU, "pointwise"),
        one("", "backward", 240.0, RELU, "pointwise"),
        *conv("conv1", 210.0, 0, 380.0, 60.0),
        *conv("conv2", 9_102.0, 9_130.0, 5_840.0, 470.0),
        *conv("conv3", 95.0, 160.0, 140.0, 55.0),
        *conv("conv4", 22.0, 30.0, 28.0, 12.0),
        one("(loss)", "loss", 11.2, NLL, "loss/softmax"),
        one("(loss)", "backward", 9.5, NLL, "loss/softmax"),
        one("(optimizer)", "optimizer", 21.3, SGD, "optimizer"),
    )


def _totals(layers: tuple[TraceModule, ...]) -> tuple[TraceKernel, ...]:
    totals: dict[str, TraceKernel] = {}
    for kernel in (kernel for layer in layers for kernel in layer.kernels):
        total = totals.get(kernel.name)
        ns, calls = (total.kernel_ns, total.calls) if total else (0, 0)
        totals[kernel.name] = replace(kernel, kernel_ns=ns + kernel.kernel_ns, calls=calls + kernel.calls)
    return tuple(sorted(totals.values(), key=lambda kernel: -kernel.kernel_ns))


def _phases(layers: tuple[TraceModule, ...], step_ms: float, stopwatch: tuple[float, ...]) -> tuple[PhaseTime, ...]:
    phases = []
    for phase, share in zip(("forward", "loss", "backward", "optimizer"), stopwatch, strict=True):
        kernel_ns = sum(layer.kernel_ns for layer in layers if layer.phase == phase)
        phases.append(
            PhaseTime(
                phase=phase,  # type: ignore[arg-type]
                stopwatch_ns=round(step_ms * MS * share / 100),
                event_ns=round(kernel_ns * 1.004) + 9_000,
                kernel_ns=kernel_ns,
            )
        )
    return tuple(phases)


def cuda_run(
    name: str,
    flags: tuple[bool | None, bool | None, bool | None, bool | None],
    step_ms: float,
    first_ms: float,
    peak_mb: float,
    first_peak_mb: float,
    *,
    stopwatch: tuple[float, ...] = (2.0, 90.3, 6.4, 1.3),
    tuning_ms: float | None = None,
    error: float = 4.1e-4,
    repeatable: bool = False,
    repeat_of: str | None = None,
) -> ConfigRun:
    """A run of V0 on an H100. Its times are those of the default configuration, scaled to the step."""
    enabled, benchmark, deterministic, tf32 = flags
    layers = _layers(step_ms * 0.99 / 26.2, tf32=tf32 is True)
    median = round(step_ms * MS)
    static = v0_static()
    peak = round(peak_mb * 1e6)
    saved, params, inputs, workspace = 116_391_940, static.param_bytes, 6_553_600, 25_690_112
    return traced_run(
        config=RunConfig(
            name=name,
            enabled=enabled,
            benchmark=benchmark,
            deterministic=deterministic,
            allow_tf32=tf32,
            repeat_of=repeat_of,
        ),
        environment=H100,
        first_step_ns=round(first_ms * MS),
        tuning_ns=None if tuning_ms is None else round(tuning_ms * MS),
        warmup_steps=10,
        steps_ns=tuple(median + (i % 5 - 2) * 21_000 for i in range(50)),
        step_ns=Interval(median=median, low=median - 21_000, high=median + 26_000),
        traced_steps=5,
        clock="kernel",
        phases=_phases(layers, step_ms, stopwatch),
        modules=layers,
        kernels=_totals(layers),
        unattributed_ns=6_200,
        span_ns=sum(layer.kernel_ns for layer in layers) + 6_200 + 253_000,
        idle=(
            IdleTime(cause="op dispatch", phase="forward", ns=210_000, gaps=9),
            IdleTime(cause="launch latency", phase="backward", ns=43_000, gaps=12),
        ),
        first_step_peak_bytes=round(first_peak_mb * 1e6),
        peak_allocated_bytes=peak,
        peak_reserved_bytes=924_844_032,
        workspace_bytes=workspace,
        memory=PeakMemory(
            peak_path="conv2",
            peak_phase="backward",
            peak_op="aten::convolution_backward",
            peak_bytes=peak,
            parameters=params,
            gradients=params,
            optimizer_state=0,
            inputs=inputs,
            saved_activations=saved,
            workspace=workspace,
            rest=peak - 2 * params - inputs - saved - workspace,
            ops=(
                OpMemory(
                    path="conv2",
                    phase="backward",
                    op="aten::convolution_backward",
                    before_bytes=peak - workspace - 63_407_040,
                    growth_bytes=63_407_040,
                    workspace_bytes=workspace,
                ),
            ),
        ),
        repeatable=repeatable,
        max_relative_error=error,
        trace=f"traces/{name}.json.gz",
    )


def _findings() -> tuple[Finding, ...]:
    return (
        Finding(
            rule="wrong_phase",
            severity="high",
            title="A stopwatch shows 90 % of the step in the loss; its kernels take 0.1 %",
            explanation="The loss ends in .item(), which waits for everything queued before it: forward and backward are "
            "launched in moments and their device time is paid there.",
            advice="Read the kernel column, or synchronize before each reading; do not optimize the loss.",
            evidence=(
                Evidence(name="stopwatch share", value=90.3, unit="percent", where="loss"),
                Evidence(name="kernel share", value=0.04, unit="percent", where="loss"),
            ),
            paths=("(loss)",),
        ),
        Finding(
            rule="dominant_layer",
            severity="high",
            title="conv2 does 99.4 % of the FLOPs and takes 94 % of the device time",
            explanation="A 16x16 kernel over 50 channels at full resolution; every other layer together is noise beside it.",
            advice="Downsample before it, use a smaller kernel, or factorise it.",
            evidence=(Evidence(name="FLOPs", value=99.4, unit="percent", where="conv2"),),
            paths=("conv2",),
        ),
        Finding(
            rule="benchmark_pays",
            severity="medium",
            title="cudnn.benchmark makes the step 1.74 times as fast and pays after 443 steps",
            explanation="Its choice for conv2 is another kernel family; tuning costs 4.95 s once per input shape.",
            advice="Set torch.backends.cudnn.benchmark = True where input shapes are fixed.",
            evidence=(Evidence(name="tuning", value=4_948_000_000, unit="ns", where="benchmark"),),
            config="benchmark",
            trial=Trial(
                config="benchmark",
                before_ns=Interval(median=26_200_000, low=26_179_000, high=26_226_000),
                after_ns=Interval(median=15_030_000, low=15_009_000, high=15_056_000),
                verdict="better",
            ),
        ),
        Finding(
            rule="tf32_in_use",
            severity="info",
            title="Convolutions run in TF32: error 4e-4 instead of 1e-6, 1.9 times as fast",
            explanation="float32 convolutions may use TF32 by default.",
            advice="Set cudnn.conv.fp32_precision = 'ieee' if that error matters.",
            evidence=(Evidence(name="error", value=4.1e-4, unit="ratio"),),
        ),
    )


def v0_cuda() -> Report:
    """V0 on an H100: nine configurations, one of them out of memory, and the repeated default."""
    out_of_memory = ConfigRun(
        config=RunConfig(name="cudnn-off", enabled=False, benchmark=False, deterministic=False, allow_tf32=False),
        environment=H100,
        failure=Failure(
            kind="out_of_memory",
            message="CUDA out of memory. Tried to allocate 1.95 GiB. GPU 0 has a total capacity of 79.19 GiB.",
            log_tail='Traceback (most recent call last):\n  File "worker.py", line 88, in step\n    loss.backward()\n'
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB.\n",
        ),
    )
    slow = (1.0, 85.1, 13.0, 0.9)
    fast = (4.0, 54.2, 39.1, 2.7)
    return Report(
        tool=Tool(name="profiler_kit", version="0.1.0"),
        created="2026-01-05T12:00:00Z",
        target=v0_target(),
        static=v0_static(),
        runs=(
            cuda_run("default", (True, False, False, True), 26.20, 152, 480.1, 480.1),
            cuda_run("benchmark", (True, True, False, True), 15.03, 5088, 503.2, 559.4, stopwatch=fast, tuning_ms=4947),
            cuda_run("deterministic", (True, False, True, True), 26.42, 177, 480.1, 480.1, repeatable=True),
            cuda_run(
                "benchmark+deterministic",
                (True, True, True, True),
                14.99,
                2141,
                503.2,
                559.4,
                stopwatch=fast,
                tuning_ms=1975,
                repeatable=True,
            ),
            cuda_run("no-tf32", (True, False, False, False), 49.54, 126, 433.0, 433.0, stopwatch=slow, error=1.1e-6),
            cuda_run(
                "benchmark+no-tf32",
                (True, True, False, False),
                43.98,
                4674,
                466.3,
                466.3,
                stopwatch=slow,
                tuning_ms=4553,
                error=1.1e-6,
            ),
            cuda_run(
                "deterministic+no-tf32",
                (True, False, True, False),
                49.61,
                131,
                433.0,
                433.0,
                stopwatch=slow,
                error=1.1e-6,
            ),
            cuda_run(
                "benchmark+deterministic+no-tf32",
                (True, True, True, False),
                49.50,
                2204,
                466.3,
                466.3,
                stopwatch=slow,
                tuning_ms=2078,
                error=1.1e-6,
            ),
            out_of_memory,
            cuda_run("default (again)", (True, False, False, True), 26.31, 150, 480.1, 480.1, repeat_of="default"),
        ),
        findings=_findings(),
    )


OPERATOR_FAMILIES = {
    "aten::mkldnn_convolution": "conv",
    "aten::convolution_backward": "conv",
    "aten::relu": "pointwise",
    "aten::threshold_backward": "pointwise",
    "aten::nll_loss2d_forward": "loss/softmax",
    "aten::nll_loss2d_backward": "loss/softmax",
    "aten::_foreach_add_": "optimizer",
}


def v0_cpu() -> Report:
    """V0 on a CPU: one configuration, three slow steps, operator time, no events."""

    def layer(path: str, phase: str, ms: float, op: str) -> TraceModule:
        kernel = TraceKernel(name=op, family=OPERATOR_FAMILIES[op], calls=1, kernel_ns=round(ms * MS))
        return TraceModule(path=path, phase=phase, kernel_ns=kernel.kernel_ns, kernels=(kernel,))  # type: ignore[arg-type]

    forward, backward = "aten::mkldnn_convolution", "aten::convolution_backward"
    layers = (
        layer("", "forward", 61.0, "aten::relu"),
        layer("", "backward", 118.0, "aten::threshold_backward"),
        layer("conv1", "forward", 35.1, forward),
        layer("conv1", "backward", 50.9, backward),
        layer("conv2", "forward", 1_910.2, forward),
        layer("conv2", "backward", 4_420.7, backward),
        layer("conv3", "forward", 12.3, forward),
        layer("conv3", "backward", 31.8, backward),
        layer("conv4", "forward", 2.1, forward),
        layer("conv4", "backward", 4.4, backward),
        layer("(loss)", "loss", 1.2, "aten::nll_loss2d_forward"),
        layer("(loss)", "backward", 0.9, "aten::nll_loss2d_backward"),
        layer("(optimizer)", "optimizer", 0.4, "aten::_foreach_add_"),
    )
    steps = (6_702_114_000, 6_655_870_000, 6_731_407_000)
    stopwatch = {"forward": 2_024.0, "loss": 1.6, "backward": 4_671.0, "optimizer": 0.9}
    run = traced_run(
        config=RunConfig(name="default"),
        environment=CPU,
        first_step_ns=6_981_002_000,
        warmup_steps=1,
        steps_ns=steps,
        step_ns=Interval(median=6_702_114_000, low=6_655_870_000, high=6_731_407_000),
        traced_steps=1,
        clock="operator",
        phases=tuple(
            PhaseTime(
                phase=phase,  # type: ignore[arg-type]
                stopwatch_ns=round(ms * MS),
                kernel_ns=sum(part.kernel_ns for part in layers if part.phase == phase),
            )
            for phase, ms in stopwatch.items()
        ),
        modules=layers,
        kernels=_totals(layers),
        unattributed_ns=3_100_000,
        peak_rss_bytes=1_184_702_464,
        repeatable=True,
        max_relative_error=3.1e-7,
        trace="traces/default.json.gz",
        notes=("cuDNN is not used on a CPU: its flags change nothing, so there is one configuration",),
    )
    return Report(
        tool=Tool(name="profiler_kit", version="0.1.0"),
        created="2026-01-05T12:00:00Z",
        target=v0_target(),
        static=v0_static(),
        runs=(run,),
        findings=_findings()[1:2],
    )


def count_only() -> Report:
    """V0 with a static count only."""
    return replace(v0_cpu(), runs=(), findings=())


def failed() -> Report:
    """V0 with runs that failed for different reasons."""
    runs = (
        ConfigRun(
            config=RunConfig(name="default", enabled=True, benchmark=False, deterministic=False, allow_tf32=True),
            failure=Failure(
                kind="error",
                message="RuntimeError: expected scalar type Float but found Half\nat conv2",
                log_tail="Traceback\n  line",
            ),
        ),
        ConfigRun(
            config=RunConfig(name="benchmark", enabled=True, benchmark=True, deterministic=False, allow_tf32=True),
            failure=Failure(kind="timeout", message="no answer within 60 s"),
        ),
    )
    return replace(v0_cpu(), runs=runs, findings=())


def infer() -> Report:
    """V0 on a CPU, forward only."""
    report = v0_cpu()
    static = report.static
    run = report.runs[0]
    assert static is not None
    nodes = [node for node in static.modules if node.path != "(loss)"]
    modules = tuple(replace(node, backward=ZERO, saved_bytes=0, held_bytes=0) for node in nodes)
    layers = tuple(layer for layer in run.modules if layer.phase == "forward")
    run = with_traced(
        run,
        phases=tuple(phase for phase in run.phases if phase.phase == "forward"),
        modules=layers,
        kernels=_totals(layers),
        unattributed_ns=0,
    )
    target = replace(report.target, mode="infer", loss=None, optimizer=None, notes=())
    return replace(report, target=target, static=counted(modules), runs=(run,), findings=())


def transformer() -> Report:
    """A deep model with containers, a checkpointed block, uncounted ops and inferred inputs; static count only."""
    nodes = [ModuleNode(path="", class_name="GPT", calls=1), ModuleNode(path="blocks", class_name="ModuleList")]
    width, tokens = 768, 8 * 1024
    for i in range(12):
        block = f"blocks.{i}"
        nodes += [
            ModuleNode(path=block, class_name="Block", calls=1),
            ModuleNode(path=f"{block}.mlp", class_name="MLP", calls=1),
        ]
        for name, out in (("attn_qkv", 3 * width), ("attn_out", width), ("mlp.up", 4 * width), ("mlp.down", width)):
            params = (4 * width if name == "mlp.down" else width) * out
            macs = tokens * params
            forward = Cost(
                macs=macs, flops=2 * macs, read_bytes=4 * (params + tokens * width), write_bytes=4 * tokens * out
            )
            nodes.append(
                ModuleNode(
                    path=f"{block}.{name}",
                    class_name="Linear",
                    config=f"{params // out}->{out}",
                    calls=1,
                    params=params,
                    trainable_params=params,
                    param_bytes=4 * params,
                    forward=forward,
                    backward=forward + forward,
                    recompute=forward if i == 11 else ZERO,
                    output_bytes=4 * tokens * out,
                    saved_bytes=4 * tokens * width,
                    held_bytes=4 * tokens * width,
                )
            )
    uncounted = (UncountedOp(op="my_lib::rotary", calls=24, paths=("blocks.0", "blocks.1", "")),)
    target = TargetInfo(
        spec="gpt.py:GPT",
        name="GPT",
        inputs=(InputInfo(name="ids", shape=(8, 1024), dtype="int64"),),
        mode="train",
        loss="sum",
        optimizer="adamw",
        amp="bfloat16",
        inputs_from="guess",
    )
    report = count_only()
    return replace(report, target=target, static=counted(tuple(nodes), uncounted=uncounted))


EVIL = "\x1b[2J\u202e=cmd|' /C calc'!A1 <script>alert(1)</script> `x` [a](http://evil.example) @everyone #1 \r\n| b"


def hostile() -> Report:
    """Names, messages and kernels that attack the escaping of every format."""
    report = v0_cpu()
    run = report.runs[0]
    assert report.static is not None
    modules = tuple(replace(node, class_name=EVIL, config=EVIL) for node in report.static.modules)
    layers = tuple(
        replace(layer, kernels=tuple(replace(kernel, name=EVIL, family=EVIL) for kernel in layer.kernels))
        for layer in run.modules
    )
    finding = replace(_findings()[0], title=EVIL, explanation=EVIL, advice=EVIL, paths=(EVIL,))
    step = ShapeStep(cycle=1, shape=(BATCH, 3, 64, 64), seen=False, ns=MS)
    schedule = ShapeSchedule(config=EVIL, source=EVIL, steps=(step,), failure=EVIL, notes=(EVIL,))
    broken = ConfigRun(
        config=RunConfig(name=EVIL), failure=Failure(kind="error", message=EVIL, log_tail=f"```\n{EVIL}\n````")
    )
    return replace(
        report,
        target=replace(report.target, name=EVIL, spec=EVIL, notes=plain_notes((EVIL,))),
        static=replace(report.static, modules=modules),
        runs=(with_traced(run, modules=layers, kernels=_totals(layers), notes=(EVIL,)), broken),
        findings=(finding,),
        schedules=(schedule,),
    )


def scheduled() -> Report:
    """V0 on an H100 with varying shapes, two runs. The run with benchmark stops early. All times are invented."""
    sizes = (256, 192, 320)

    def steps(new_ms: float, seen_ms: float, count: int) -> tuple[ShapeStep, ...]:
        shape_steps = []
        for i in range(count):
            cycle, place = divmod(i, len(sizes) + 1)
            last = place == len(sizes)
            size = sizes[-1] if last else sizes[place]
            shape_steps.append(
                ShapeStep(
                    cycle=cycle + 1,
                    shape=(BATCH // 2 if last else BATCH, 3, size, size),
                    seen=cycle > 0,
                    ns=round((seen_ms if cycle else new_ms) * (size / 256) ** 2 * MS),
                    peak_bytes=round(480e6 * (size / 256) ** 2),
                    rss_bytes=1_000_000_000 + 500_000 * min(i, len(sizes)),
                    last_batch=last,
                )
            )
        return tuple(shape_steps)

    schedules = (
        ShapeSchedule(
            config="default",
            source="generated",
            steps=steps(80.0, 26.0, 12),
            benchmark=False,
            device="cuda",
            notes=("x changes, mask with it.",),
        ),
        ShapeSchedule(
            config="benchmark",
            source="generated",
            steps=steps(4_000.0, 15.0, 2),
            failure="8x3x320x320: it does not fit into memory (OutOfMemoryError: CUDA out of memory)",
            benchmark=True,
            device="cuda",
        ),
    )
    return replace(v0_cuda(), schedules=schedules)


def roofed() -> Report:
    """V0 on an H100 with measured and datasheet rooflines. Peaks and times are invented."""
    peaks = (("fp32", 51e12), ("tf32", 380e12), ("f16", 720e12), ("bf16", 730e12))
    ceilings = Ceilings(
        device="cuda",
        device_name="NVIDIA H100 80GB HBM3",
        torch="2.11.0",
        driver="580.95.05",
        threads=None,
        rates=tuple(
            MathRate(math=math, flops_per_s=rate, size=8192, repeats=40, spread_percent=0.2) for math, rate in peaks
        ),
        bandwidth_bytes_per_s=2.9e12,
        copy_bytes=2**30,
        bandwidth_spread_percent=0.1,
        duration_ns=1_500 * MS,
    )
    report = v0_cuda()
    return replace(report, roofline=rooflines(report, ceilings))


def uncountable() -> Report:
    """V0 on a CPU, measured without a static count."""
    report = v0_cpu()
    return replace(
        report,
        static=None,
        notes=plain_notes(("the model cannot be traced on meta tensors: conv2 reads its input's values",)),
    )


def recorded(name: str) -> Report:
    """A measured report that the documentation uses; `scripts.docs.make_docs` updates its findings to the current rules."""
    return read_report(MEASURED / f"{name}.json")


def v0_h100() -> Report:
    """V0, measured on an H100 under all nine configurations."""
    return recorded("convnet_v0_h100")


def v1_h100() -> Report:
    """V1, measured on an H100 under all nine configurations."""
    return recorded("convnet_v1_h100")


SAMPLES: dict[str, Callable[[], Report]] = {
    "v0_cuda": v0_cuda,
    "v0_cpu": v0_cpu,
    "count_only": count_only,
    "failed": failed,
    "infer": infer,
    "transformer": transformer,
    "hostile": hostile,
    "roofed": roofed,
    "scheduled": scheduled,
    "uncountable": uncountable,
}
RECORDED: dict[str, Callable[[], Report]] = {"v0_h100": v0_h100, "v1_h100": v1_h100}


def write() -> None:
    """Write every sample to `FOLDER`."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, make in SAMPLES.items():
        (FOLDER / f"{name}.json").write_text(dumps(make()), encoding="utf-8")


if __name__ == "__main__":
    write()
