"""Families of kernels and operators in a person's words. The names are those that records hold (`KernelStat.family`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from profiler_kit.records.runs import KernelStat

LAYOUT: Final = "conv:layout"
FFT: Final = "conv:fft"
WINOGRAD: Final = "conv:winograd"
IM2COL: Final = "conv:im2col(aten)"
DIRECT: Final = "conv:legacy_direct"

# Families that do less arithmetic than the 2 x MAC that is counted; their effective rate may pass the device's peak.
FEWER_OPERATIONS: Final = frozenset({FFT, WINOGRAD})

# A family that begins with "conv:" is a way to compute a convolution.
WORDS: Final = {
    "conv:layout": "layout conversion",
    "conv:winograd": "Winograd",
    "conv:fft": "FFT",
    "conv:depthwise": "depthwise convolution",
    "conv:grouped": "grouped direct convolution",
    "conv:im2col(aten)": "im2col and matrix product (PyTorch's own, not cuDNN)",
    "conv:first_layer": "first-layer convolution",
    "conv:sparse": "sparse convolution",
    "conv:xmma_igemm": "implicit GEMM (xmma)",
    "conv:cutlass_igemm": "implicit GEMM (CUTLASS)",
    "conv:miopen_igemm": "implicit GEMM (MIOpen)",
    "conv:naive": "naive convolution",
    "conv:legacy_cask": "implicit GEMM (older cuDNN kernels)",
    "conv:explicit_gemm": "explicit GEMM",
    "conv:legacy_direct": "direct convolution (older cuDNN kernels)",
    "conv": "convolution",
    "gemm": "matrix product",
    "gemm:complex": "complex matrix product",
    "gemm:splitk_reduce": "split-K reduction",
    "fft": "FFT operators",
    "attention": "attention",
    "rnn": "recurrent layers",
    "norm": "normalisation",
    "pool": "pooling",
    "interpolate": "interpolation",
    "loss/softmax": "softmax and loss",
    "pointwise": "pointwise operations",
    "reduce": "reductions",
    "sort/scan": "sorting and scans",
    "index": "indexing",
    "random": "random numbers",
    "cat/copy": "copies",
    "view": "views",
    "alloc": "allocation and fills",
    "memcpy/memset": "memory copies and fills",
    "optimizer": "optimizer operations",
    "comm": "communication",
    "sync": "waiting for results",
    "autograd": "autograd's own work",
    "other": "other operations",
}

# Arithmetic as `KernelStat.math` and `ConvolutionTiming.math` hold it.
MATH_WORDS: Final = {
    "tf32": "TF32",
    "fp32": "fp32 SIMT",  # each thread for itself, not on tensor cores
    "f16": "fp16",
    "f64": "fp64",
}

# The families where there is little room.
BRIEF: Final = {IM2COL: "im2col", DIRECT: "direct convolution", "conv:legacy_cask": "implicit GEMM (older)"}


def family_words(family: str) -> str:
    """`family` in words: ``family_words("conv:xmma_igemm") == "implicit GEMM (xmma)"``; an unknown one keeps its name."""
    return WORDS.get(family, family)


def math_words(math: str) -> str:
    """`math` in words: ``math_words("tf32") == "TF32"``; what has none keeps its name."""
    return MATH_WORDS.get(math, math)


def brief_math_words(math: str) -> str:
    """`math` in as few words as tell it from the others: ``brief_math_words("fp32") == "fp32"``."""
    return math_words(math).removesuffix(" SIMT")


def is_convolution(family: str) -> bool:
    """Whether kernels of `family` compute a convolution (layout conversion does not)."""
    return family.startswith("conv:") and family != LAYOUT


def stands_for(family: str, present: Collection[str]) -> str:
    """The algorithm that a kernel of `family` is a stage of, where kernels of the families `present` ran with it.

    Complex products beside FFT kernels are the FFT algorithm's, products beside im2col im2col's.
    """
    if family == "gemm:complex" and FFT in present:
        return FFT
    if family == "gemm" and IM2COL in present:
        return IM2COL
    return family


def brief_words(family: str) -> str:
    """`family` in as few words as tell it from the others: ``brief_words("conv:legacy_direct") == "direct convolution"``."""
    return BRIEF.get(family) or family_words(family)


@dataclass(frozen=True, slots=True)
class Algorithm:
    """What a layer's kernels amount to: the family that takes most time, its arithmetic, its longest kernel.

    `kernel_ns` is the time of the family's kernels.
    """

    family: str
    math: str | None
    kernel: str
    kernel_ns: int = 0


def algorithms(kernels: Iterable[KernelStat]) -> tuple[Algorithm, ...]:
    """The families among `kernels`, most time first; complex products beside FFT kernels count as FFT, im2col's as im2col."""
    listed = list(kernels)
    present = {k.family for k in listed}
    groups: defaultdict[str, list[KernelStat]] = defaultdict(list)
    for kernel in listed:
        groups[stands_for(kernel.family, present)].append(kernel)
    found = []
    for family in sorted(groups):
        longest = max(groups[family], key=lambda k: k.kernel_ns)
        stated = [k for k in groups[family] if k.math is not None]
        math = max(stated, key=lambda k: k.kernel_ns).math if stated else None
        found.append(Algorithm(family, math, longest.name, sum(k.kernel_ns for k in groups[family])))
    return tuple(sorted(found, key=lambda one: -one.kernel_ns))


def algorithm(kernels: Iterable[KernelStat]) -> Algorithm | None:
    """The family with most time among `kernels`, as in `algorithms`; None where there are none."""
    return next(iter(algorithms(kernels)), None)
