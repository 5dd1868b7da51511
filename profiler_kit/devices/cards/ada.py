"""Ada: L4, L40S, GeForce RTX 40."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_CORES, FROM_PEAK, PRINTED, SM89
from profiler_kit.devices.device import Device, Figure, Peaks

_L4: Final = "NVIDIA L4 datasheet (with sparsity: halved): https://nvdam.widen.net/s/rvq98gbwsw/l4-datasheet-2595652"
_L40S: Final = "NVIDIA L40S datasheet: https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"
_ADA: Final = (
    "NVIDIA Ada GPU Architecture, appendix A: "
    "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
)

DEVICES: Final = (
    Device(
        label="RTX 4090",
        short=("rtx4090", "4090", "sm89"),
        names=("NVIDIA GeForce RTX 4090",),
        architecture=SM89,
        multiprocessors=Figure(128, PRINTED),
        peaks=Peaks(fp32=82.6e12, tf32=82.6e12, fp16=165.2e12, bf16=165.2e12, bandwidth=1008e9, source=_ADA),
    ),
    Device(
        label="L4",
        short=("l4",),
        names=("NVIDIA L4",),
        architecture=SM89,
        multiprocessors=Figure(58, FROM_PEAK),
        peaks=Peaks(fp32=30.3e12, tf32=60e12, fp16=121e12, bf16=121e12, bandwidth=300e9, source=_L4),
    ),
    Device(
        label="L40S",
        short=("l40s",),
        names=("NVIDIA L40S",),
        architecture=SM89,
        multiprocessors=Figure(142, FROM_CORES),
        peaks=Peaks(fp32=91.6e12, tf32=183e12, fp16=362.05e12, bf16=362.05e12, bandwidth=864e9, source=_L40S),
    ),
)
