"""Hopper: H100, H200."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_PEAK, PRINTED, SM90
from profiler_kit.devices.device import Device, Figure, Peaks

_HOPPER: Final = (
    "NVIDIA H100 Tensor Core GPU Architecture, v1.04, tables 1 and 3: "
    "https://nvdam.widen.net/s/95bdhpsgrs/nvidia_h100_tensor_core_gpu_architecture_whitepaper_v1.03"
)
_H100: Final = "NVIDIA H100 Tensor Core GPU (with sparsity: halved): https://www.nvidia.com/en-us/data-center/h100/"
_H200: Final = "NVIDIA H200 Tensor Core GPU (with sparsity: halved): https://www.nvidia.com/en-us/data-center/h200/"

H100: Final = Device(
    label="H100 SXM",
    short=("h100", "h100-sxm", "sm90"),
    names=("NVIDIA H100 80GB HBM3",),
    architecture=SM90,
    multiprocessors=Figure(132, PRINTED),
    peaks=Peaks(
        fp32=66.9e12, tf32=494.7e12, fp16=989.4e12, bf16=989.4e12,
        bandwidth=3350e9, source=f"{_HOPPER} (SXM5); bandwidth: {_H100}",
    ),
)  # fmt: skip

DEVICES: Final = (
    H100,
    Device(
        label="H100 PCIe",
        short=("h100-pcie",),
        names=("NVIDIA H100 PCIe",),
        architecture=SM90,
        multiprocessors=Figure(114, PRINTED),
        peaks=Peaks(
            fp32=51e12, tf32=378e12, fp16=756e12, bf16=756e12, bandwidth=2000e9,
            source="NVIDIA H100 Tensor Core GPU datasheet (PCIe; with sparsity: halved): "
            "https://www.megware.com/fileadmin/user_upload/LandingPage%20NVIDIA/nvidia-h100-datasheet.pdf; "
            f"dense BF16 in {_HOPPER}",
        ),
    ),
    Device(
        label="H100 NVL",
        short=("h100-nvl",),
        names=("NVIDIA H100 NVL",),
        architecture=SM90,
        multiprocessors=Figure(132, FROM_PEAK),
        peaks=Peaks(fp32=60e12, tf32=417.5e12, fp16=835.5e12, bf16=835.5e12, bandwidth=3900e9, source=_H100),
    ),
    Device(
        label="H200",
        short=("h200",),
        names=("NVIDIA H200",),
        architecture=SM90,
        multiprocessors=Figure(132, FROM_PEAK),
        peaks=Peaks(
            fp32=67e12, tf32=494.5e12, fp16=989.5e12, bf16=989.5e12, bandwidth=4800e9, source=f"{_H200} (SXM)"
        ),
    ),
)  # fmt: skip
