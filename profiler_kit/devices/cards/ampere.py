"""Ampere: A100, A10, GeForce RTX 30."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_PEAK, PRINTED, SM80, SM86
from profiler_kit.devices.device import Device, Figure, Peaks

_A100: Final = (
    "NVIDIA A100 Tensor Core GPU datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_AMPERE: Final = (
    "NVIDIA A100 Tensor Core GPU Architecture, comparison of P100, V100 and A100: "
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf"
)
_A10: Final = (
    "NVIDIA A10 datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
)
_GA102: Final = (
    "NVIDIA Ampere GA102 GPU Architecture, appendix A: "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)


def _a100(bandwidth: float, source: str) -> Peaks:
    return Peaks(fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12, bandwidth=bandwidth, source=source)


A100: Final = Device(
    label="A100",
    short=("a100", "a100-80gb", "a100-sxm", "sm80"),
    names=("NVIDIA A100-SXM4-80GB",),
    architecture=SM80,
    multiprocessors=Figure(108, PRINTED),
    peaks=_a100(2039e9, f"{_A100} (80GB SXM)"),
)
RTX_3090: Final = Device(
    label="RTX 3090",
    short=("rtx3090", "3090", "sm86"),
    names=("NVIDIA GeForce RTX 3090",),
    architecture=SM86,
    multiprocessors=Figure(82, PRINTED),
    peaks=Peaks(fp32=35.6e12, tf32=35.6e12, fp16=71e12, bf16=71e12, bandwidth=936e9, source=_GA102),
)

DEVICES: Final = (
    A100,
    Device(
        label="A100 PCIe",
        short=("a100-pcie",),
        names=("NVIDIA A100 80GB PCIe",),
        architecture=SM80,
        multiprocessors=Figure(108, PRINTED),
        peaks=_a100(1935e9, f"{_A100} (80GB PCIe)"),
    ),
    Device(
        label="A100 40GB",
        short=("a100-40gb",),
        names=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"),
        architecture=SM80,
        multiprocessors=Figure(108, PRINTED),
        peaks=_a100(1555e9, _AMPERE),
    ),
    RTX_3090,
    Device(
        label="A10",
        short=("a10",),
        names=("NVIDIA A10",),
        architecture=SM86,
        multiprocessors=Figure(72, FROM_PEAK),
        peaks=Peaks(fp32=31.2e12, tf32=62.5e12, fp16=125e12, bf16=125e12, bandwidth=600e9, source=_A10),
    ),
)
