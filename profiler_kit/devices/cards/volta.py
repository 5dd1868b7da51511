"""Volta: V100."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import PRINTED, SM70
from profiler_kit.devices.device import Device, Figure, Peaks

_V100: Final = (
    "NVIDIA V100 Tensor Core GPU datasheet: "
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)

DEVICES: Final = (
    Device(
        label="V100",
        short=("v100", "v100-sxm", "sm70"),
        names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        architecture=SM70,
        multiprocessors=Figure(80, PRINTED),
        peaks=Peaks(fp32=15.7e12, fp16=125e12, bandwidth=900e9, source=f"{_V100} (SXM2)"),
    ),
    Device(
        label="V100 PCIe",
        short=("v100-pcie",),
        names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
        architecture=SM70,
        multiprocessors=Figure(80, PRINTED),
        peaks=Peaks(fp32=14e12, fp16=112e12, bandwidth=900e9, source=f"{_V100} (PCIe)"),
    ),
)
