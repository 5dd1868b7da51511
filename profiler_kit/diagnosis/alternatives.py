"""A step with its largest convolution changed: what the counts leave to do, and between which bounds it would take."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from profiler_kit.diagnosis.convolution import Convolution, by
from profiler_kit.diagnosis.roofline import FP32, floor_of
from profiler_kit.diagnosis.timing import device_share, layer_timing
from profiler_kit.records.counts import COUNT_PHASES, CountPhase, ModuleNode
from profiler_kit.records.families import FEWER_OPERATIONS, algorithm
from profiler_kit.records.report import Report
from profiler_kit.records.roofline import Roof
from profiler_kit.records.runs import ConfigRun

# Halving a smaller kernel leaves no neighbourhood to look at (3 -> 1).
LEAST_KERNEL_TO_HALVE: Final = 5
# Two layers in place of one move more bytes: a saving below a quarter may be lost to that.
LEAST_SAVING: Final = 0.25
# On a device that idles for more than this the host decides how long a step takes, not the layer's kernels.
BUSY: Final = 0.6
_STRIDE: Final = re.compile(r",\s*s\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change of a convolution, and the forward MACs of the layer that it leaves.

    `macs`, `moved`: the share of the layer's MACs and bytes that is left. `between`: bytes of a tensor between two layers that
    was not there, written and read again. `by_kernel`: it is the kernel that shrinks, so that an FFT takes as long as before.
    """

    what: str
    layer_macs: int
    macs: float
    moved: float = 1.0
    between_bytes: int = 0
    by_kernel: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """The step with the change: at most `high_ns`, as efficient as measured; at least `low_ns`, at the roof (None: unknown)."""

    high_ns: float
    low_ns: float | None


def changes(node: ModuleNode, conv: Convolution) -> Iterator[Change]:
    """What could be done to the convolution that `node` is, without touching the layers around it more than needed."""
    macs = node.forward.macs
    if min(conv.kernel) >= LEAST_KERNEL_TO_HALVE:
        half = tuple(size // 2 for size in conv.kernel)
        left = macs * math.prod(half) // math.prod(conv.kernel)
        yield Change(
            what=f"half the kernel size ({by(half)}, same output size)",
            layer_macs=left,
            macs=left / macs,
            by_kernel=True,
        )
    if min(conv.grid) > 1:
        grid = tuple(-(-size // 2) for size in conv.grid)
        left = macs * math.prod(grid) // math.prod(conv.grid)
        what = f"stride 2 before it (so that it works at {by(grid)} positions)"
        yield Change(what=what, layer_macs=left, macs=left / macs, moved=left / macs)
    if len(conv.kernel) == 2 and conv.groups == 1 and not _STRIDE.search(node.config):
        height, width = conv.kernel
        whole = conv.channels_in * conv.channels_out * height * width
        parts = conv.channels_in * conv.channels_out * height + conv.channels_out**2 * width
        if parts <= (1 - LEAST_SAVING) * whole:
            left = macs * parts // whole
            yield Change(
                what=f"two layers in its place ({height}x1, then 1x{width}, {conv.channels_out} channels between)",
                layer_macs=left,
                macs=left / macs,
                between_bytes=node.output_bytes,
                by_kernel=True,
            )


def step_bounds(report: Report, run: ConfigRun | None, node: ModuleNode, change: Change) -> StepBounds | None:
    """The run's step with `change`; None without its times, or where the device waits for the host."""
    if run is None or run.step_ns is None or (device_share(run) or 0.0) < BUSY:
        return None
    line = report.roofline_of(run)
    maths = {(layer.path, layer.phase): layer.math for layer in line.layers} if line is not None else {}
    taken = high = 0.0
    low: float | None = 0.0 if line is not None else None
    for phase in COUNT_PHASES:
        timing = layer_timing(run, node.path, phase)
        if timing is None or not node.cost(phase).macs:
            continue
        used = algorithm(timing.kernels)
        kept = change.by_kernel and used is not None and used.family in FEWER_OPERATIONS
        same = timing.kernel_ns * (1.0 if kept else change.macs)
        floor = _floor(node, phase, change, maths.get((node.path, phase)), line.roof if line is not None else None)
        taken += timing.kernel_ns
        high += max(same, floor or 0.0)
        low = low + floor if low is not None and floor is not None else None
    rest = run.step_ns.median - taken
    if taken <= 0 or rest < 0:
        return None
    return StepBounds(high_ns=rest + high, low_ns=rest + min(low, high) if low is not None else None)


def _floor(
    node: ModuleNode, phase: CountPhase, change: Change, arithmetic: str | None, roof: Roof | None
) -> float | None:
    """The least time of the changed layer in `phase` under the roof; backward reads and writes what is between twice."""
    if roof is None or roof.peak(FP32) is None:
        return None
    cost = node.cost(phase)
    rounds = 2 if phase == "forward" else 4
    macs = round(cost.macs * change.macs)
    left = replace(
        cost,
        macs=macs,
        flops=round((cost.flops - 2 * cost.macs) * change.moved) + 2 * macs,
        read_bytes=round(cost.read_bytes * change.moved) + rounds * change.between_bytes // 2,
        write_bytes=round(cost.write_bytes * change.moved) + rounds * change.between_bytes // 2,
    )
    return max(floor_of(left, arithmetic, roof))
