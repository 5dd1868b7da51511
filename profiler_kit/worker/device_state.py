"""What state a GPU was measured in: its clock, its temperature, and what held the clock down, as NVML tells."""

from __future__ import annotations

import importlib
from typing import Any, Final

import torch

from profiler_kit.records.laboratory import DeviceState

# Source: nvml.h, nvmlClocksEventReasons (called nvmlClocksThrottleReasons before CUDA 12.2; the bits are the same). By value, as
# the names differ between versions of the binding. An idle device's clock is low for want of work: that is bit 0, no throttle.
IDLE: Final = 0x1
REASONS: Final = (
    (0x2, "applications clocks setting"),
    (0x4, "software power cap"),
    (0x8, "hardware slowdown"),
    (0x10, "sync boost"),
    (0x20, "software thermal slowdown"),
    (0x40, "hardware thermal slowdown"),
    (0x80, "hardware power brake"),
    (0x100, "display clock setting"),
    (0x200, "board limit"),
    (0x400, "reliability voltage"),
)


def device_state(device: torch.device | str) -> DeviceState | None:
    """Clock, temperature and throttle reasons of `device` now; None where it is no NVIDIA GPU or NVML can't be asked.

    NVML is read through the package nvidia-ml-py, where it is installed. Never raises. To be called right after work has been
    waited for: a device that has been idle for longer lowers its clock.
    """
    place = torch.device(device)
    if place.type != "cuda" or torch.version.hip is not None:
        return None
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:  # no driver, or no library of it here
        return None
    try:
        handle = _handle(nvml, place)
        return _state(nvml, handle) if handle is not None else None
    finally:
        _asked(nvml, nvml.nvmlShutdown)


def reasons_in_words(mask: int) -> tuple[str, ...]:
    """The reasons that are set in NVML's `mask`, but for idleness; a bit of no known meaning as its number."""
    reasons = tuple(words for bit, words in REASONS if mask & bit)
    rest = mask & ~sum(bit for bit, _ in REASONS) & ~IDLE
    return (*reasons, f"reason {rest:#x}") if rest else reasons


def _state(nvml: Any, handle: Any) -> DeviceState | None:
    clock_mhz = _asked(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
    celsius = _asked(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    # the second name is that of bindings before 12.535
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    mask = _asked(nvml, reasons, handle) if reasons is not None else None
    if clock_mhz is None and celsius is None and mask is None:
        return None
    return DeviceState(
        sm_clock_hz=clock_mhz * 1_000_000 if clock_mhz is not None else None,
        temperature_celsius=celsius,
        throttled_by=reasons_in_words(mask) if mask is not None else (),
    )


def _handle(nvml: Any, device: torch.device) -> Any:
    """NVML's handle of `device`, or None.

    By identity, never by index: CUDA's indices go by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, NVML's by the PCI bus. What
    torch tells of identity depends on its version; where it tells none, a single device is the one.
    """
    try:
        properties = torch.cuda.get_device_properties(device)
    except (AssertionError, RuntimeError):  # no such device, or none that answers any more
        return None
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        handle = _asked(nvml, nvml.nvmlDeviceGetHandleByUUID, f"GPU-{str(uuid).removeprefix('GPU-')}")
        if handle is not None:  # a slice of a device (MIG) has a UUID of its own, which is not found so
            return handle
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    if bus is not None and slot is not None:
        domain = getattr(properties, "pci_domain_id", 0)
        handle = _asked(nvml, nvml.nvmlDeviceGetHandleByPciBusId, f"{domain:08x}:{bus:02x}:{slot:02x}.0")
        if handle is not None:
            return handle
    return _asked(nvml, nvml.nvmlDeviceGetHandleByIndex, 0) if _asked(nvml, nvml.nvmlDeviceGetCount) == 1 else None


def _asked(nvml: Any, question: Any, *words: Any) -> Any:
    """What NVML answers, or None where it doesn't: not supported by the device, not permitted, no such device."""
    try:
        return question(*words)
    except nvml.NVMLError:
        return None
