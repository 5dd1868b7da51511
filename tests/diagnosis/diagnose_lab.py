"""Reports of the laboratory: further configurations, second processes, roofs; and one in which everything goes wrong."""

from __future__ import annotations

from dataclasses import replace

from diagnose_cases import (
    DIRECT,
    H100,
    IM2COL,
    MIB,
    MS,
    XMMA,
    again,
    around,
    config,
    conv,
    layer,
    measured,
    report,
    static,
    target,
    v0,
    v1,
)
from traced_runs import with_traced

from profiler_kit.diagnosis.roofline import rooflines
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.counts import Cost, MemoryCategories, MemoryEstimate, ModuleMemory, ModuleNode
from profiler_kit.records.experiments import ConvolutionTiming, DeviceState, ExperimentOptions, Repeat
from profiler_kit.records.machine import Ceilings, MathRate
from profiler_kit.records.report import Report
from profiler_kit.records.runs import ConfigRun, Failure
from profiler_kit.records.traces import TraceKernel, TraceModule

AMPERE = replace(H100, capability="9.0")
CEILINGS = Ceilings(
    device="cuda",
    device_name=H100.device_name,
    torch="2.11.0",
    driver="580",
    threads=16,
    rates=tuple(
        MathRate(math=math, flops_per_s=rate, size=8192, repeats=9, spread_percent=0.1)
        for math, rate in (("fp32", 50e12), ("tf32", 370e12), ("f16", 720e12), ("bf16", 670e12))
    ),
    bandwidth_bytes_per_s=3e12,
    copy_bytes=2**30,
    bandwidth_spread_percent=0.1,
    duration_ns=10**9,
)


def roofed(source: Report) -> Report:
    """`source` under measured ceilings."""
    return replace(source, roofline=rooflines(source, CEILINGS))


def twice(run: ConfigRun, factor: float = 1.001, **digests: str) -> ConfigRun:
    """`run` with a second process whose step is `factor` times as long."""
    assert run.step_ns is not None
    second = around(round(run.step_ns.median * factor))
    kept = {"output_digest": run.output_digest, "gradient_digest": run.gradient_digest, **digests}
    return replace(run, repeat=Repeat(step_ns=second, steps_ns=run.steps_ns, **kept))


def also(run: ConfigRun, step_ms: float, **settings: str) -> ConfigRun:
    """`run` with further settings and another step, in two processes."""
    items = tuple(NamedValue(name=name, value=settings[name]) for name in sorted(settings))
    words = [item.name if item.value == "on" else f"{item.name}={item.value}" for item in items]
    plain = [] if run.config.name == "default" else [run.config.name]
    changed = replace(run.config, name="+".join([*plain, *words]), settings=items)
    step_ns = around(round(step_ms * MS))
    return replace(run, config=changed, step_ns=step_ns, repeat=Repeat(step_ns=step_ns), tuning_ns=None)


def laboratory(steps_planned: int | None = 1000) -> Report:
    """V0, twice each, with further axes, a limit sweep and a capped run."""
    base = v0()
    runs = [twice(replace(run, environment=AMPERE, samples=8)) for run in base.runs if run.config.repeat_of is None]
    default, benchmark = runs[0], runs[1]
    quick = replace(also(benchmark, 15.5, benchmark_limit="1"), first_step_ns=round(900 * MS))
    axes = [
        twice(also(default, 22.0, channels_last="on")),
        twice(replace(also(default, 9.0, amp_bf16="on"), max_relative_error=3e-2, output_digest="other")),
        twice(replace(also(default, 51.0, batch="2x"), samples=16, peak_allocated_bytes=900 * MIB)),
        twice(also(default, 26.3, compile="on")),
    ]
    first = again(default)
    whole = report(*runs, quick, *axes, first, counts=base.static, about=target("convnet_v0"))
    return roofed(replace(whole, asked=ExperimentOptions(steps_planned=steps_planned)))


def capped() -> Report:
    """V1 in plain fp32, with and without a cap: the FFT's workspace does not fit, and cuDNN off does not at all."""
    free = v1().runs[2]
    slow = measured(
        "no-tf32", big="conv_r1", first_ms=60, step_ms=19.21, kernel=(40, 0, 60, 0), watch=(4, 70, 22, 4), peak_mib=186,
        families=(DIRECT, DIRECT), saved_mib=69, workspace_mib=0,
    )  # fmt: skip
    off = next(run for run in v1().runs if run.config.enabled is False)
    full = replace(also(off, 1, memory_limit="1GiB"), step_ns=None, failure=Failure(kind="out_of_memory", message="no"))
    return report(free, also(slow, 19.21, memory_limit="1GiB"), off, full, counts=v1().static)


def troubled() -> Report:
    """A target whose file switches cuDNN off, on a hot device, with an unlucky search, inert flags and an odd layer."""
    steps = tuple(20 * MS for _ in range(10)) + tuple(21 * MS for _ in range(10))
    default = replace(
        measured(
            "default", big="dilated", first_ms=80, step_ms=20.0, kernel=(40, 0, 60, 0), watch=(2, 90, 6, 2), peak_mib=400,
            families=(IM2COL, XMMA), saved_mib=250, error=1e-3,
        ),
        steps_ns=steps,
        environment=replace(
            AMPERE,
            flags=(
                NamedValue(name="cudnn.conv.fp32_precision", value="ieee"),
                NamedValue(name="cudnn.allow_tf32", value="unreadable: mixed use"),
            ),
            variables=(NamedValue(name="NVIDIA_TF32_OVERRIDE", value="0"),),
        ),
        device_state=DeviceState(
            sm_clock_hz=1_200_000_000, temperature_celsius=88, throttled_by=("power cap", "hardware slowdown")
        ),
        flags_changed=("cudnn.enabled: True -> False", "cudnn.benchmark: False -> True"),
        repeatable=True,
        repeatable_outputs=True,
        repeatable_gradients=True,
        repeatable_loss=True,
        loss_digest="l",
    )  # fmt: skip
    search = replace(
        default, config=config("benchmark"), first_step_ns=900 * MS, step_ns=around(15 * MS), flags_changed=()
    )
    search = replace(search, environment=AMPERE, device_state=None, steps_ns=(15 * MS,) * 20)
    off = replace(default, config=config("cudnn-off"), step_ns=around(60 * MS), flags_changed=(), environment=AMPERE)
    off = with_traced(off, kernels=(TraceKernel(name="im2col", family=IM2COL, calls=1, kernel_ns=58 * MS),))
    dilated = replace(conv("dilated", 30, 50, 3, 64), config="30->50, k3, d8")
    about = replace(
        target(),
        cudnn_flags=(NamedValue(name="enabled", value="False"), NamedValue(name="benchmark", value="True")),
        cudnn_off_lines=(12, 30),
    )
    kept = (ModuleMemory(path=""), ModuleMemory(path="dilated", created_bytes=200 * MIB, inside_bytes=150 * MIB))
    memory = MemoryEstimate(peak_bytes=1, peak_at="x", categories=MemoryCategories(), modules=kept)
    counts = replace(static(dilated, conv("small", 3, 4, 3, 8)), memory=memory)
    return roofed(
        report(
            twice(default, 1.05),
            twice(search, 1.2, output_digest="z", loss_digest="l"),
            replace(off, further_repeats=(Repeat(step_ns=off.step_ns),) * 3),
            counts=counts,
            about=about,
        )
    )


def gap(slow_ns: int = 60 * MS, quick_ns: int = 2 * MS, *, by_parts: bool = False) -> Report:
    """Two convolutions of the same work under ceilings: one takes `slow_ns` for its forward pass, the other `quick_ns`."""
    counts = static(
        ModuleNode(path="", class_name="Net"), conv("slow", 30, 64, 16, 256), conv("quick", 32, 64, 16, 256)
    )
    modules = (
        layer("slow", "forward", slow_ns, XMMA),
        layer("quick", "forward", quick_ns, XMMA),
        TraceModule(path="", phase="forward", kernel_ns=MS),
    )
    parts = tuple(
        ConvolutionTiming(
            path=path, part="wgrad", calls=1, kernel_ns=ns, layout_ns=ns // 5, family=XMMA, kernel="k", math="tf32",
            tensor_core=True, workspace_bytes=0, macs=8 * 30 * 64 * 256 * 65536,
        )
        for path, ns in (("slow", slow_ns), ("quick", quick_ns))
    )  # fmt: skip
    run = with_traced(
        v0().runs[0],
        environment=AMPERE,
        modules=modules,
        kernels=(),
        unattributed_ns=0,
        step_ns=around(slow_ns + quick_ns + MS),
    )
    return roofed(report(replace(run, convolutions=parts if by_parts else ()), counts=counts))


def moving(share: float) -> Report:
    """Pointwise layers take `share` of the device time, a convolution the rest."""
    relu = ModuleNode(
        path="relu", class_name="ReLU", calls=1, forward=Cost(flops=10**8, read_bytes=2 * 10**9, write_bytes=2 * 10**9)
    )
    counts = static(relu, conv("conv", 64, 64, 3, 256))
    whole = 10 * MS
    kernel = TraceKernel(name="relu", family="pointwise", calls=1, kernel_ns=round(whole * share))
    modules = (
        TraceModule(path="relu", phase="forward", kernel_ns=kernel.kernel_ns, kernels=(kernel,)),
        layer("conv", "forward", whole - kernel.kernel_ns, XMMA),
    )
    run = with_traced(
        v0().runs[0], environment=AMPERE, modules=modules, kernels=(), unattributed_ns=0, step_ns=around(11 * MS)
    )
    return roofed(report(run, counts=counts))
