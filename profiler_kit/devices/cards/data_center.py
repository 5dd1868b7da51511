"""Data-center cards: Hopper, Ada, Ampere, Turing and Volta."""

from __future__ import annotations

from typing import Final

from profiler_kit.devices.architectures import FROM_CORES, FROM_PEAK, PRINTED, SM70, SM75, SM80, SM86, SM89, SM90
from profiler_kit.devices.device import Device, Figure, Peaks

_HOPPER: Final = (
    "NVIDIA H100 Tensor Core GPU Architecture, v1.04, tables 1 and 3: "
    "https://nvdam.widen.net/s/95bdhpsgrs/nvidia_h100_tensor_core_gpu_architecture_whitepaper_v1.03"
)
_H100: Final = "NVIDIA H100 Tensor Core GPU (with sparsity: halved): https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE: Final = (
    "NVIDIA H100 Tensor Core GPU datasheet (PCIe; with sparsity: halved): "
    "https://www.megware.com/fileadmin/user_upload/LandingPage%20NVIDIA/nvidia-h100-datasheet.pdf"
)
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


def _a100(label: str, short: tuple[str, ...], names: tuple[str, ...], bandwidth: float, source: str) -> Device:
    """An A100. The variants differ only in memory."""
    peaks = Peaks(fp32=19.5e12, tf32=156e12, fp16=312e12, bf16=312e12, bandwidth=bandwidth, source=source)
    return Device(
        label=label,
        short_names=short,
        torch_names=names,
        architecture=SM80,
        multiprocessors=Figure(108, PRINTED),
        peaks=peaks,
    )


H100: Final = Device(
    label="H100 SXM", short_names=("h100", "h100-sxm", "sm90"), torch_names=("NVIDIA H100 80GB HBM3",),
    architecture=SM90, multiprocessors=Figure(132, PRINTED),
    peaks=Peaks(
        fp32=66.9e12, tf32=494.7e12, fp16=989.4e12, bf16=989.4e12, bandwidth=3350e9,
        source=f"{_HOPPER} (SXM5); bandwidth: {_H100}",
    ),
    prices="h100.json.gz",
)  # fmt: skip
A100: Final = _a100(
    "A100", ("a100", "a100-80gb", "a100-sxm", "sm80"), ("NVIDIA A100-SXM4-80GB",), 2039e9, f"{_A100} (80GB SXM)"
)
T4: Final = Device(
    label="T4", short_names=("t4", "sm75"), torch_names=("Tesla T4",), architecture=SM75, multiprocessors=Figure(40, FROM_CORES),
    peaks=Peaks(fp32=8.1e12, fp16=65e12, bandwidth=320e9, source=_T4),
)  # fmt: skip

DEVICES: Final = (
    H100,
    Device(
        label="H100 PCIe", short_names=("h100-pcie",), torch_names=("NVIDIA H100 PCIe",),
        architecture=SM90, multiprocessors=Figure(114, PRINTED),
        peaks=Peaks(
            fp32=51e12, tf32=378e12, fp16=756e12, bf16=756e12, bandwidth=2000e9,
            source=f"{_H100_PCIE}; dense BF16 in {_HOPPER}",
        ),
    ),
    Device(
        label="H100 NVL", short_names=("h100-nvl",), torch_names=("NVIDIA H100 NVL",),
        architecture=SM90, multiprocessors=Figure(132, FROM_PEAK),
        peaks=Peaks(fp32=60e12, tf32=417.5e12, fp16=835.5e12, bf16=835.5e12, bandwidth=3900e9, source=_H100),
    ),
    Device(
        label="H200", short_names=("h200",), torch_names=("NVIDIA H200",),
        architecture=SM90, multiprocessors=Figure(132, FROM_PEAK),
        peaks=Peaks(fp32=67e12, tf32=494.5e12, fp16=989.5e12, bf16=989.5e12, bandwidth=4800e9, source=f"{_H200} (SXM)"),
        price_factors=(
            ("attention", 1.022), ("convolution", 1.057), ("convolution_backward", 1.082), ("memory", 1.259),
            ("optimizer", 1.113), ("product", 1.069), ("recurrent", 0.966),
        ),
        factors_source="NVIDIA H200, torch 2.11.0+cu130, cuDNN 9.19.0, 2026-11-28",
    ),
    A100,
    _a100("A100 PCIe", ("a100-pcie",), ("NVIDIA A100 80GB PCIe",), 1935e9, f"{_A100} (80GB PCIe)"),
    _a100("A100 40GB", ("a100-40gb",), ("NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"), 1555e9, _AMPERE),
    Device(
        label="L4", short_names=("l4",), torch_names=("NVIDIA L4",), architecture=SM89, multiprocessors=Figure(58, FROM_PEAK),
        peaks=Peaks(fp32=30.3e12, tf32=60e12, fp16=121e12, bf16=121e12, bandwidth=300e9, source=_L4),
    ),
    Device(
        label="L40S", short_names=("l40s",), torch_names=("NVIDIA L40S",), architecture=SM89,
        multiprocessors=Figure(142, FROM_CORES),
        peaks=Peaks(fp32=91.6e12, tf32=183e12, fp16=362.05e12, bf16=362.05e12, bandwidth=864e9, source=_L40S),
    ),
    Device(
        label="A10", short_names=("a10",), torch_names=("NVIDIA A10",), architecture=SM86, multiprocessors=Figure(72, FROM_PEAK),
        peaks=Peaks(fp32=31.2e12, tf32=62.5e12, fp16=125e12, bf16=125e12, bandwidth=600e9, source=_A10),
    ),
    T4,
    Device(
        label="V100", short_names=("v100", "v100-sxm", "sm70"), torch_names=("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        architecture=SM70, multiprocessors=Figure(80, PRINTED),
        peaks=Peaks(fp32=15.7e12, fp16=125e12, bandwidth=900e9, source=f"{_V100} (SXM2)"),
    ),
    Device(
        label="V100 PCIe", short_names=("v100-pcie",), torch_names=("Tesla V100-PCIE-16GB", "Tesla V100-PCIE-32GB"),
        architecture=SM70, multiprocessors=Figure(80, PRINTED),
        peaks=Peaks(fp32=14e12, fp16=112e12, bandwidth=900e9, source=f"{_V100} (PCIe)"),
    ),
)  # fmt: skip
