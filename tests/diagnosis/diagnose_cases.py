"""Reports built from figures measured on one H100 (torch 2.11, cuDNN 9.19, batch 8 of 3x256x256), and partial ones."""

from __future__ import annotations

from dataclasses import replace

from traced_runs import traced_run, with_traced

from profiler_kit.records.claims import Claim
from profiler_kit.records.configs import Environment, RunConfig
from profiler_kit.records.counts import Cost, ModuleNode, Phase, StaticCount, UncountedOp
from profiler_kit.records.report import Evidence, Finding, Report, Tool
from profiler_kit.records.runs import ConfigRun, Failure, OpMemory, PeakMemory
from profiler_kit.records.samples import Interval
from profiler_kit.records.target import InputInfo, TargetInfo
from profiler_kit.records.traces import PhaseTime, TraceKernel, TraceModule

MS = 1_000_000
MIB = 2**20
PHASES: tuple[Phase, ...] = ("forward", "loss", "backward", "optimizer")
H100 = Environment(
    device="cuda",
    device_name="NVIDIA H100 80GB HBM3",
    torch="2.11.0",
    python="3.12",
    platform="Linux",
    cudnn="91900",
    device_memory_bytes=80 * 2**30,
)
CPU = Environment(device="cpu", device_name="a CPU", torch="2.13.0", python="3.11", platform="Linux")
XMMA, CUTLASS, DIRECT, FFT = "conv:xmma_igemm", "conv:cutlass_igemm", "conv:legacy_direct", "conv:fft"
IM2COL = "conv:im2col(aten)"
KERNELS = {
    XMMA: ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize64x64x64_cudnn", "tf32"),
    CUTLASS: ("cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_64x64_32x4>", "tf32"),
    DIRECT: ("implicit_convolve_sgemm<float, float, 1024, 5, 5, 3, 3, 3, 1, false>", "fp32"),
    FFT: ("fft2d_r2c_32x32<float, false, 0u, false>", "fp32"),
    IM2COL: ("im2col_kernel<float>", None),
}


def around(median_ns: int, spread: float = 0.003) -> Interval:
    return Interval(median=median_ns, low=round(median_ns * (1 - spread)), high=round(median_ns * (1 + spread)))


def config(name: str) -> RunConfig:
    """The configuration as measure names it."""
    if name == "cudnn-off":
        return RunConfig(name=name, enabled=False, benchmark=False, deterministic=False, allow_tf32=True)
    words = name.split("+")
    return RunConfig(
        name=name,
        enabled=True,
        benchmark="benchmark" in words,
        deterministic="deterministic" in words,
        allow_tf32="no-tf32" not in words,
    )


def layer(path: str, phase: Phase, ns: int, family: str) -> TraceModule:
    """A layer whose time is one kernel's; FFT and im2col get the product kernel that goes with them."""
    name, math = KERNELS[family]
    if family == FFT:
        parts = (
            TraceKernel(name=name, family=FFT, calls=4, kernel_ns=ns * 4 // 10, math=math),
            TraceKernel(name="cf32_cgemm", family="gemm:complex", calls=1, kernel_ns=ns - ns * 4 // 10),
        )
    elif family == IM2COL:
        parts = (
            TraceKernel(name=name, family=IM2COL, calls=8, kernel_ns=ns // 3),
            TraceKernel(name="ampere_sgemm_128x64", family="gemm", calls=8, kernel_ns=ns - ns // 3, math="fp32"),
        )
    else:
        parts = (TraceKernel(name=name, family=family, calls=1, kernel_ns=ns, math=math),)
    return TraceModule(path=path, phase=phase, kernel_ns=ns, kernels=parts)


def measured(
    name: str,
    *,
    big: str,
    first_ms: float,
    step_ms: float,
    kernel: tuple[int, int, int, int],
    watch: tuple[int, int, int, int],
    peak_mib: int,
    families: tuple[str, str],
    first_peak_mib: int | None = None,
    workspace_mib: int = 20,
    saved_mib: int = 177,
    error: float | None = None,
    gradients_repeat: bool = True,
    busy: float = 0.97,
) -> ConfigRun:
    """One row of the table: shares in percent of kernel time and by stopwatch, in the order of PHASES."""
    step_ns = round(step_ms * MS)
    device_ns = round(step_ns * busy)
    forward_ns, backward_ns = device_ns * kernel[0] // 100, device_ns * kernel[2] // 100
    rest_ns = device_ns - forward_ns - backward_ns
    relu = TraceKernel(name="vectorized_elementwise_kernel", family="pointwise", calls=3, kernel_ns=forward_ns // 50)
    modules = (
        TraceModule(path="", phase="forward", kernel_ns=forward_ns // 50, kernels=(relu,)),
        layer(big, "forward", forward_ns - forward_ns // 50, families[0]),
        layer(big, "backward", backward_ns, families[1]),
        TraceModule(path="(loss)", phase="loss", kernel_ns=rest_ns // 2),
    )
    memory = PeakMemory(
        peak_path=big,
        peak_phase="forward",
        peak_op="aten.convolution.default",
        peak_bytes=peak_mib * MIB,
        parameters=2 * MIB,
        gradients=0,
        optimizer_state=2 * MIB,
        inputs=6 * MIB,
        saved_activations=saved_mib * MIB,
        workspace=workspace_mib * MIB,
        rest=(peak_mib - 10 - saved_mib - workspace_mib) * MIB,
        ops=(
            OpMemory(
                path=big,
                phase="forward",
                op="aten.convolution.default",
                before_bytes=saved_mib * MIB,
                growth_bytes=0,
                workspace_bytes=workspace_mib * MIB,
            ),
        ),
    )
    return traced_run(
        config=config(name),
        environment=H100,
        first_step_ns=round(first_ms * MS),
        warmup_steps=5,
        steps_ns=(step_ns,) * 20,
        step_ns=around(step_ns),
        traced_steps=3,
        clock="kernel",
        phases=tuple(
            PhaseTime(
                phase=phase,
                stopwatch_ns=step_ns * w // 100,
                event_ns=step_ns * k // 100,
                kernel_ns=device_ns * k // 100,
            )
            for phase, w, k in zip(PHASES, watch, kernel, strict=True)
        ),
        modules=modules,
        kernels=tuple(k for m in modules for k in m.kernels),
        unattributed_ns=rest_ns - rest_ns // 2,
        first_step_peak_bytes=(first_peak_mib or peak_mib) * MIB,
        peak_allocated_bytes=peak_mib * MIB,
        memory=memory,
        repeatable=gradients_repeat,
        repeatable_outputs=True,
        repeatable_gradients=gradients_repeat,
        output_digest="a",
        gradient_digest="b",
        max_relative_error=error,
    )


def with_tuning(runs: tuple[ConfigRun, ...]) -> tuple[ConfigRun, ...]:
    """Tuning as measure fills it in: start-up with benchmark, less the same without."""
    starts = {r.config.name: r.first_step_ns - r.step_ns.median for r in runs if r.first_step_ns and r.step_ns}
    twins = {
        r.config.name: "+".join(w for w in r.config.name.split("+") if w != "benchmark") or "default" for r in runs
    }
    return tuple(
        replace(r, tuning_ns=starts[r.config.name] - starts[twins[r.config.name]]) if r.config.benchmark else r
        for r in runs
    )


def again(run: ConfigRun, factor: float = 1.002) -> ConfigRun:
    """The A/A repetition of `run`."""
    assert run.step_ns is not None
    name = run.config.name
    return replace(
        run,
        config=replace(run.config, name=f"{name} (again)", repeat_of=name),
        step_ns=around(round(run.step_ns.median * factor)),
    )


def conv(
    path: str, cin: int, cout: int, k: int, grid: int, *, input_gradient: bool = True, stride: int = 1
) -> ModuleNode:
    """A 2-d convolution over 8 images, counted in closed form."""
    macs = 8 * cin * cout * k * k * grid * grid
    backward = macs * (2 if input_gradient else 1)
    return ModuleNode(
        path=path,
        class_name="Conv2d",
        config=f"{cin}->{cout}, k{k}" + (f", s{stride}" if stride > 1 else ""),
        calls=1,
        params=cin * cout * k * k + cout,
        forward=Cost(macs=macs, flops=2 * macs),
        backward=Cost(macs=backward, flops=2 * backward),
        output_shape=(8, cout, grid, grid),
    )


def static(*modules: ModuleNode, uncounted: tuple[UncountedOp, ...] = ()) -> StaticCount:
    forward, backward = Cost(), Cost()
    for node in modules:
        forward, backward = forward + node.forward, backward + node.backward
    return StaticCount(
        convention="a MAC is two FLOPs",
        params=sum(node.params for node in modules),
        trainable_params=sum(node.params for node in modules),
        param_bytes=4 * sum(node.params for node in modules),
        forward=forward,
        loss=Cost(),
        backward=backward,
        recompute=Cost(),
        saved_bytes=0,
        uncounted=uncounted,
        modules=modules,
    )


V0_STATIC = static(
    ModuleNode(path="", class_name="ConvNetV0"),
    conv("conv1", 3, 30, 4, 257, input_gradient=False),
    conv("conv2", 30, 50, 16, 256),
    conv("conv3", 50, 20, 2, 128, stride=2),
    conv("conv4", 20, 2, 2, 64, stride=2),
)
V1_STATIC = static(
    ModuleNode(path="", class_name="ConvNetV1"),
    conv("conv0", 3, 50, 4, 128, input_gradient=False, stride=2),
    conv("conv_r1", 50, 40, 15, 128),
    conv("conv_r2", 40, 25, 3, 128),
    conv("conv_r3", 25, 25, 2, 64, stride=2),
    conv("conv_b1", 50, 15, 4, 64, stride=2),
    conv("conv1", 40, 2, 1, 64),
)


def target(name: str = "net", dtype: str = "float32") -> TargetInfo:
    return TargetInfo(
        spec=f"models/{name}.py",
        name=name,
        inputs=(InputInfo(name="x", shape=(8, 3, 256, 256), dtype=dtype),),
        mode="train",
        loss="cross_entropy",
        optimizer="sgd",
    )


def report(*runs: ConfigRun, counts: StaticCount | None = None, about: TargetInfo | None = None) -> Report:
    return Report(
        tool=Tool(name="profiler_kit", version="0"),
        created="2025-01-01T00:00:00+00:00",
        target=about or target(),
        static=counts,
        runs=runs,
    )


def v0(*, a_a: bool = True) -> Report:
    """V0 under the seven configurations that were tabled, and the A/A repetition."""
    runs = with_tuning(
        (
            measured(
                "default", big="conv2", first_ms=152, step_ms=26.20, kernel=(37, 0, 63, 0), watch=(2, 90, 6, 1),
                peak_mib=480, families=(XMMA, XMMA), error=4e-4, gradients_repeat=False,
            ),
            measured(
                "benchmark", big="conv2", first_ms=5088, step_ms=15.03, kernel=(29, 0, 71, 0), watch=(4, 54, 39, 3),
                peak_mib=503, first_peak_mib=559, families=(CUTLASS, CUTLASS), error=4e-4, gradients_repeat=False,
            ),
            measured(
                "deterministic", big="conv2", first_ms=177, step_ms=26.42, kernel=(36, 0, 64, 0), watch=(3, 89, 6, 2),
                peak_mib=480, families=(XMMA, XMMA), error=4e-4,
            ),
            measured(
                "benchmark+deterministic", big="conv2", first_ms=2141, step_ms=14.99, kernel=(29, 0, 71, 0),
                watch=(3, 54, 41, 2), peak_mib=503, first_peak_mib=559, families=(CUTLASS, CUTLASS), error=4e-4,
            ),
            measured(
                "no-tf32", big="conv2", first_ms=126, step_ms=49.54, kernel=(44, 0, 56, 0), watch=(1, 85, 13, 1),
                peak_mib=433, families=(DIRECT, DIRECT), error=1e-6, gradients_repeat=False,
            ),
            measured(
                "benchmark+no-tf32", big="conv2", first_ms=4674, step_ms=43.98, kernel=(49, 0, 51, 0),
                watch=(1, 83, 15, 1), peak_mib=466, families=(DIRECT, DIRECT), error=1e-6, gradients_repeat=False,
            ),
            measured(
                "cudnn-off", big="conv2", first_ms=115, step_ms=82.21, kernel=(21, 0, 79, 0), watch=(1, 95, 3, 1),
                peak_mib=2215, families=(IM2COL, IM2COL), error=1e-6,
            ),
        )
    )  # fmt: skip
    return report(*runs, *([again(runs[0])] if a_a else []), counts=V0_STATIC, about=target("convnet_v0"))


def v1() -> Report:
    """V1 under the five configurations that were tabled, and the A/A repetition."""
    runs = with_tuning(
        (
            measured(
                "default", big="conv_r1", first_ms=63, step_ms=8.25, kernel=(19, 0, 81, 0), watch=(8, 69, 20, 3),
                peak_mib=684, families=(XMMA, XMMA), error=4e-4, gradients_repeat=False, saved_mib=69, workspace_mib=30,
            ),
            measured(
                "benchmark", big="conv_r1", first_ms=3659, step_ms=5.35, kernel=(29, 0, 71, 0), watch=(14, 54, 27, 6),
                peak_mib=430, first_peak_mib=1509, families=(CUTLASS, CUTLASS), error=3e-4, gradients_repeat=False,
                saved_mib=69, workspace_mib=10,
            ),
            measured(
                "no-tf32", big="conv_r1", first_ms=67, step_ms=12.23, kernel=(14, 0, 86, 0), watch=(6, 61, 29, 4),
                peak_mib=1508, families=(FFT, DIRECT), error=4e-7, gradients_repeat=False, saved_mib=69,
                workspace_mib=1212,
            ),
            measured(
                "benchmark+no-tf32", big="conv_r1", first_ms=1651, step_ms=6.36, kernel=(25, 0, 74, 0),
                watch=(8, 42, 46, 4), peak_mib=1509, families=(FFT, FFT), error=4e-7, gradients_repeat=False, saved_mib=69,
                workspace_mib=1212,
            ),
            measured(
                "cudnn-off", big="conv_r1", first_ms=34, step_ms=29.96, kernel=(23, 0, 77, 0), watch=(5, 78, 15, 1),
                peak_mib=1052, families=(IM2COL, IM2COL), error=2e-7, saved_mib=69,
            ),
        )
    )  # fmt: skip
    return report(*runs, again(runs[0]), counts=V1_STATIC, about=target("convnet_v1"))


def with_loading(run: ConfigRun, share: float) -> ConfigRun:
    """`run` with longer timed steps, of which fetching the batch takes `share`."""
    step_ns = round((run.device_ns or 0) / (1 - share))
    phases = (PhaseTime(phase="data", stopwatch_ns=round(share * step_ns)), *run.phases)
    return with_traced(run, step_ns=around(step_ns), phases=phases)


def single_conv() -> Report:
    """One Conv2d(3, 64, 3): two configurations that do not differ, time in pointwise kernels."""
    runs = []
    for name, first_ms, step_ms in (("default", 40, 6.08), ("benchmark", 176, 6.07)):
        run = measured(
            name, big="conv", first_ms=first_ms, step_ms=step_ms, kernel=(18, 17, 65, 0), watch=(2, 88, 7, 3),
            peak_mib=5483, families=(XMMA, XMMA), saved_mib=4000,
        )  # fmt: skip
        pointwise = TraceKernel(name="elementwise_kernel", family="pointwise", calls=4, kernel_ns=5 * MS)
        modules = (TraceModule(path="conv", phase="forward", kernel_ns=5 * MS, kernels=(pointwise,)),)
        runs.append(with_traced(run, modules=modules, kernels=(pointwise,)))
    return report(*with_tuning(tuple(runs)), again(runs[0]), counts=static(conv("conv", 3, 64, 3, 256)))


def cpu() -> Report:
    """V0 on a CPU: one configuration, operator clock, all clocks agree."""
    ns = 7_000 * MS
    shares: tuple[tuple[Phase, float], ...] = (("forward", 0.35), ("loss", 0.0), ("backward", 0.65), ("optimizer", 0.0))
    modules = tuple(
        TraceModule(
            path="conv2",
            phase=phase,
            kernel_ns=int(ns * share),
            kernels=(TraceKernel(name="aten::convolution", family="conv", calls=1, kernel_ns=int(ns * share)),),
        )
        for phase, share in shares
        if share
    )
    run = traced_run(
        config=RunConfig(name="default"),
        environment=CPU,
        first_step_ns=ns,
        steps_ns=(ns,) * 3,
        step_ns=around(ns),
        clock="operator",
        phases=tuple(PhaseTime(phase=p, stopwatch_ns=int(ns * s), kernel_ns=int(ns * s)) for p, s in shares),
        modules=modules,
        unattributed_ns=0,
        repeatable=True,
        repeatable_outputs=True,
        repeatable_gradients=True,
    )
    return report(run, counts=V0_STATIC, about=target("convnet_v0"))


def all_failed() -> Report:
    reason = Failure(kind="out_of_memory", message="CUDA out of memory. Tried to allocate 20.00 GiB.")
    names = ("default", "benchmark", "no-tf32")
    return report(*(ConfigRun(config=config(n), environment=H100, failure=reason) for n in names), counts=V1_STATIC)


def of_rule(findings: tuple[Finding, ...], rule: str) -> tuple[Finding, ...]:
    return tuple(f for f in findings if f.rule == rule)


def value(finding: Finding, name: str, where: str = "") -> Evidence:
    """The one piece of evidence of that name whose place holds `where`."""
    found = [e for e in finding.evidence if e.name == name and where in e.where]
    assert len(found) == 1, f"{len(found)} x {name!r} at {where!r} in {[(e.name, e.where) for e in finding.evidence]}"
    return found[0]


def texts(claims: tuple[Claim, ...]) -> tuple[str, ...]:
    """The claims as text: ``busy:module:conv1``."""
    return tuple(map(str, claims))
