"""Changes of a convolution: the MACs they leave, and bounds for the time of the changed step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.convolution import Convolution, join_sizes
from profiler_kit.diagnosis.roofline import FP32, floor_times_ns
from profiler_kit.diagnosis.timing import layer_timing
from profiler_kit.records.counts import COUNT_PHASES, CountPhase, ModuleNode
from profiler_kit.records.families import REDUCED_OPERATION_FAMILIES, main_algorithm
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.runs import ConfigRun

# Half of a smaller kernel is a single pixel (3 -> 1), which is another kind of layer.
MIN_KERNEL_SIZE_TO_HALVE: Final = 5
# Two layers move more bytes than one. A smaller saving of MACs may be lost to that.
MIN_MACS_SAVING: Final = 0.25
# If the device is busy for less than this share, the host limits the step, and a faster layer saves nothing.
MIN_BUSY_SHARE: Final = 0.6


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerChange:
    """One change of a convolution.

    `name`: the change in words. `detail`: its sizes. `layer_macs`: forward MACs of the changed layer. `macs_share`,
    `bytes_share`: MACs and bytes of the changed layer, as shares of the original. `intermediate_bytes`: bytes of a new tensor
    between two layers.
    `shrinks_kernel`: the change makes the kernel smaller, so an FFT takes as long as before.
    """

    name: str
    detail: str
    layer_macs: int
    macs_share: float
    bytes_share: float = 1.0
    intermediate_bytes: int = 0
    shrinks_kernel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """Bounds for the time of the changed step.

    `high_ns`: the layer stays as efficient as measured. `low_ns`: the layer reaches the roofline; None without a roofline.
    """

    high_ns: float
    low_ns: float | None


def layer_changes(node: ModuleNode, conv: Convolution) -> Iterator[LayerChange]:
    """Yield changes that reduce the work of the convolution `node` and leave the layers around it almost as they are."""
    macs = node.forward.macs
    if min(conv.kernel) >= MIN_KERNEL_SIZE_TO_HALVE:
        half_kernel = tuple(size // 2 for size in conv.kernel)
        new_macs = macs * math.prod(half_kernel) // math.prod(conv.kernel)
        yield LayerChange(
            name="half the kernel size",
            detail=f"{join_sizes(half_kernel)}, same output size",
            layer_macs=new_macs,
            macs_share=new_macs / macs,
            shrinks_kernel=True,
        )
    if min(conv.grid) > 1:
        half_grid = tuple(-(-size // 2) for size in conv.grid)
        new_macs = macs * math.prod(half_grid) // math.prod(conv.grid)
        yield LayerChange(
            name="stride 2 before it",
            detail=f"so that its output is {join_sizes(half_grid)}",
            layer_macs=new_macs,
            macs_share=new_macs / macs,
            bytes_share=new_macs / macs,
        )
    if len(conv.kernel) == 2 and conv.groups == 1 and not conv.is_strided:
        height, width = conv.kernel
        weights = conv.channels_in * conv.channels_out * height * width
        factorized_weights = conv.channels_in * conv.channels_out * height + conv.channels_out**2 * width
        if factorized_weights <= (1 - MIN_MACS_SAVING) * weights:
            new_macs = macs * factorized_weights // weights
            yield LayerChange(
                name="two layers instead of one",
                detail=f"{height}x1, then 1x{width}, {conv.channels_out} channels between",
                layer_macs=new_macs,
                macs_share=new_macs / macs,
                intermediate_bytes=node.output_bytes,
                shrinks_kernel=True,
            )


def step_bounds(report: Report, run: ConfigRun | None, node: ModuleNode, change: LayerChange) -> StepBounds | None:
    """Return bounds for the run's step with `change`; None without times, or if the device waits for the host."""
    if run is None or run.step_ns is None or (run.busy_share or 0.0) < MIN_BUSY_SHARE:
        return None
    line = report.roofline_of(run)
    math = {(layer.path, layer.phase): layer.math for layer in line.layers} if line is not None else {}
    layer_ns = high = 0.0
    low: float | None = 0.0 if line is not None else None
    for phase in COUNT_PHASES:
        timing = layer_timing(run, node.path, phase)
        if timing is None or not node.cost(phase).macs:
            continue
        used = main_algorithm(timing.kernels)
        is_unaffected = change.shrinks_kernel and used is not None and used.family in REDUCED_OPERATION_FAMILIES
        scaled_ns = timing.kernel_ns * (1.0 if is_unaffected else change.macs_share)
        floor = _floor_ns(node, phase, change, math.get((node.path, phase)), line.roof if line is not None else None)
        layer_ns += timing.kernel_ns
        high += max(scaled_ns, floor or 0.0)
        low = low + floor if low is not None and floor is not None else None
    other_ns = run.step_ns.median - layer_ns
    if layer_ns <= 0 or other_ns < 0:
        return None
    return StepBounds(high_ns=other_ns + high, low_ns=other_ns + min(low, high) if low is not None else None)


def _floor_ns(
    node: ModuleNode, phase: CountPhase, change: LayerChange, arithmetic: str | None, roof: Roof | None
) -> float | None:
    """Return the shortest time of the changed layer in `phase` under the roof; None without an fp32 peak.

    **Counts**: the tensor between two layers is written and read once in forward, twice in backward.
    """
    if roof is None or roof.peak(FP32) is None:
        return None
    cost = node.cost(phase)
    accesses = 2 if phase == "forward" else 4
    macs = round(cost.macs * change.macs_share)
    changed_cost = replace(
        cost,
        macs=macs,
        flops=round((cost.flops - 2 * cost.macs) * change.bytes_share) + 2 * macs,
        read_bytes=round(cost.read_bytes * change.bytes_share) + accesses * change.intermediate_bytes // 2,
        write_bytes=round(cost.write_bytes * change.bytes_share) + accesses * change.intermediate_bytes // 2,
    )
    return max(floor_times_ns(changed_cost, arithmetic, roof))
