"""Datasheet peaks of common devices, a source per row, found by the exact name torch gives the device.

A name that is not listed has no peak here: a slice of a device (MIG) or a variant with other clocks carries a longer
name, and another device's peak would be a wrong number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from profiler_kit.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a device reaches at most, dense (no structured sparsity), at the vendor's boost clock; FLOP/s and bytes/s.

    `fp32` is without tensor cores; the others are tensor-core peaks with fp32 accumulation, None where there are none.
    `names` are torch's, exactly; `short` is what a person may call it, the first being how lists of choices do.
    """

    names: tuple[str, ...]
    short: tuple[str, ...]
    fp32: float
    tf32: float | None
    fp16: float | None
    bf16: float | None
    bandwidth: float
    source: str

    def for_math(self, math: str | None) -> float | None:
        """The peak for a kernel's arithmetic as kernel names give it (``fp32``, ``tf32``, ``f16``, ``bf16``)."""
        match math:
            case "fp32":
                return self.fp32
            case "tf32":
                return self.tf32
            case "f16":
                return self.fp16
            case "bf16":
                return self.bf16
            case _:
                return None


# Documents that several rows quote. Datasheets that print tensor figures "with sparsity" are halved here.
_HOPPER: Final = (
    "NVIDIA H100 Tensor Core GPU Architecture, v1.04, tables 1 and 3: "
    "https://nvdam.widen.net/s/95bdhpsgrs/nvidia_h100_tensor_core_gpu_architecture_whitepaper_v1.03"
)
_H100: Final = "NVIDIA H100 Tensor Core GPU (with sparsity: halved): https://www.nvidia.com/en-us/data-center/h100/"
_H200: Final = "NVIDIA H200 Tensor Core GPU (with sparsity: halved): https://www.nvidia.com/en-us/data-center/h200/"
_A100: Final = (
    "NVIDIA A100 Tensor Core GPU datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_AMPERE: Final = (
    "NVIDIA A100 Tensor Core GPU Architecture, comparison of P100, V100 and A100: "
    "https://images.nvidia.com/aem-dam/en-zz/Solutions/data-center/nvidia-ampere-architecture-whitepaper.pdf"
)
_V100: Final = (
    "NVIDIA V100 Tensor Core GPU datasheet: "
    "https://images.nvidia.com/content/technologies/volta/pdf/volta-v100-datasheet-update-us-1165301-r5.pdf"
)
_T4: Final = (
    "NVIDIA T4 datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/"
    "t4-tensor-core-datasheet-951643.pdf; bandwidth at the full memory clock from its product brief, table 2: "
    "https://manualmachine.com/pny/tcst4mpb/8129101-user-manual"
)
_A10: Final = (
    "NVIDIA A10 datasheet: https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
)
_L4: Final = "NVIDIA L4 datasheet (with sparsity: halved): https://nvdam.widen.net/s/rvq98gbwsw/l4-datasheet-2595652"
_L40S: Final = "NVIDIA L40S datasheet: https://resources.nvidia.com/en-us-l40s/l40s-datasheet-28413"
_GA102: Final = (
    "NVIDIA Ampere GA102 GPU Architecture, appendix A: "
    "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.pdf"
)
_ADA: Final = (
    "NVIDIA Ada GPU Architecture, appendix A: "
    "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf"
)
_TURING: Final = (
    "NVIDIA Turing GPU Architecture, comparison with the GeForce GTX 1080 Ti: https://images.nvidia.com/aem-dam/en-zz/"
    "Solutions/design-visualization/technologies/turing-architecture/NVIDIA-Turing-Architecture-Whitepaper.pdf"
)
_GP107: Final = (
    "2 x 768 cores x 1.392 GHz, 128 bit at 7 Gbit/s: https://techpowerup.com/review/msi-gtx-1050-ti-gaming-x/2.html, "
    "https://arduer.com/geforce-gtx-1050-gtx-1050-nuove-schede-video-nvidia/23901"
)

DEVICES: Final[tuple[Peaks, ...]] = (
    Peaks(
        short=("h100", "h100-sxm"),
        names=("NVIDIA H100 80GB HBM3",), fp32=66.9e12, tf32=494.7e12, fp16=989.4e12, bf16=989.4e12,
        bandwidth=3350e9, source=f"{_HOPPER} (SXM5); bandwidth: {_H100}",
    ),
    Peaks(
        short=("h100-pcie",),
        names=("NVIDIA H100 PCIe",), fp32=51e12, tf32=378e12, fp16=756e12, bf16=756e12, bandwidth=2000e9,
        source="NVIDIA H100 Tensor Core GPU datasheet (PCIe; with sparsity: halved): "
        "https://www.megware.com/fileadmin/user_upload/LandingPage%20NVIDIA/nvidia-h100-datasheet.pdf; "
        f"dense BF16 in {_HOPPER}",
    ),
    Peaks(
        short=("h100-nvl",),
        names=("NVIDIA H100 NVL",), fp32=60e12, tf32=417.5e12, fp16=835.5e12, bf16=835.5e12,
        bandwidth=3900e9, source=_H100,
    ),
    Peaks(
        short=("h200",),
        names=("NVIDIA H200",), fp32=67e12, tf32=494.5e12, fp16=989.5e12, bf16=989.5e12,
        bandwidth=4800e9, source=f"{_H200} (SXM)",
    ),
    Peaks(
        short=("a100", "a100-80gb", "a100-sxm"),
        names=("NVIDIA A100-SXM4-80GB",), fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12,
        bandwidth=2039e9, source=f"{_A100} (80GB SXM)",
    ),
    Peaks(
        short=("a100-pcie",),
        names=("NVIDIA A100 80GB PCIe",), fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12,
        bandwidth=1935e9, source=f"{_A100} (80GB PCIe)",
    ),
    Peaks(
        short=("a100-40gb",),
        names=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), fp32=19.5e12, tf32=156e12, fp16=312e12,
        bf16=312e12, bandwidth=1555e9, source=_AMPERE,
    ),
    Peaks(
        short=("v100", "v100-sxm"),
        names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"), fp32=15.7e12, tf32=None, fp16=125e12, bf16=None,
        bandwidth=900e9, source=f"{_V100} (SXM2)",
    ),
    Peaks(
        short=("v100-pcie",),
        names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"), fp32=14e12, tf32=None, fp16=112e12, bf16=None,
        bandwidth=900e9, source=f"{_V100} (PCIe)",
    ),
    Peaks(
        short=("t4",),
        names=("Tesla T4",), fp32=8.1e12, tf32=None, fp16=65e12, bf16=None, bandwidth=320e9, source=_T4,
    ),
    Peaks(
        short=("a10",),
        names=("NVIDIA A10",), fp32=31.2e12, tf32=62.5e12, fp16=125e12, bf16=125e12, bandwidth=600e9, source=_A10,
    ),
    Peaks(
        short=("l4",),
        names=("NVIDIA L4",), fp32=30.3e12, tf32=60e12, fp16=121e12, bf16=121e12, bandwidth=300e9, source=_L4,
    ),
    Peaks(
        short=("l40s",),
        names=("NVIDIA L40S",), fp32=91.6e12, tf32=183e12, fp16=362.05e12, bf16=362.05e12,
        bandwidth=864e9, source=_L40S,
    ),
    Peaks(
        short=("rtx3090", "3090"),
        names=("NVIDIA GeForce RTX 3090",), fp32=35.6e12, tf32=35.6e12, fp16=71e12, bf16=71e12,
        bandwidth=936e9, source=_GA102,
    ),
    Peaks(
        short=("rtx4090", "4090"),
        names=("NVIDIA GeForce RTX 4090",), fp32=82.6e12, tf32=82.6e12, fp16=165.2e12, bf16=165.2e12,
        bandwidth=1008e9, source=_ADA,
    ),
    Peaks(
        short=("gtx1050ti", "1050ti"),
        names=("NVIDIA GeForce GTX 1050 Ti", "GeForce GTX 1050 Ti"), fp32=2.14e12, tf32=None, fp16=None, bf16=None,
        bandwidth=112e9, source=_GP107,
    ),
    Peaks(
        short=("gtx1080ti", "1080ti"),
        names=("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"), fp32=11.3e12, tf32=None, fp16=None, bf16=None,
        bandwidth=484e9, source=_TURING,
    ),
)  # fmt: skip


def peaks_of(device_name: str | None) -> Peaks | None:
    """The peaks of the device torch calls `device_name`; None where the table has no such name."""
    return next((row for row in DEVICES if device_name in row.names), None)


def find(asked: str) -> Peaks:
    """The peaks of the device a person calls `asked`: a name of torch's or a short form, in any case, with or without dashes.

    A part of a name will do where only one row has it. Raises UsageError that lists the choices.
    """
    wanted = _plain(asked)
    for row in DEVICES:
        if wanted in (_plain(name) for name in (*row.names, *row.short)):
            return row
    parts = [row for row in DEVICES if wanted and any(wanted in _plain(name) for name in (*row.names, *row.short))]
    if len(parts) == 1:
        return parts[0]
    choices = ", ".join(row.short[0] for row in parts or DEVICES)
    said = f"could be {len(parts)} devices" if parts else "is in no row of the datasheet table"
    raise UsageError(
        f"{asked!r} {said}", where="--hardware", hint=f"one of: {choices}; or here, to measure this machine"
    )


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]|nvidia|geforce|tesla", "", name.lower())
