"""Pascal: GeForce GTX 10."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_CORES, PRINTED, SM61
from profiler_kit.devices.device import Device, Figure, Peaks

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
        label="GTX 1080 Ti",
        short=("gtx1080ti", "1080ti", "sm61"),
        names=("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"),
        architecture=SM61,
        multiprocessors=Figure(28, PRINTED),
        peaks=Peaks(fp32=11.3e12, bandwidth=484e9, source=_TURING),
    ),
    Device(
        label="GTX 1050 Ti",
        short=("gtx1050ti", "1050ti"),
        names=("NVIDIA GeForce GTX 1050 Ti", "GeForce GTX 1050 Ti"),
        architecture=SM61,
        multiprocessors=Figure(6, FROM_CORES),
        peaks=Peaks(fp32=2.14e12, bandwidth=112e9, source=_GP107),
    ),
)
