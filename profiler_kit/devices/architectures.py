"""The architectures whose memory can be simulated, one per compute capability, and the lookup by capability."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.device import Architecture, AttentionKernel, AttentionOrder, Figure

MIB: Final = 1 << 20

# Sources of a card's number of multiprocessors.
PRINTED: Final = "the vendor's description of the architecture"
FROM_CORES: Final = "derived: FP32 cores of the card's datasheet, divided by those of one multiprocessor"
FROM_PEAK: Final = "derived: the datasheet's fp32 peak, divided by that of one multiprocessor at the boost clock"

_GUIDE: Final = "CUDA C++ programming guide, technical specifications per compute capability"
_SDP: Final = "ATen/native/transformers/cuda/sdp_utils.cpp: priority order, and flash attention from sm80 on"
_BLASLT: Final = "measured on an H100, torch 2.11: 1 MiB"
_DROPOUT: Final = "measured on an H100, cuDNN 9.19; other GPUs: scaled by multiprocessors (cudnnDropoutGetStatesSize)"
_H100_CONTEXT_BYTES: Final = 552_402_944
_DROPOUT_BYTES: Final = 49_152  # 6,488,064 on the 132 multiprocessors of an H100


def _gpu(
    capability: int,
    threads: int,
    *,
    attention: AttentionOrder | None = None,
    blas_workspace: Figure | None = None,
    context_source: str = "not measured on this architecture: the lower figure of an H100, 527 MiB",
) -> Architecture:
    """A GPU architecture; omitted figures are those before Hopper."""
    fused: tuple[AttentionKernel, ...] = ("flash", "efficient", "math") if capability >= 80 else ("efficient", "math")
    return Architecture(
        name=f"sm{capability}",
        capability=capability,
        attention=attention or AttentionOrder(fused, _SDP),
        threads=Figure(threads, _GUIDE),
        blas_workspace=blas_workspace
        or Figure(
            2 * 4096 * 1024 + 8 * 16 * 1024, "ATen/cuda/CublasHandlePool.cpp: default :4096:2:16:8 before Hopper"
        ),
        blaslt_workspace=Figure(MIB, _BLASLT),
        dropout_state=Figure(_DROPOUT_BYTES, _DROPOUT),
        context=Figure(_H100_CONTEXT_BYTES, context_source),
    )


SM61: Final = _gpu(61, 2048)
SM70: Final = _gpu(70, 2048)
SM75: Final = _gpu(75, 1024)
SM80: Final = _gpu(80, 2048)
SM86: Final = _gpu(86, 1536)
SM89: Final = _gpu(89, 1536)
SM90: Final = _gpu(
    90,
    2048,
    attention=AttentionOrder(
        ("cudnn", "flash", "efficient", "math"), f"{_SDP}; cuDNN first on Hopper, measured on an H100"
    ),
    blas_workspace=Figure(
        32 * MIB, "ATen/cuda/CublasHandlePool.cpp: default :4096:8 on Hopper; measured on an H100, torch 2.11"
    ),
    context_source="measured on an H100, torch 2.11+cu130: 527 MiB initially, up to 769 MiB with all libraries loaded",
)
GPUS: Final = (SM61, SM70, SM75, SM80, SM86, SM89, SM90)

_NONE: Final = Figure(0, "none")
_OUTSIDE: Final = Figure(0, "libraries on the CPU allocate outside torch")
HOST: Final = Architecture(
    name="cpu",
    capability=0,
    attention=AttentionOrder(("flash",), "ATen/native/transformers/sdp_utils_cpp.cpp: _fused_sdp_choice_cpp"),
    threads=_NONE,
    blas_workspace=_OUTSIDE,
    blaslt_workspace=_OUTSIDE,
    dropout_state=_NONE,
    context=_NONE,
)


def nearest_architecture(capability: int) -> Architecture:
    """The architecture of `capability` (major times ten plus minor), else the nearest older one, else the oldest one."""
    older = [architecture for architecture in GPUS if architecture.capability <= capability]
    return older[-1] if older else GPUS[0]
