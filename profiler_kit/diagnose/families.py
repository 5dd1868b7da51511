"""Which algorithm a layer's kernels amount to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import KernelStat

FFT: Final = "conv:fft"
LAYOUT: Final = "conv:layout"
IM2COL: Final = "conv:im2col(aten)"
DIRECT: Final = "conv:legacy_direct"
WINOGRAD: Final = "conv:winograd"

# Families that do less arithmetic than the 2 x MAC that is counted; their effective rate may pass the device's peak.
FEWER_OPERATIONS: Final = frozenset({FFT, WINOGRAD})


def is_convolution(family: str) -> bool:
    """Whether kernels of `family` compute a convolution (layout conversion does not)."""
    return family.startswith("conv:") and family != LAYOUT


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What a layer's kernels amount to: the family that takes most time, its arithmetic, its longest kernel."""

    family: str
    math: str | None
    kernel: str


def algorithm(kernels: Iterable[KernelStat]) -> Algorithm | None:
    """The family with most time among `kernels`; complex products beside FFT kernels count as FFT, im2col's as im2col."""
    listed = list(kernels)
    present = {k.family for k in listed}
    groups: defaultdict[str, list[KernelStat]] = defaultdict(list)
    for kernel in listed:
        groups[_stands_for(kernel.family, present)].append(kernel)
    if not groups:
        return None
    family = max(sorted(groups), key=lambda name: sum(k.kernel_ns for k in groups[name]))
    longest = max(groups[family], key=lambda k: k.kernel_ns)
    stated = [k for k in groups[family] if k.math is not None]
    math = max(stated, key=lambda k: k.kernel_ns).math if stated else None
    return Algorithm(family, math, longest.name)


def _stands_for(family: str, present: set[str]) -> str:
    if family == "gemm:complex" and FFT in present:
        return FFT
    if family == "gemm" and IM2COL in present:
        return IM2COL
    return family
