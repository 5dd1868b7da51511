"""The state of a GPU by NVML: its clock, its temperature, and what reduces the clock."""

from __future__ import annotations

import importlib
from dataclasses import replace
from typing import Any, Final

import torch

from profiler_kit.records.experiments import DeviceState

# Source: nvml.h, nvmlClocksEventReasons (called nvmlClocksThrottleReasons before CUDA 12.2, with the same bits). By value,
# because the names differ between versions of the binding. Bit 0 is the low clock of an idle device, which is not a throttle.
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
    """Clock, temperature and throttle reasons of `device`; None if it is not an NVIDIA GPU or NVML is not available.

    Uses the package nvidia-ml-py where it is installed. Never raises. Call it right after synchronizing, because an idle
    device lowers its clock.
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
    except nvml.NVMLError:  # no driver, or its library is missing
        return None
    try:
        handle = _handle(nvml, place)
        return _state(nvml, handle) if handle is not None else None
    finally:
        _query(nvml, nvml.nvmlShutdown)


def state_after(device: torch.device | str, before: DeviceState | None) -> DeviceState | None:
    """The state of `device` now, with its clock from an earlier state."""
    state = device_state(device)
    return replace(state, start_sm_clock_hz=before.sm_clock_hz) if state is not None and before is not None else state


def throttle_reasons(mask: int) -> tuple[str, ...]:
    """The reasons in NVML's `mask`, without idleness; an unknown bit as its number."""
    reasons = tuple(words for bit, words in REASONS if mask & bit)
    unknown = mask & ~sum(bit for bit, _ in REASONS) & ~IDLE
    return (*reasons, f"reason {unknown:#x}") if unknown else reasons


def _state(nvml: Any, handle: Any) -> DeviceState | None:
    clock_mhz = _query(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM)
    celsius = _query(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU)
    # bindings before 12.535 have the second name
    reasons = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or getattr(
        nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", None
    )
    mask = _query(nvml, reasons, handle) if reasons is not None else None
    if clock_mhz is None and celsius is None and mask is None:
        return None
    return DeviceState(
        sm_clock_hz=clock_mhz * 1_000_000 if clock_mhz is not None else None,
        temperature_celsius=celsius,
        throttled_by=throttle_reasons(mask) if mask is not None else (),
    )


def _handle(nvml: Any, device: torch.device) -> Any:
    """NVML's handle of `device`; None if it is not found.

    Devices are matched by identity, not by index: CUDA's indices follow CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER, NVML's
    the PCI bus. Some versions of torch report no identity; a single device is then used.
    """
    try:
        properties = torch.cuda.get_device_properties(device)
    except (AssertionError, RuntimeError):  # no such device, or it no longer responds
        return None
    uuid = getattr(properties, "uuid", None)
    if uuid is not None:
        handle = _query(nvml, nvml.nvmlDeviceGetHandleByUUID, f"GPU-{str(uuid).removeprefix('GPU-')}")
        if handle is not None:  # a slice of a device (MIG) has a UUID that is not found this way
            return handle
    bus, slot = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_device_id", None)
    if bus is not None and slot is not None:
        domain = getattr(properties, "pci_domain_id", 0)
        handle = _query(nvml, nvml.nvmlDeviceGetHandleByPciBusId, f"{domain:08x}:{bus:02x}:{slot:02x}.0")
        if handle is not None:
            return handle
    return _query(nvml, nvml.nvmlDeviceGetHandleByIndex, 0) if _query(nvml, nvml.nvmlDeviceGetCount) == 1 else None


def _query(nvml: Any, function: Any, *arguments: Any) -> Any:
    """The result of an NVML function; None if it is not supported or permitted, or the device does not exist."""
    try:
        return function(*arguments)
    except nvml.NVMLError:
        return None
