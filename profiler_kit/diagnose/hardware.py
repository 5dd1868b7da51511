"""Datasheet peaks of common devices, a source per row, found by the exact name torch gives the device.

A name that is not listed has no peak here: a slice of a device (MIG) or a variant with other clocks carries a longer
name, and another device's peak would be a wrong number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """What a device reaches at most, dense (no structured sparsity), at the vendor's boost clock; FLOP/s and bytes/s.

    `fp32` is without tensor cores; the others are tensor-core peaks with fp32 accumulation, None where there are none.
    """

    names: tuple[str, ...]
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


DEVICES: Final[tuple[Peaks, ...]] = (
    Peaks(
        names=("NVIDIA H100 80GB HBM3",), fp32=66.9e12, tf32=494.7e12, fp16=989.4e12, bf16=989.4e12,
        bandwidth=3352e9, source="NVIDIA H100 Tensor Core GPU Architecture, table of the SXM5",
    ),
    Peaks(
        names=("NVIDIA H100 PCIe",), fp32=51e12, tf32=378e12, fp16=756e12, bf16=756e12,
        bandwidth=2000e9, source="NVIDIA H100 datasheet (PCIe; its tensor figures are with sparsity: halved)",
    ),
    Peaks(
        names=("NVIDIA H200",), fp32=66.9e12, tf32=494.7e12, fp16=989.4e12, bf16=989.4e12,
        bandwidth=4800e9, source="NVIDIA H200 datasheet (SXM)",
    ),
    Peaks(
        names=("NVIDIA A100-SXM4-80GB",), fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12,
        bandwidth=2039e9, source="NVIDIA A100 datasheet (80GB SXM)",
    ),
    Peaks(
        names=("NVIDIA A100 80GB PCIe",), fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12,
        bandwidth=1935e9, source="NVIDIA A100 datasheet (80GB PCIe)",
    ),
    Peaks(
        names=("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), fp32=19.5e12, tf32=156e12, fp16=312e12,
        bf16=312e12, bandwidth=1555e9, source="NVIDIA A100 Tensor Core GPU Architecture, table 1",
    ),
    Peaks(
        names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"), fp32=15.7e12, tf32=None, fp16=125e12, bf16=None,
        bandwidth=900e9, source="NVIDIA V100 datasheet (SXM2)",
    ),
    Peaks(
        names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"), fp32=14e12, tf32=None, fp16=112e12, bf16=None,
        bandwidth=900e9, source="NVIDIA V100 datasheet (PCIe)",
    ),
    Peaks(
        names=("Tesla T4",), fp32=8.1e12, tf32=None, fp16=65e12, bf16=None,
        bandwidth=320e9, source="NVIDIA T4 datasheet",
    ),
    Peaks(
        names=("NVIDIA A10",), fp32=31.2e12, tf32=62.5e12, fp16=125e12, bf16=125e12,
        bandwidth=600e9, source="NVIDIA A10 datasheet",
    ),
    Peaks(
        names=("NVIDIA L4",), fp32=30.3e12, tf32=60e12, fp16=121e12, bf16=121e12,
        bandwidth=300e9, source="NVIDIA L4 datasheet (its tensor figures are with sparsity: halved)",
    ),
    Peaks(
        names=("NVIDIA L40S",), fp32=91.6e12, tf32=183e12, fp16=362e12, bf16=362e12,
        bandwidth=864e9, source="NVIDIA L40S datasheet",
    ),
    Peaks(
        names=("NVIDIA GeForce RTX 3090",), fp32=35.6e12, tf32=35.6e12, fp16=71e12, bf16=71e12,
        bandwidth=936e9, source="NVIDIA Ampere GA102 GPU Architecture, appendix A",
    ),
    Peaks(
        names=("NVIDIA GeForce RTX 4090",), fp32=82.6e12, tf32=82.6e12, fp16=165.2e12, bf16=165.2e12,
        bandwidth=1008e9, source="NVIDIA Ada GPU Architecture, appendix A",
    ),
    Peaks(
        names=("NVIDIA GeForce GTX 1050 Ti", "GeForce GTX 1050 Ti"), fp32=2.14e12, tf32=None, fp16=None, bf16=None,
        bandwidth=112e9, source="GeForce GTX 1050 Ti specifications: 2 x 768 cores x 1.392 GHz",
    ),
    Peaks(
        names=("NVIDIA GeForce GTX 1080 Ti", "GeForce GTX 1080 Ti"), fp32=11.3e12, tf32=None, fp16=None, bf16=None,
        bandwidth=484e9, source="GeForce GTX 1080 Ti specifications: 2 x 3584 cores x 1.582 GHz",
    ),
)  # fmt: skip


def peaks_of(device_name: str | None) -> Peaks | None:
    """The peaks of the device torch calls `device_name`; None where the table has no such name."""
    return next((row for row in DEVICES if device_name in row.names), None)
