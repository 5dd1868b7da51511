"""Display names of kernel and operator families. Records hold the family names (`TraceKernel.family`)."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import Final

from profiler_kit.records.sums import sum_fields
from profiler_kit.records.traces import TraceKernel

LAYOUT: Final = "conv:layout"
FFT: Final = "conv:fft"
WINOGRAD: Final = "conv:winograd"
IM2COL: Final = "conv:im2col(aten)"
DIRECT: Final = "conv:legacy_direct"

# Families that execute fewer operations than the counted 2 x MACs; their effective rate may exceed the device's peak.
REDUCED_OPERATION_FAMILIES: Final = frozenset({FFT, WINOGRAD})

# A family that begins with "conv:" is a way to compute a convolution.
FAMILY_NAMES: Final = {
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
    "norm": "normalization",
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

# What kernels do, for colors: a family, or what its name begins with before a colon. Others are "other".
_GROUPS: Final = {
    "conv:layout": "copies and layout", "conv": "convolution", "fft": "convolution", "gemm": "matrix products",
    "attention": "attention", "rnn": "recurrent layers", "norm": "normalization", "pool": "pooling", "interpolate": "pooling",
    "loss/softmax": "reductions and sorting", "reduce": "reductions and sorting", "sort/scan": "reductions and sorting",
    "pointwise": "pointwise operations", "random": "pointwise operations", "index": "copies and layout",
    "cat/copy": "copies and layout", "view": "copies and layout", "alloc": "copies and layout",
    "memcpy/memset": "copies and layout", "optimizer": "optimizer",
}  # fmt: skip

# Arithmetic as in `TraceKernel.math` and `ConvolutionTiming.math`.
MATH_NAMES: Final = {
    "tf32": "TF32",
    "fp32": "fp32 SIMT",  # per thread, not on tensor cores
    "f16": "fp16",
    "f64": "fp64",
}

# Short display names for narrow columns.
SHORT_FAMILY_NAMES: Final = {
    IM2COL: "im2col",
    DIRECT: "direct convolution",
    "conv:legacy_cask": "implicit GEMM (older)",
}


def family_name(family: str) -> str:
    """The name of `family` for display: ``family_words("conv:xmma_igemm") == "implicit GEMM (xmma)"``.

    An unknown family keeps its name.
    """
    return FAMILY_NAMES.get(family, family)


def family_group(family: str) -> str:
    """What kernels of `family` do, coarsely: ``family_group("conv:fft") == "convolution"``."""
    return _GROUPS.get(family) or _GROUPS.get(family.partition(":")[0], "other")


def math_name(math: str) -> str:
    """The display name of `math`: ``math_words("tf32") == "TF32"``; an unknown name is unchanged."""
    return MATH_NAMES.get(math, math)


def short_math_name(math: str) -> str:
    """The short display name of `math`: ``brief_math_words("fp32") == "fp32"``."""
    return math_name(math).removesuffix(" SIMT")


def is_convolution(family: str) -> bool:
    """Whether kernels of `family` compute a convolution (layout conversion does not)."""
    return family.startswith("conv:") and family != LAYOUT


def parent_algorithm(family: str, present: Collection[str]) -> str:
    """The algorithm that kernels of `family` are a stage of, if kernels of the families `present` ran with them.

    Complex matrix products together with FFT kernels are part of the FFT algorithm. Matrix products together with im2col are
    part of im2col.
    """
    if family == "gemm:complex" and FFT in present:
        return FFT
    if family == "gemm" and IM2COL in present:
        return IM2COL
    return family


def short_family_name(family: str) -> str:
    """The short display name of `family`: ``brief_words("conv:legacy_direct") == "direct convolution"``."""
    return SHORT_FAMILY_NAMES.get(family) or family_name(family)


def kernels_by_family(kernels: Iterable[TraceKernel], *, with_stages: bool = False) -> tuple[TraceKernel, ...]:
    """The `kernels` of each family as one, longest first: its longest kernel, with the calls, time and main arithmetic of all.

    Stages of FFT and im2col count as these algorithms, or `with_stages` as families of their own.
    """
    kernel_list = list(kernels)
    present = () if with_stages else {k.family for k in kernel_list}
    groups: defaultdict[str, list[TraceKernel]] = defaultdict(list)
    for kernel in kernel_list:
        groups[parent_algorithm(kernel.family, present)].append(kernel)
    families = []
    for family, members in groups.items():
        by_time = sorted(members, key=lambda k: -k.kernel_ns)
        math = next((k.math for k in by_time if k.math is not None), None)
        families.append(sum_fields(by_time, "calls", "kernel_ns", family=family, math=math))
    return tuple(sorted(families, key=lambda k: (-k.kernel_ns, k.family)))


def main_algorithm(kernels: Iterable[TraceKernel]) -> TraceKernel | None:
    """The algorithm with the most time among `kernels`, as one kernel; None without kernels."""
    return next(iter(kernels_by_family(kernels)), None)


def is_contraction(family: str) -> bool:
    """Return whether `family` is a contraction (convolution or matrix product); layout conversions are not."""
    return family.startswith(("conv", "gemm")) and family != LAYOUT


def is_product_family(family: str) -> bool:
    """Return whether `family` multiplies and accumulates: contractions, attention, recurrent layers."""
    return is_contraction(family) or family.startswith(("attention", "rnn"))


# "Memcpy HtoD (Pageable -> Device)", and "CopyHostToDevice" on ROCm.
_HOST_COPY: Final = re.compile(r"\AMemcpy (HtoD|DtoH)|\ACopy(HostToDevice|DeviceToHost)", re.IGNORECASE)


def is_host_copy(name: str) -> bool:
    """Return whether the device work `name` copies between host and device."""
    return _HOST_COPY.match(name) is not None
