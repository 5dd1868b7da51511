"""Which algorithm a layer's kernels amount to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.families import DIRECT, FFT, IM2COL, LAYOUT, WINOGRAD, is_convolution, stands_for
from profiler_kit.records.runs import KernelStat

__all__ = [
    "DIRECT",
    "FEWER_OPERATIONS",
    "FFT",
    "IM2COL",
    "LAYOUT",
    "WINOGRAD",
    "Algorithm",
    "algorithm",
    "is_convolution",
]

# Families that do less arithmetic than the 2 x MAC that is counted; their effective rate may pass the device's peak.
FEWER_OPERATIONS: Final = frozenset({FFT, WINOGRAD})


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
        groups[stands_for(kernel.family, present)].append(kernel)
    if not groups:
        return None
    family = max(sorted(groups), key=lambda name: sum(k.kernel_ns for k in groups[name]))
    longest = max(groups[family], key=lambda k: k.kernel_ns)
    stated = [k for k in groups[family] if k.math is not None]
    math = max(stated, key=lambda k: k.kernel_ns).math if stated else None
    return Algorithm(family, math, longest.name)
