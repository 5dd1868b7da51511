"""Families of kernels and operators in a person's words. The names are those that records hold (`KernelStat.family`)."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

LAYOUT: Final = "conv:layout"
FFT: Final = "conv:fft"
WINOGRAD: Final = "conv:winograd"
IM2COL: Final = "conv:im2col(aten)"
DIRECT: Final = "conv:legacy_direct"

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


def math_words(math: str) -> str:
    """`math` in words: ``math_words("tf32") == "TF32"``; what has none keeps its name."""
    return MATH_WORDS.get(math, math)


def family_words(family: str) -> str:
    """`family` in words: ``family_words("conv:xmma_igemm") == "implicit GEMM (xmma)"``; an unknown one keeps its name."""
    return WORDS.get(family, family)


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
