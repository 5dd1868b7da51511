"""Datasheet peaks: sourced, ordered, consistent with cores, clocks and buses, and found by torch's exact name."""

from __future__ import annotations

import re

import pytest

from profiler_kit.devices.device import Device
from profiler_kit.devices.registry import devices, devices_with_peaks, peaks_of


@pytest.mark.parametrize("device", devices_with_peaks(), ids=lambda device: device.torch_names[0])
def test_every_device_has_a_source_and_ordered_peaks(device: Device) -> None:
    peaks = peaks_of(device.torch_names[0])
    assert peaks is device.peaks
    assert peaks is not None
    assert re.search(r"https://\S+\.\S+/\S", peaks.source)
    assert 1e11 < peaks.bandwidth < 1e13
    known = [p for p in (peaks.fp32, peaks.tf32, peaks.fp16) if p is not None]
    assert known == sorted(known)
    assert all(1e12 < p < 2e15 for p in known)
    if (
        peaks.tf32 is not None
    ):  # every tensor core that knows TF32 knows BF16 at the rate of FP16, and TF32 at half of it
        assert peaks.bf16 == peaks.fp16
        assert peaks.fp16 == pytest.approx(2 * peaks.tf32, rel=0.011)


@pytest.mark.parametrize(
    ("name", "cores", "ghz"),
    [
        # FP32 cores and boost clocks as printed beside the peaks in the sources of the rows.
        ("NVIDIA H100 80GB HBM3", 132 * 128, 1.98),
        ("NVIDIA H100 NVL", 132 * 128, 1.785),
        ("NVIDIA H200", 132 * 128, 1.98),
        ("NVIDIA A100-SXM4-40GB", 6912, 1.41),
        ("Tesla V100-SXM2-16GB", 5120, 1.53),
        ("Tesla V100-PCIE-16GB", 5120, 1.37),
        ("Tesla T4", 2560, 1.59),
        ("NVIDIA A10", 9216, 1.695),
        ("NVIDIA L4", 58 * 128, 2.04),
        ("NVIDIA L40S", 18176, 2.52),
        ("NVIDIA GeForce RTX 3090", 10496, 1.695),
        ("NVIDIA GeForce RTX 4090", 16384, 2.52),
        ("NVIDIA GeForce GTX 1050 Ti", 768, 1.392),
        ("NVIDIA GeForce GTX 1080 Ti", 3584, 1.582),
    ],
)
def test_fp32_peaks_follow_from_cores_and_boost_clock(name: str, cores: int, ghz: float) -> None:
    peaks = peaks_of(name)
    assert peaks is not None
    assert peaks.fp32 == pytest.approx(2 * cores * ghz * 1e9, rel=0.01)
    (device,) = (device for device in devices() if name in device.torch_names)
    each = 64 if device.architecture.name in ("sm70", "sm75", "sm80") else 128  # FP32 cores of one multiprocessor
    assert device.multiprocessors.value * each == cores


@pytest.mark.parametrize(
    ("name", "bits", "gigatransfers"),
    [
        # Memory bus and data rate; GDDR's as printed in the sources, HBM's as 2 x the memory clock.
        ("NVIDIA H100 NVL", 6016, 2 * 2.619),
        ("NVIDIA A100-SXM4-40GB", 5120, 2 * 1.215),
        ("Tesla T4", 256, 2 * 5.001),
        ("NVIDIA A10", 384, 12.5),
        ("NVIDIA L4", 192, 12.5),
        ("NVIDIA L40S", 384, 18.0),
        ("NVIDIA GeForce RTX 4090", 384, 21.0),
        ("NVIDIA GeForce GTX 1050 Ti", 128, 7.0),
        ("NVIDIA GeForce GTX 1080 Ti", 352, 11.0),
    ],
)
def test_bandwidths_follow_from_bus_and_data_rate(name: str, bits: int, gigatransfers: float) -> None:
    peaks = peaks_of(name)
    assert peaks is not None
    assert peaks.bandwidth == pytest.approx(bits / 8 * gigatransfers * 1e9, rel=0.011)


@pytest.mark.parametrize(
    ("name", "printed", "sparse"),
    [
        # BF16 (V100, T4: FP16) tensor TFLOPS as the document in the row's source prints them.
        ("NVIDIA H100 80GB HBM3", 989.4, False),
        ("NVIDIA H100 PCIe", 756, False),
        ("NVIDIA H100 NVL", 1671, True),
        ("NVIDIA H200", 1979, True),
        ("NVIDIA A100 80GB PCIe", 312, False),
        ("Tesla V100-PCIE-32GB", 112, False),
        ("Tesla T4", 65, False),
        ("NVIDIA L4", 242, True),
        ("NVIDIA L40S", 362.05, False),
        ("NVIDIA GeForce RTX 4090", 165.2, False),
    ],
)
def test_tensor_peaks_are_the_printed_ones_without_sparsity(name: str, printed: float, sparse: bool) -> None:
    peaks = peaks_of(name)
    assert peaks is not None
    assert peaks.fp16 == pytest.approx(printed * 1e12 / (2 if sparse else 1))
    if sparse:
        assert "with sparsity: halved" in peaks.source


def test_device_names_are_matched_whole() -> None:
    names = [name for device in devices() for name in device.torch_names]
    assert len(set(names)) == len(names)
    assert peaks_of("NVIDIA H100 80GB HBM3 MIG 1g.10gb") is None
    assert peaks_of(None) is None


def test_peaks_by_kernel_arithmetic() -> None:
    h100 = peaks_of("NVIDIA H100 80GB HBM3")
    assert h100 is not None
    assert h100.for_math("tf32") == 494.7e12
    assert h100.for_math("fp32") == 66.9e12
    assert h100.for_math(None) is None
    v100 = peaks_of("Tesla V100-SXM2-16GB")
    assert v100 is not None
    assert v100.for_math("tf32") is None
