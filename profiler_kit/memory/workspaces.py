"""What libraries take at a handle's first use and keep: one workspace per handle, one handle per thread."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Architecture, Figure

_PRODUCTS: Final = frozenset(
    "aten." + name for name in ("mm", "bmm", "baddbmm", "addmv", "mv", "dot", "addmm", "_addmm_activation")
)
_WITH_BIAS: Final = frozenset(("aten.addmm", "aten._addmm_activation"))


# Without cuDNN a convolution is unfolded, and what is unfolded multiplied (ATen/native/cuda/ConvolutionMM2d.cu): seen on
# an H100 to take both threads' workspaces.
_CONVOLUTIONS: Final = frozenset(("aten.convolution", "aten.convolution_backward"))


def takes_workspace(op: str, *, cudnn: bool = True) -> bool:
    """Whether `op` is a product that cuBLAS computes, or comes down to one without `cudnn`."""
    return op in _PRODUCTS or (op in _CONVOLUTIONS and not cudnn)


def workspaces(op: str, architecture: Architecture, *, bias_is_vector: bool) -> tuple[tuple[str, Figure], ...]:
    """(library, bytes) of each handle that `op` uses; a product with a bias per column goes to cuBLASLt as well."""
    if op in _WITH_BIAS and bias_is_vector:
        return ("cuBLAS", architecture.blas_workspace), ("cuBLASLt", architecture.blaslt_workspace)
    return (("cuBLAS", architecture.blas_workspace),)
