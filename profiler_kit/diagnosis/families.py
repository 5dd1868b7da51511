"""Which algorithm a layer's kernels amount to: what records say of it, under the name that rules know."""

from __future__ import annotations

from profiler_kit.records.families import (
    DIRECT,
    FEWER_OPERATIONS,
    FFT,
    IM2COL,
    LAYOUT,
    WINOGRAD,
    Algorithm,
    algorithm,
    is_convolution,
)

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
