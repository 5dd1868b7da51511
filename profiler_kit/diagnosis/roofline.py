"""The roofline: the shortest time (floor) of each layer's counted work, and the resource that limits it.

Contractions (MACs) are divided by the peak of their arithmetic, including tensor cores; all other FLOPs by the fp32 peak.
If both run on the same units (fp32), their times add up. Otherwise they may overlap, and the longer one counts. Bytes are
divided by the bandwidth. The floor is the larger of the compute time and the memory time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Final

from profiler_kit.devices.device import Peaks
from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.pairs import preserves_layer_work
from profiler_kit.records.counts import COUNT_PHASES, Cost, CountPhase, ModuleNode, StaticCount
from profiler_kit.records.families import LAYOUT
from profiler_kit.records.machine import Ceilings
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import (
    STEP,
    BoundPhase,
    LayerBound,
    OpBound,
    Peak,
    PhaseBound,
    Resource,
    Roof,
    Roofline,
    RoofSource,
)
from profiler_kit.records.runs import ConfigRun
from profiler_kit.records.target import TargetInfo
from profiler_kit.records.traces import TraceKernel

FP32: Final = "fp32"
AUTOCAST_BYTES: Final = (
    "Bytes are counted without autocast. Memory floors may be up to twice too high for tensors that autocast halves."
)


def datasheet_roof(peaks: Peaks, hardware: str) -> Roof:
    """Return the roofline peaks of the device `hardware` by its datasheet."""
    return _roof(hardware, "datasheet", peaks.source, tuple(peaks.rates().items()), peaks.bandwidth)


def measured_roof(ceilings: Ceilings) -> Roof | None:
    """Return the measured roofline peaks; None if they varied too much, or if the bandwidth or the fp32 peak is missing."""
    rates = tuple((rate.math, rate.flops_per_s) for rate in ceilings.rates)
    if not ceilings.steady or not ceilings.bandwidth_bytes_per_s or FP32 not in dict(rates):
        return None
    sizes = ", ".join(f"{rate.math} {rate.size}" for rate in ceilings.rates)
    citation = f"square matrix products ({sizes} rows) and a copy, with torch {ceilings.torch}"
    return _roof(ceilings.device_name, "measured", citation, rates, ceilings.bandwidth_bytes_per_s)


def roofs(device_name: str | None, ceilings: Ceilings | None) -> tuple[Roof, ...]:
    """Return the roofline peaks of a device: the measured ones first, then those of the datasheet; empty if unknown."""
    measured = measured_roof(ceilings) if ceilings is not None else None
    sheet = peaks_of(device_name)
    datasheet = datasheet_roof(sheet, device_name) if sheet is not None and device_name is not None else None
    return tuple(roof for roof in (measured, datasheet) if roof is not None)


def rooflines(report: Report, ceilings: Ceilings | None) -> tuple[Roofline, ...]:
    """Return the rooflines of `report`'s step on its device: of every traced run for the first roof, of the baseline for all.

    Runs with settings that change the work (a larger batch) are left out, because their floors differ.
    """
    baseline = report.baseline()
    if report.static is None or baseline is None or baseline.environment is None:
        return ()
    device_roofs = roofs(baseline.environment.device_name, ceilings)
    successful = (run for run in report.runs if run.failure is None and run.unattributed_ns is not None)
    traced = [run for run in successful if preserves_layer_work(run.config)]
    return tuple(
        roofline(report.static, report.target, roof, run)
        for run in traced or [baseline]
        for i, roof in enumerate(device_roofs)
        if i == 0 or run is baseline
    )


def roofline(static: StaticCount, target: TargetInfo, roof: Roof, run: ConfigRun | None = None) -> Roofline:
    """Return floors of the counted step under `roof`, with the device times of `run` if it was traced."""
    assumed = step_arithmetic(target, roof, run)
    works = _layer_works(static, assumed, run)
    phases: list[PhaseBound] = [
        _phase_bound(phase, [work for work in works if work.phase == phase], roof)
        for phase in COUNT_PHASES
        if any(work.phase == phase for work in works)
    ]
    return Roofline(
        roof=roof,
        config=run.config.name if run is not None else None,
        arithmetic=assumed.reason
        if run is None or run.clock == "operator"
        else f"the arithmetic that their kernels name, else {assumed.reason}",
        phases=(*phases, _phase_bound(STEP, works, roof)) if phases else (),
        layers=tuple(_layer_bound(work, roof) for work in works),
        notes=tuple(_notes(target, static, works, roof)),
        ops=tuple(_op_bounds(static, assumed, roof)),
    )


def _layer_works(static: StaticCount, assumed: StepArithmetic, run: ConfigRun | None) -> list[_LayerWork]:
    """Return the counted work of every module and phase, with arithmetic and time from the trace of `run`."""
    traced = run.modules if run is not None and run.unattributed_ns is not None else ()
    timings = {(timing.path, timing.phase): timing for timing in traced}
    works = []
    for node in static.modules:
        for phase in COUNT_PHASES:
            cost = node.cost(phase)
            if not cost.flops and not cost.bytes_moved:
                continue
            timing = timings.get((node.path, phase))
            kernels = timing.kernels if timing is not None else ()
            math = contraction_math(node, phase, kernels, assumed, static)
            time_ns = (timing.kernel_ns or None) if timing is not None else None
            works.append(_LayerWork(path=node.path, phase=phase, cost=cost, math=math, time_ns=time_ns))
    return works


@dataclass(frozen=True, slots=True, kw_only=True)
class _LayerWork:
    path: str
    phase: CountPhase
    cost: Cost
    math: str | None
    time_ns: int | None


def floor_times_ns(cost: Cost, math: str | None, roof: Roof) -> tuple[float, float]:
    """Return the shortest compute time and the shortest memory time of `cost`, with contractions in arithmetic `math`.

    **Units**: ns.
    """
    fp32 = roof.peak(FP32)
    assert fp32 is not None, f"{roof.hardware} has no fp32 peak"
    peak = roof.peak(math) if math is not None and math != FP32 else None
    pointwise = (cost.flops - 2 * cost.macs) / fp32
    # Without a peak of its own (fp32, or an unknown one such as f64) a contraction runs on the same units as the rest;
    # no known device is faster in f64 than in fp32.
    compute = 2 * cost.macs / fp32 + pointwise if peak is None else max(2 * cost.macs / peak, pointwise)
    return 1e9 * compute, 1e9 * cost.bytes_moved / roof.bandwidth_bytes_per_s


def _layer_bound(work: _LayerWork, roof: Roof) -> LayerBound:
    compute, memory = floor_times_ns(work.cost, work.math, roof)
    return LayerBound(
        path=work.path,
        phase=work.phase,
        floor_ns=round(max(compute, memory), 3),
        binds=_binds(compute, memory),
        math=work.math,
        time_ns=work.time_ns,
    )


def _op_bounds(static: StaticCount, assumed: StepArithmetic, roof: Roof) -> Iterator[OpBound]:
    """Yield the floor of every counted op, in the assumed arithmetic because kernels are not attributed to ops."""
    for total in static.ops:
        if total.cost is None or not (total.cost.flops or total.cost.bytes_moved):
            continue
        math = assumed.of(is_cudnn_op(total.op)) if total.cost.macs else None
        compute, memory = floor_times_ns(total.cost, math, roof)
        yield OpBound(
            op=total.op,
            phase=total.phase,
            floor_ns=round(max(compute, memory), 3),
            binds=_binds(compute, memory),
            math=math,
        )


def _phase_bound(phase: BoundPhase, works: Sequence[_LayerWork], roof: Roof) -> PhaseBound:
    floors = [floor_times_ns(work.cost, work.math, roof) for work in works]
    compute, memory = fsum(c for c, _ in floors), fsum(m for _, m in floors)
    times = [work.time_ns for work in works if work.time_ns is not None]
    timed_floor = fsum(max(pair) for work, pair in zip(works, floors, strict=True) if work.time_ns is not None)
    return PhaseBound(
        phase=phase,
        compute_ns=round(compute, 3),
        memory_ns=round(memory, 3),
        floor_ns=round(max(compute, memory), 3),
        binds=_binds(compute, memory),
        layers_ns=round(
            fsum(round(max(pair), 3) for pair in floors), 3
        ),  # the sum of the rounded floors in the layer table
        time_ns=sum(times) if times else None,
        attained_percent=100.0 * timed_floor / sum(times) if times else None,
    )


def _binds(compute: float, memory: float) -> Resource:
    return "compute" if compute >= memory else "memory"


def _notes(target: TargetInfo, static: StaticCount, works: Sequence[_LayerWork], roof: Roof) -> Iterator[str]:
    unknown = sorted({work.math for work in works if work.math is not None and roof.peak(work.math) is None})
    if unknown:
        yield f"The {', '.join(unknown)} peak of {roof.hardware} is unknown; the fp32 peak is used instead."
    if target.amp is not None and static.autocast is None:
        yield AUTOCAST_BYTES


def _roof(
    hardware: str, source: RoofSource, citation: str, rates: Sequence[tuple[str, float | None]], bandwidth: float
) -> Roof:
    peaks = tuple(
        Peak(math=math, flops_per_s=rate, ridge_flops_per_byte=rate / bandwidth)
        for math, rate in rates
        if rate is not None
    )
    return Roof(hardware=hardware, source=source, citation=citation, peaks=peaks, bandwidth_bytes_per_s=bandwidth)


_BY_DTYPE: Final = {"float32": "fp32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
_CUDNN_OPS: Final = ("conv", "rnn", "lstm", "gru")  # parts of op and class names that cudnn.allow_tf32 applies to
_CONTRACTIONS: Final = ("conv", "gemm", "attention", "rnn")  # kernel families that multiply and accumulate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepArithmetic:
    """The arithmetic of a step: of convolutions and recurrent layers, of all other contractions, and the reason in words."""

    convolution: str
    product: str
    reason: str

    def of(self, is_convolution: bool) -> str:
        """Return the arithmetic of convolutions, or of other contractions."""
        return self.convolution if is_convolution else self.product


def step_arithmetic(target: TargetInfo, roof: Roof, run: ConfigRun | None) -> StepArithmetic:
    """Return the arithmetic of `target`'s contractions with the flags of `run` (None: torch's defaults) on `roof`'s device."""
    if target.amp is not None:
        math = _BY_DTYPE.get(target.amp, target.amp)
        return StepArithmetic(convolution=math, product=math, reason=f"{math}, because of autocast to {target.amp}")
    dtype = target.dtype or next((i.dtype for i in target.inputs if i.dtype in _BY_DTYPE), "float32")
    math = _BY_DTYPE.get(dtype, dtype)
    if math != "fp32" or roof.peak("tf32") is None:
        return StepArithmetic(convolution=math, product=math, reason=f"{math}, because the tensors are {dtype}")
    convolution = "fp32" if run is not None and run.config.allow_tf32 is False else "tf32"
    flags = run.environment.flags if run is not None and run.environment is not None else ()
    product = "tf32" if any(f.name == "cuda.matmul.allow_tf32" and f.value == "True" for f in flags) else "fp32"
    source = "torch's defaults" if run is None else f"the flags of {run.config.name}"
    return StepArithmetic(
        convolution=convolution,
        product=product,
        reason=f"{convolution} for convolutions and recurrent layers, {product} for other products, by {source}",
    )


def uses_cudnn(node: ModuleNode, static: StaticCount) -> bool:
    """Return whether the contractions of `node` are convolutions or recurrent layers; by class if the model has both kinds."""
    kinds = {is_cudnn_op(total.op) for total in static.ops if total.cost is not None and total.cost.macs}
    if len(kinds) == 1:
        return kinds.pop()
    return is_cudnn_op(node.class_name)


def main_kernel_math(kernels: Iterable[TraceKernel]) -> str | None:
    """Return the arithmetic with the most time among contraction kernels; None if no kernel name shows it."""
    times: Counter[str] = Counter()
    for kernel in kernels:
        if kernel.math is not None and kernel.family.startswith(_CONTRACTIONS) and kernel.family != LAYOUT:
            times[kernel.math] += kernel.kernel_ns
    return min(times, key=lambda math: (-times[math], math)) if times else None


def contraction_math(
    node: ModuleNode, phase: CountPhase, kernels: Iterable[TraceKernel], assumed: StepArithmetic, static: StaticCount
) -> str | None:
    """Return the arithmetic of `node`'s contractions in `phase`, by its kernels or else as `assumed`; None without any."""
    if not node.cost(phase).macs:
        return None
    return main_kernel_math(kernels) or assumed.of(uses_cudnn(node, static))


def is_cudnn_op(name: str) -> bool:
    """Return whether an op or class of this name is a convolution or a recurrent layer, which cuDNN computes."""
    return any(word in name.lower() for word in _CUDNN_OPS)
