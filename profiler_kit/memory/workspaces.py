"""What libraries take at a handle's first use and keep: one workspace per handle, one handle per thread."""

from __future__ import annotations

from typing import Final

from profiler_kit.memory.profiles import Profile, Row

_PRODUCTS: Final = frozenset(
    "aten." + name for name in ("mm", "bmm", "baddbmm", "addmv", "mv", "dot", "addmm", "_addmm_activation")
)
_WITH_BIAS: Final = frozenset(("aten.addmm", "aten._addmm_activation"))


def takes_workspace(op: str) -> bool:
    """Whether `op` is a product that cuBLAS computes."""
    return op in _PRODUCTS


def workspaces(op: str, profile: Profile, *, bias_is_vector: bool) -> tuple[tuple[str, Row], ...]:
    """(library, bytes) of each handle that `op` uses; a product with a bias per column goes to cuBLASLt as well."""
    if op not in _PRODUCTS:
        return ()
    if op in _WITH_BIAS and bias_is_vector:
        return ("cuBLAS", profile.blas_workspace), ("cuBLASLt", profile.blaslt_workspace)
    return (("cuBLAS", profile.blas_workspace),)
