"""The least time each layer's counted work can take under a roof, and what binds it.

Contractions (MACs) are held against the peak of their arithmetic, on tensor cores where it has them; all other FLOPs
against the fp32 peak. Where both run on the same units (fp32) their times add; else they may overlap, and the longer one
counts. Bytes are held against the bandwidth. The floor is the larger of arithmetic and bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from profiler_kit.devices.device import Peaks
from profiler_kit.devices.registry import peaks_of
from profiler_kit.diagnosis.arithmetic import Arithmetic, arithmetic, is_cudnn, layer_math
from profiler_kit.diagnosis.pairs import does_same_work
from profiler_kit.records.ceilings import Ceilings
from profiler_kit.records.counts import COUNT_PHASES, Cost, CountPhase, StaticCount
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

FP32: Final = "fp32"
AUTOCAST_BYTES: Final = (
    "Bytes are counted without autocast, so that floors by bytes may be up to twice too high where it halves them."
)


def datasheet_roof(peaks: Peaks, hardware: str) -> Roof:
    """The roof by a datasheet of the device called `hardware`."""
    return _roof(hardware, "datasheet", peaks.source, tuple(peaks.rates().items()), peaks.bandwidth)


def measured_roof(ceilings: Ceilings) -> Roof | None:
    """The roof as measured; None where it varied too much, or the bandwidth or the fp32 rate could not be measured."""
    rates = tuple((rate.math, rate.flops_per_s) for rate in ceilings.rates)
    if not ceilings.steady or not ceilings.bandwidth_bytes_per_s or FP32 not in dict(rates):
        return None
    sizes = ", ".join(f"{rate.math} {rate.size}" for rate in ceilings.rates)
    citation = f"square matrix products ({sizes} rows) and a copy, torch {ceilings.torch}"
    return _roof(ceilings.device_name, "measured", citation, rates, ceilings.bandwidth_bytes_per_s)


def roofs(device_name: str | None, ceilings: Ceilings | None) -> tuple[Roof, ...]:
    """The roofs known for a device: the measured one first, then the datasheet's."""
    measured = measured_roof(ceilings) if ceilings is not None else None
    sheet = peaks_of(device_name)
    known = (measured, datasheet_roof(sheet, device_name) if sheet is not None and device_name is not None else None)
    return tuple(roof for roof in known if roof is not None)


def rooflines(report: Report, ceilings: Ceilings | None) -> tuple[Roofline, ...]:
    """`report`'s step under the roofs of the device it ran on: every traced run under the first, the baseline under all."""
    baseline = report.baseline()
    if report.static is None or baseline is None or baseline.environment is None:
        return ()
    known = roofs(baseline.environment.device_name, ceilings)
    ran = (run for run in report.runs if run.failure is None and run.unattributed_ns is not None)
    traced = [run for run in ran if does_same_work(run.config)]  # a larger batch has other floors
    return tuple(
        roofline(report.static, report.target, roof, run)
        for run in traced or [baseline]
        for i, roof in enumerate(known)
        if i == 0 or run is baseline
    )


def roofline(static: StaticCount, target: TargetInfo, roof: Roof, run: ConfigRun | None = None) -> Roofline:
    """The counted step under `roof`, beside the device times of `run` where it was traced."""
    assumed = arithmetic(target, roof, run)
    works = _works(static, assumed, run)
    phases: list[PhaseBound] = [
        _phase_bound(phase, [work for work in works if work.phase == phase], roof)
        for phase in COUNT_PHASES
        if any(work.phase == phase for work in works)
    ]
    return Roofline(
        roof=roof,
        config=run.config.name if run is not None else None,
        arithmetic=assumed.reason if run is None else f"the arithmetic their kernels name, else {assumed.reason}",
        phases=(*phases, _phase_bound(STEP, works, roof)) if phases else (),
        layers=tuple(_layer_bound(work, roof) for work in works),
        notes=tuple(_notes(target, works, roof)),
        ops=tuple(_op_bounds(static, assumed, roof)),
    )


def _works(static: StaticCount, assumed: Arithmetic, run: ConfigRun | None) -> list[_Work]:
    """Every owner and phase with counted work, beside what `run`'s trace says of it."""
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
            math = layer_math(node, phase, kernels, assumed, static)
            time_ns = (timing.kernel_ns or None) if timing is not None else None
            works.append(_Work(path=node.path, phase=phase, cost=cost, math=math, time_ns=time_ns))
    return works


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    path: str
    phase: CountPhase
    cost: Cost
    math: str | None
    time_ns: int | None


def floor_of(cost: Cost, math: str | None, roof: Roof) -> tuple[float, float]:
    """What the arithmetic and what the bytes of `cost` need alone, in ns; contractions in `math`."""
    fp32 = roof.peak(FP32)
    assert fp32 is not None, f"{roof.hardware} has no fp32 peak"
    peak = roof.peak(math) if math is not None and math != FP32 else None
    pointwise = (cost.flops - 2 * cost.macs) / fp32
    # on the same units without one; where none is known, as for float64, no device here is faster than in fp32
    compute = 2 * cost.macs / fp32 + pointwise if peak is None else max(2 * cost.macs / peak, pointwise)
    return 1e9 * compute, 1e9 * cost.bytes_moved / roof.bandwidth_bytes_per_s


def _layer_bound(work: _Work, roof: Roof) -> LayerBound:
    compute, memory = floor_of(work.cost, work.math, roof)
    return LayerBound(
        path=work.path,
        phase=work.phase,
        floor_ns=round(max(compute, memory), 3),
        binds=_binds(compute, memory),
        math=work.math,
        time_ns=work.time_ns,
    )


def _op_bounds(static: StaticCount, assumed: Arithmetic, roof: Roof) -> Iterator[OpBound]:
    """The floor of every counted op; in the assumed arithmetic, as kernels are not told apart by op."""
    for total in static.ops:
        if total.cost is None or not (total.cost.flops or total.cost.bytes_moved):
            continue
        math = assumed.of(is_cudnn(total.op)) if total.cost.macs else None
        compute, memory = floor_of(total.cost, math, roof)
        yield OpBound(
            op=total.op,
            phase=total.phase,
            floor_ns=round(max(compute, memory), 3),
            binds=_binds(compute, memory),
            math=math,
        )


def _phase_bound(phase: BoundPhase, works: Sequence[_Work], roof: Roof) -> PhaseBound:
    both = [floor_of(work.cost, work.math, roof) for work in works]
    compute, memory = sum(c for c, _ in both), sum(m for _, m in both)
    times = [work.time_ns for work in works if work.time_ns is not None]
    timed_floor = sum(max(pair) for work, pair in zip(works, both, strict=True) if work.time_ns is not None)
    return PhaseBound(
        phase=phase,
        compute_ns=round(compute, 3),
        memory_ns=round(memory, 3),
        floor_ns=round(max(compute, memory), 3),
        binds=_binds(compute, memory),
        layers_ns=round(sum(round(max(pair), 3) for pair in both), 3),  # of the layers as they are shown
        time_ns=sum(times) if times else None,
        attained_percent=100.0 * timed_floor / sum(times) if times else None,
    )


def _binds(compute: float, memory: float) -> Resource:
    return "compute" if compute >= memory else "memory"


def _notes(target: TargetInfo, works: Sequence[_Work], roof: Roof) -> Iterator[str]:
    unknown = sorted({work.math for work in works if work.math is not None and roof.peak(work.math) is None})
    if unknown:
        yield f"No peak in {', '.join(unknown)} is known for {roof.hardware}: fp32's is taken."
    if target.amp is not None:
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
