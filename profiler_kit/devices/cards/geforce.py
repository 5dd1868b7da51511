"""GeForce cards: Ada, Ampere and Pascal."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_CORES, PRINTED, SM61, SM86, SM89
from profiler_kit.devices.device import Device, Figure, Peaks

_ADA: Final = (
    "NVIDIA Ada GPU Architecture, appendix A: "
    "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
)
_GA102: Final = (
    "NVIDIA Ampere GA102 GPU Architecture, appendix A: "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
_TURING: Final = (
    "NVIDIA Turing GPU Architecture, comparison with the GeForce GTX 1080 Ti: https://images.nvidia.com/aem-dam/en-zz/"
    "Solutions/design-visualization/technologies/turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf"
)
_GP107: Final = (
    "2 x 768 cores x 1.392 GHz, 128 bit at 7 Gbit/s: https://techpowerup.com/review/msi-gtx-1050-ti-gaming-x/2.html, "
    "https://arduer.com/geforce-gtx-1050-gtx-1050-nuove-schede-video-nvidia/23901"
)

DEVICES: Final = (
    Device(
        label="RTX 4090", short_names=("rtx4090", "4090", "sm89"), torch_names=("NVIDIA GeForce RTX 4090",),
        architecture=SM89, multiprocessors=Figure(128, PRINTED),
        peaks=Peaks(fp32=82.6e12, tf32=82.6e12, fp16=165.2e12, bf16=165.2e12, bandwidth=1008e9, source=_ADA),
    ),
    Device(
        label="RTX 3090", short_names=("rtx3090", "3090", "sm86"), torch_names=("NVIDIA GeForce RTX 3090",),
        architecture=SM86, multiprocessors=Figure(82, PRINTED),
        peaks=Peaks(fp32=35.6e12, tf32=35.6e12, fp16=71e12, bf16=71e12, bandwidth=936e9, source=_GA102),
    ),
    Device(
        label="GTX 1080 Ti", short_names=("gtx1080ti", "1080ti", "sm61"),
        torch_names=("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        architecture=SM61, multiprocessors=Figure(28, PRINTED),
        peaks=Peaks(fp32=11.3e12, bandwidth=484e9, source=_TURING),
    ),
    Device(
        label="GTX 1050 Ti", short_names=("gtx1050ti", "1050ti"),
        torch_names=("NVIDIA GeForce GTX 1050 Ti", "GeForce GTX 1050 Ti"),
        architecture=SM61, multiprocessors=Figure(6, FROM_CORES),
        peaks=Peaks(fp32=2.14e12, bandwidth=112e9, source=_GP107),
    ),
)  # fmt: skip
