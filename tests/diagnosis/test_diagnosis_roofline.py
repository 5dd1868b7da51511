"""Floors by hand, where roofs come from, and which peak a contraction is held against."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnose_cases import CPU, H100
from sample_reports import SAMPLES, count_only, transformer, v0_cuda

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import devices_with_peaks
from profiler_kit.diagnosis.roofline import (
    AUTOCAST_BYTES,
    datasheet_roof,
    floor_times_ns,
    main_kernel_math,
    measured_roof,
    roofline,
    rooflines,
    roofs,
    step_arithmetic,
)
from profiler_kit.records.configs import NamedValue
from profiler_kit.records.counts import Cost, OpTotal
from profiler_kit.records.machine import Ceilings, MathRate
from profiler_kit.records.roofline import STEP, Floor, Peak, Roof
from profiler_kit.records.traces import TraceKernel

ROOF = Roof(
    hardware="a device", source="measured", citation="", bandwidth_bytes_per_s=1e9,
    peaks=tuple(Peak(math=m, flops_per_s=f, ridge_flops_per_byte=f / 1e9) for m, f in (("fp32", 1e12), ("tf32", 8e12))),
)  # fmt: skip
CPU_ROOF = replace(ROOF, peaks=ROOF.peaks[:1])


def ceilings(name: str = "NVIDIA H100 80GB HBM3", bandwidth: float | None = 3e12, fp32: float = 50e12) -> Ceilings:
    rates = tuple(
        MathRate(math=math, flops_per_s=rate, size=8192, repeats=10, spread_percent=0.1)
        for math, rate in (("fp32", fp32), ("tf32", 400e12))
        if rate
    )
    return Ceilings(
        device="cuda", device_name=name, torch="2.11.0", driver="580.1", threads=None, rates=rates,
        bandwidth_bytes_per_s=bandwidth, copy_bytes=2**30, bandwidth_spread_percent=0.1, duration_ns=1,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("cost", "math", "compute_ns", "memory_ns"),
    [
        (Cost(macs=500, flops=1000, read_bytes=3, write_bytes=1), "fp32", 1.0, 4.0),
        (Cost(macs=4000, flops=8000, read_bytes=1), "tf32", 1.0, 1.0),
        # fp32 units do both kinds of work in turn; tensor cores and fp32 units may overlap
        (Cost(macs=500, flops=3000), "fp32", 1.0 + 2.0, 0.0),
        (Cost(macs=4000, flops=8000 + 500), "tf32", 1.0, 0.0),
        (Cost(macs=4000, flops=8000 + 3000), "tf32", 3.0, 0.0),
        (Cost(flops=2000, write_bytes=9), None, 2.0, 9.0),
        (Cost(macs=500, flops=1000), "f64", 1.0, 0.0),  # no peak is known: fp32's, and a note says so
        (Cost(), None, 0.0, 0.0),
    ],
)
def test_a_floor_is_the_work_at_the_peak_and_the_bytes_at_the_bandwidth(
    cost: Cost, math: str | None, compute_ns: float, memory_ns: float
) -> None:
    assert floor_times_ns(cost, math, ROOF) == (pytest.approx(compute_ns), pytest.approx(memory_ns))


def test_floors_add_and_the_larger_part_binds() -> None:
    floor = Floor(compute_ns=3, timed_ns=3, time_ns=6) + Floor(memory_ns=4)
    assert (floor.floor_ns, floor.binds, floor.attained_percent) == (7, "memory", 50)
    assert Floor().attained_percent is None


@pytest.mark.parametrize("name", sorted(name for name, make in SAMPLES.items() if make().static is not None))
def test_phases_and_layers_of_a_roofline_agree(name: str) -> None:
    report = SAMPLES[name]()
    assert report.static is not None
    line = roofline(report.static, report.target, ROOF)
    step = line.step
    assert step is not None
    assert step.layers_ns == pytest.approx(sum(layer.floor_ns for layer in line.layers))
    phases = [phase for phase in line.phases if phase.phase != STEP]
    assert sum(phase.layers_ns for phase in phases) == pytest.approx(step.layers_ns)
    assert sum(phase.compute_ns for phase in phases) == pytest.approx(step.compute_ns)
    for phase in line.phases:
        assert phase.floor_ns == max(phase.compute_ns, phase.memory_ns) <= phase.layers_ns + 1e-3
    worked = {n.path for n in report.static.modules if n.step_cost.flops or n.step_cost.bytes_moved}
    assert {layer.path for layer in line.layers} == worked


def test_ops_have_floors_by_their_own_arithmetic() -> None:
    report = count_only()
    assert report.static is not None
    cost = Cost(macs=4000, flops=8000)
    ops = (
        OpTotal(op="aten.convolution", phase="forward", calls=1, cost=cost),
        OpTotal(op="aten.mm", phase="forward", calls=1, cost=cost),
        OpTotal(op="aten.view", phase="forward", calls=1, cost=Cost()),
        OpTotal(op="lib.unknown", phase="forward", calls=1, cost=None),
    )
    line = roofline(replace(report.static, ops=ops), report.target, ROOF)
    assert [(op.op, op.math, op.floor_ns) for op in line.ops] == [
        ("aten.convolution", "tf32", 1.0),
        ("aten.mm", "fp32", 8.0),
    ]


@pytest.mark.parametrize(
    ("run", "flag", "convolution", "product"),
    [
        (None, None, "tf32", "fp32"),
        ("default", None, "tf32", "fp32"),
        ("no-tf32", None, "fp32", "fp32"),
        ("default", "True", "tf32", "tf32"),
        ("default", "unreadable: mixed", "tf32", "fp32"),
    ],
)
def test_float32_on_a_device_with_tf32_goes_by_the_switches(
    run: str | None, flag: str | None, convolution: str, product: str
) -> None:
    report = v0_cuda()
    shown = report.run(run) if run is not None else None
    if shown is not None and flag is not None:
        assert shown.environment is not None
        flags = (NamedValue(name="cuda.matmul.allow_tf32", value=flag),)
        shown = replace(shown, environment=replace(shown.environment, flags=flags))
    found = step_arithmetic(report.target, ROOF, shown)
    assert (found.convolution, found.product) == (convolution, product)


def test_other_types_go_by_themselves() -> None:
    target = v0_cuda().target
    assert step_arithmetic(replace(target, amp="bfloat16"), ROOF, None).convolution == "bf16"
    assert step_arithmetic(replace(target, dtype="float16"), ROOF, None).product == "f16"
    assert step_arithmetic(replace(target, dtype="float64"), ROOF, None).convolution == "f64"
    assert step_arithmetic(target, CPU_ROOF, None).convolution == "fp32"


def test_kernel_names_come_before_flags() -> None:
    def kernel(family: str, math: str | None, ns: int) -> TraceKernel:
        return TraceKernel(name="k", family=family, calls=1, kernel_ns=ns, math=math)

    kernels = [kernel("gemm", "fp32", 5), kernel("conv:fft", "tf32", 6), kernel("conv:layout", "f16", 99)]
    assert main_kernel_math([*kernels, kernel("pointwise", "f16", 99), kernel("gemm", None, 99)]) == "tf32"
    assert main_kernel_math(kernels[2:]) is None


def test_the_measured_roof_comes_first_and_the_baseline_stands_under_all() -> None:
    report = v0_cuda()
    lines = rooflines(report, ceilings())
    traced = [run.config.name for run in report.runs if run.failure is None and run.unattributed_ns is not None]
    assert [line.config for line in lines if line.roof.source == "measured"] == traced
    assert [line.config for line in lines if line.roof.source == "datasheet"] == ["default"]
    with_lines = replace(report, roofline=lines)
    line = with_lines.roofline_of(report.baseline())
    assert line is not None
    assert line.roof.source == "measured"
    assert line.step is not None
    assert line.step.attained_percent is not None
    for layer in line.layers:
        timing = next(
            t for run in report.runs if run.config.name == "default" for t in run.modules
            if (t.path, t.phase) == (layer.path, layer.phase)
        )  # fmt: skip
        assert layer.time_ns == timing.kernel_ns
    assert line.step.time_ns == sum(layer.time_ns or 0 for layer in line.layers)
    assert {layer.math for layer in line.layers if layer.path == "conv2"} == {"tf32"}
    off = with_lines.roofline_of(report.run("no-tf32"))
    assert off is not None
    assert {layer.math for layer in off.layers if layer.path == "conv2"} == {"fp32"}


def test_no_roof_no_roofline() -> None:
    report = v0_cuda()
    assert roofs("an unknown device", None) == ()
    assert rooflines(replace(report, static=None), ceilings()) == ()
    assert rooflines(count_only(), ceilings()) == ()
    assert [roof.source for roof in roofs(H100.device_name, None)] == ["datasheet"]
    assert roofs(CPU.device_name, ceilings(CPU.device_name))[0].source == "measured"


@pytest.mark.parametrize(
    "broken",
    [
        ceilings(bandwidth=None),
        ceilings(bandwidth=0.0),
        ceilings(fp32=0),
        replace(ceilings(), bandwidth_spread_percent=11.0),  # measured while something else used the device
    ],
)
def test_half_a_measurement_is_no_roof(broken: Ceilings) -> None:
    assert measured_roof(broken) is None


def test_notes_name_substituted_peaks() -> None:
    report = transformer()  # under autocast to bfloat16
    assert report.static is not None
    notes = roofline(report.static, report.target, ROOF).notes
    assert any("bf16" in note and "fp32" in note for note in notes)
    assert AUTOCAST_BYTES in notes


@pytest.mark.parametrize("device", devices_with_peaks(), ids=lambda device: device.short_names[0])
def test_a_datasheets_roof_has_its_peaks_and_its_citation(device: Device) -> None:
    peaks = device.peaks
    assert peaks is not None
    roof = datasheet_roof(peaks, device.torch_names[0])
    assert (roof.hardware, roof.source, roof.citation) == (device.torch_names[0], "datasheet", peaks.source)
    assert all(peak.ridge_flops_per_byte == peak.flops_per_s / peaks.bandwidth for peak in roof.peaks)
    assert (peaks.tf32 or peaks.fp32) >= peaks.fp32
    assert peaks.fp16 is None or peaks.fp16 >= peaks.fp32
