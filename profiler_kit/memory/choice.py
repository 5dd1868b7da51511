"""Which device to simulate where none is named."""

from __future__ import annotations

import torch

from profiler_kit.devices.architectures import nearest_architecture
from profiler_kit.devices.cards.cpu import CPU
from profiler_kit.devices.device import Device, Figure
from profiler_kit.devices.registry import DEFAULT


def device_here(place: str | None = None) -> Device:
    """The device at `place` (``cpu``, ``cuda:0``), by default the GPU that is here; without one, the default device.

    A GPU is simulated by the row of its architecture, or of the nearest older one, with its own number of multiprocessors.
    """
    if place is not None and not place.startswith("cuda"):
        return CPU
    if torch.version.hip is not None or not torch.cuda.is_available():
        return DEFAULT
    properties = torch.cuda.get_device_properties(place if place is not None else "cuda")
    return Device(
        label=properties.name,
        names=(properties.name,),
        architecture=nearest_architecture(10 * properties.major + properties.minor),
        multiprocessors=Figure(properties.multi_processor_count, f"asked of this machine's {properties.name}"),
    )
