"""Devices that can be simulated, as data: which kernels they are given and what libraries take there, a source per row.

An entry is not a promise about every card of that architecture: multiprocessor counts are those of the card named.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from profiler_kit.errors import UsageError

MIB: Final = 1 << 20
Attention = Literal["cudnn", "flash", "efficient", "math"]


@dataclass(frozen=True, slots=True)
class Row:
    """A number and where it is from."""

    value: int
    source: str


@dataclass(frozen=True, slots=True)
class AttentionRow:
    """Fused attention kernels in the order in which they are tried, and where that is from."""

    order: tuple[Attention, ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """What a simulated device does differently from tensors without data.

    `capability`: compute capability, major times ten plus minor; 0 for the CPU. `blas_workspace`: bytes that each cuBLAS
    handle takes at its first use and keeps, one handle per thread; `blaslt_workspace` likewise for cuBLASLt.
    `dropout_state`: bytes of random state that cuDNN's recurrent dropout keeps. `context`: what driver, context and loaded
    libraries take outside the allocator.
    """

    name: str
    card: str
    capability: int
    attention: AttentionRow
    multiprocessors: Row
    threads: Row
    blas_workspace: Row
    blaslt_workspace: Row
    dropout_state: Row
    context: Row

    @property
    def is_cuda(self) -> bool:
        """Whether the device is a GPU."""
        return self.capability > 0


_DATASHEET: Final = "CUDA C++ programming guide, technical specifications per compute capability; the card's datasheet"
_BLAS_OLD: Final = "ATen/cuda/CublasHandlePool.cpp: default :4096:2:16:8 before Hopper"
_BLAS_HOPPER: Final = "ATen/cuda/CublasHandlePool.cpp: default :4096:8 on Hopper; measured on an H100, torch 2.11"
_BLASLT: Final = "measured on an H100, torch 2.11: 1 MiB"
_DROPOUT: Final = "measured on an H100, cuDNN 9.19; elsewhere scaled by multiprocessors (cudnnDropoutGetStatesSize)"
_CONTEXT: Final = "no device of this kind measured: the lower figure of an H100, 527 MiB"
_SDP: Final = "ATen/native/transformers/cuda/sdp_utils.cpp: priority order, and flash attention from sm80 on"
_STATE_PER_MULTIPROCESSOR: Final = 6_488_064 // 132

CPU: Final = Profile(
    name="cpu",
    card="any CPU",
    capability=0,
    attention=AttentionRow(("flash",), "ATen/native/transformers/sdp_utils_cpp.cpp: _fused_sdp_choice_cpp"),
    multiprocessors=Row(0, "none"),
    threads=Row(0, "none"),
    blas_workspace=Row(0, "libraries on the CPU allocate outside torch"),
    blaslt_workspace=Row(0, "libraries on the CPU allocate outside torch"),
    dropout_state=Row(0, "none"),
    context=Row(0, "none"),
)


def _before_hopper(name: str, card: str, capability: int, multiprocessors: int, threads: int) -> Profile:
    order: tuple[Attention, ...] = ("flash", "efficient", "math") if capability >= 80 else ("efficient", "math")
    return Profile(
        name=name,
        card=card,
        capability=capability,
        attention=AttentionRow(order, _SDP),
        multiprocessors=Row(multiprocessors, _DATASHEET),
        threads=Row(threads, _DATASHEET),
        blas_workspace=Row(2 * 4096 * 1024 + 8 * 16 * 1024, _BLAS_OLD),
        blaslt_workspace=Row(MIB, _BLASLT),
        dropout_state=Row(_STATE_PER_MULTIPROCESSOR * multiprocessors, _DROPOUT),
        context=Row(552_402_944, _CONTEXT),
    )


SM75: Final = _before_hopper("sm75", "T4", 75, 40, 1024)
SM80: Final = _before_hopper("sm80", "A100", 80, 108, 2048)
SM86: Final = _before_hopper("sm86", "RTX 3090", 86, 82, 1536)
SM90: Final = Profile(
    name="sm90",
    card="H100 SXM",
    capability=90,
    attention=AttentionRow(("cudnn", "flash", "efficient", "math"), _SDP + "; cuDNN first on Hopper, seen on an H100"),
    multiprocessors=Row(132, _DATASHEET),
    threads=Row(2048, _DATASHEET),
    blas_workspace=Row(32 * MIB, _BLAS_HOPPER),
    blaslt_workspace=Row(MIB, _BLASLT),
    dropout_state=Row(6_488_064, _DROPOUT),
    context=Row(
        552_402_944, "measured on an H100, torch 2.11+cu130: 527 MiB at first, up to 769 MiB with all libraries"
    ),
)

PROFILES: Final[dict[str, Profile]] = {profile.name: profile for profile in (CPU, SM75, SM80, SM86, SM90)}


def profile_named(name: str) -> Profile:
    """The profile called `name`. Raises UsageError that names the choices."""
    found = PROFILES.get(name)
    if found is None:
        raise UsageError(f"no device profile {name!r}", hint=f"take one of {', '.join(PROFILES)}")
    return found
